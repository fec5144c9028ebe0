/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The page around a file of the set, for the module (specweb99.c) and the CGI program
 * (specweb99-cgi.c): both send the same bytes.
 */
#ifndef TBG_TOOLS_BENCH_SPECWEB99_SPECWEB99_H
#define TBG_TOOLS_BENCH_SPECWEB99_SPECWEB99_H

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* SERVER_SOFTWARE, REMOTE_ADDR; then SCRIPT_NAME escaped, and so on. */
#define PAGE_BEGIN \
	"<html>\n<head><title>SPECweb99 Dynamic GET & POST Test</title></head>\n<body>\n" \
	"<p>SERVER_SOFTWARE = %s\n<p>REMOTE_ADDR = %s\n<p>SCRIPT_NAME = "
#define PAGE_QUERY "\n<p>QUERY_STRING = "
#define PAGE_FILE "\n<pre>\n"
#define PAGE_END "\n</pre>\n</body></html>\n"

/* Escapes characters with a meaning in HTML. */
#define PAGE_MARKS "<>&"
#define PAGE_MARK "&#%d;"

/* Opens a regular file within the folder. -1: there is none. */
static inline int page_file_open(int folder_fd, const char *name, size_t *ret_size)
{
	struct open_how how = { .flags = O_RDONLY | O_CLOEXEC, .resolve = RESOLVE_BENEATH };
	int fd = syscall(SYS_openat2, folder_fd, name + (*name == '/'), &how, sizeof(how));
	struct stat st;

	if (fd < 0)
		return -1;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode)) {
		*ret_size = st.st_size;
		return fd;
	}
	close(fd);
	return -1;
}

#endif
