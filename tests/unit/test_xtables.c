// SPDX-License-Identifier: GPL-2.0
/*
 * Rules of iptables-legacy, as the kernel lists them (userd/tiers/xtables.c): which matches matter,
 * and lists that end too early or do not fit. Each list is a heap object of exactly its length, so
 * that ASan detects a read beyond it.
 */
#include "ktap.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <linux/netfilter/x_tables.h>
#include <linux/netfilter/xt_CT.h>
#include <linux/netfilter/xt_conntrack.h>
#include <linux/netfilter_ipv4/ip_tables.h>
#include <linux/netfilter_ipv6/ip6_tables.h>

#include "tiers/xtables.h"

#define LEN_MAX 4096

static struct {
	uint8_t b[LEN_MAX];
	size_t len;
	size_t begin;		/* of the last rule */
	bool v6;
} list;

static void list_new(bool v6)
{
	memset(&list, 0, sizeof(list));
	list.v6 = v6;
}

static size_t head(void)
{
	return list.v6 ? sizeof(struct ip6t_entry) : sizeof(struct ipt_entry);
}

/* Where the last rule has the offsets of its target and of the next rule. */
static void offset_set(unsigned int i, uint16_t value)
{
	memcpy(&list.b[list.begin + (list.v6 ? offsetof(struct ip6t_entry, target_offset) :
				     offsetof(struct ipt_entry, target_offset)) + 2 * i],
	       &value, sizeof(value));
}

static void rule_begin(void)
{
	list.begin = list.len;
	list.len += head();
	offset_set(0, head());
}

static void match_add(const char *name, unsigned int revision, const void *data, size_t len)
{
	struct xt_entry_match m = { .u.user.match_size = XT_ALIGN(sizeof(m) + len) };

	m.u.user.revision = revision;
	strcpy(m.u.user.name, name);
	memcpy(&list.b[list.len], &m, sizeof(m));
	if (len)
		memcpy(&list.b[list.len + sizeof(m)], data, len);
	list.len += m.u.user.match_size;
	offset_set(0, list.len - list.begin);
}

static void rule_ends_with(const char *target, const void *data, size_t len)
{
	uint16_t matches = list.len - list.begin;

	match_add(target, 0, data, len);
	offset_set(0, matches);
	offset_set(1, list.len - list.begin);
}

static void rule_end(void)
{
	static const int verdict = -1;

	rule_ends_with("", &verdict, sizeof(verdict));
}

static bool read_all(size_t len, struct tbg_netfilter_rules *ret)
{
	uint8_t *copy = malloc(len ?: 1);
	bool ok;

	memcpy(copy, list.b, len);
	*ret = (struct tbg_netfilter_rules){ 0 };
	ok = tbg_xtables_rules(list.v6, copy, len, ret);
	free(copy);
	return ok;
}

static void conntrack_add(uint16_t flags, unsigned int revision)
{
	struct xt_conntrack_mtinfo3 info = { .match_flags = flags };

	rule_begin();
	match_add("tcp", 0, "12345678", 8);
	match_add("conntrack", revision, &info,
		  revision == 1 ? sizeof(struct xt_conntrack_mtinfo1) : sizeof(info));
	rule_end();
}

KTAP_TEST(t_matches_that_matter_are_found)
{
	static const uint16_t directed[] = {
		XT_CONNTRACK_DIRECTION, XT_CONNTRACK_ORIGSRC, XT_CONNTRACK_REPLDST_PORT,
		XT_CONNTRACK_STATE | XT_CONNTRACK_ORIGDST_PORT,
	};
	struct tbg_netfilter_rules got;

	for (int v6 = 0; v6 < 2; v6++) {
		list_new(v6);
		KTAP_CHECK(read_all(0, &got) && !got.counts && !got.turns);
		conntrack_add(XT_CONNTRACK_STATE | XT_CONNTRACK_STATUS, 3);
		KTAP_CHECK(read_all(list.len, &got) && !got.counts && !got.turns);
		rule_begin();
		match_add("comment", 0, "connlimit", sizeof("connlimit"));
		rule_end();
		KTAP_CHECK(read_all(list.len, &got) && !got.counts && !got.turns);
		rule_begin();
		match_add("comment", 0, "x", 1);
		match_add("connlimit", 1, NULL, 0);
		rule_end();
		conntrack_add(XT_CONNTRACK_STATE, 1);
		KTAP_CHECK(read_all(list.len, &got) && got.counts && !got.turns);
		for (size_t i = 0; i < sizeof(directed) / sizeof(*directed); i++)
			for (unsigned int revision = 1; revision <= 3; revision++) {
				list_new(v6);
				conntrack_add(0, 2);
				conntrack_add(directed[i], revision);
				KTAP_CHECK(read_all(list.len, &got) && !got.counts && got.turns);
			}
		for (int zone = 0; zone < 2; zone++) {
			struct xt_ct_target_info ct = { .flags = XT_CT_NOTRACK, .zone = zone };

			list_new(v6);
			rule_begin();
			rule_ends_with("CT", &ct, sizeof(ct));
			KTAP_CHECK(read_all(list.len, &got) && got.turns == zone);
		}
		list_new(v6);
		conntrack_add(0, 4);	/* which we do not know */
		KTAP_CHECK(read_all(list.len, &got) && got.turns);
	}
}

KTAP_TEST(t_lists_that_do_not_fit_are_refused)
{
	struct tbg_netfilter_rules got;
	size_t one, len;

	for (int v6 = 0; v6 < 2; v6++) {
		list_new(v6);
		conntrack_add(XT_CONNTRACK_STATE, 3);
		one = list.len;
		conntrack_add(XT_CONNTRACK_STATE, 3);
		for (size_t i = 1; i < list.len; i++)
			KTAP_CHECK(read_all(i, &got) == (i == one));
		len = list.len - one;
		for (unsigned int i = 0; i < len; i++) {	/* a rule that ends elsewhere */
			offset_set(1, i);
			KTAP_CHECK(!read_all(list.len, &got));
		}
		offset_set(1, len + 1);
		KTAP_CHECK(!read_all(list.len, &got));
		offset_set(1, len);
		KTAP_CHECK(read_all(list.len, &got));
		for (unsigned int i = 0; i < 512; i++) {	/* only read within its memory */
			offset_set(0, i);
			read_all(list.len, &got);
		}
		list_new(v6);
		rule_begin();
		match_add("x", 0, NULL, 0);
		rule_end();
		memset(&list.b[head() + offsetof(struct xt_entry_match, u.user.name)], 'x',
		       XT_EXTENSION_MAXNAMELEN);
		KTAP_CHECK(!read_all(list.len, &got));
	}
}

KTAP_MAIN()
