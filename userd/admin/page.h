/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The contents of page.html in the program, from start to end.
 */
#ifndef TBG_USERD_ADMIN_PAGE_H
#define TBG_USERD_ADMIN_PAGE_H

extern const char tbg_admin_page[], tbg_admin_page_end[];

#endif
