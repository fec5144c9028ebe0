/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The one process of ours that may still write where only root may, and what it
 * does so for: it opens the access log, and removes the control socket and, at the end,
 * the folder of pins that the daemon leaves empty. It takes
 * names from the configuration alone, never from the daemon, which may have been
 * taken over; it ends with the daemon.
 */
#ifndef TBG_MAIN_PRIVILEGED_H
#define TBG_MAIN_PRIVILEGED_H

#include <sys/stat.h>

struct tbg_identity;
struct tbg_options;

/*
 * Forks it, before anything is open that it is not to have. What o names it does
 * without asking; argv leads to the configuration at a reload. Without the right
 * to write anywhere it is not started. Negative errno.
 */
int tbg_privileged_start(const struct tbg_identity *id, const struct tbg_options *o,
			 char **argv);

/*
 * Opens the access log of that path to append to it, or makes it, and its folder:
 * descriptors. *ret_before: 0, or why it is not where the path leads but in the
 * folder of before. Negative errno; -EPERM: there is no such process, or the
 * configuration names no such log.
 */
int tbg_privileged_log(const char *path, int *ret_folder, int *ret_before);

/* While the daemon starts: what is to be removed at its end. */
void tbg_privileged_socket(int folder_fd, const char *name, const struct stat *st);
void tbg_privileged_started(void);
/* Removes what is still that. */
void tbg_privileged_unlink(void);

void tbg_privileged_stop(void);

#endif
