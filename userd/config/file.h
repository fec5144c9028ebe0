/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The configuration file: options of the daemon, and scopes of settings. What
 * it may hold is said by the tables of options.c and settings.c; the grammar is
 * libconfuse's. Documentation/toboggan.conf.5.rst is for its writers.
 */
#ifndef TBG_USERD_CONFIG_H
#define TBG_USERD_CONFIG_H

#include <stddef.h>

struct tbg_options;
struct tbg_roots;
struct tbg_scope;

/*
 * Reads path into o and top; option is the one that names it. Negative errno,
 * -ENOENT for a value that leads to nothing (a root that is missing), and in
 * ret_msg what is wrong: file, line, value, what is accepted. Not for two
 * threads at once.
 */
int tbg_config_read(const char *option, const char *path, struct tbg_options *o,
		    struct tbg_scope *top, struct tbg_roots *roots,
		    char *ret_msg, size_t msg_len);

#endif
