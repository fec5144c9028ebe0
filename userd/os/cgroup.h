/* SPDX-License-Identifier: GPL-2.0 */
/* The cgroup (version 2) of this process, wherever the hierarchy is mounted. */
#ifndef TBG_USERD_OS_CGROUP_H
#define TBG_USERD_OS_CGROUP_H

/* Opens its folder, which is that of the sockets made from now on too; or negative errno. */
int tbg_cgroup_open(void);

/* Opens the root of the hierarchy, or that of our cgroup namespace; or negative errno. */
int tbg_cgroup_root(void);

#endif
