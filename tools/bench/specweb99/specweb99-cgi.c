// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The CGI GET of the SPECweb99 workload: the page that the module makes for a plain GET
 * (specweb99.c), made by a program that runs once for each request. The query
 * names a file below DOCUMENT_ROOT:
 *
 *	root = "/srv/www"
 *	location "/cgi-bin/" { cgi = "/usr/local/lib/toboggan/cgi-bin" }
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "specweb99.h"

static const char *variable(const char *name)
{
	const char *v = getenv(name);

	return v ? v : "";
}

static void put_escaped(FILE *f, const char *text)
{
	for (; *text; text++)
		fprintf(f, strchr(PAGE_MARKS, *text) ? PAGE_MARK : "%c", *text);
}

static char *head_make(size_t *ret_len)
{
	char *ret = NULL;
	FILE *f = open_memstream(&ret, ret_len);

	if (!f)
		return NULL;
	fprintf(f, PAGE_BEGIN, variable("SERVER_SOFTWARE"), variable("REMOTE_ADDR"));
	put_escaped(f, variable("SCRIPT_NAME"));
	put_escaped(f, variable("PATH_INFO"));
	fputs(PAGE_QUERY, f);
	put_escaped(f, variable("QUERY_STRING"));
	fputs(PAGE_FILE, f);
	return fclose(f) ? NULL : ret;
}

static int fail(const char *status)
{
	printf("Status: %s\nContent-Type: text/plain\n\n%s\n", status, status);
	return 0;
}

int main(void)
{
	int root = open(variable("DOCUMENT_ROOT"), O_PATH | O_DIRECTORY | O_CLOEXEC);
	size_t size, head_len, left;
	static char b[64 << 10];
	ssize_t n = 1;
	char *head;
	int fd;

	fd = root < 0 ? -1 : page_file_open(root, variable("QUERY_STRING"), &size);
	if (fd < 0)
		return fail("404 Not Found");
	head = head_make(&head_len);
	if (!head)
		return fail("503 Service Unavailable");
	printf("Content-Type: text/html\nCache-Control: no-store\nContent-Length: %zu\n\n",
	       head_len + size + strlen(PAGE_END));
	fwrite(head, 1, head_len, stdout);
	for (left = size; left && n > 0; left -= n) {
		n = read(fd, b, left < sizeof(b) ? left : sizeof(b));
		if (n > 0)
			fwrite(b, 1, n, stdout);
	}
	fputs(PAGE_END, stdout);
	return left || fflush(stdout);
}
