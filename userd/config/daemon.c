// SPDX-License-Identifier: GPL-2.0
/*
 * Sets the daemon's own settings, and parses their values: addresses, interfaces, tiers,
 * paths of sockets and logs. Called for each value of the command line and of the file;
 * changes nothing outside of the options, except that it opens the token's file.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "abi/conn.h"
#include "config/target.h"
#include "os/socket_file.h"
#include "log/access.h"
#include "log/line.h"
#include "log/sink.h"
#include "os/message.h"
#include "os/privilege.h"
#include "os/units.h"

#define TBG_LISTEN_TEXT	sizeof(((struct tbg_options *)0)->listen_text[0])
#define TOKEN_MIN  16		/* bytes of an admin token */
#define TOKEN_MAX  256

/* v must live as long as the options. */
static bool set_text(const char **to, const char *v)
{
	*to = v;
	return *v;
}

static bool port_parse(const char *v, in_port_t *ret)
{
	char *end;
	unsigned long n = strtoul(v, &end, 10);

	if (*v < '0' || *v > '9' || *end || n > 65535)
		return false;
	*ret = htons(n);
	return true;
}

/* Port 0 is a different one each time. Both families have the port at the same offset. */
static bool listened(const struct tbg_options *o, const struct sockaddr_storage *a)
{
	if (!((const struct sockaddr_in *)a)->sin_port)
		return false;
	for (unsigned int i = 0; i < o->listen_nr; i++)
		if (!memcmp(&o->listen[i], a, sizeof(*a)))
			return true;
	return false;
}

/* ADDR:PORT or [ADDR6]:PORT */
static bool address_parse(const char *v, struct sockaddr_storage *ret)
{
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6 };
	struct sockaddr_in a4 = { .sin_family = AF_INET };
	const char *colon = strrchr(v, ':');
	char host[TBG_LISTEN_TEXT];
	size_t len;

	if (!colon || strlen(v) >= sizeof(host))
		return false;
	len = colon - v;
	memset(ret, 0, sizeof(*ret));
	if (len > 2 && v[0] == '[' && v[len - 1] == ']') {
		snprintf(host, sizeof(host), "%.*s", (int)len - 2, v + 1);
		if (inet_pton(AF_INET6, host, &a6.sin6_addr) != 1 ||
		    !port_parse(colon + 1, &a6.sin6_port))
			return false;
		memcpy(ret, &a6, sizeof(a6));
	} else {
		snprintf(host, sizeof(host), "%.*s", (int)len, v);
		if (inet_pton(AF_INET, host, &a4.sin_addr) != 1 ||
		    !port_parse(colon + 1, &a4.sin_port))
			return false;
		memcpy(ret, &a4, sizeof(a4));
	}
	return true;
}

bool tbg_listen_set(struct tbg_target *t, const char *v)
{
	struct tbg_options *o = t->options;

	if (t->begins)
		o->listen_nr = 0;
	if (o->listen_nr == TBG_LISTENER_MAX ||
	    !address_parse(v, &o->listen[o->listen_nr]) ||
	    listened(o, &o->listen[o->listen_nr]))
		return false;
	snprintf(o->listen_text[o->listen_nr], sizeof(o->listen_text[0]), "%s", v);
	o->listen_nr++;
	return true;
}

bool tbg_wire_set(struct tbg_target *t, const char *v)
{
	const char *at = v;
	char name[16], before[16];
	unsigned int nr = 0;
	bool xdp;

	if (!strcmp(v, "auto") || !strcmp(v, "off"))
		return set_text(&t->options->wire, v);
	do {				/* refuse empty, overlong and repeated names */
		if (nr++ == TBG_IFACES_MAX || !tbg_value_iface(at, name, &xdp) || !strcasecmp(name, "auto") ||
		    !strcasecmp(name, "off"))
			return false;
		for (const char *b = v; b < at; b += strcspn(b, ",") + 1)
			if (tbg_value_iface(b, before, &xdp) && !strcmp(before, name))
				return false;
		at += strcspn(at, ",");
	} while (*at++);
	return set_text(&t->options->wire, v);
}

/* Only checks: tbg_bans_file() reads the value as given. */
bool tbg_clients_set(struct tbg_target *t, const char *v)
{
	struct tbg_prefix prefix;

	return tbg_value_clients(v, &prefix);
}

/* "ADDR:PORT ADDRESS" */
static bool listen_rule_add(struct tbg_target *t, const char *v, bool deny)
{
	struct tbg_options *o = t->options;
	struct tbg_listen_rule one = { .rule.deny = deny }, *more;
	const char *blank = strchr(v, ' ');
	unsigned int kept = 0;
	char at[TBG_LISTEN_TEXT];

	if (!blank || blank - v >= (long)sizeof(at))
		return false;
	snprintf(at, sizeof(at), "%.*s", (int)(blank - v), v);
	if (!address_parse(at, &one.at) || !tbg_value_clients(blank + 1, &one.rule.prefix))
		return false;
	for (unsigned int i = 0; t->begins && i < o->listen_rules_nr; i++)
		if (o->listen_rule[i].rule.deny != deny)
			o->listen_rule[kept++] = o->listen_rule[i];
	if (t->begins)
		o->listen_rules_nr = kept;
	more = reallocarray(o->listen_rule, o->listen_rules_nr + 1, sizeof(*more));
	if (!more || o->listen_rules_nr == TBG_CLIENT_LIST_MAX)
		return false;
	o->listen_rule = more;
	more[o->listen_rules_nr++] = one;
	return true;
}

bool tbg_listen_deny_set(struct tbg_target *t, const char *v)
{
	return listen_rule_add(t, v, true);
}

bool tbg_listen_allow_set(struct tbg_target *t, const char *v)
{
	return listen_rule_add(t, v, false);
}

/* The user tier is always on, named or not: it answers what the others pass up. */
bool tbg_tiers_set(struct tbg_target *t, const char *v)
{
	char copy[64], *rest = copy, *word;
	bool wire = false, sock = false;

	if (strlen(v) >= sizeof(copy))
		return false;
	strcpy(copy, v);
	while ((word = strsep(&rest, ","))) {	/* yields empty words, too, to refuse them */
		if (!strcmp(word, "wire"))
			wire = true;
		else if (!strcmp(word, "sock"))
			sock = true;
		else if (strcmp(word, "user"))
			return false;
	}
	t->options->tier_wire = wire;
	t->options->tier_sock = sock;
	return true;
}

/* The index of v among the names; nr: none. */
static int named(const char *const *names, int nr, const char *v)
{
	int i = 0;

	while (i < nr && strcmp(v, names[i]))
		i++;
	return i;
}

bool tbg_deny_answer_set(struct tbg_target *t, const char *v)
{
	static const char *const names[TBG_DENY_ANSWER_NR] = {
#define X(name, text) [TBG_DENY_##name] = text,
		TBG_DENY_ANSWER_LIST(X)
#undef X
	};

	int i = named(names, TBG_DENY_ANSWER_NR, v);

	if (i == TBG_DENY_ANSWER_NR)
		return false;
	t->options->deny_answer = i;
	return true;
}

bool tbg_limit_requests_set(struct tbg_target *t, const char *v)
{
	return tbg_value_rate(v, &t->options->request_gap_ns);
}

bool tbg_births_set(struct tbg_target *t, const char *v)
{
	static const char *const names[TBG_WANTED_NR] = {
#define X(name, text) [TBG_WANTED_##name] = text,
		TBG_BIRTHS_WANTED_LIST(X)
#undef X
	};

	int i = named(names, TBG_WANTED_NR, v);

	if (i == TBG_WANTED_NR)
		return false;
	t->options->births = i;
	return true;
}

bool tbg_wire_size_set(struct tbg_target *t, const char *v)
{
	uint64_t size = 0;
	bool ret = !strcmp(v, "auto") || tbg_value_size(v, 1, TBG_WIRE_MAX + 1, &size);

	if (ret)
		t->options->wire_size = size;
	return ret;
}

/* Refuses more memory than the machine has. */
bool tbg_memory_set(struct tbg_target *t, const char *v)
{
	uint64_t there = (uint64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
	uint64_t max = 1ull << 40;

	return tbg_value_size(v, 1 << 20, there < max ? there : max, &t->options->memory);
}

/* err: result of --check, which checks where a path leads. */
static bool set_path(struct tbg_target *t, const char **to, const char *v, int err)
{
	if (err)
		t->why = strerror(-err);
	return !err && set_text(to, v);
}

bool tbg_control_set(struct tbg_target *t, const char *v)
{
	return *v && strlen(v) < 108 &&
	       set_path(t, &t->options->control, v,
			t->options->check ? tbg_socket_file_check(v) : 0);
}

/* A path has a slash, which no address has. */
bool tbg_admin_set(struct tbg_target *t, const char *v)
{
	struct tbg_options *o = t->options;

	o->admin_given = true;
	o->admin_address.ss_family = 0;
	o->admin = NULL;
	if (!strcmp(v, "off"))
		return true;
	if (!strchr(v, '/'))
		return address_parse(v, &o->admin_address) && set_text(&o->admin, v);
	return strlen(v) < 108 &&
	       set_path(t, &o->admin, v, o->check ? tbg_socket_file_check(v) : 0);
}

/* The first line of the file, which is a secret. */
static bool token_read(struct tbg_target *t, const char *path)
{
	char line[TOKEN_MAX + 2] = "";
	FILE *f = fopen(path, "re");
	struct stat st;

	if (!f || fstat(fileno(f), &st) || !fgets(line, sizeof(line), f))
		line[0] = 0;
	t->why = !f ? strerror(errno) : st.st_mode & 07 ? "others can read it" :
		 strcspn(line, "\r\n") < TOKEN_MIN ? "its first line is shorter" : "";
	if (f)
		fclose(f);
	if (*t->why)
		return false;
	line[strcspn(line, "\r\n")] = 0;
	free(t->options->admin_token);
	t->options->admin_token = strdup(line);
	return t->options->admin_token;
}

bool tbg_admin_token_set(struct tbg_target *t, const char *v)
{
	return token_read(t, v) && set_text(&t->options->admin_token_file, v);
}

/* For a host, which has no options, it is only checked: sites.c reads it. */
bool tbg_access_log_set(struct tbg_target *t, const char *v)
{
	struct tbg_options *o = t->options;
	const char *unused, **to = o ? &o->access_log : &unused;

	if (tbg_sink_is(v)) {
		t->why = tbg_sink_wrong(v);
		return !*t->why && set_text(to, v);
	}
	if (*v && strcmp(v, "off"))
		return set_path(t, to, v, o && o->check ? tbg_log_check(v) : 0);
	*to = NULL;
	return *v;
}

bool tbg_access_log_format_set(struct tbg_target *t, const char *v)
{
	const char *unused, **to = t->options ? &t->options->log_format : &unused;
	static char msg[128];
	enum tbg_log_format format;

	if (tbg_log_format_find(v, &format, msg, sizeof(msg)))
		return set_text(to, v);
	t->why = msg;
	return false;
}

bool tbg_log_level_set(struct tbg_target *t, const char *v)
{
	for (unsigned int i = 0; i < TBG_REPORT_NR; i++) {
		if (strcmp(v, tbg_report_level_name(i)))
			continue;
		t->options->log_level = i;
		return true;
	}
	return false;
}

bool tbg_user_set(struct tbg_target *t, const char *v)
{
	return tbg_privilege_user_known(v) && set_text(&t->options->user, v);
}

/* --- a value is set, and kept as given ----------------------------------------- */

/* The size of the buffer of a text: a power of two. */
static size_t room_of(size_t len)
{
	size_t ret = 1;

	while (ret <= len)
		ret *= 2;
	return ret;
}

/*
 * Keeps a value as given, or adds it to those of its list. The buffer doubles, so that
 * the million values that a list may have are not copied for each of them.
 */
static bool given_keep(struct tbg_options *o, unsigned int nr, const char *v, bool more)
{
	size_t at = more ? o->given_len[nr] : 0, len = at + more + strlen(v);
	char *text = more ? o->given[nr] : NULL;

	if (!text || room_of(len) > room_of(at))
		text = realloc(text, room_of(len));
	if (!text)
		return false;
	if (!more)
		free(o->given[nr]);
	sprintf(text + at, "%s%s", more ? " " : "", v);
	o->given[nr] = text;
	o->given_len[nr] = len;
	return true;
}

/* Sets it and keeps the value as given; of a list, all values. */
static bool option_set(struct tbg_target *t, unsigned int nr, unsigned int line, const char *v)
{
	const struct tbg_setting_row *row = tbg_setting_row(nr);
	bool list = row->flags & TBG_SETTING_LIST;
	struct tbg_options *o = t->options;

	if (!tbg_setting_put(row, t, v) ||
	    !given_keep(o, nr, v, list && !t->begins && o->given[nr]))
		return false;
	if (!list)
		o->line[nr][0] = line;
	else if (row->set == tbg_listen_set)
		o->line[nr][o->listen_nr - 1] = line;
	/* again, with the copy that is kept */
	return list || tbg_setting_put(row, t, o->given[nr]);
}

bool tbg_option_set(struct tbg_options *o, unsigned int row, unsigned int line,
		    const char *v, bool begins, const char **ret_why)
{
	struct tbg_target t = { .options = o, .begins = begins, .why = "" };
	bool good = option_set(&t, row, line, v);

	*ret_why = t.why;
	return good;
}
