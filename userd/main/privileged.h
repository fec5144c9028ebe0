/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The one process that keeps the right to write where only root may. It opens the
 * access log, removes the control socket and, at the end, the empty folder of pins. It
 * takes names only from the configuration, never from the daemon, which an attacker may
 * control. It ends with the daemon.
 */
#ifndef TBG_USERD_MAIN_PRIVILEGED_H
#define TBG_USERD_MAIN_PRIVILEGED_H

#include <sys/stat.h>

struct tbg_identity;
struct tbg_options;

/*
 * Forks it, before anything is open that it must not have. It may use the names
 * in o; at a reload it finds the configuration by argv. Not started without the
 * right to write anywhere. 0 or negative errno.
 */
int tbg_privileged_start(const struct tbg_identity *id, const struct tbg_options *o,
			 char **argv);

/*
 * Opens or creates the access log at this path for appending. Returns descriptors
 * of it and of its folder. *ret_before: 0, or the error for which it was opened
 * in its former folder instead. Negative errno; -EPERM: there is no such process,
 * or the configuration names no such log.
 */
int tbg_privileged_log(const char *path, int *ret_folder, int *ret_before);

/* While the daemon starts: registers a socket to be removed at its end. */
void tbg_privileged_socket(int folder_fd, const char *name, const struct stat *st);
void tbg_privileged_started(void);
/* Removes it if it is still the same file. */
void tbg_privileged_unlink(void);

void tbg_privileged_stop(void);

#endif
