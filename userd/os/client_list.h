/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A list of allowed and denied clients, as a host, a location or a listener has it: the
 * longest prefix decides. Made once, then used by any thread.
 */
#ifndef TBG_USERD_OS_CLIENT_LIST_H
#define TBG_USERD_OS_CLIENT_LIST_H

#include <stdbool.h>

#include "os/units.h"

#define TBG_CLIENT_LIST_MAX 1000	/* prefixes per list; the search is linear */

struct tbg_client_rule {
	struct tbg_prefix prefix;
	bool deny;
};

struct tbg_client_list {
	struct tbg_client_rule *rule;
	unsigned int nr;
	bool denies_others;		/* addresses without a matching prefix */
};

/*
 * Makes a list from rules in any order, which it sorts in place and keeps. If none of
 * them denies, all other clients are refused.
 */
void tbg_client_list_make(struct tbg_client_list *ret, struct tbg_client_rule *rule,
			  unsigned int nr);

bool tbg_client_list_denies(const struct tbg_client_list *l, const struct tbg_prefix *address);

#endif
