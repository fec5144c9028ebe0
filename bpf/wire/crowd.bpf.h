/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The number of open connections without a socket per client, where connections per
 * client are limited. (The daemon counts those with a socket, and refuses.) A client
 * that has reached the limit gets no further connection from wire: it goes to the
 * kernel, and the daemon refuses it.
 */
#ifndef TBG_WIRE_CROWD_BPF_H
#define TBG_WIRE_CROWD_BPF_H

#include "../core/bucket.h"
#include "tcb.bpf.h"

/* Returns the number of the client's connections that have a socket. */
static __always_inline __u32 tbg_crowd_held(const struct tbg_crowd_key *client)
{
	__u32 *nr = bpf_map_lookup_elem(&tbg_holders, client);

	return nr ? *nr : 0;
}

/* Returns whether the client has reached the limit. */
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

/*
 * Counts one connection more. Returns how many the client has then, with and without a
 * socket; 0: not counted.
 */
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

/*
 * Counts one connection less, and removes the entry of the client with its last one. A
 * connection that begins at this moment may not be counted.
 */
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

/*
 * Clears the mark that f is counted, as it is no longer open. Returns true if it was:
 * the caller calls tbg_crowd_leave(). Under the lock.
 */
static __always_inline bool tbg_crowd_left(struct tbg_tcb *f)
{
	bool ret = f->tried & TBG_TCB_COUNTED;

	f->tried &= ~TBG_TCB_COUNTED;
	return ret;
}

#endif
