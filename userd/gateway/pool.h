/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Pools of worker processes: one process for each folder of programs, the
 * configured number for each module; those that end are replaced. Called by
 * main.c.
 */
#ifndef TBG_USERD_GATEWAY_POOL_H
#define TBG_USERD_GATEWAY_POOL_H

struct tbg_loop;
struct tbg_pool_command;

/* 0 or negative errno. Opening and closing of pools is logged on stderr. */
int tbg_pools_open(struct tbg_loop *l);

/* listen_fd: came with the command, taken over; -1: the command came without. */
void tbg_pools_command(const struct tbg_pool_command *o, int listen_fd);

/* Kills all worker processes, and waits for them. */
void tbg_pools_close(void);

#endif
