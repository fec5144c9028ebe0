/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A configuration as one text: the file with its included files inserted, and
 * the origin of each line. Knows tokens, but no settings. For file.c; options
 * keep the origins for later messages.
 */
#ifndef TBG_USERD_CONFIG_TEXT_H
#define TBG_USERD_CONFIG_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* A run of consecutive lines of one file. */
struct tbg_config_piece {
	unsigned int line;	/* of the text, counted from 1 */
	unsigned int own;	/* the same line in its file */
	char *path;
};

struct tbg_config_places {
	struct tbg_config_piece *pieces;	/* in the order of their lines */
	unsigned int nr;
};

struct tbg_config_fault {
	const char *path;	/* NULL: the file itself could not be read */
	unsigned int line;	/* of path; 0: the file as a whole */
	char text[512];
};

/*
 * Reads the text with all included files; comments become blanks. The caller
 * frees it, and the places in any case. NULL: see *ret_fault.
 */
char *tbg_config_text(const char *path, struct tbg_config_places *places,
		      struct tbg_config_fault *ret_fault);

/* The file that a line of the text comes from, and its line there. */
unsigned int tbg_config_place(const struct tbg_config_places *places, unsigned int line,
			      const char **ret_path);
void tbg_config_places_free(struct tbg_config_places *places);

/* --- tokens, for the preparation of the text -------------------------------- */

/* The end of the token that begins at `at`; NULL: it is unterminated. */
char *tbg_token_end(char *at);

unsigned int tbg_line_of(const char *text, const char *at);

/* The line of the last unclosed brace; 0: none. */
unsigned int tbg_brace_open(char *text);

#endif
