// SPDX-License-Identifier: GPL-2.0
/*
 * A closed-loop HTTP client inside the kernel, at TC ingress of the clients' interface: each
 * complete reply becomes the next request, or the end of its connection and the SYN of the
 * next. So one core sends more requests than any server can answer. loop.c starts it, opens
 * the first connections, repeats lost requests and reads the samples. It handles only
 * segments of the server to its own addresses, which no interface has; all others go on to
 * the stack.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <stdbool.h>

#include "../../bpf/compat.bpf.h"
#include "loop.h"

#define FIN 0x01
#define SYN 0x02
#define RST 0x04
#define PSH 0x08
#define ACK 0x10
#define OPTIONS_MAX 40
#define PIECES_MAX 46			/* of 64 KiB */
#define SCAN_MAX 1400
#define END 0x0a0d0a0d			/* CR LF CR LF */
#define NEXT_ISN 100003			/* between the numbers of two connections */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct loop_conf);
} loop_confs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, LOOP_FLOWS);
	__type(key, __u32);
	__type(value, struct loop_flow);
} loop_flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);		/* loop.c sets it */
	__type(key, __u32);
	__type(value, struct loop_request);
} loop_requests SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct loop_counts);
} loop_counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} loop_samples SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, unsigned char[SCAN_MAX]);
} loop_heads SEC(".maps");

/* The needed parts of a segment of the server. */
struct seen {
	__u32 seq, len, tsval;		/* tsval: network order */
	__u32 at;			/* offset of the payload in the skb */
	__u32 flags;
	bool has_ts;
};

static __always_inline __u32 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* What surrounds a segment's TCP header. */
struct packet {
	__u32 h[15];	/* two bytes in: the bytes after Ethernet are aligned */
	__u32 ip_len, tcp_len, len;	/* len: of the data */
};

/*
 * Fills the Ethernet and IP headers of a segment. Returns the sum of its pseudo header,
 * folded.
 */
static __always_inline __u32 network_headers(struct packet *p, const struct loop_conf *c,
					     const struct loop_flow *f)
{
	__u32 *h = p->h, tcp_all = p->tcp_len + p->len;
	__u8 *eth = (__u8 *)h + 2;
	__u64 sum, pseudo;

	__builtin_memcpy(eth, c->dmac, 6);
	__builtin_memcpy(eth + 6, c->smac, 6);
	*(__u16 *)(eth + 12) = c->v6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	if (c->v6) {
		h[4] = bpf_htonl(0x60000000);
		h[5] = bpf_htonl(tcp_all << 16 | IPPROTO_TCP << 8 | 64);
		h[6] = c->saddr[0];
		h[7] = c->saddr[1];
		h[8] = c->saddr[2];
		h[9] = f->saddr;
		h[10] = c->daddr[0];
		h[11] = c->daddr[1];
		h[12] = c->daddr[2];
		h[13] = c->daddr[3];
		pseudo = (__u64)h[6] + h[7] + h[8] + h[9] + h[10] + h[11] + h[12] + h[13];
	} else {
		h[4] = bpf_htonl(0x45000000 | (p->ip_len + tcp_all));
		h[5] = bpf_htonl(0x00004000);
		h[6] = bpf_htonl(64 << 24 | IPPROTO_TCP << 16);
		h[7] = f->saddr;
		h[8] = c->daddr[3];
		sum = fold((__u64)h[4] + h[5] + h[6] + h[7] + h[8]);
		h[6] |= (~sum & 0xffff) << 16;
		pseudo = (__u64)h[7] + h[8];
	}
	return fold(pseudo + bpf_htons(IPPROTO_TCP) + bpf_htons(tcp_all));
}

/* Fills a TCP header, whose checksum is set to that of the pseudo header. */
static __always_inline void tcp_header(__u32 t[10], const struct packet *p,
				       const struct loop_conf *c, const struct loop_flow *f,
				       __u32 flags, __u32 pseudo)
{
	__u32 now_ms;

	t[0] = f->sport | (__u32)c->dport << 16;
	t[1] = bpf_htonl(f->snd);
	t[2] = flags & ACK ? bpf_htonl(f->rcv) : 0;
	t[3] = bpf_htonl((p->tcp_len / 4) << 28 | flags << 16 | 0xffff);
	t[4] = pseudo;
	if (flags & SYN) {
		now_ms = bpf_ktime_get_ns() / 1000000;
		t[5] = bpf_htonl(2 << 24 | 4 << 16 | (c->v6 ? LOOP_MSS - 20 : LOOP_MSS));
		if (c->timestamps) {	/* as Linux sends them */
			t[6] = bpf_htonl(4 << 24 | 2 << 16 | 8 << 8 | 10);
			t[7] = bpf_htonl(now_ms);
			t[9] = bpf_htonl(1 << 24 | 3 << 16 | 3 << 8 | LOOP_WSCALE);
		} else {
			t[6] = bpf_htonl(1 << 24 | 3 << 16 | 3 << 8 | LOOP_WSCALE);
		}
	} else if (f->timestamps) {
		t[5] = bpf_htonl(1 << 24 | 1 << 16 | 8 << 8 | 10);
		t[6] = bpf_htonl((__u32)(bpf_ktime_get_ns() / 1000000));
		t[7] = f->tsecr;
	}
}

static __always_inline bool headers_store(struct __sk_buff *skb, const struct packet *p,
					  const __u32 t[10], bool v6)
{
	__u64 tcp_len = p->tcp_len;

	if (bpf_skb_store_bytes(skb, 0, (__u8 *)p->h + 2, 14 + 20, 0))
		return false;
	if (v6 && bpf_skb_store_bytes(skb, 34, (__u8 *)p->h + 36, 20, 0))
		return false;
	TBG_BOUND(tcp_len, 40, return false);
	return !bpf_skb_store_bytes(skb, 14 + p->ip_len, t, tcp_len, 0);
}

/*
 * Makes skb a segment of the flow. data: its request is the payload. The
 * checksum is right whether a device completes it or not (CHECKSUM_PARTIAL).
 */
__attribute__((noinline)) int
make(struct __sk_buff *skb, struct loop_conf *c, struct loop_flow *f,
     __u32 flags, struct loop_request *data)
{
	struct packet p = { .tcp_len = 20, .len = data ? data->len : 0 };
	__u32 t[10] = {}, total, pseudo, i;
	__u64 sum, n;

	if (!c || !f)
		return -1;
	p.ip_len = c->v6 ? 40 : 20;
	if (flags & SYN)
		p.tcp_len = c->timestamps ? 40 : 28;
	else if (f->timestamps)
		p.tcp_len = 32;
	total = 14 + p.ip_len + p.tcp_len + p.len;
	if (skb->len != total && bpf_skb_change_tail(skb, total, 0))
		return -1;
	pseudo = network_headers(&p, c, f);
	tcp_header(t, &p, c, f, flags, pseudo);
	/* the sum of the whole segment, in which the checksum field counts as pseudo */
	sum = pseudo + (data ? data->sum : 0);
#pragma unroll
	for (i = 0; i < 10; i++)
		sum += t[i];
	if (!headers_store(skb, &p, t, c->v6))
		return -1;
	if (data) {
		n = p.len;
		TBG_BOUND(n, LOOP_HEAD_MAX, return -1);
		if (bpf_skb_store_bytes(skb, 14 + p.ip_len + p.tcp_len, data->bytes, n, 0))
			return -1;
	}
	bpf_l4_csum_replace(skb, 14 + p.ip_len + 16, 0, fold(sum), 0);
	/* the server's device has verified it, as network cards do */
	if (bpf_csum_level(skb, BPF_CSUM_LEVEL_QUERY) < 0)
		bpf_csum_level(skb, BPF_CSUM_LEVEL_INC);
	return 0;
}

/* Selects the next request by the alias method, which costs the same for any weights. */
static __always_inline struct loop_request *draw(struct loop_conf *c, struct loop_flow *f)
{
	struct loop_request *r;
	__u32 i = 0;

	if (c->request_nr > 1) {
		i = bpf_get_prandom_u32() % c->request_nr;
		r = bpf_map_lookup_elem(&loop_requests, &i);
		if (!r)
			return NULL;
		if (bpf_get_prandom_u32() > r->odds)
			i = r->alias;
	}
	f->request = i;
	return bpf_map_lookup_elem(&loop_requests, &i);
}

static __always_inline int sent(struct loop_conf *c, struct __sk_buff *skb)
{
	return bpf_redirect(c->ifindex, 0);
}

static __always_inline int ask(struct __sk_buff *skb, struct loop_conf *c,
			       struct loop_flow *f, struct loop_counts *n)
{
	struct loop_request *r = draw(c, f);

	if (!r)
		return TC_ACT_SHOT;
	f->sample = 0;
	if (c->sample_every && !n->to_sample--) {
		/* at random intervals: a server may go wrong at regular ones */
		n->to_sample = bpf_get_prandom_u32() % (2 * c->sample_every - 1);
		f->sample = ++n->sample;
		f->at = 0;
	}
	f->need = 0;
	f->got = 0;
	f->state = LOOP_WAIT;
	if (make(skb, c, f, ACK | PSH, r)) {
		n->room++;
		f->snd += r->len;	/* loop.c repeats it */
		return TC_ACT_SHOT;
	}
	f->snd += r->len;
	return sent(c, skb);
}

/* The next connection of the flow: another port, and then another address. */
static __always_inline int reopen(struct __sk_buff *skb, struct loop_conf *c,
				  struct loop_flow *f, __u32 i, struct loop_counts *n)
{
	__u32 per = c->flow_nr ? LOOP_PORTS / c->flow_nr : 0, k = ++f->generation;

	if (!per)
		return TC_ACT_SHOT;
	f->sport = bpf_htons(LOOP_PORT + i + c->flow_nr * (k % per));
	f->saddr = bpf_htonl((bpf_ntohl(c->saddr[3]) & ~0xffu) |
			     (1 + k / per % LOOP_HOSTS));
	f->snd += NEXT_ISN;
	f->state = LOOP_SYN;
	f->timestamps = 0;
	if (make(skb, c, f, SYN, NULL)) {
		n->room++;
		return TC_ACT_SHOT;
	}
	return sent(c, skb);
}

/* A connection that cannot continue is reset, and replaced by a new one. */
static __always_inline int give_up(struct __sk_buff *skb, struct loop_conf *c,
				   struct loop_flow *f, __u32 i, struct loop_counts *n)
{
	if (!make(skb, c, f, RST | ACK, NULL))
		bpf_clone_redirect(skb, c->ifindex, 0);
	return reopen(skb, c, f, i, n);
}

struct sampling {
	struct __sk_buff *skb;
	struct loop_flow *f;
	__u32 at, len, done;
};

static int sample_piece(__u32 k, void *data)
{
	struct sampling *s = data;
	struct loop_piece *p;
	__u64 part = s->len - s->done;

	if (!part)
		return 1;
	if (part > LOOP_PIECE)
		part = LOOP_PIECE;
	p = bpf_ringbuf_reserve(&loop_samples, sizeof(*p), 0);
	if (!p)
		return 1;
	TBG_BOUND(part, LOOP_PIECE, goto discard);
	if (bpf_skb_load_bytes(s->skb, s->at + s->done, p->bytes, part))
		goto discard;
	p->flow = s->f->index;
	p->sample = s->f->sample;
	p->request = s->f->request;
	p->at = s->f->at;
	p->len = part;
	/* hidden from the verifier, which would follow every number of pieces */
	s->done = tbg_opaque(s->done + part, s->skb->len);
	p->last = s->f->need == s->len && s->done == s->len;
	s->f->at += part;
	bpf_ringbuf_submit(p, BPF_RB_NO_WAKEUP);
	return 0;
discard:
	bpf_ringbuf_discard(p, BPF_RB_NO_WAKEUP);
	return 1;
}

/* The payload of a segment of a sampled reply, for loop.c. */
static __attribute__((noinline)) int sample(struct __sk_buff *skb, struct loop_flow *f,
					    struct loop_counts *n, __u32 at, __u32 len)
{
	struct sampling s = { .skb = skb, .f = f, .at = at, .len = len };

	if (!f || !n)
		return 0;
	bpf_loop(PIECES_MAX, sample_piece, &s, 0);
	if (s.done != len) {
		n->unsampled++;
		f->sample = 0;
	}
	return 0;
}

struct scanning {
	unsigned char *b;
	__u32 len, word;
	int end;
};

static int scan_byte(__u32 i, void *data)
{
	struct scanning *s = data;

	if (i >= s->len || i >= SCAN_MAX)
		return 1;
	s->word = s->word >> 8 | (__u32)s->b[i] << 24;
	if (s->word != END)
		return 0;
	s->end = i + 1;
	return 1;
}

/* Length of the reply's head in the segment's len bytes at; 0: it does not end there. */
static __attribute__((noinline)) int scan(struct __sk_buff *skb, __u32 at, __u32 len)
{
	__u32 zero = 0;
	struct scanning s = { .b = bpf_map_lookup_elem(&loop_heads, &zero) };
	__u64 n = len < SCAN_MAX ? len : SCAN_MAX;

	TBG_BOUND(n, SCAN_MAX, return 0);
	if (!s.b || n < 4 || bpf_skb_load_bytes(skb, at, s.b, n))
		return 0;
	s.len = n;
	bpf_loop(SCAN_MAX, scan_byte, &s, 0);
	return s.end;
}

/* The beginning of a reply: its total length; 0: a wrong reply. */
static __always_inline __u32 begun(struct __sk_buff *skb, const struct seen *s,
				   struct loop_flow *f, struct loop_counts *n)
{
	__u32 i = f->request, w[3], end = 0, head;
	struct loop_request *r = bpf_map_lookup_elem(&loop_requests, &i);

	if (!r)
		return 0;
	if (s->len < 16 || bpf_skb_load_bytes(skb, s->at, w, 12)) {
		n->framing++;
		return 0;
	}
	/* "HTTP", "/1.x", " 200": the last three are digits */
	if (w[0] != 0x50545448 || w[2] >> 8 != r->status >> 8) {
		n->status++;
		return 0;
	}
	head = r->head_len;
	if (head >= 16 && head <= s->len)
		bpf_skb_load_bytes(skb, s->at + head - 4, &end, 4);
	if (end != END) {
		head = scan(skb, s->at, s->len);
		if (head <= 0) {
			n->framing++;
			return 0;
		}
		r->head_len = head;
	}
	return head + r->body_len;
}

static __always_inline bool take_apart(struct __sk_buff *skb, struct loop_conf *c,
				       struct seen *s, __u32 *ret_saddr, __u16 *ret_port)
{
	__u32 ip[10], t[5], l4, end, len, i;
	__u8 o[OPTIONS_MAX];

	if (c->v6) {
		if (skb->protocol != bpf_htons(ETH_P_IPV6) ||
		    bpf_skb_load_bytes(skb, 14, ip, 40))
			return false;
		if ((bpf_ntohl(ip[1]) >> 8 & 0xff) != IPPROTO_TCP ||
		    ip[2] != c->daddr[0] || ip[3] != c->daddr[1] || ip[4] != c->daddr[2] ||
		    ip[5] != c->daddr[3] || ip[6] != c->saddr[0] || ip[7] != c->saddr[1] ||
		    ip[8] != c->saddr[2])
			return false;
		*ret_saddr = ip[9];
		l4 = 54;
		end = bpf_ntohl(ip[1]) >> 16;
		end = end ? 54 + end : skb->len;
	} else {
		if (skb->protocol != bpf_htons(ETH_P_IP) || bpf_skb_load_bytes(skb, 14, ip, 20))
			return false;
		if ((ip[0] & 0xff) != 0x45 || (bpf_ntohl(ip[2]) >> 16 & 0xff) != IPPROTO_TCP ||
		    ip[3] != c->daddr[3])
			return false;
		*ret_saddr = ip[4];
		l4 = 34;
		end = bpf_ntohl(ip[0]) & 0xffff;
		end = end ? 14 + end : skb->len;
	}
	if (bpf_ntohl(*ret_saddr ^ c->saddr[3]) & ~0xffu ||
	    bpf_skb_load_bytes(skb, l4, t, 20) || (t[0] & 0xffff) != c->dport)
		return false;
	*ret_port = t[0] >> 16;
	if (end > skb->len)
		end = skb->len;
	s->seq = bpf_ntohl(t[1]);
	len = bpf_ntohl(t[3]) >> 28 << 2;
	s->flags = bpf_ntohl(t[3]) >> 16 & 0xff;
	s->at = l4 + len;
	s->len = end > s->at ? end - s->at : 0;
	s->has_ts = false;
	if (len == 32 && !bpf_skb_load_bytes(skb, l4 + 20, o, 12)) {
		s->has_ts = *(__u32 *)o == bpf_htonl(0x0101080a);
		s->tsval = *(__u32 *)(o + 4);
	} else if (s->flags & SYN && len > 20 && len <= 60) {
		__u64 rest = len - 20;

		TBG_BOUND(rest, OPTIONS_MAX, return true);
		if (bpf_skb_load_bytes(skb, l4 + 20, o, rest))
			return true;
		for (i = 0; i + 10 <= OPTIONS_MAX && i + 10 <= rest; i++) {
			if (o[i] == 8 && o[i + 1] == 10) {
				s->has_ts = true;
				s->tsval = o[i + 2] | o[i + 3] << 8 | o[i + 4] << 16 |
					   (__u32)o[i + 5] << 24;
				break;
			}
		}
	}
	return true;
}

/* The server ends its side: the reply is complete, or this is an error. */
static __always_inline int ended(struct __sk_buff *skb, struct loop_conf *c,
				 struct loop_flow *f, __u32 i, struct loop_counts *n)
{
	f->rcv++;
	if (f->state == LOOP_CLOSING) {		/* ours was first */
		f->snd++;
		if (!make(skb, c, f, ACK, NULL))
			bpf_clone_redirect(skb, c->ifindex, 0);
	} else {
		if (!make(skb, c, f, FIN | ACK, NULL))
			bpf_clone_redirect(skb, c->ifindex, 0);
		f->snd++;
	}
	return reopen(skb, c, f, i, n);
}

/* Sends a segment without data in place of the received one. */
static __always_inline int answer(struct __sk_buff *skb, struct loop_conf *c,
				  struct loop_flow *f, __u32 flags)
{
	return make(skb, c, f, flags, NULL) ? TC_ACT_SHOT : sent(c, skb);
}

/* The load ends: resets the connection. */
static __always_inline int stop(struct __sk_buff *skb, struct loop_conf *c,
				struct loop_flow *f, const struct seen *s)
{
	if (f->state == LOOP_SYN)
		f->snd++;
	f->rcv = s->seq + s->len + !!(s->flags & (SYN | FIN));
	f->state = LOOP_NONE;
	return answer(skb, c, f, RST | ACK);
}

/* The server's SYN-ACK: the connection is open. */
static __always_inline int established(struct __sk_buff *skb, struct loop_conf *c,
				       struct loop_flow *f, const struct seen *s,
				       struct loop_counts *n)
{
	if (f->state != LOOP_SYN) {
		n->repeated++;
		return TC_ACT_SHOT;
	}
	f->at_ns = bpf_ktime_get_ns();
	f->rcv = s->seq + 1;
	f->snd++;
	f->timestamps = s->has_ts && c->timestamps;
	f->tsecr = s->tsval;
	f->calls = c->calls;
	n->opened++;
	/* a client's TCP acknowledges first; its program sends the request later */
	if (!make(skb, c, f, ACK, NULL))
		bpf_clone_redirect(skb, c->ifindex, 0);
	return ask(skb, c, f, n);
}

/* The segment is ahead (an earlier one is lost) or behind (a repetition). */
static __always_inline int out_of_order(struct __sk_buff *skb, struct loop_conf *c,
					struct loop_flow *f, const struct seen *s,
					struct loop_counts *n)
{
	if ((int)(s->seq - f->rcv) > 0)
		n->lost++;
	else
		n->repeated++;
	if (!s->len && !(s->flags & FIN))
		return TC_ACT_SHOT;
	return answer(skb, c, f, ACK);
}

/* More of the reply is missing. */
static __always_inline int reply_continues(struct __sk_buff *skb, struct loop_conf *c,
					   struct loop_flow *f, __u32 i, const struct seen *s,
					   struct loop_counts *n)
{
	f->got += s->len;
	if (s->flags & FIN) {
		n->closed++;
		return ended(skb, c, f, i, n);
	}
	if (f->got < c->ack_bytes)
		return TC_ACT_SHOT;
	f->got = 0;
	return answer(skb, c, f, ACK);
}

/* The reply is complete: sends the next request, closes the connection, or waits. */
static __always_inline int reply_ends(struct __sk_buff *skb, struct loop_conf *c,
				      struct loop_flow *f, __u32 i, const struct seen *s,
				      struct loop_counts *n)
{
	n->requests++;
	n->samples += !!f->sample;
	f->answered = 1;
	if (s->flags & FIN) {
		if (!c->server_closes && f->calls != 1)
			n->closed++;
		f->state = LOOP_NONE;
		return ended(skb, c, f, i, n);
	}
	if (c->server_closes) {
		f->state = LOOP_ENDING;
		return TC_ACT_SHOT;
	}
	/* also before its end, or a server that serves few at a time would be unnoticed */
	if (c->hold) {
		f->state = LOOP_HELD;
		return answer(skb, c, f, ACK);
	}
	if (f->calls && !--f->calls) {
		f->state = LOOP_CLOSING;
		return answer(skb, c, f, FIN | ACK);
	}
	return ask(skb, c, f, n);
}

/* A segment in order with data of a reply. */
static __always_inline int reply(struct __sk_buff *skb, struct loop_conf *c,
				 struct loop_flow *f, __u32 i, const struct seen *s,
				 struct loop_counts *n)
{
	if (f->state != LOOP_WAIT) {
		n->framing++;			/* more than the reply */
		return give_up(skb, c, f, i, n);
	}
	f->at_ns = bpf_ktime_get_ns();
	if (!f->need) {
		f->need = begun(skb, s, f, n);
		if (!f->need)
			return give_up(skb, c, f, i, n);
	}
	if (s->len > f->need) {
		n->framing++;
		return give_up(skb, c, f, i, n);
	}
	if (f->sample)
		sample(skb, f, n, s->at, s->len);
	f->rcv += s->len;
	f->need -= s->len;
	n->bytes += s->len;
	return f->need ? reply_continues(skb, c, f, i, s, n) : reply_ends(skb, c, f, i, s, n);
}

SEC("tc")
int tbg_client(struct __sk_buff *skb)
{
	__u32 zero = 0, i, saddr;
	struct loop_conf *c = bpf_map_lookup_elem(&loop_confs, &zero);
	struct loop_counts *n = bpf_map_lookup_elem(&loop_counters, &zero);
	struct loop_flow *f;
	struct seen s = {};
	__u16 port;

	if (!c || !n || !c->flow_nr || !take_apart(skb, c, &s, &saddr, &port))
		return TC_ACT_OK;
	n->segments++;
	i = (__u32)(bpf_ntohs(port) - LOOP_PORT) % c->flow_nr;
	f = bpf_map_lookup_elem(&loop_flows, &i);
	if (!f || f->saddr != saddr || f->sport != port) {
		n->stray++;	/* of a connection that is over */
		return TC_ACT_SHOT;
	}
	if (s.flags & RST) {
		n->reset += !c->stop;
		f->state = LOOP_NONE;
		return c->stop ? TC_ACT_SHOT : reopen(skb, c, f, i, n);
	}
	if (c->stop)
		return stop(skb, c, f, &s);
	if (s.flags & SYN)
		return established(skb, c, f, &s, n);
	if (f->state == LOOP_SYN || f->state == LOOP_NONE) {
		n->stray++;
		return TC_ACT_SHOT;
	}
	if (s.seq != f->rcv)
		return out_of_order(skb, c, f, &s, n);
	if (s.has_ts)
		f->tsecr = s.tsval;
	if (s.len)
		return reply(skb, c, f, i, &s, n);
	if (!(s.flags & FIN))
		return TC_ACT_SHOT;		/* a bare acknowledgement */
	if (f->state == LOOP_WAIT)
		n->closed++;
	return ended(skb, c, f, i, n);
}

char _license[] SEC("license") = "GPL";
