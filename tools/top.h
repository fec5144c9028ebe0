/* SPDX-License-Identifier: GPL-2.0 */
/*
 * `toboggan top`: shows the current state of the daemon repeatedly: on a terminal in place,
 * elsewhere as snapshots or lines of JSON.
 */
#ifndef TBG_TOOLS_TOP_H
#define TBG_TOOLS_TOP_H

#include <stdbool.h>
#include <stddef.h>

struct tbg_top {
	const char *control;		/* path of the socket */
	unsigned int interval_ms;
	unsigned int count;		/* snapshots; 0: no end */
	bool json;
};

/*
 * On fd, connected to the control socket; closes it. 0 when the count is
 * reached or somebody ends it; else negative errno and why.
 */
int tbg_top(const struct tbg_top *how, int fd, char *ret_msg, size_t msg_len);

#endif
