/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What settings put their values into, and the functions of those whose values
 * are no plain number, size, time, switch or word (table.h), each in the file of
 * what it is about. For this folder alone.
 */
#ifndef TBG_USERD_SETTINGS_TARGET_H
#define TBG_USERD_SETTINGS_TARGET_H

#include <stdbool.h>
#include <stddef.h>

#include "upstream/pool_command.h"
#include "config/options.h"
#include "config/settings.h"
#include "site/site.h"
#include "upstream/upstream.h"

#define TBG_CONTROL_MAX	150	/* bytes of a value for Cache-Control */
#define TBG_STRING_OF(x)	#x
#define TBG_STRING(x)	TBG_STRING_OF(x)

/* What a setting may put its value into. */
struct tbg_target {
	struct tbg_options *options;
	struct tbg_sites *sites;
	struct tbg_location *location;
	struct tbg_header_rules *header_rules;	/* of the scope at hand */
	struct tbg_upstream_settings *upstream;
	struct tbg_pool_command *cgi, *module;
	const char **servers;		/* of the upstream, or of the location */
	unsigned int servers_nr;
	const char *named;		/* an upstream; NULL: its servers are given */
	const char *beside;		/* a value that cannot stand with the others */
	bool fallback;
	bool check_only;		/* checks the settings, makes nothing */
	bool begins;			/* the first value of its list */
	bool paged[200];		/* statuses from 400 on that this list has a page for */
	const char *why;		/* what the system says */
};

/* settings.c: one value into its field, as the functions below. */
bool tbg_setting_put(const struct tbg_setting_row *row, struct tbg_target *t, const char *v);
/* The defaults of an object's settings. 0 or -ENOMEM. */
int tbg_settings_unsaid(struct tbg_target *t, enum tbg_setting_object object);

/* A copy of a list of nr members, with room for one more; NULL: no memory. */
void *tbg_list_grow(struct tbg_target *t, const void *list, unsigned int nr, size_t size);

/* A copy of v behind the *nr texts of a list. False: no memory. */
bool tbg_text_list_add(struct tbg_target *t, const char ***list,
		       unsigned int *nr, const char *v);

bool tbg_name_valid(const char *v);	/* of an upstream */
bool tbg_host_valid(const char *v);	/* its name, or a star and the end of names */
bool tbg_file_name(const char *v);	/* of a file in whatever folder */
bool tbg_path_plain(const char *path);	/* no //, /./ and /../ */
bool tbg_field_value(const char *v);	/* of a header field, no blank at its ends */

/*
 * Each takes one value. False: it is not what the setting accepts, and t->why is
 * what the system says, or ""; or there is no memory, and errno is ENOMEM.
 */
/* location.c */
bool tbg_root_set(struct tbg_target *t, const char *v);
bool tbg_index_set(struct tbg_target *t, const char *v);
bool tbg_error_page_set(struct tbg_target *t, const char *v);
bool tbg_precompressed_set(struct tbg_target *t, const char *v);
bool tbg_codings_set(struct tbg_target *t, const char *v);
bool tbg_compress_set(struct tbg_target *t, const char *v);
bool tbg_body_buffer_set(struct tbg_target *t, const char *v);
bool tbg_body_folder_set(struct tbg_target *t, const char *v);
bool tbg_trusted_proxies_set(struct tbg_target *t, const char *v);

/* headers.c */
bool tbg_expires_set(struct tbg_target *t, const char *v);
bool tbg_cache_control_set(struct tbg_target *t, const char *v);
bool tbg_headers_set(struct tbg_target *t, const char *v);

/* upstream.c */
bool tbg_upstream_set(struct tbg_target *t, const char *v);
bool tbg_server_set(struct tbg_target *t, const char *v);
bool tbg_protocol_set(struct tbg_target *t, const char *v);
bool tbg_balance_set(struct tbg_target *t, const char *v);
bool tbg_health_path_set(struct tbg_target *t, const char *v);
bool tbg_script_root_set(struct tbg_target *t, const char *v);
bool tbg_script_filename_set(struct tbg_target *t, const char *v);
bool tbg_script_index_set(struct tbg_target *t, const char *v);
bool tbg_script_split_set(struct tbg_target *t, const char *v);
bool tbg_script_params_set(struct tbg_target *t, const char *v);

/* pool.c */
bool tbg_cgi_set(struct tbg_target *t, const char *v);
bool tbg_cgi_cpu_set(struct tbg_target *t, const char *v);
bool tbg_cgi_user_set(struct tbg_target *t, const char *v);
bool tbg_cgi_chroot_set(struct tbg_target *t, const char *v);
bool tbg_module_set(struct tbg_target *t, const char *v);

/* daemon.c */
bool tbg_listen_set(struct tbg_target *t, const char *v);
bool tbg_wire_set(struct tbg_target *t, const char *v);
bool tbg_births_set(struct tbg_target *t, const char *v);
bool tbg_wire_size_set(struct tbg_target *t, const char *v);
bool tbg_tiers_set(struct tbg_target *t, const char *v);
bool tbg_memory_set(struct tbg_target *t, const char *v);
bool tbg_control_set(struct tbg_target *t, const char *v);
bool tbg_admin_set(struct tbg_target *t, const char *v);
bool tbg_admin_token_set(struct tbg_target *t, const char *v);
bool tbg_access_log_set(struct tbg_target *t, const char *v);
bool tbg_access_log_format_set(struct tbg_target *t, const char *v);
bool tbg_log_level_set(struct tbg_target *t, const char *v);
bool tbg_user_set(struct tbg_target *t, const char *v);
bool tbg_clients_set(struct tbg_target *t, const char *v);
bool tbg_listen_deny_set(struct tbg_target *t, const char *v);
bool tbg_listen_allow_set(struct tbg_target *t, const char *v);
bool tbg_deny_answer_set(struct tbg_target *t, const char *v);
bool tbg_limit_requests_set(struct tbg_target *t, const char *v);

/* sites.c */
bool tbg_alias_set(struct tbg_target *t, const char *v);
bool tbg_default_set(struct tbg_target *t, const char *v);
bool tbg_media_types_set(struct tbg_target *t, const char *v);
bool tbg_types_set(struct tbg_target *t, const char *v);

#endif
