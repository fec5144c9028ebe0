/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Links pinned in bpffs, where they outlive the daemon: one folder for each user that
 * daemons run as, made by root below /sys/fs/bpf, in our mount namespace or that of the
 * first process. A file name consists of network namespace, interface, hook and program.
 * Called by attach.c and interfaces.c.
 */
#ifndef TBG_USERD_TIERS_PINS_H
#define TBG_USERD_TIERS_PINS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define TBG_PIN_LEN 64

/* The folder of this daemon's pins; or none. */
struct tbg_pins {
	int dir_fd;		/* negative errno: there is none */
	unsigned long netns;	/* inode of our network namespace */
};

/*
 * Removes the folder of this user if it is empty and no daemon has it open. Needs the
 * right to write anywhere.
 */
void tbg_pins_leave(uid_t owner);

/* Creates the folder for this user if necessary. It is in use until tbg_pins_close(). */
void tbg_pins_open(struct tbg_pins *ret, uid_t owner);
void tbg_pins_close(struct tbg_pins *p);

/* Makes the file name of the pin for a program on a hook of an interface. */
void tbg_pin_name(const struct tbg_pins *p, int ifindex, const char *hook, unsigned int prog_id,
		  char ret[TBG_PIN_LEN]);

/* 0 or negative errno. */
int tbg_pin_add(int dir_fd, const char *name, int link_fd);
void tbg_pin_remove(int dir_fd, const char *name);

/*
 * Calls fn for each pin in all folders, with its link; here: it was made in our network
 * namespace. dir_fd and link_fd are valid during the call only. Needs root.
 */
void tbg_pins_each(void (*fn)(int dir_fd, const char *name, int link_fd, bool here, void *arg),
		   void *arg);

#endif
