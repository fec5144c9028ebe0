/* SPDX-License-Identifier: GPL-2.0 */
/*
 * From scopes to sites: what the making of one reading of the configuration
 * passes around. An int is 0, or negative errno and the fault in m->error, which
 * says that of -ENOMEM from the begin. For settings.c and this folder alone.
 */
#ifndef TBG_USERD_SETTINGS_MAKING_H
#define TBG_USERD_SETTINGS_MAKING_H

#include "config/target.h"

struct tbg_build {
	struct tbg_sites *sites;
	const struct tbg_sites *old;
	const struct tbg_scope *top;
	struct tbg_settings_error *error;
	char *around;			/* sites.c: what all sites depend on, as text */
};

/* Says the fault, with the line that it is in; 0: the command line. -EINVAL. */
__attribute__((format(printf, 3, 4)))
int tbg_build_wrong(struct tbg_build *m, unsigned int line, const char *format, ...);

bool tbg_setting_upstreams(const struct tbg_setting *s);	/* about upstreams? */
const char *tbg_scope_name(const struct tbg_scope *scope);	/* for messages */

/*
 * The settings of one scope, onto what its outer scopes have made: those of
 * upstreams, or all others.
 */
int tbg_scope_apply(struct tbg_build *m, struct tbg_target *t,
		    const struct tbg_scope *scope, bool upstreams);

/* All others, and those of its media types: what is said last wins. */
int tbg_level_apply(struct tbg_build *m, struct tbg_target *t, const struct tbg_scope *scope);

/* The defaults of an upstream, and the settings around it, into t->upstream. */
int tbg_upstream_settings_make(struct tbg_build *m, struct tbg_target *t);

/* Takes it over: the object of before stands for it if that is still the same. */
int tbg_upstream_keep(struct tbg_build *m, struct tbg_upstream *u);

/* The upstream of a section. */
int tbg_upstream_make(struct tbg_build *m, const struct tbg_scope *own);

/* The upstream of a location's servers, in t: one for all that give the same. */
int tbg_upstream_given(struct tbg_build *m, struct tbg_target *t, unsigned int line);

/* The defaults of pools, into t->cgi and t->module. */
int tbg_pools_unsaid(struct tbg_target *t);

/* The location is answered by a pool of ours, one for all that say the same. */
int tbg_pool_make(struct tbg_build *m, struct tbg_target *t, enum tbg_pool_kind kind,
		  unsigned int line);

/* What settings around them can have an effect on: enum tbg_reach. */
unsigned int tbg_reach_upstream(const struct tbg_upstream *u);
unsigned int tbg_reach_location(const struct tbg_location *l);
unsigned int tbg_reach_site(const struct tbg_site *site);
unsigned int tbg_reach_sites(const struct tbg_sites *s);

/* Refuses a setting of the scope that needs what is not in its reach. */
int tbg_effect_check(struct tbg_build *m, const struct tbg_scope *scope, unsigned int reach);

/* The locations of a host; host NULL: of the only site there is. */
int tbg_site_locations(struct tbg_build *m, struct tbg_site *site,
		       const struct tbg_scope *host);

/* With hosts: no location outside of them, which no request would reach. */
int tbg_locations_check(struct tbg_build *m);

#endif
