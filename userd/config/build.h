/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Builds the sites from the scopes of one configuration: the state that the
 * files of this folder share. Functions return 0, or negative errno with a
 * message in m->error, which initially is that of -ENOMEM. For this folder
 * alone.
 */
#ifndef TBG_USERD_CONFIG_BUILD_H
#define TBG_USERD_CONFIG_BUILD_H

#include "config/target.h"

struct tbg_build {
	struct tbg_sites *sites;
	const struct tbg_sites *old;
	const struct tbg_scope *top;
	struct tbg_settings_error *error;
	char *around;			/* sites.c: settings that all sites depend on, as text */
};

/* Stores the message of an error and its line (0: the command line). Returns -EINVAL. */
__attribute__((format(printf, 3, 4)))
int tbg_build_wrong(struct tbg_build *m, unsigned int line, const char *format, ...);

bool tbg_setting_upstreams(const struct tbg_setting *s);	/* about upstreams? */
const char *tbg_scope_name(const struct tbg_scope *scope);	/* for messages */

/*
 * Applies the settings of one scope on top of those of its outer scopes:
 * either those of upstreams or all others.
 */
int tbg_scope_apply(struct tbg_build *m, struct tbg_target *t,
		    const struct tbg_scope *scope, bool upstreams);

/* Applies all others, and those of its media types: the last one wins. */
int tbg_level_apply(struct tbg_build *m, struct tbg_target *t, const struct tbg_scope *scope);

/* The defaults of an upstream, and the settings around it, into t->upstream. */
int tbg_upstream_settings_make(struct tbg_build *m, struct tbg_target *t);

/* Takes the upstream over; if an old one is equal, returns that instead. */
int tbg_upstream_keep(struct tbg_build *m, struct tbg_upstream *u);

/* Makes the upstream of a section. */
int tbg_upstream_make(struct tbg_build *m, const struct tbg_scope *own);

/*
 * Makes the upstream of a location's own servers, in t: one for all locations with the
 * same servers.
 */
int tbg_upstream_given(struct tbg_build *m, struct tbg_target *t, unsigned int line);

/* Sets the defaults of pools in t->cgi and t->module. */
int tbg_pools_default(struct tbg_target *t);

/*
 * Lets a pool of the gateway answer the location: one for all locations with the same
 * settings.
 */
int tbg_pool_make(struct tbg_build *m, struct tbg_target *t, enum tbg_pool_kind kind,
		  unsigned int line);

/* What settings of a scope can have an effect on: bits of enum tbg_reach. */
unsigned int tbg_reach_upstream(const struct tbg_upstream *u);
unsigned int tbg_reach_location(const struct tbg_location *l);
unsigned int tbg_reach_site(const struct tbg_site *site);
unsigned int tbg_reach_sites(const struct tbg_sites *s);

/* Refuses a setting of the scope that can have no effect there. */
int tbg_effect_check(struct tbg_build *m, const struct tbg_scope *scope, unsigned int reach);

/* Makes the locations of a host; host NULL: of the only site. */
int tbg_site_locations(struct tbg_build *m, struct tbg_site *site,
		       const struct tbg_scope *host);

/* With hosts: refuses locations outside of them, which no request would reach. */
int tbg_locations_check(struct tbg_build *m);

#endif
