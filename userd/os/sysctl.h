/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Settings of the kernel below /proc/sys. Those of the network belong to this
 * namespace.
 */
#ifndef TBG_USERD_OS_SYSCTL_H
#define TBG_USERD_OS_SYSCTL_H

/* Returns the number at the start of the file, or `none` without such a file or number. */
long long tbg_sysctl(const char *path, long long none);

#endif
