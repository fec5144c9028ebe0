/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TBG_TOOLS_TOP_PAGE_H
#define TBG_TOOLS_TOP_PAGE_H

#include <jansson.h>

/*
 * A page: lines that begin with HEADING or PLAIN. The lists take what rows the rest
 * leaves; columns 0: as wide as it gets.
 */
#define HEADING '#'
#define PLAIN	' '

/* The page of one round, for the caller to free; rows 0: no screen. NULL without memory. */
char *tbg_top_page(const json_t *model, unsigned int columns, unsigned int rows);

#endif
