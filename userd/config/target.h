/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The objects that settings are stored in, and the functions for values that are
 * no plain number, size, time, switch or word (table.h), each in the file of its
 * subject. For this folder alone.
 */
#ifndef TBG_USERD_CONFIG_TARGET_H
#define TBG_USERD_CONFIG_TARGET_H

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

/* The objects that a setting may be stored in. */
struct tbg_target {
	struct tbg_options *options;
	struct tbg_sites *sites;
	struct tbg_location *location;
	struct tbg_header_rules *header_rules;	/* of the current scope */
	struct tbg_upstream_settings *upstream;
	struct tbg_pool_command *cgi, *module;
	const char **servers;		/* of the upstream or the location */
	unsigned int servers_nr;
	const char *named;		/* name of an upstream; NULL: servers are given */
	const char *beside;		/* a value that excludes the others */
	bool fallback;
	bool check_only;		/* only checks the settings */
	bool begins;			/* the first value of its list */
	bool paged[200];		/* statuses from 400 on that have a page in this list */
	const char *why;		/* error of the system */
};

/* settings.c: stores one value, as the functions below. */
bool tbg_setting_put(const struct tbg_setting_row *row, struct tbg_target *t, const char *v);
/* Applies the defaults of an object's settings. 0 or -ENOMEM. */
int tbg_settings_default(struct tbg_target *t, enum tbg_setting_object object);

/* A copy of a list of nr members, with room for one more; NULL: no memory. */
void *tbg_list_grow(struct tbg_target *t, const void *list, unsigned int nr, size_t size);

/* Appends a copy of v to a list of *nr texts. False: no memory. */
bool tbg_text_list_add(struct tbg_target *t, const char ***list,
		       unsigned int *nr, const char *v);

bool tbg_name_valid(const char *v);	/* of an upstream */
bool tbg_host_valid(const char *v);	/* a name, or a star and the end of names */
bool tbg_file_name(const char *v);	/* of a file, without a folder */
bool tbg_path_plain(const char *path);	/* no //, /./ and /../ */
bool tbg_field_value(const char *v);	/* of a header field, without white space at its ends */

/*
 * Each stores one value. False: the setting does not accept it, and t->why is
 * the system's error, or ""; or there is no memory, and errno is ENOMEM.
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
