/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Media types by file name extension, from the system's mime.types and the
 * configuration. Read with the configuration; lookups are by any thread.
 */
#ifndef TBG_USERD_HTTP_MEDIA_TYPES_H
#define TBG_USERD_HTTP_MEDIA_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#define TBG_MIME_DEFAULT "application/octet-stream"
#define TBG_MIME_WHY	 160	/* bytes of an error message about a file */

struct tbg_mime;

/*
 * lines: "type/subtype ext ext …" each; they override those of the file. path NULL:
 * the system's file, except extensions with another meaning on the web. If the file
 * cannot be read, a short built-in list is used. Returns 0 or -ENOMEM.
 */
int tbg_mime_open(struct tbg_mime **ret, const char *path, char *const *lines,
		  unsigned int lines_nr);
void tbg_mime_close(struct tbg_mime *m);	/* NULL allowed */
bool tbg_mime_line_valid(const char *line);

/*
 * Whether a file is readable and consists of such lines (suffixes may be
 * missing), comments after '#', and empty lines. Negative errno, and a
 * message in why.
 */
int tbg_mime_file_check(const char *path, char ret_why[TBG_MIME_WHY]);

/* A hash of the table's content: equal for equal tables. */
uint64_t tbg_mime_print(const struct tbg_mime *m);

/* The type of a file name; never NULL. */
const char *tbg_mime_type(const struct tbg_mime *m, const char *name);

#endif
