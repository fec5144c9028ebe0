/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The configuration file: options of the daemon, and scopes of settings. The
 * settings are those of table.c; the grammar is libconfuse's. For users:
 * Documentation/toboggan.conf.5.rst.
 */
#ifndef TBG_USERD_CONFIG_FILE_H
#define TBG_USERD_CONFIG_FILE_H

#include <stddef.h>

struct tbg_options;
struct tbg_roots;
struct tbg_scope;

/*
 * Reads path into o and top; option is the name of the option that gave the
 * path. On error returns negative errno (-ENOENT if a value names something
 * that does not exist, such as a root), and a message in ret_msg: file, line,
 * value, what is accepted. For one thread at a time.
 */
int tbg_config_read(const char *option, const char *path, struct tbg_options *o,
		    struct tbg_scope *top, struct tbg_roots *roots,
		    char *ret_msg, size_t msg_len);

#endif
