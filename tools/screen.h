/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A terminal that can be written to anywhere, through ncurses. Knows nothing
 * of what is shown. One at a time.
 */
#ifndef TBG_TOOLS_SCREEN_H
#define TBG_TOOLS_SCREEN_H

#include <stdbool.h>
#include <stddef.h>

enum tbg_screen_key {
	TBG_SCREEN_NOTHING,
	TBG_SCREEN_OTHER,		/* a key that means nothing */
	TBG_SCREEN_END,
	TBG_SCREEN_NOW,
	TBG_SCREEN_AGAIN,		/* draw: the size has changed, or asked for */
};

enum tbg_screen_look { TBG_SCREEN_PLAIN, TBG_SCREEN_HEADING, TBG_SCREEN_LOUD };

/* Takes stdout's terminal; false: it is none, or only knows the next line. */
bool tbg_screen_open(void);
void tbg_screen_close(void);	/* as it was */

unsigned int tbg_screen_columns(void);
unsigned int tbg_screen_rows(void);

/* Text of the locale's encoding, cut at the right edge. */
void tbg_screen_line(unsigned int row, const char *text, size_t len,
		     enum tbg_screen_look look);
void tbg_screen_clear(void);
void tbg_screen_flush(void);

/* What has been typed; does not wait. */
enum tbg_screen_key tbg_screen_key(void);

#endif
