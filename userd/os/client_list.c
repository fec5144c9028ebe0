// SPDX-License-Identifier: GPL-2.0
/* Sorts the rules so that the first matching one decides. */
#include "os/client_list.h"

#include <stdlib.h>

static int compare(const void *a, const void *b)
{
	const struct tbg_client_rule *one = a, *other = b;

	if (one->prefix.bits != other->prefix.bits)
		return one->prefix.bits > other->prefix.bits ? -1 : 1;
	return (int)one->deny - (int)other->deny;	/* of equal prefixes, allow first */
}

void tbg_client_list_make(struct tbg_client_list *ret, struct tbg_client_rule *rule,
			  unsigned int nr)
{
	*ret = (struct tbg_client_list){ .rule = rule, .nr = nr, .denies_others = nr };
	for (unsigned int i = 0; i < nr; i++)
		ret->denies_others &= !rule[i].deny;
	if (nr)
		qsort(rule, nr, sizeof(*rule), compare);
}

bool tbg_client_list_denies(const struct tbg_client_list *l, const struct tbg_prefix *address)
{
	for (unsigned int i = 0; i < l->nr; i++)
		if (tbg_prefix_has(&l->rule[i].prefix, address))
			return l->rule[i].deny;
	return l->denies_others;
}
