/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TBG_TOOLS_PROBE_URING_H
#define TBG_TOOLS_PROBE_URING_H

/* Whether the kernel has the feature of that name: 0, or negative errno. */
int tbg_uring_try(const char *name);

#endif
