/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Looks up the request in the scratch memory: finds the index entry and the
 * blob that answer it, or the why that passes it up. Writes nothing but hit
 * counts.
 */
#ifndef TBG_LOOKUP_BPF_H
#define TBG_LOOKUP_BPF_H

#include <stdbool.h>

#include "compat.bpf.h"
#include "core/conditional.h"
#include "core/encoding.h"
#include "core/fresh.h"
#include "core/host.h"
#include "core/key.h"
#include "core/request.h"
#include "maps.bpf.h"

/* 1: the tier can end connections, and answers requests that end them. */
#ifndef TBG_MAY_CLOSE
#define TBG_MAY_CLOSE 0
#endif

/* Whether sock may look up a request of len bytes. Returns 0 or a why. */
static __always_inline int tbg_sock_may(const struct tbg_knob *knob, __u32 len)
{
	if (!knob->answer)
		return TBG_WHY_OFF;
	return len < TBG_SOCK_REQ_MIN || len > TBG_REQ_MAX ? TBG_WHY_GRAMMAR : 0;
}

/* First index of each class in tbg_heat; set by the daemon before loading. */
const volatile __u32 tbg_class_base[TBG_CLASS_NR];

/*
 * The head of a blob; NULL: no such slot. Each class has a call of its own, which the
 * verifier replaces by the address; clang would merge them into one.
 */
static __always_inline struct tbg_blob *tbg_blob_get(__u32 id)
{
	__u32 slot = TBG_BLOB_SLOT(id);
	struct tbg_blob *b = 0;

	switch (TBG_BLOB_CLASS(id)) {
#define X(name, bytes, percent)						\
	case TBG_CLASS_##name:						\
		b = bpf_map_lookup_elem(&tbg_blob_##name, &slot);	\
		asm volatile("" : "+r"(b) : "i"(TBG_CLASS_##name));	\
		break;
	TBG_CLASS_LIST(X)
#undef X
	}
	return b;
}

/*
 * Whether tbg_reply_body() can copy this part: checked before the exchange is
 * claimed, because a claimed exchange must be sent.
 */
static __always_inline bool tbg_part_fits(__u32 class, __u32 id,
					  const struct tbg_blob_part *part)
{
	__u32 room = 0;

	switch (class) {
#define X(name, bytes, percent)						\
	case TBG_CLASS_##name:						\
		room = TBG_BLOB_ROOM(bytes);				\
		break;
	TBG_CLASS_LIST(X)
#undef X
	}
	if (!part->len || part->date_off + TBG_DATE_LEN > part->len)
		return false;
	if (id == TBG_PART_304)
		return room >= TBG_304_ROOM && part->len <= TBG_304_ROOM &&
		       part->off <= room - TBG_304_ROOM;
	return !part->off && part->len <= room;
}

static __always_inline void tbg_heat_add(__u32 id)
{
	__u32 class = TBG_BLOB_CLASS(id), index;
	__u64 *heat;

	if (class >= TBG_CLASS_NR)
		return;
	index = tbg_class_base[class] + TBG_BLOB_SLOT(id);
	heat = bpf_map_lookup_elem(&tbg_heat, &index);
	if (heat)
		(*heat)++;
}

/* Counts a hit, also for the identity variant, whose entry led to this one. */
static __always_inline void tbg_reply_heat(const struct tbg_reply *r)
{
	tbg_heat_add(r->blob);
	if (r->plain != r->blob)
		tbg_heat_add(r->plain);
}

/*
 * The second that the Date of a reply sent now carries; 0: the daemon has stopped
 * updating the clock.
 */
static __always_inline __u32 tbg_date_now(const struct tbg_knob *knob,
					  __u64 now_ns)
{
	__u32 s = (now_ns + knob->real_ns) / 1000000000;

	return knob->date[s & (TBG_DATE_RING - 1)].second == s ? s : 0;
}

/* Formats age in len decimal digits, the first digit in the lowest byte. */
static __always_inline __u64 tbg_age_text(__u64 age, __u32 len)
{
	__u64 text = 0;
	__u32 i;

	for (i = 0; i < TBG_AGE_MAX; i++) {
		text = text << 8 | ('0' + age % 10);
		age /= 10;
	}
	return text >> (TBG_AGE_MAX - len) % TBG_AGE_MAX * 8;
}

/*
 * The steps of tbg_find(). They are global functions, so that the verifier
 * checks each once, on its own, and not all combinations of their paths.
 */
__attribute__((noinline)) int tbg_find_parse(struct tbg_scratch *s, __u32 len)
{
	return s ? tbg_request_scan(&s->head, &s->scan, len, TBG_MAY_CLOSE, &s->req) : TBG_WHY_OFF;
}

/* As tbg_key_make(), of s->path. */
__attribute__((noinline)) int tbg_find_hash(struct tbg_scratch *s, __u32 vhost, __u32 path_len,
					    struct tbg_key *ret)
{
	struct tbg_knob *knob = tbg_knob_get();

	if (s && knob && ret)
		tbg_key_make(knob->key, vhost, &s->path, path_len, ret);
	return 0;
}

/* Sets s->vhost to the site of the request's host. */
__attribute__((noinline)) int tbg_find_site(struct tbg_scratch *s)
{
	struct tbg_knob *knob = tbg_knob_get();
	struct tbg_host *host;
	struct tbg_key key;	/* 6.1 takes map keys from the stack only */
	__u32 mode;
	int len;

	if (!s || !knob)
		return TBG_WHY_OFF;
	mode = *(volatile __u32 *)&knob->hosts;
	s->vhost = *(volatile __u32 *)&knob->vhost;
	if (mode % TBG_HOSTS_MODES == TBG_HOSTS_NONE)
		goto known;
	len = tbg_host_load(&s->head, s->req.host_off, s->req.host_len, &s->path);
	if (len < 0)
		return -len;
	tbg_find_hash(s, TBG_VHOST_NAMES, len, &s->name);
	key = s->name;
	host = bpf_map_lookup_elem(&tbg_hosts, &key);
	if (!host && mode % TBG_HOSTS_MODES == TBG_HOSTS_ALL)
		goto known;
	if (!host)
		return TBG_WHY_HOST;
	s->vhost = *(const volatile __u32 *)&host->vhost;
	if (host->seal != tbg_host_seal(&key, s->vhost) || host->len != (__u32)len ||
	    !tbg_path_equal(&s->path, host->name, len))
		return TBG_WHY_HOST;
known:
	/*
	 * a reload replaces the names meanwhile: do not use the old default site with the
	 * new names
	 */
	return *(volatile __u32 *)&knob->hosts == mode ? 0 : TBG_WHY_HOST;
}

/* Loads the path and makes its key. */
__attribute__((noinline)) int tbg_find_key(struct tbg_scratch *s)
{
	int why;

	if (!s)
		return TBG_WHY_OFF;
	why = tbg_path_load(&s->head, s->req.path_off, s->req.path_len,
			    &s->path);
	s->path_len = s->req.path_len;
	if (!why)
		tbg_find_hash(s, s->vhost, s->path_len, &s->key);
	return why;
}

/* Parses the request and makes the key of its path. Returns 0 or a why. */
static __always_inline int tbg_find_path(struct tbg_scratch *s, __u32 len)
{
	int why = tbg_find_parse(s, len);

	why = why ?: tbg_find_site(s);
	return why ?: tbg_find_key(s);
}

/* Whether the allow and deny lists deny the client. */
static __always_inline bool tbg_client_denied(const __u32 address[4])
{
	struct tbg_ban_key key = { .bits = 128 };	/* 6.1 takes map keys from the stack only */
	__u32 *ban;

	__builtin_memcpy(key.address, address, sizeof(key.address));
	ban = bpf_map_lookup_elem(&tbg_bans, &key);
	return ban && *ban == TBG_BAN_DENY;
}

/*
 * Whether the allow and deny lists and the request rate permit an answer to the client of
 * s->pkt now.
 */
__attribute__((noinline)) int tbg_find_client(struct tbg_scratch *s)
{
	struct tbg_knob *knob = tbg_knob_get();
	struct tbg_bucket_set *set;
	__u32 nr;

	if (!s || !knob)
		return TBG_WHY_OFF;
	if (knob->clients & TBG_CLIENTS_LISTED && tbg_client_denied(s->pkt.key.remote))
		return TBG_WHY_DENIED;
	if (!(knob->clients & TBG_CLIENTS_RATED))
		return 0;
	s->bucket_tag = tbg_bucket_tag(knob->key, &knob->rate, s->pkt.key.remote, &nr);
	s->bucket_set = nr;
	set = bpf_map_lookup_elem(&tbg_buckets, &nr);
	return set && tbg_bucket_look(set, s->bucket_tag, &knob->rate, s->now_ns) ?
	       TBG_WHY_LIMITED : 0;
}

/* A request that is answered counts against its client's rate. Called for each hit. */
__attribute__((noinline)) int tbg_client_charge(struct tbg_scratch *s)
{
	struct tbg_knob *knob = tbg_knob_get();
	struct tbg_bucket_set *set;
	struct tbg_bucket *b;
	__u32 nr;
	__u64 at;

	if (!s || !knob)
		return 0;
	nr = s->bucket_set;
	set = bpf_map_lookup_elem(&tbg_buckets, &nr);
	if (!set)
		return 0;
	at = tbg_bucket_place(set, s->bucket_tag);
	tbg_keep(at);
	if (at >= TBG_BUCKET_WAYS)
		return 0;
	b = &set->way[at];
	tbg_bucket_claim(b, s->bucket_tag);
	tbg_bucket_charge(b, knob->rate.gap_ns, s->now_ns);
	return 0;
}

/* Makes the key of the whole URI, under which responses of upstreams are published. */
__attribute__((noinline)) int tbg_find_uri(struct tbg_scratch *s)
{
	__u32 len;
	int n;

	if (!s)
		return TBG_WHY_OFF;
	len = s->req.path_len;
	if (s->req.query_off)
		len += 1 + s->req.query_len;
	n = tbg_uri_load(&s->head, s->req.host_off, s->req.host_len,
			 s->req.path_off, len, &s->path);
	if (n < 0)
		return TBG_WHY_MISS;
	s->path_len = n;
	tbg_find_hash(s, s->vhost, n, &s->key);
	return 0;
}

/* Extends it to the key of a response that varies by the request's Accept-Encoding. */
__attribute__((noinline)) int tbg_find_vary(struct tbg_scratch *s)
{
	int n;

	if (!s)
		return TBG_WHY_OFF;
	n = tbg_uri_vary(&s->head, s->req.ae_off, s->req.ae_len, s->path_len,
			 &s->path);
	if (n < 0)
		return TBG_WHY_MISS;
	s->path_len = n;
	tbg_find_hash(s, s->vhost, n, &s->key);
	return 0;
}

__attribute__((noinline)) int tbg_find_status(struct tbg_scratch *s,
					      struct tbg_entry *e)
{
	if (!s || !e)
		return -TBG_WHY_OFF;
	if (e->flags & TBG_ENTRY_PLAIN)
		return 200;
	return tbg_condition(&s->head, &s->req, e->etag, e->etag_len,
			     e->modified_s);
}

/* The encoding in have that the request prefers. */
__attribute__((noinline)) int tbg_find_encoding(struct tbg_scratch *s, __u32 have)
{
	if (!s)
		return TBG_ENCODING_IDENTITY;
	return tbg_encoding_choose(&s->head, s->req.ae_off, s->req.ae_len, have);
}

/* The entry of this encoding under s->key, if its text is the same; else NULL. */
static __always_inline struct tbg_entry *tbg_entry_get(struct tbg_scratch *s,
						       __u32 encoding)
{
	struct tbg_key key = s->key;	/* 6.1 takes map keys from the stack only */
	struct tbg_entry *e = bpf_map_lookup_elem(&tbg_index, &key);

	if (!e || e->vhost != s->vhost || e->path_len != s->path_len ||
	    e->encoding != encoding ||
	    !tbg_path_equal(&s->path, e->path, s->path_len))
		return NULL;
	return e;
}

/*
 * Returns the entry of the request's path, else that of its URI, under which responses of
 * upstreams are stored, without or with its Accept-Encoding. NULL if there is none.
 */
static __always_inline struct tbg_entry *tbg_entry_find(struct tbg_scratch *s, bool uris)
{
	struct tbg_entry *e = tbg_entry_get(s, TBG_ENCODING_IDENTITY);

	if (!e && uris && !tbg_find_uri(s)) {
		e = tbg_entry_get(s, TBG_ENCODING_IDENTITY);
		if (!e && !tbg_find_vary(s))
			e = tbg_entry_get(s, TBG_ENCODING_IDENTITY);
	}
	return e;
}

/* Returns 0, or the reason why the entry may not answer the request. */
static __always_inline int tbg_entry_refuses(const struct tbg_scratch *s,
					     const struct tbg_entry *e)
{
	if (!tbg_fresh(e->expires_ns, s->now_ns))
		return TBG_WHY_EXPIRED;
	if (e->flags & TBG_ENTRY_LISTED)
		return TBG_WHY_LISTED;
	if (e->flags & TBG_ENTRY_COOKIES && s->req.flags & TBG_REQ_COOKIE)
		return TBG_WHY_FIELD;
	if (e->flags & TBG_ENTRY_CLAIMS && s->req.flags & TBG_REQ_CLAIM)
		return TBG_WHY_FIELD;
	return 0;
}

/* Describes the entry's response in s->reply. Returns 0 or a reason. */
static __always_inline int tbg_entry_reply(struct tbg_scratch *s, const struct tbg_entry *e,
					   int status)
{
	struct tbg_reply *r = &s->reply;
	struct tbg_blob *blob;

	r->born_ns = e->born_ns;
	r->asked = s->req.flags;
	r->blob = e->blob;
	r->gen = e->gen;
	r->part_id = status == 304 ? TBG_PART_304 :
		     s->req.flags & TBG_REQ_HEAD ? TBG_PART_HEAD : TBG_PART_GET;
	blob = tbg_blob_get(r->blob);
	/* an index element may be reused while we read it: then key0 differs */
	if (!blob || blob->gen != r->gen || blob->key0 != s->key.h[0] ||
	    r->part_id >= TBG_PART_NR)
		return TBG_WHY_BLOB;
	r->age_len = blob->age_len;
	if (r->age_len)
		r->date_s = (s->now_ns - r->born_ns) / 1000000000;
	r->part = blob->part[r->part_id];
	r->len = r->part.len;
	r->head_len = r->part_id == TBG_PART_GET ?
		      blob->part[TBG_PART_HEAD].len : r->len;
	if (!tbg_part_fits(TBG_BLOB_CLASS(r->blob), r->part_id, &r->part))
		return TBG_WHY_BLOB;
	return 0;
}

/*
 * Whether the client in s->pkt may be answered at the time s->now_ns. Sets s->reply.date_s.
 * Returns 0 or a why.
 */
static __always_inline int tbg_find_may(struct tbg_scratch *s, const struct tbg_knob *knob)
{
	s->reply.date_s = tbg_date_now(knob, s->now_ns);
	if (!s->reply.date_s)
		return TBG_WHY_CLOCK;
	return knob->clients ? tbg_find_client(s) : 0;
}

/*
 * Looks up the request of len bytes in s->head, at the time s->now_ns. Fills s->req and the
 * description of the response in s->reply (up to part, and the Age in date_s). Returns 0 or a
 * why. tbg_find_may() was called before.
 */
__attribute__((noinline)) int tbg_find_reply(struct tbg_scratch *s, __u32 len)
{
	struct tbg_knob *knob = tbg_knob_get();
	struct tbg_reply *r;
	struct tbg_entry *e;
	int why, status, encoding;

	if (!s || !knob)
		return TBG_WHY_OFF;
	r = &s->reply;
	why = tbg_find_path(s, len);
	if (why)
		return why;
	e = tbg_entry_find(s, knob->uris);
	if (!e)
		return TBG_WHY_MISS;
	why = tbg_entry_refuses(s, e);
	if (why)
		return why;
	r->expires_ns = e->expires_ns;
	r->plain = e->blob;
	if (e->variants && s->req.ae_len) {
		encoding = tbg_find_encoding(s, e->variants);
		if (encoding != TBG_ENCODING_IDENTITY) {
			tbg_key_vary(&s->key, encoding);
			e = tbg_entry_get(s, encoding);
			if (!e)
				return TBG_WHY_MISS;
			if (!tbg_fresh(e->expires_ns, s->now_ns))
				return TBG_WHY_EXPIRED;
			if (e->expires_ns < r->expires_ns)
				r->expires_ns = e->expires_ns;
		}
	}
	status = tbg_find_status(s, e);
	return status < 0 ? -status : tbg_entry_reply(s, e, status);
}

/* Looks up the request of len bytes in s->head, of a client that may be answered. */
static __always_inline int tbg_find(struct tbg_scratch *s, const struct tbg_knob *knob, __u32 len)
{
	int why = tbg_find_may(s, knob);

	return why ?: tbg_find_reply(s, len);
}

#endif
