// SPDX-License-Identifier: GPL-2.0
/*
 * Reads the tables of iptables-legacy: their names from a file in /proc, their rules by
 * getsockopt(), as iptables does. Both families have the same options and structures, but for
 * the addresses at the beginning of a rule.
 */
#include "tiers/xtables.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/netfilter/x_tables.h>
#include <linux/netfilter/xt_CT.h>
#include <linux/netfilter/xt_conntrack.h>
#include <linux/netfilter_ipv4/ip_tables.h>
#include <linux/netfilter_ipv6/ip6_tables.h>

#define TRIES_MAX 3		/* rules that change while they are read */
#define LEN_MAX (256u << 20)	/* of the rules of a table, in bytes */
#define CONNTRACK_REVISIONS 3

static_assert(IPT_SO_GET_INFO == IP6T_SO_GET_INFO && IPT_SO_GET_ENTRIES == IP6T_SO_GET_ENTRIES &&
	      sizeof(struct ipt_getinfo) == sizeof(struct ip6t_getinfo) &&
	      offsetof(struct ipt_get_entries, entrytable) ==
	      offsetof(struct ip6t_get_entries, entrytable), "the structures differ");

const char *tbg_xtables_file(const struct tbg_xtables *x)
{
	return x->v6 ? "/proc/net/ip6_tables_names" : "/proc/net/ip_tables_names";
}

/* Reads the names of the tables. Their length or negative errno. */
static int names_read(int fd, char ret[TBG_XTABLES_NAMES_LEN])
{
	ssize_t n = pread(fd, ret, TBG_XTABLES_NAMES_LEN - 1, 0);

	ret[n > 0 ? n : 0] = 0;
	return n < 0 ? -errno : n;
}

bool tbg_xtables_has(const struct tbg_xtables *x, const char *table)
{
	size_t len = strlen(table);

	for (const char *at = x->names; *at; at += strcspn(at, "\n"), at += *at == '\n')
		if (!strncmp(at, table, len) && at[len] == '\n')
			return true;
	return false;
}

static bool conntrack_turns(unsigned int revision, const void *data, size_t len)
{
	const uint16_t directed = XT_CONNTRACK_DIRECTION | XT_CONNTRACK_ORIGSRC |
		XT_CONNTRACK_ORIGDST | XT_CONNTRACK_REPLSRC | XT_CONNTRACK_REPLDST |
		XT_CONNTRACK_ORIGSRC_PORT | XT_CONNTRACK_ORIGDST_PORT |
		XT_CONNTRACK_REPLSRC_PORT | XT_CONNTRACK_REPLDST_PORT;
	struct xt_conntrack_mtinfo1 info;	/* what follows differs in later revisions */

	if (!revision || revision > CONNTRACK_REVISIONS || len < sizeof(info))
		return true;
	memcpy(&info, data, sizeof(info));
	return info.match_flags & directed;
}

/* The target CT: whether it puts connections into a zone. */
static bool sets_zone(const void *data, size_t len)
{
	struct xt_ct_target_info info;		/* later revisions begin in the same way */

	if (len < sizeof(info))
		return true;
	memcpy(&info, data, sizeof(info));
	return info.zone || info.flags & (XT_CT_ZONE_DIR_ORIG | XT_CT_ZONE_DIR_REPL |
					  XT_CT_ZONE_MARK);
}

void tbg_xtables_extension(const char *name, unsigned int revision, const void *data, size_t len,
			   struct tbg_netfilter_rules *ret)
{
	ret->counts |= !strcmp(name, "connlimit");
	if (!strcmp(name, "conntrack"))
		ret->turns |= conntrack_turns(revision, data, len);
	else if (!strcmp(name, "CT"))
		ret->turns |= sets_zone(data, len);
}

/* The matches of a rule, or its target: len bytes. Both begin in the same way. */
static bool extensions_look(const uint8_t *at, size_t len, struct tbg_netfilter_rules *ret)
{
	struct xt_entry_match m;

	for (; len; at += m.u.match_size, len -= m.u.match_size) {
		if (len < sizeof(m))
			return false;
		memcpy(&m, at, sizeof(m));
		if (m.u.match_size < sizeof(m) || m.u.match_size > len ||
		    !memchr(m.u.user.name, 0, sizeof(m.u.user.name)))
			return false;
		tbg_xtables_extension(m.u.user.name, m.u.user.revision, at + sizeof(m),
				      m.u.match_size - sizeof(m), ret);
	}
	return true;
}

bool tbg_xtables_rules(bool v6, const void *entries, size_t len, struct tbg_netfilter_rules *ret)
{
	size_t head = v6 ? sizeof(struct ip6t_entry) : sizeof(struct ipt_entry);
	size_t offsets = v6 ? offsetof(struct ip6t_entry, target_offset) :
			      offsetof(struct ipt_entry, target_offset);
	const uint8_t *at = entries;
	uint16_t offset[2];		/* of the target, and of the next rule */

	for (; len; at += offset[1], len -= offset[1]) {
		if (len < head)
			return false;
		memcpy(offset, at + offsets, sizeof(offset));
		if (offset[0] < head || offset[1] < offset[0] || offset[1] > len ||
		    !extensions_look(at + head, offset[0] - head, ret) ||
		    !extensions_look(at + offset[0], offset[1] - offset[0], ret))
			return false;
	}
	return true;
}

/* Asks the tables' own getsockopt(). 0 or negative errno. */
static int option(int fd, bool v6, int name, void *ret, socklen_t len)
{
	return getsockopt(fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP, name, ret, &len) ? -errno : 0;
}

/* Adds to *ret what the rules of a table need. 0, -EAGAIN if they change, or negative errno. */
static int table_read(int fd, bool v6, const char *name, size_t name_len,
		      struct tbg_netfilter_rules *ret)
{
	struct ipt_getinfo info = { 0 };
	struct ipt_get_entries *e;
	socklen_t len;
	int err;

	snprintf(info.name, sizeof(info.name), "%.*s", (int)name_len, name);
	err = option(fd, v6, IPT_SO_GET_INFO, &info, sizeof(info));
	if (err)
		return err;
	len = sizeof(*e) + info.size;
	e = info.size <= LEN_MAX ? calloc(1, len) : NULL;
	if (!e)
		return -ENOMEM;
	memcpy(e->name, info.name, sizeof(e->name));
	e->size = info.size;
	err = option(fd, v6, IPT_SO_GET_ENTRIES, e, len);
	if (!err && !tbg_xtables_rules(v6, e->entrytable, e->size, ret))
		err = -EBADMSG;
	free(e);
	return err;
}

/* The same for all tables. */
static int tables_read(struct tbg_xtables *x)
{
	int fd, err = 0;

	if (!x->names[0])
		return 0;
	fd = socket(x->v6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	for (const char *at = x->names; *at && !err; at += strcspn(at, "\n"), at += *at == '\n')
		err = table_read(fd, x->v6, at, strcspn(at, "\n"), &x->rules);
	close(fd);
	return err;
}

int tbg_xtables_look(struct tbg_xtables *x)
{
	int n, err, tries = 0;

	if (x->fd < 0) {
		x->fd = open(tbg_xtables_file(x), O_RDONLY | O_CLOEXEC);
		if (x->fd < 0 && errno == ENOENT)
			return 0;
	}
	n = x->fd < 0 ? -errno : names_read(x->fd, x->names);
	do {
		x->rules = (struct tbg_netfilter_rules){ 0 };
		err = n < 0 ? n : tables_read(x);
	} while (err == -EAGAIN && ++tries < TRIES_MAX);
	x->rules.counts |= !!err;
	return n;
}

bool tbg_xtables_moved(const struct tbg_xtables *x)
{
	char names[TBG_XTABLES_NAMES_LEN];

	if (x->fd < 0)
		return !access(tbg_xtables_file(x), F_OK);
	return names_read(x->fd, names) < 0 || strcmp(names, x->names);
}

void tbg_xtables_close(struct tbg_xtables *x)
{
	if (x->fd >= 0)
		close(x->fd);
	x->fd = -1;
}
