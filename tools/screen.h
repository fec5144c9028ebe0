/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A terminal that is written to in place, through ncurses. Independent of what is shown.
 * One at a time.
 */
#ifndef TBG_TOOLS_SCREEN_H
#define TBG_TOOLS_SCREEN_H

#include <stdbool.h>
#include <stddef.h>

enum tbg_screen_key {
	TBG_SCREEN_NOTHING,
	TBG_SCREEN_OTHER,		/* a key without a meaning */
	TBG_SCREEN_END,
	TBG_SCREEN_NOW,
	TBG_SCREEN_AGAIN,		/* redraw: the size has changed, or the user asked for it */
};

enum tbg_screen_look { TBG_SCREEN_PLAIN, TBG_SCREEN_HEADING, TBG_SCREEN_LOUD };

/* Takes stdout's terminal; false: it is none, or cannot move the cursor. */
bool tbg_screen_open(void);
void tbg_screen_close(void);	/* restores the terminal */

unsigned int tbg_screen_columns(void);
unsigned int tbg_screen_rows(void);

/* Text of the locale's encoding, cut at the right edge. */
void tbg_screen_line(unsigned int row, const char *text, size_t len,
		     enum tbg_screen_look look);
void tbg_screen_clear(void);
void tbg_screen_flush(void);

/* The next key; does not wait. */
enum tbg_screen_key tbg_screen_key(void);

#endif
