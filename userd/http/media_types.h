/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Media types by file name extension, from the system's mime.types and the
 * configuration. Read with the configuration; lookups are by any thread.
 */
#ifndef TBG_USERD_MIME_H
#define TBG_USERD_MIME_H

#include <stdbool.h>
#include <stdint.h>

#define TBG_MIME_DEFAULT "application/octet-stream"
#define TBG_MIME_WHY	 160	/* bytes of what is wrong with a file */

struct tbg_mime;

/*
 * lines: "type/subtype ext ext …" each, and win over those of the file. path NULL: the
 * system's file, less what the web has other meanings for. A file that cannot be read
 * leaves a short built-in list. -ENOMEM.
 */
int tbg_mime_open(struct tbg_mime **ret, const char *path, char *const *lines,
		  unsigned int lines_nr);
void tbg_mime_close(struct tbg_mime *m);	/* NULL allowed */
bool tbg_mime_line_valid(const char *line);

/*
 * Whether a file can be read and has nothing but such lines, some without
 * suffixes, comments behind '#', and empty ones. Negative errno, and why not.
 */
int tbg_mime_file_check(const char *path, char ret_why[TBG_MIME_WHY]);

/* A number that two tables share if they say the same. */
uint64_t tbg_mime_print(const struct tbg_mime *m);

/* The type of a file name; never NULL. */
const char *tbg_mime_type(const struct tbg_mime *m, const char *name);

#endif
