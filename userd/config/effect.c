// SPDX-License-Identifier: GPL-2.0
/*
 * Refuses settings without effect: those that nothing in their scope uses. Each row
 * of the table names what it needs. An outer scope may set what only some of its
 * inner scopes use. Called after all of a scope was made.
 */
#include "config/build.h"

#include <stdio.h>
#include <string.h>

static const struct {
	unsigned int reach;		/* one of these suffices */
	const char *lacks, *expected;
} needs[] = {
#define X(name, reach, lacks, expected) [TBG_NEEDS_##name] = { reach, lacks, expected },
	TBG_NEEDS_LIST(X)
#undef X
};

static bool met(const struct tbg_setting_row *row, unsigned int reach)
{
	return row->needs == TBG_NEEDS_NOTHING || needs[row->needs].reach & reach;
}

/* --- sites --------------------------------------------------------------- */

unsigned int tbg_reach_upstream(const struct tbg_upstream *u)
{
	unsigned int ret;

	if (u->command)
		return u->command->kind == TBG_POOL_CGI ? TBG_REACH_CGI : TBG_REACH_MODULE;
	ret = u->settings.health_path ? TBG_REACH_HEALTH : 0;
	if (u->settings.protocol == TBG_PROTOCOL_HTTP)
		return ret | TBG_REACH_HTTP;
	return ret | TBG_REACH_FASTCGI | (u->settings.script.file ? 0 : TBG_REACH_SCRIPTS);
}

unsigned int tbg_reach_location(const struct tbg_location *l)
{
	return l->handler == TBG_HANDLER_FILES ? TBG_REACH_FILES : tbg_reach_upstream(l->upstream);
}

unsigned int tbg_reach_site(const struct tbg_site *site)
{
	unsigned int ret = 0;

	for (unsigned int i = 0; i < site->locations_nr; i++)
		ret |= tbg_reach_location(&site->locations[i]);
	return ret;
}

unsigned int tbg_reach_sites(const struct tbg_sites *s)
{
	unsigned int ret = 0;

	for (unsigned int i = 0; i < s->nr; i++)
		ret |= tbg_reach_site(&s->site[i]);
	for (unsigned int i = 0; i < s->upstreams_nr; i++)
		ret |= tbg_reach_upstream(s->upstreams[i]);
	return ret;
}

int tbg_effect_check(struct tbg_build *m, const struct tbg_scope *scope, unsigned int reach)
{
	for (unsigned int i = 0; i < scope->settings_nr; i++) {
		const struct tbg_setting *s = &scope->settings[i];
		const struct tbg_setting_row *row = tbg_setting_row(s->row);

		if (!met(row, reach))
			return tbg_build_wrong(m, s->line, "%s%s: no effect, %s; expected %s, or no %s",
					       s->line ? "" : "--", row->name, needs[row->needs].lacks,
					       needs[row->needs].expected, row->name);
	}
	return 0;
}

/* --- the daemon ---------------------------------------------------------- */

/* A feature that is explicitly off keeps its other settings for later. */
static bool is_given(const struct tbg_options *o, const char *name)
{
	return o->given[tbg_setting_find(name, strlen(name))];
}

static unsigned int options_reach(const struct tbg_options *o, const struct tbg_sites *sites)
{
	return tbg_reach_sites(sites) |
	       (is_given(o, "tiers") ? TBG_REACH_SOCK : 0) |
	       (is_given(o, "limit-requests") ? TBG_REACH_RATE : 0) |
	       (is_given(o, "limit-connections") || is_given(o, "limit-heads") ?
		TBG_REACH_LIMITS : 0);
}

const char *tbg_effect_options(const struct tbg_options *o, const struct tbg_sites *sites,
			       char *ret, size_t len)
{
	unsigned int reach = options_reach(o, sites);
	const struct tbg_setting_row *row;

	for (unsigned int i = 0; (row = tbg_setting_row(i)); i++) {
		/* a value that equals the default, or off, is never without effect */
		if (row->object != TBG_OBJECT_OPTIONS || !o->given[i] || !o->line[i][0] ||
		    !strcmp(o->given[i], row->preset ?: "") || !strcmp(o->given[i], "off") ||
		    met(row, reach))
			continue;
		snprintf(ret, len, "%.100s: no effect, %s; expected %s, or no %s", o->given[i],
			 needs[row->needs].lacks, needs[row->needs].expected, row->name);
		return row->name;
	}
	return NULL;
}
