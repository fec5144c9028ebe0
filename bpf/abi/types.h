/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The fixed-width types of the ABI, from wherever this side has them: the
 * kernel's for BPF and for the daemon alike.
 */
#ifndef TBG_ABI_TYPES_H
#define TBG_ABI_TYPES_H

#include <linux/types.h>

#endif
