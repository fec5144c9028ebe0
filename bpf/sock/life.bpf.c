// SPDX-License-Identifier: GPL-2.0
/*
 * sock_ops: enrols a connection of our listeners in sock before its first byte
 * can be read, and notes its end. After any error it remains a plain socket,
 * which the daemon serves. Runs for every TCP socket of the daemon's cgroup.
 */
#include <stdbool.h>

#include <bpf/bpf_endian.h>

#include "maps.bpf.h"

#define TBG_TCP_CLOSE		7
#define TBG_TCP_CLOSE_WAIT	8

/* Takes a slot for the socket; negative: none is free. */
static __always_inline int tbg_life_slot(struct bpf_sock_ops *ops,
					 struct tbg_sock_id *id)
{
	struct tbg_sock_conn *c;
	__u64 cookie;
	__u32 slot;

	if (bpf_map_pop_elem(&tbg_sock_free, &slot))
		return -1;
	c = bpf_map_lookup_elem(&tbg_sock_conns, &slot);
	if (!c)
		return -1;
	cookie = bpf_get_socket_cookie(ops);
	__builtin_memset(c, 0, sizeof(*c));
	c->next_seq = ops->rcv_nxt;
	c->first_seq = ops->snd_nxt;
	c->settled = 1;
	if (bpf_map_update_elem(&tbg_sock_slots, &cookie, &slot, BPF_ANY)) {
		bpf_map_push_elem(&tbg_sock_free, &slot, 0);
		return -1;
	}
	c->cookie = cookie;
	id->slot = slot;
	id->cookie = cookie;
	return slot;
}

/* Addresses and ports of the connection, in the form of flows. */
static __always_inline void tbg_life_key(struct bpf_sock_ops *ops,
					 struct tbg_flow_key *key)
{
	TBG_SOCK_END(ops, local, key->local);
	TBG_SOCK_END(ops, remote, key->remote);
	key->local_port = bpf_htons(ops->local_port);
	key->remote_port = bpf_htons(bpf_ntohl(ops->remote_port));
}

/*
 * If wire follows the connection, links both, so that wire counts what sock
 * answers: the packet that ends the handshake has just passed wire.
 */
static __always_inline void tbg_life_wire(struct bpf_sock_ops *ops, __u32 slot)
{
	struct tbg_sock_conn *c = bpf_map_lookup_elem(&tbg_sock_conns, &slot);
	struct tbg_flow *f;
	struct tbg_conn_word *conn;
	struct tbg_flow_key key;
	__u32 wire;

	tbg_life_key(ops, &key);
	f = bpf_map_lookup_elem(&tbg_flows, &key);
	if (!f || !c)
		return;
	wire = f->slot;
	conn = bpf_map_lookup_elem(&tbg_conns, &wire);
	if (!conn)
		return;
	c->wire = wire + 1;
	conn->sock = slot + 1;
}

static __always_inline void tbg_life_enrol(struct bpf_sock_ops *ops,
					   struct tbg_sock_id *id)
{
	struct tbg_knob *knob = tbg_knob_get();
	int slot;
	__u32 key;

	if (!knob || !knob->answer || id->cookie)
		return;
	slot = tbg_life_slot(ops, id);
	if (slot < 0) {
		tbg_count(TBG_WHY_NO_FLOW);
		return;
	}
	key = slot;
	if (bpf_sock_map_update(ops, &tbg_socks, &key, BPF_ANY)) {
		__u64 cookie = id->cookie;
		struct tbg_sock_conn *c =
			bpf_map_lookup_elem(&tbg_sock_conns, &key);

		/* with a protocol on top (MPTCP, TLS): not enrolled */
		id->cookie = 0;
		if (c)
			c->cookie = 0;
		bpf_map_delete_elem(&tbg_sock_slots, &cookie);
		bpf_map_push_elem(&tbg_sock_free, &key, 0);
		tbg_count(TBG_WHY_NO_FLOW);
		return;
	}
	tbg_life_wire(ops, key);
	bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags |
				       BPF_SOCK_OPS_STATE_CB_FLAG);
	tbg_count(TBG_WHY_ENROLLED);
}

/* flag: TBG_SOCK_CLOSED or TBG_SOCK_FIN. */
static __always_inline void tbg_life_end(const struct tbg_sock_id *id, __u32 flag)
{
	struct tbg_sock_conn *c;
	__u32 slot = id->slot;

	c = bpf_map_lookup_elem(&tbg_sock_conns, &slot);
	if (!c || !id->cookie || c->cookie != id->cookie)
		return;
	c->flags |= flag;
	tbg_sock_report(c, slot);
}

SEC("sockops")
int tbg_life(struct bpf_sock_ops *ops)
{
	bool born = ops->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB;
	bool changed = ops->op == BPF_SOCK_OPS_STATE_CB;
	__u32 state = changed ? ops->args[1] : 0;
	struct tbg_sock_id *id;
	struct bpf_sock *sk;

	if (!born && state != TBG_TCP_CLOSE && state != TBG_TCP_CLOSE_WAIT)
		return 1;
	sk = ops->sk;
	if (!sk)
		return 1;
	id = bpf_sk_storage_get(&tbg_sock_ids, sk, NULL, 0);
	if (!id)
		return 1;
	if (born)
		tbg_life_enrol(ops, id);
	else
		tbg_life_end(id, state == TBG_TCP_CLOSE ? TBG_SOCK_CLOSED : TBG_SOCK_FIN);
	return 1;
}
