/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The maps that both kernel tiers use. Each comment names: key and value, the
 * only writer, what happens when the map is full. The daemon sets sizes marked
 * "plan" before it loads the programs. Maps of one tier alone are in its own
 * maps.bpf.h. If both tiers are loaded, they share these.
 */
#ifndef TBG_MAPS_BPF_H
#define TBG_MAPS_BPF_H

#include <linux/bpf.h>

#include "abi/ban.h"
#include "abi/cache.h"
#include "abi/conn.h"
#include "abi/event.h"
#include "abi/knob.h"
#include "abi/sock.h"
#include "abi/stats.h"
#include "compat.bpf.h"
#include "core/bucket.h"
#include "core/request.h"
#include "core/tcpopt.h"

#define tbg_array(map, val, nr, flags)			\
	struct {					\
		__uint(type, BPF_MAP_TYPE_ARRAY);	\
		__uint(map_flags, flags);		\
		__uint(max_entries, nr);		\
		__type(key, __u32);			\
		__type(value, val);			\
	} map SEC(".maps")

/* Blobs, one array per class. Writer: daemon. Full: not admitted (plan). */
#define X(name, bytes, percent)					\
	struct tbg_slot_##name {				\
		struct tbg_blob head;				\
		__u8 data[TBG_BLOB_ROOM(bytes)];		\
		__u16 sums[TBG_SUMS(bytes)];			\
	};							\
	tbg_array(tbg_blob_##name, struct tbg_slot_##name, 1, BPF_F_MMAPABLE);
TBG_CLASS_LIST(X)
#undef X

/* Key -> entry. Writer: daemon. Full: the object stays in user space (plan). */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct tbg_key);
	__type(value, struct tbg_entry);
} tbg_index SEC(".maps");

/* Name of a host -> site. Writer: daemon. Full: TBG_HOSTS_SOME. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, TBG_HOSTS_MAX);
	__type(key, struct tbg_key);
	__type(value, struct tbg_host);
} tbg_hosts SEC(".maps");

/*
 * Prefix -> TBG_BAN_*. Writer: daemon. Full: the command that adds a prefix fails with a
 * message.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, TBG_BANS_MAX);
	__type(key, struct tbg_ban_key);
	__type(value, __u32);
} tbg_bans SEC(".maps");

/*
 * Token buckets for the request rate of clients, in sets selected by a hash.
 * Writers: BPF and the daemon, see core/bucket.h. Full: the fullest bucket of the
 * set is given to the new client.
 */
tbg_array(tbg_buckets, struct tbg_bucket_set, TBG_BUCKET_SETS, BPF_F_MMAPABLE);

/*
 * Four-tuple -> flow. Writer: BPF; the sweeper deletes. Not LRU: evicting a
 * flow with deltas would kill its connection. Full: new ones stay on the stack
 * (plan; without wire: 1).
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct tbg_flow_key);
	__type(value, struct tbg_flow);
} tbg_flows SEC(".maps");

/* Connection words by flow's slot. Writers: abi/conn.h (plan; without wire: 1). */
tbg_array(tbg_conns, struct tbg_conn_word, 1, BPF_F_MMAPABLE);

/*
 * Connections of sock by slot; see abi/sock.h for the writers. Wire reads what
 * sock has answered (plan; without sock: 1).
 */
tbg_array(tbg_sock_conns, struct tbg_sock_conn, 1, BPF_F_MMAPABLE);

/* Hits by blob. Writer: BPF, racy by design (a lost count costs nothing). */
tbg_array(tbg_heat, __u64, 1, BPF_F_MMAPABLE);

/* Switches, listeners, clock. Writer: daemon's control thread. */
tbg_array(tbg_knob, struct tbg_knob, 1, BPF_F_MMAPABLE);

/* Counters. Writer: BPF. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tbg_stats);
} tbg_stats SEC(".maps");

/* Hits for the access log. Full: the line is lost and counted. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} tbg_events SEC(".maps");

/* What is known of a segment's checksum, see wire/answer.bpf.h. */
enum tbg_checked { TBG_CHECKED_NOT, TBG_CHECKED_SOUND, TBG_CHECKED_SOFT, TBG_CHECKED_WRONG };

#define TBG_CE 3	/* in the ECN field: congestion experienced (RFC 3168 5) */

/* A parsed TCP segment; see wire/packet.bpf.h. */
struct tbg_pkt {
	struct tbg_flow_key key;
	__u32 vrf;			/* as in struct tbg_tcb_key; right after the key */
	__u32 l3, l4, payload;		/* offsets in the frame */
	__u32 payload_len;
	__u32 seq, ack, window;		/* host order */
	__u32 opt_len;
	__u32 addr_sum;			/* of both addresses, for checksums */
	__u32 tsval, tsecr;		/* if timed */
	__u16 check;			/* as in the packet */
	__u8 tcp_flags;			/* CWR ECE URG ACK PSH RST SYN FIN */
	__u8 v6, odd, no_opt, ae;
	__u8 ecn;			/* the IP header's field */
	__u8 timed, plain_ts;		/* the first option is a timestamp; the only one */
	__u8 frag;			/* the first of several fragments */
	__u8 checked;			/* enum tbg_checked */
	__u8 loaded;			/* the payload is in tbg_scratch.head */
};

/* What completes the checksums of a reply's segments. */
enum tbg_summed {
	TBG_SUMMED_HERE = 1,
	TBG_SUMMED_LATER,		/* the device, or nothing (loopback): CHECKSUM_PARTIAL */
};

/*
 * A segment to be built in place of the received one: a reply to the client,
 * or (to_stack) the acknowledgement for the socket that the consumed request
 * carried.
 */
struct tbg_reply {
	/* what the search finds, up to first_seq, in words; see wire/kept.bpf.h */
	__u64 expires_ns;		/* of the entries that led to it, the first */
	__u64 born_ns;			/* when its Age was 0 */
	__u32 blob, gen, part_id;
	__u32 plain;			/* blob of the resource's identity */
	__u32 len;			/* bytes of the response in the blob */
	__u32 head_len;			/* of them, its head */
	__u32 age_len;			/* digits of its Age; 0: it has a Date */
	__u32 asked;			/* TBG_REQ_* of its request */
	struct tbg_blob_part part;
	__u16 line_len;			/* of the Connection line, put in before the head's end */
	__u16 head_sum;			/* with one: sum of the head without it */
	__u32 persist;			/* enum tbg_persist: which line that is */
	__u32 first_seq;		/* of its first byte, client's numbers */
	__u32 acks[2];			/* acknowledged by the last segment: [1] */
	__u32 seg;			/* payload of a segment but the last */
	__u32 nr;			/* segments */
	/* the segment at hand */
	__u32 at, bytes;		/* its share of the response */
	__u32 sum_at, sum;		/* sum of the response up to sum_at */
	__u32 seq, ack;			/* in the client's numbers */
	__u32 tsval, tsecr;
	__u32 date_s;			/* second of its Date; or its Age */
	__u32 flowinfo;
	__u16 win;			/* network order */
	__u16 mac[3];			/* of the way to the client */
	__u8 ttl, tos;
	__u8 ts;			/* has the timestamp option */
	__u8 may_fragment;		/* a repeat: the path's MTU may have shrunk */
	__u8 to_stack;
	__u8 push;			/* the segment is the response's last */
	__u8 more;			/* TCP flags of that one, or of a bare segment: FIN, RST */
	__u8 turned;			/* the Ethernet addresses are those of the way out */
	__u8 summed;			/* enum tbg_summed, once a header was written */
};

/* The fields of a SYN-ACK. */
struct tbg_synack {
	__u32 seq, ack, tsval, tsecr, window, mss;
	__u8 kind, wscale;		/* kind: TBG_OFFER_* of its options */
	__u8 ece;
};

#define TBG_FOUND_WORDS (__builtin_offsetof(struct tbg_reply, first_seq) / 8)
_Static_assert(__builtin_offsetof(struct tbg_reply, first_seq) % 8 == 0, "words");

#define TBG_HEADS_MAX 100	/* bytes of IPv6's header, and TCP's with all its options */

/*
 * Scratch memory to look up and answer one request. Wire has one for each CPU and
 * uses it for one packet; sock keeps one from the verdict to the expansion.
 */
struct tbg_scratch {
	struct tbg_event event;		/* followed by the request it is about */
	struct tbg_head head;
	struct tbg_path path;
	struct tbg_tcpopt opt;
	struct tbg_pkt pkt;
	struct tbg_req req;
	struct tbg_scan scan;
	struct tbg_key key, name;	/* of the path or URI; of the host's name */
	__u32 vhost;			/* site of the request's host */
	__u32 path_len;			/* of the key's text in path */
	struct tbg_reply reply;
	struct tbg_synack synack;	/* wire without translation only */
	__u64 now_ns;			/* CLOCK_MONOTONIC, read once a packet */
	__u32 now_ms;			/* the same in ms; wire without translation only */
	__u32 push;			/* TBG_PUSH_*, from tbg_push to tbg_answer; 0: a segment */
	__u64 digest;			/* of the request, if its answer is or will be kept; or 0 */
	__u64 published;		/* the knob's, before the search */
	__u64 bucket_tag;		/* of the client, where it has a rate, */
	__u32 bucket_set;		/* and where its bucket is */
	__u8 heads[TBG_HEADS_MAX];	/* IP and TCP headers of a segment, to be restored */
};

static __always_inline struct tbg_knob *tbg_knob_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&tbg_knob, &zero);
}

static __always_inline void tbg_count(enum tbg_why why)
{
	__u32 zero = 0;
	struct tbg_stats *s = bpf_map_lookup_elem(&tbg_stats, &zero);
	__u64 at = (__u32)why;

	tbg_keep(at);
	if (s && at < TBG_WHY_NR)
		s->why[at]++;
}

#endif
