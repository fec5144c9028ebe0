// SPDX-License-Identifier: GPL-2.0
/*
 * Slots, and removal of flows. A slot is in exactly one place: the free queue,
 * a flow, the retired queue (its flow was replaced in BPF), or the list of
 * slots that a connection still holds. So none is lost and none has two owners.
 */
#include "tiers/flow.h"

#include <errno.h>
#include <linux/if_ether.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <bpf/bpf.h>

#include "os/timers.h"
#include "tiers/address.h"

#define TBG_SWEEP_BATCH 4096	/* flows read by one system call */
#define TBG_SWEEP_ASKED 512	/* silent flows whose sockets one sweep asks for */

int tbg_flows_open(struct tbg_flows *f, uint32_t slots_nr)
{
	f->slots_nr = slots_nr;
	f->silent_ns = 600ull * 1000000000;
	f->held = calloc(slots_nr, sizeof(*f->held));
	f->waiting = calloc(slots_nr, sizeof(*f->waiting));
	if (!f->held || !f->waiting) {
		tbg_flows_close(f);
		return -ENOMEM;
	}
	for (uint32_t slot = 0; slot < slots_nr; slot++) {
		int err = bpf_map_update_elem(f->slots_fd, NULL, &slot, 0);

		if (err) {
			tbg_flows_close(f);
			return err;
		}
	}
	return 0;
}

void tbg_flows_close(struct tbg_flows *f)
{
	free((void *)f->held);
	free(f->waiting);
	f->held = NULL;
	f->waiting = NULL;
}

static bool is_closed(const struct tbg_flow *f)
{
	return f->flags & (TBG_FLOW_RST | TBG_FLOW_FIN_OUT);
}

/*
 * Whether the client has acknowledged everything that the socket has sent, including its
 * FIN.
 */
static bool is_acked(const struct tbg_flow *f)
{
	return f->acked - f->out_delta - f->iss == f->sent;
}

/*
 * Whether the connection is fully closed: reset, or both sides have closed and
 * our FIN is acknowledged. TIME_WAIT only answers retransmissions.
 */
static bool is_through(const struct tbg_flow *f)
{
	const uint8_t fins = TBG_FLOW_FIN_IN | TBG_FLOW_FIN_OUT;

	return f->flags & TBG_FLOW_RST || ((f->flags & fins) == fins && is_acked(f));
}

/*
 * Whether there may be a socket that needs translation. When draining, each socket
 * has sent its FIN or a reset, or is about to; after a FIN it waits TBG_FLOW_FIN_S
 * for the other one.
 */
static bool is_open(const struct tbg_flows *f, const struct tbg_flow *flow,
		    uint64_t now_ns)
{
	if (!(flow->in_delta | flow->out_delta) || is_through(flow))
		return false;
	if (flow->flags & TBG_FLOW_FIN_OUT)
		return flow->seen_ns + TBG_FLOW_FIN_S * 1000000000ull > now_ns;
	return flow->seen_ns >= f->drain_ns;
}

/*
 * Whether nothing is left to translate: no deltas, a reset (which is not
 * answered), or a socket that closed after its client and whose FIN is
 * acknowledged.
 */
static bool is_spent(const struct tbg_flow *f)
{
	return !(f->in_delta | f->out_delta) || f->flags & TBG_FLOW_RST ||
	       (f->flags & TBG_FLOW_LAST && is_acked(f));
}

/* Returns a slot without a flow to the pool, at once or when it is no longer held. */
static void slot_free(struct tbg_flows *f, uint32_t slot)
{
	if (f->waiting_nr < f->slots_nr)
		f->waiting[f->waiting_nr++] = slot;
}

static void release_waiting(struct tbg_flows *f)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < f->waiting_nr; i++) {
		uint32_t slot = f->waiting[i];

		if (f->held[slot] ||
		    bpf_map_update_elem(f->slots_fd, NULL, &slot, 0))
			f->waiting[kept++] = slot;
	}
	f->waiting_nr = kept;
}

/* Whether a flow can be deleted: in any case, or if it has no socket (*is_silent). */
static bool is_dead(const struct tbg_flows *f, const struct tbg_flow *flow,
		    uint64_t now_ns)
{
	uint64_t quiet_ns = now_ns > flow->seen_ns ? now_ns - flow->seen_ns : 0;

	if (f->held[flow->slot])
		return false;
	if (!is_closed(flow))
		return quiet_ns > f->silent_ns;
	if (is_spent(flow))
		return quiet_ns > tbg_timer_ns(TBG_TIMER_FLOW_SPENT);
	return quiet_ns > TBG_FLOW_CLOSED_S * 1000000000ull;
}

/*
 * Runs a program on a frame that contains the len bytes of what, as if received on
 * ifindex. Returns the program's result, or negative errno.
 */
static int run(int prog_fd, uint32_t ifindex, const void *what, size_t len)
{
	struct __sk_buff ctx = { .ifindex = ifindex };
	uint8_t frame[ETH_HLEN + sizeof(struct tbg_burial)] = {};
	LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = frame,
		    .data_size_in = ETH_HLEN + len, .ctx_in = &ctx,
		    .ctx_size_in = sizeof(ctx), .repeat = 1);
	int err;

	memcpy(frame + ETH_HLEN, what, len);
	err = bpf_prog_test_run_opts(prog_fd, &opts);
	return err ?: (int)opts.retval;
}

/*
 * Whether the kernel has a socket with the addresses of key; true in doubt. The
 * look-up runs as if by a frame of the flow's interface: the socket may be bound to
 * it, or to its VRF.
 */
static bool has_socket(const struct tbg_flows *f, const struct tbg_flow_key *key,
		       const struct tbg_flow *flow)
{
	int has = run(f->socket_fd, flow->ifindex, key, sizeof(*key));

	if (has == -ENODEV)		/* the interface is gone */
		has = run(f->socket_fd, 0, key, sizeof(*key));
	return has;
}

/*
 * Deletes the flow if it is unchanged since it was read; or, with revive, undoes the
 * effect of a reset.
 */
static int bury(const struct tbg_flows *f, const struct tbg_flow_key *key,
		const struct tbg_flow *flow, bool revive)
{
	struct tbg_burial b = { .key = *key, .slot = flow->slot,
				.seen_ns = flow->seen_ns, .revive = revive };

	return run(f->bury_fd, 0, &b, sizeof(b));
}

/*
 * Whether a flow that seems dead is only silent, or a reset has not reached its
 * socket: the socket still exists and needs the deltas. Each sweep checks
 * TBG_SWEEP_ASKED of them, the next sweep the following ones; *nr counts them.
 */
static bool is_silent(const struct tbg_flows *f, const struct tbg_flow_key *key,
		      const struct tbg_flow *flow, unsigned int *nr)
{
	if (flow->flags & TBG_FLOW_FIN_OUT || !(flow->in_delta | flow->out_delta))
		return false;
	if ((*nr)++ - f->silent_at >= TBG_SWEEP_ASKED)
		return true;
	if (!has_socket(f, key, flow))
		return false;
	if (flow->flags & TBG_FLOW_RST)
		bury(f, key, flow, true);
	return true;
}

/*
 * Calls fn for each flow of a map until it returns false. Reads bucket by bucket, not
 * key by key: an update moves an element to the front of its bucket, so iteration by
 * key might alternate between two elements for ever.
 */
static void flows_read(int flows_fd,
		       bool (*fn)(const struct tbg_flow_key *key,
				  const struct tbg_flow *flow, void *arg),
		       void *arg)
{
	struct tbg_flow_key *keys = calloc(TBG_SWEEP_BATCH, sizeof(*keys));
	struct tbg_flow *flows = calloc(TBG_SWEEP_BATCH, sizeof(*flows));
	bool more = keys && flows;
	uint32_t token, *in = NULL;

	while (more) {
		uint32_t nr = TBG_SWEEP_BATCH;
		int err = bpf_map_lookup_batch(flows_fd, in, &token, keys, flows,
					       &nr, NULL);

		if (err && err != -ENOENT)
			break;
		more = !err;
		in = &token;
		for (uint32_t i = 0; i < nr; i++)
			if (!fn(&keys[i], &flows[i], arg)) {
				more = false;
				break;
			}
	}
	free(keys);
	free(flows);
}

struct sweep {
	struct tbg_flows *f;
	uint64_t now_ns;
	unsigned int kept_nr, open_nr, silent_nr;
};

static bool sweep_one(const struct tbg_flow_key *key, const struct tbg_flow *flow,
		      void *arg)
{
	struct sweep *s = arg;

	if (is_dead(s->f, flow, s->now_ns) &&
	    !is_silent(s->f, key, flow, &s->silent_nr)) {
		if (bury(s->f, key, flow, false) > 0)
			slot_free(s->f, flow->slot);
		return true;
	}
	s->kept_nr++;
	s->open_nr += is_open(s->f, flow, s->now_ns);
	return true;
}

void tbg_flows_sweep(struct tbg_flows *f, uint64_t now_ns)
{
	struct sweep s = { .f = f, .now_ns = now_ns };
	uint32_t slot;

	flows_read(f->flows_fd, sweep_one, &s);
	while (!bpf_map_lookup_and_delete_elem(f->retired_fd, NULL, &slot))
		slot_free(f, slot);
	release_waiting(f);
	f->silent_at += TBG_SWEEP_ASKED;
	if (f->silent_at >= s.silent_nr)
		f->silent_at = 0;
	f->nr = s.kept_nr;
	f->open_nr = s.open_nr;
}

struct need {
	uint64_t now_ns;
	bool is;
};

static bool need_one(const struct tbg_flow_key *key, const struct tbg_flow *flow,
		     void *arg)
{
	struct need *n = arg;

	n->is = (flow->in_delta | flow->out_delta) && !is_through(flow) &&
		flow->seen_ns + TBG_FLOW_ORPHAN_S * 1000000000ull > n->now_ns;
	return !n->is;
}

bool tbg_flows_needed(int flows_fd, uint64_t now_ns)
{
	struct need n = { .now_ns = now_ns };
	struct bpf_map_info info = {};
	uint32_t len = sizeof(info);

	if (!bpf_obj_get_info_by_fd(flows_fd, &info, &len) &&
	    info.key_size == sizeof(struct tbg_flow_key) &&
	    info.value_size == sizeof(struct tbg_flow))
		flows_read(flows_fd, need_one, &n);
	return n.is;
}

bool tbg_flow_waits(const struct tbg_flows *f, const struct tbg_flow_key *key,
		    uint32_t slot)
{
	struct tbg_flow flow;
	int err = bpf_map_lookup_elem(f->flows_fd, key, &flow);

	if (err)
		return err != -ENOENT;
	return flow.slot == slot && !is_closed(&flow);
}

/* Whether a flow's segments reach the socket: a socket in a VRF is bound to it. */
static bool is_of_domain(const struct tbg_flow *flow, int fd)
{
	uint32_t bound = 0;
	socklen_t len = sizeof(bound);

	if (getsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &bound, &len))
		return false;
	return bound == flow->domain || (bound == flow->ifindex && !flow->domain);
}

int tbg_flow_lookup(const struct tbg_flows *f, int fd, struct tbg_flow *ret)
{
	struct sockaddr_storage local, remote;
	socklen_t local_len = sizeof(local), remote_len = sizeof(remote);
	struct tbg_flow_key key = {};
	int err;

	if (getsockname(fd, (void *)&local, &local_len) ||
	    getpeername(fd, (void *)&remote, &remote_len))
		return -errno;
	tbg_end_of(&local, key.local, &key.local_port);
	tbg_end_of(&remote, key.remote, &key.remote_port);
	err = bpf_map_lookup_elem(f->flows_fd, &key, ret);
	if (err)
		return err;
	if (!is_of_domain(ret, fd))
		return -ENOENT;
	/* it was reset meanwhile: another connection may have its addresses, and the flow */
	remote_len = sizeof(remote);
	return getpeername(fd, (void *)&remote, &remote_len) ? -errno : 0;
}

uint64_t tbg_flow_hit_ns(const struct tbg_flows *f, int fd, uint64_t now_ns)
{
	struct tbg_flow flow;
	int32_t ago_ms;

	if (tbg_flow_lookup(f, fd, &flow) || !(flow.in_delta | flow.out_delta))
		return 0;
	ago_ms = (uint32_t)(now_ns / 1000000) - flow.repeat_ms;
	return ago_ms > 0 ? now_ns - ago_ms * 1000000ull : now_ns;
}
