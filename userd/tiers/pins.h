/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Links in bpffs, where they outlive the daemon: a folder for each user that daemons run
 * as, made by root below /sys/fs/bpf, as we, our caller or the first process have it. A
 * name in it is the network namespace, the interface, the hook and the program. Called by
 * attach.c and interfaces.c.
 */
#ifndef TBG_USERD_PINS_H
#define TBG_USERD_PINS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define TBG_PIN_LEN 64

/* The folder that a daemon pins in; or nothing. */
struct tbg_pins {
	int dir_fd;		/* negative errno: there is none */
	unsigned long netns;	/* as stat() numbers ours */
};

/*
 * Removes the folder of that user, if it is empty and no daemon has it open; of the bpffs
 * that is mounted for us. Needs the right to write anywhere.
 */
void tbg_pins_leave(uid_t owner);

/* Makes the folder for that user where need be. It is ours until tbg_pins_close(). */
void tbg_pins_open(struct tbg_pins *ret, uid_t owner);
void tbg_pins_close(struct tbg_pins *p);

/* The name of the pin of a program on a hook of an interface. */
void tbg_pin_name(const struct tbg_pins *p, int ifindex, const char *hook, unsigned int prog_id,
		  char ret[TBG_PIN_LEN]);

/* 0 or negative errno. */
int tbg_pin_add(int dir_fd, const char *name, int link_fd);
void tbg_pin_remove(int dir_fd, const char *name);

/*
 * Calls fn for each pin of all folders, with its link; here: it was of our namespace when
 * it was made. dir_fd and link_fd are fn's to copy, not to keep. Needs root.
 */
void tbg_pins_each(void (*fn)(int dir_fd, const char *name, int link_fd, bool here, void *arg),
		   void *arg);

#endif
