// SPDX-License-Identifier: GPL-2.0
/*
 * The daemon's side of wire's connections. The program tbg_push sends everything: it
 * runs on a segment as the client would send it, so that replies are made in one
 * place. Open connections are never deleted here, only closed.
 */
#include "tiers/tcb.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <linux/sockios.h>

#include <bpf/bpf.h>

#include "core/span.h"
#include "os/limits.h"
#include "os/repair.h"
#include "os/units.h"
#include "tiers/address.h"
#include "tiers/segment.h"

#define TBG_READ_BATCH 4096	/* connections read by one system call */
#define TBG_DUES_BATCH 256
#define SILENT_MS 1000		/* the first retransmission timeout of RFC 6298 */
#define CROWDED_S 1		/* TIME_WAIT, where room is short */
#define REFUSALS_MOST 8		/* so that at most 255 requests pass between attempts */
/*
 * Hits that pay for a give-back and the next hand-over: both take some 146,000
 * instructions, and a hit of 1 KiB by wire saves 12,000 (`make -C vm bench`, 7.2).
 */
#define GIVE_PAYS	12
#define UNPAID_MOST	5

/* Counts places of the table that are taken, or not any more, as BPF does. */
static void count(const struct tbg_tcbs *t, int more)
{
	if (t->room)
		__atomic_fetch_add(&t->room->taken, more, __ATOMIC_RELAXED);
}

/* Removes the connection. Returns 0 or a negative errno. */
static int forget(const struct tbg_tcbs *t, const struct tbg_tcb_key *key)
{
	int err = bpf_map_delete_elem(t->tcbs_fd, key);

	if (!err)
		count(t, -1);
	return err;
}

int tbg_tcbs_open(struct tbg_tcbs *t, int tcbs_fd, int dues_fd, int stuck_fd, int push_fd)
{
	*t = (struct tbg_tcbs){
		.tcbs_fd = tcbs_fd, .dues_fd = dues_fd, .stuck_fd = stuck_fd,
		.push_fd = push_fd, .crowds_fd = t->crowds_fd,
		.holders_fd = t->holders_fd, .room = t->room, .conns = t->conns,
		.idle_ms = 60000, .header_ms = 60000,
	};
	if (t->room) {
		t->room->most = t->conns / 8 * 7;
		t->room->closed_most = t->conns / 2;
	}
	return 0;
}

void tbg_tcbs_close(struct tbg_tcbs *t)
{
	free(t->due);
	t->due = NULL;
	t->due_nr = t->due_room = 0;
}

static int key_of(int fd, struct tbg_tcb_key *ret)
{
	struct sockaddr_storage local, remote;
	socklen_t local_len = sizeof(local), remote_len = sizeof(remote);

	memset(ret, 0, sizeof(*ret));
	if (getsockname(fd, (void *)&local, &local_len) ||
	    getpeername(fd, (void *)&remote, &remote_len))
		return -errno;
	tbg_end_of(&local, ret->flow.local, &ret->flow.local_port);
	tbg_end_of(&remote, ret->flow.remote, &ret->flow.remote_port);
	return 0;
}

/* Counts the last give-back as one that has paid, or has not. */
static void unpaid_count(struct tbg_tcb *t)
{
	bool paid = (uint16_t)(t->answers - t->given_at) >= GIVE_PAYS;

	if (t->given_at && !paid && t->unpaid < UNPAID_MOST)
		t->unpaid++;
	else if (paid && t->unpaid)
		t->unpaid--;
}

/* Number of unacknowledged bytes of wire's last reply on *t. */
static uint32_t owed(const struct tbg_tcb *t)
{
	uint32_t left = t->snd_nxt - t->acked;

	return left <= t->last.len ? left : 0;
}

int tbg_tcb_take(const struct tbg_tcbs *t, int fd, struct tbg_taken *ret)
{
	int vrf, err = key_of(fd, &ret->key);
	socklen_t len = sizeof(vrf);

	ret->streak = ret->refusals = ret->rest = 0;

	if (err)
		return err;
	/* the bound device is that of its VRF, whatever tcp_l3mdev_accept is */
	if (t->vrfs && !getsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &vrf, &len))
		ret->key.vrf = vrf;
	if (bpf_map_lookup_elem(t->tcbs_fd, &ret->key, &ret->tcb))
		return -errno;
	if (ret->tcb.state != TBG_TCB_HANDED)
		return -ENOENT;
	unpaid_count(&ret->tcb);
	return owed(&ret->tcb) ? 0 : forget(t, &ret->key);
}

/* Whether wire has deleted the connection because its last reply is acknowledged. */
static bool is_forgotten(const struct tbg_tcbs *t, const struct tbg_tcb_key *key)
{
	struct tbg_tcb tcb;

	if (bpf_map_lookup_elem(t->tcbs_fd, key, &tcb))
		return true;
	return tcb.state == TBG_TCB_HANDED && !owed(&tcb) &&
	       !forget(t, key);
}

/* Runs the program on a segment with this payload; returns its result, or -errno. */
static int push_with(const struct tbg_tcbs *t, const struct tbg_tcb_key *key,
		      const struct tbg_tcb *tcb, uint32_t what, const uint8_t *b,
		      uint32_t len)
{
	struct __sk_buff ctx = { .ifindex = tcb->ifindex, .cb = { what } };
	struct tbg_segment f;
	LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = f.b, .ctx_in = &ctx,
		    .ctx_size_in = sizeof(ctx), .repeat = 1);

	tbg_segment_make(&f, key, tcb, b, len);
	opts.data_size_in = f.len;
	return bpf_prog_test_run_opts(t->push_fd, &opts) ? -errno : (int)opts.retval;
}

static void push(const struct tbg_tcbs *t, const struct tbg_tcb_key *key,
		 const struct tbg_tcb *tcb, uint32_t what)
{
	push_with(t, key, tcb, what, NULL, 0);
}

/* Whether wire could answer this request of the connection, if the client's MSS allows. */
static bool asks(const struct tbg_tcbs *t, const struct tbg_taken *k, const uint8_t *b,
		 uint32_t len)
{
	return len <= TBG_REQ_MAX && push_with(t, &k->key, &k->tcb, TBG_PUSH_ASK, b, len) > 0;
}

/*
 * Whether the client has acknowledged all of the socket's answers. If bytes are still to be sent in
 * repair mode, the next acknowledgement makes the kernel mark them as sent, but it does not send
 * them (tcp_write_xmit, while TCP_REPAIR_QUEUE is the queue to send). The client gets them only
 * after a timeout.
 */
static bool is_acked(int fd)
{
	int left;

	return !ioctl(fd, SIOCOUTQ, &left) && !left;
}

/*
 * Gives it with that request: true, and the socket is not connected any more. False where the
 * reply is too long, a segment came meanwhile, or it is unknown where the client is.
 */
static bool give(const struct tbg_tcbs *t, struct tbg_taken *k, int fd, uint32_t taken,
		 const uint8_t *b, uint32_t len)
{
	const struct sockaddr none = { .sa_family = AF_UNSPEC };
	struct tbg_tcb tcb = k->tcb;
	enum tbg_repaired done;

	tcb.rcv_nxt += taken;
	tcb.lock = (struct bpf_spin_lock){ 0 };
	tcb.state = TBG_TCB_GIVING;
	tcb.undone = 0;
	tcb.fails = 0;
	tcb.given_at = tcb.answers;
	if (len > TBG_REQ_MAX || !is_acked(fd) || !is_forgotten(t, &k->key))
		return false;
	done = tbg_repair_set(fd, true);
	if (done == TBG_REPAIR_NO)
		return false;
	if (done == TBG_REPAIR_UNKNOWN)
		goto end;
	if (bpf_map_update_elem(t->tcbs_fd, &k->key, &tcb, BPF_NOEXIST))
		goto undo;
	count(t, 1);
	/*
	 * From now on, segments to the socket undo it. This is a call of its own, so that
	 * those under way reach the socket before its numbers are read.
	 */
	if (push_with(t, &k->key, &tcb, TBG_PUSH_SEEK, NULL, 0) <= 0)
		goto forget;
	/* its client may have moved since the hand-over */
	if (bpf_map_lookup_elem(t->tcbs_fd, &k->key, &tcb))
		goto forget;
	if (push_with(t, &k->key, &tcb, TBG_PUSH_GIVE, b, len) <= 0)
		goto forget;
	/* no segment reaches the socket any more */
	connect(fd, &none, sizeof(none));
	if (!bpf_map_lookup_elem(t->tcbs_fd, &k->key, &tcb))
		push(t, &k->key, &tcb, TBG_PUSH_ANSWER);
	return true;
forget:
	forget(t, &k->key);
undo:
	if (tbg_repair_set(fd, false) == TBG_REPAIR_DONE)
		return false;
end:
	/* its client is reset, now or by its next segment */
	connect(fd, &none, sizeof(none));
	return true;
}

/* A refused attempt costs system calls: the next 0, 1, 3, 7 ... requests make no attempt. */
static bool refuse(struct tbg_taken *k)
{
	k->streak = 0;
	k->rest = (1u << k->refusals) - 1;
	if (k->refusals < REFUSALS_MOST)
		k->refusals++;
	return false;
}

bool tbg_tcb_give(const struct tbg_tcbs *t, struct tbg_taken *k, int fd, uint32_t taken,
		  const uint8_t *b, uint32_t len, unsigned int answers)
{
	if (k->rest) {
		k->rest--;
		return false;
	}
	if (!asks(t, k, b, len))
		return refuse(k);
	/* 1: at every chance, whether that pays or not */
	if (++k->streak < (answers == 1 ? 1 : answers << k->tcb.unpaid))
		return false;
	return give(t, k, fd, taken, b, len) || refuse(k);
}

/* A connection whose last reply is to be acknowledged, and when to look at it. */
struct tbg_due {
	struct tbg_tcb_key key;
	struct tbg_tcb tcb;		/* as it was when this was added */
	uint32_t at_ms;
};

static uint32_t *due_place(struct tbg_tcbs *t, const struct tbg_tcb_key *key)
{
	uint32_t hash = (key->flow.remote[3] ^ (uint32_t)key->flow.remote_port << 16) * 0x9e3779b1u;

	return &t->due_at[hash >> 16 & (TBG_DUE_PLACES - 1)];
}

/*
 * The connection in the list; NULL: it is not there. May miss one of two with the same
 * hash, which costs no more than to look at it twice.
 */
static struct tbg_due *due_find(struct tbg_tcbs *t, const struct tbg_tcb_key *key)
{
	uint32_t at = *due_place(t, key);

	return at && at <= t->due_nr && !memcmp(&t->due[at - 1].key, key, sizeof(*key)) ?
	       &t->due[at - 1] : NULL;
}

static void due_add(struct tbg_tcbs *t, const struct tbg_tcb_key *key)
{
	struct tbg_due new = { .key = *key }, *old;

	if (bpf_map_lookup_elem(t->tcbs_fd, key, &new.tcb) || !owed(&new.tcb))
		return;
	new.at_ms = new.tcb.repeat_ms + tbg_due_ms(new.tcb.tries);
	old = due_find(t, key);
	if (old) {
		*old = new;
		return;
	}
	if (t->due_nr == t->due_room) {
		unsigned int room = t->due_room ? 2 * t->due_room : TBG_DUES_BATCH;
		struct tbg_due *due = realloc(t->due, room * sizeof(*due));

		if (!due)
			return;
		t->due = due;
		t->due_room = room;
	}
	t->due[t->due_nr++] = new;
	*due_place(t, key) = t->due_nr;
}

/* Takes the list of BPF before processing it, so that later additions are kept. */
static void dues_take(struct tbg_tcbs *t)
{
	struct tbg_tcb_key keys[TBG_DUES_BATCH];
	uint32_t values[TBG_DUES_BATCH], token, *in = NULL, nr;
	int err;

	do {
		nr = TBG_DUES_BATCH;
		err = bpf_map_lookup_and_delete_batch(t->dues_fd, in, &token, keys, values,
						      &nr, NULL);
		if (err && err != -ENOENT)
			break;
		in = &token;
		for (uint32_t i = 0; i < nr; i++)
			due_add(t, &keys[i]);
	} while (!err);
}

/* Retransmits if it is time. Returns whether to check again, at due->at_ms. */
static bool due_look(const struct tbg_tcbs *t, struct tbg_due *due, uint32_t now_ms)
{
	int next;

	if ((int32_t)(now_ms - due->at_ms) < 0)
		return true;
	/* as it is now: its client may have moved */
	if (bpf_map_lookup_elem(t->tcbs_fd, &due->key, &due->tcb))
		return false;
	next = push_with(t, &due->key, &due->tcb, TBG_PUSH_AGAIN, NULL, 0);
	if (next == -ENODEV) {	/* its interface is gone */
		forget(t, &due->key);
		return false;
	}
	due->at_ms = now_ms + (next > 0 ? (uint32_t)next - 1 : TBG_DUE_MS);
	return next;
}

void tbg_tcbs_again(struct tbg_tcbs *t, uint64_t now_ns)
{
	uint32_t now_ms = now_ns / 1000000;
	unsigned int kept = 0;

	dues_take(t);
	for (unsigned int i = 0; i < t->due_nr; i++)
		if (due_look(t, &t->due[i], now_ms)) {
			t->due[kept++] = t->due[i];
			*due_place(t, &t->due[i].key) = kept;
		}
	t->due_nr = kept;
}

unsigned int tbg_tcbs_stuck(const struct tbg_tcbs *t, struct tbg_tcb_key *ret, unsigned int nr)
{
	unsigned int found = 0;

	/* one by one, since there are few */
	while (found < nr && !bpf_map_get_next_key(t->stuck_fd, NULL, &ret[found]) &&
	       !bpf_map_delete_elem(t->stuck_fd, &ret[found]))
		found++;
	return found;
}

void tbg_tcbs_read(const struct tbg_tcbs *t,
		   bool (*fn)(const struct tbg_tcb_key *key, const struct tbg_tcb *tcb,
			      void *arg),
		   void *arg)
{
	struct tbg_tcb_key *keys = calloc(TBG_READ_BATCH, sizeof(*keys));
	struct tbg_tcb *tcbs = calloc(TBG_READ_BATCH, sizeof(*tcbs));
	bool more = keys && tcbs;
	uint32_t token, *in = NULL;

	while (more) {
		uint32_t nr = TBG_READ_BATCH;
		int err = bpf_map_lookup_batch(t->tcbs_fd, in, &token, keys, tcbs, &nr, NULL);

		if (err && err != -ENOENT)
			break;
		more = !err;
		in = &token;
		for (uint32_t i = 0; i < nr; i++)
			if (!fn(&keys[i], &tcbs[i], arg)) {
				more = false;
				break;
			}
	}
	free(keys);
	free(tcbs);
}

struct sweep {
	struct tbg_tcbs *t;
	uint32_t now_ms;
	bool drain, crowded;
	unsigned int nr, open_nr, closed_nr;
};

/* Milliseconds since its last segment; 0 if that has arrived after the sweep began. */
static uint32_t age_of(const struct sweep *s, const struct tbg_tcb *tcb)
{
	int32_t age_ms = s->now_ms - tcb->seen_ms;

	return age_ms > 0 ? age_ms : 0;
}

/* Whether an open connection is to be closed now. */
static bool is_idle(const struct sweep *s, const struct tbg_tcb *tcb)
{
	uint32_t age_ms = age_of(s, tcb);

	if (tcb->acked != tcb->snd_nxt)
		return false;
	return s->drain || age_ms > (tcb->answers ? s->t->idle_ms : s->t->header_ms);
}

/*
 * The client neither acknowledges the last reply nor sends its request again, as it would
 * after a reply of one segment, for which wire asks for no timer. One that the timer has
 * repeated is on its list.
 */
static bool is_silent(const struct tbg_tcb *tcb, uint32_t age_ms)
{
	return age_ms > SILENT_MS && owed(tcb) && !tcb->tries;
}

/* Only the client's FIN is missing. */
static bool is_half_closed(const struct tbg_tcb *tcb)
{
	return tcb->state == TBG_TCB_FIN_WAIT && tcb->acked == tcb->snd_nxt + 1;
}

/*
 * A daemon that drains would have closed a socket by now, and left the wait for the client's FIN
 * to the kernel.
 */
static bool is_left(const struct tbg_tcb *tcb, uint32_t age_ms)
{
	return is_half_closed(tcb) && age_ms > TBG_LINGER_MS;
}

/* As tbg_due() of wire: another thread has the list. */
static void due_ask(const struct tbg_tcbs *t, const struct tbg_tcb_key *key)
{
	const uint32_t one = 1;

	bpf_map_update_elem(t->dues_fd, key, &one, BPF_ANY);
}

/* Whether the connection is still as it was read: another one may have its key by now. */
static bool is_unchanged(const struct tbg_tcbs *t, const struct tbg_tcb_key *key,
			 const struct tbg_tcb *was)
{
	struct tbg_tcb now;

	return !bpf_map_lookup_elem(t->tcbs_fd, key, &now) && now.state == was->state &&
	       now.born_ms == was->born_ms && now.seen_ms == was->seen_ms;
}

/*
 * Sends the FIN of an idle connection. Returns false if that is not possible any more, and
 * removes the connection: its interface is gone, or is in another VRF.
 */
static bool close_idle(const struct tbg_tcbs *t, const struct tbg_tcb_key *key,
		       const struct tbg_tcb *tcb)
{
	int done = push_with(t, key, tcb, TBG_PUSH_FIN, NULL, 0);

	if ((done && done != -ENODEV) || !is_unchanged(t, key, tcb))
		return true;
	bpf_map_delete_elem(t->tcbs_fd, key);	/* the sweep corrects the count */
	return false;
}

static bool sweep_one(const struct tbg_tcb_key *key, const struct tbg_tcb *tcb, void *arg)
{
	struct sweep *s = arg;
	uint32_t age_ms = age_of(s, tcb), keep_s = TBG_TCB_CLOSED_S;

	if (tcb->state != TBG_TCB_GIVING && is_silent(tcb, age_ms))
		due_ask(s->t, key);
	switch (tcb->state) {
	case TBG_TCB_OPEN:
		if (is_idle(s, tcb) && !close_idle(s->t, key, tcb))
			return true;
		s->open_nr++;
		s->nr++;
		return true;
	case TBG_TCB_FIN_WAIT:
	case TBG_TCB_LAST_ACK:
		if (age_ms > (uint32_t)TBG_TCB_FIN_MS << (tcb->tries < 6 ? tcb->tries : 6) &&
		    tcb->acked == tcb->snd_nxt)
			push(s->t, key, tcb, TBG_PUSH_FIN);
		break;
	case TBG_TCB_TIME_WAIT:
		if (s->crowded)
			keep_s = CROWDED_S;
		break;
	case TBG_TCB_HANDED:
		keep_s = TBG_TCB_HANDED_S;
		break;
	}
	if (age_ms > keep_s * 1000 && is_unchanged(s->t, key, tcb)) {
		/* not counted: the sweep corrects that */
		bpf_map_delete_elem(s->t->tcbs_fd, key);
		return true;
	}
	s->open_nr += (tcb->state == TBG_TCB_FIN_WAIT || tcb->state == TBG_TCB_LAST_ACK) &&
		      !(s->drain && is_left(tcb, age_ms));
	s->closed_nr += tcb->state == TBG_TCB_TIME_WAIT;
	s->nr++;
	return true;
}

static int taken_nr(const struct tbg_tcbs *t)
{
	return t->room ? __atomic_load_n(&t->room->taken, __ATOMIC_RELAXED) : 0;
}

bool tbg_tcbs_crowded(const struct tbg_tcbs *t)
{
	return taken_nr(t) > (int)(t->conns / 4 * 3);
}

void tbg_tcbs_sweep(struct tbg_tcbs *t, uint64_t now_ns, bool drain)
{
	struct sweep s = { .t = t, .now_ms = now_ns / 1000000, .drain = drain };
	int before = taken_nr(t);

	s.crowded = tbg_tcbs_crowded(t);
	tbg_tcbs_read(t, sweep_one, &s);
	t->nr = s.nr;
	t->open_nr = s.open_nr;
	/* what begins and ends meanwhile has been counted, and stays so */
	count(t, (int)s.nr - before);
	if (t->room)
		__atomic_store_n(&t->room->closed, (int)s.closed_nr, __ATOMIC_RELAXED);
}

static bool reset_one(const struct tbg_tcb_key *key, const struct tbg_tcb *tcb, void *arg)
{
	if ((tcb->state == TBG_TCB_OPEN || tcb->state == TBG_TCB_FIN_WAIT ||
	     tcb->state == TBG_TCB_LAST_ACK) && !is_half_closed(tcb))
		push(arg, key, tcb, TBG_PUSH_RST);
	return true;
}

void tbg_tcbs_reset(struct tbg_tcbs *t)
{
	tbg_tcbs_read(t, reset_one, t);
}

void tbg_tcbs_crowd(struct tbg_tcbs *t, uint32_t *knob, unsigned int most, unsigned int bits)
{
	struct tbg_crowd_key key;
	bool counted;	/* and goes on, by another limit */

	if (t->crowd_most == most && t->crowd_bits == bits)
		return;
	counted = t->crowd_most && most && t->crowd_bits == bits;
	t->crowd_most = most;
	t->crowd_bits = bits;
	if (!counted)
		__atomic_store_n(knob, 0, __ATOMIC_RELEASE);
	for (unsigned int i = 0; !counted && i < TBG_CROWDS_MAX; i++)
		if (bpf_map_get_next_key(t->crowds_fd, NULL, &key) ||
		    bpf_map_delete_elem(t->crowds_fd, &key))
			break;
	__atomic_store_n(knob, most, __ATOMIC_RELEASE);
}

unsigned int tbg_tcbs_crowd_of(const struct tbg_tcbs *t, const struct tbg_prefix *client)
{
	struct tbg_crowd_key key;
	uint32_t nr;

	if (!t)
		return 0;
	memcpy(&key, client->address, sizeof(key));
	return bpf_map_lookup_elem(t->crowds_fd, &key, &nr) || (int32_t)nr < 0 ? 0 : nr;
}

void tbg_tcbs_crowd_holds(void *tcbs, const struct tbg_prefix *client, unsigned int nr)
{
	const struct tbg_tcbs *t = tcbs;
	struct tbg_crowd_key key;

	memcpy(&key, client->address, sizeof(key));
	if (nr)
		bpf_map_update_elem(t->holders_fd, &key, &nr, BPF_ANY);
	else
		bpf_map_delete_elem(t->holders_fd, &key);
}
