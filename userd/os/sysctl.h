/* SPDX-License-Identifier: GPL-2.0 */
/* Settings of the kernel, below /proc/sys; those of the network are this namespace's. */
#ifndef TBG_USERD_OS_SYSCTL_H
#define TBG_USERD_OS_SYSCTL_H

/* The number that the file at path begins with; none where there is no such file or number. */
long long tbg_sysctl(const char *path, long long none);

#endif
