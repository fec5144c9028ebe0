/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How many connections without a socket each client has open, where there is a limit of
 * a client's connections: the daemon, which refuses, counts those with one. Whoever has
 * as many gets no further one from wire: it is the kernel's, and the daemon's to refuse.
 */
#ifndef TBG_WIRE_CROWD_BPF_H
#define TBG_WIRE_CROWD_BPF_H

#include "../core/bucket.h"
#include "tcb.bpf.h"

/* Connections of the client that have a socket. */
static __always_inline __u32 tbg_crowd_held(const struct tbg_crowd_key *client)
{
	__u32 *nr = bpf_map_lookup_elem(&tbg_holders, client);

	return nr ? *nr : 0;
}

/* Whether the client has all that it may have. */
__attribute__((noinline)) int tbg_crowd_full(const struct tbg_tcb_key *key)
{
	struct tbg_knob *knob = tbg_knob_get();
	struct tbg_crowd_key client;
	__u32 *nr;

	if (!knob || !key || !knob->crowd_most)
		return 0;
	tbg_rate_client(&knob->rate, key->flow.remote, client.address);
	nr = bpf_map_lookup_elem(&tbg_crowds, &client);
	return (__s32)((nr ? *nr : 0) + tbg_crowd_held(&client)) >= (__s32)knob->crowd_most;
}

/* One connection more of the client: how many it has, with a socket too; 0: not counted. */
__attribute__((noinline)) int tbg_crowd_join(const struct tbg_tcb_key *key)
{
	struct tbg_knob *knob = tbg_knob_get();
	struct tbg_crowd_key client;
	__u32 *nr, none = 0;

	if (!knob || !key || !knob->crowd_most)
		return 0;
	tbg_rate_client(&knob->rate, key->flow.remote, client.address);
	nr = bpf_map_lookup_elem(&tbg_crowds, &client);
	if (!nr) {
		bpf_map_update_elem(&tbg_crowds, &client, &none, BPF_NOEXIST);
		nr = bpf_map_lookup_elem(&tbg_crowds, &client);
	}
	if (!nr)
		return 0;
	return __sync_fetch_and_add(nr, 1) + 1 + tbg_crowd_held(&client);
}

/* One less. Its last leaves nothing behind; one that comes meanwhile may not be counted. */
__attribute__((noinline)) int tbg_crowd_leave(const struct tbg_tcb_key *key)
{
	struct tbg_knob *knob = tbg_knob_get();
	struct tbg_crowd_key client;
	__u32 *nr;

	if (!knob || !key)
		return 0;
	tbg_rate_client(&knob->rate, key->flow.remote, client.address);
	nr = bpf_map_lookup_elem(&tbg_crowds, &client);
	if (nr && (__s32)__sync_fetch_and_add(nr, -1) <= 1)
		bpf_map_delete_elem(&tbg_crowds, &client);
	return 0;
}

/* A connection that is open no more is not to be counted: true, who sees it is to tell. */
static __always_inline bool tbg_crowd_left(struct tbg_tcb *f)
{
	bool ret = f->tried & TBG_TCB_COUNTED;

	f->tried &= ~TBG_TCB_COUNTED;
	return ret;
}

#endif
