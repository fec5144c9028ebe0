/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A configuration as text: the file, with the files that it includes in their
 * places, and where each line of that is from. Knows tokens, and no name of any
 * setting. For file.c; options keep the places, for messages that come later.
 */
#ifndef TBG_USERD_CONFIG_TEXT_H
#define TBG_USERD_CONFIG_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Lines that follow each other in one file. */
struct tbg_config_piece {
	unsigned int line;	/* of the text, from 1 on */
	unsigned int own;	/* the same line in its file */
	char *path;
};

struct tbg_config_places {
	struct tbg_config_piece *pieces;	/* in order of their lines */
	unsigned int nr;
};

struct tbg_config_fault {
	const char *path;	/* NULL: the file itself could not be read */
	unsigned int line;	/* of path; 0: of it as a whole */
	char text[512];
};

/*
 * The text with all it includes, comments blanked; to be freed. NULL: *ret_fault.
 * The places are to be freed in both cases.
 */
char *tbg_config_text(const char *path, struct tbg_config_places *places,
		      struct tbg_config_fault *ret_fault);

/* Where a line of the text is from; its line there. */
unsigned int tbg_config_place(const struct tbg_config_places *places, unsigned int line,
			      const char **ret_path);
void tbg_config_places_free(struct tbg_config_places *places);

/* --- tokens, for the preparation of the text -------------------------------- */

/* Behind the end of the token that begins at `at`; NULL: it has none. */
char *tbg_token_end(char *at);

unsigned int tbg_line_of(const char *text, const char *at);

/* The line of the last brace that is never closed; 0: there is none. */
unsigned int tbg_brace_open(char *text);

#endif
