/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The version of all that is built from this tree, unless the build gives
 * another (CPPFLAGS=-DTBG_VERSION=...).
 */
#ifndef TBG_ABI_VERSION_H
#define TBG_ABI_VERSION_H

#ifndef TBG_VERSION
#define TBG_VERSION "0.1"
#endif

#endif
