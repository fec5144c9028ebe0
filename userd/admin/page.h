/* SPDX-License-Identifier: GPL-2.0 */
/*
 * page.html as it is in the program: bytes from the one to the other.
 */
#ifndef TBG_USERD_ADMIN_PAGE_H
#define TBG_USERD_ADMIN_PAGE_H

extern const char tbg_admin_page[], tbg_admin_page_end[];

#endif
