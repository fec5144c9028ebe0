// SPDX-License-Identifier: GPL-2.0
/*
 * The core alone in BPF: parses the request at the start of the packet, looks its path
 * up, and stores the result in a map. tests/bpf/core.c compares the result with that of
 * the same headers compiled for the host, and measures the time.
 */
#include <linux/bpf.h>

#include "core/conditional.h"
#include "core/encoding.h"
#include "core/fresh.h"
#include "core/key.h"
#include "core/request.h"

#include "core.h"

struct scratch {
	struct tbg_head head;
	struct tbg_path path;
	struct tbg_scan scan;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct result);
} result SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct entry);
} entry SEC(".maps");

/* Like the index of the cache. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct tbg_key);
	__type(value, struct tbg_entry);
} paths SEC(".maps");

static __attribute__((always_inline)) int run(struct __sk_buff *skb, int depth)
{
	__u64 last = skb->len - 1ull;
	__u32 zero = 0, len;
	struct scratch *s = bpf_map_lookup_elem(&scratch, &zero);
	struct result *r = bpf_map_lookup_elem(&result, &zero);
	struct entry *e = bpf_map_lookup_elem(&entry, &zero);
	struct tbg_entry *found;
	struct tbg_key key;
	int status;

	if (!s || !r || !e)
		return -1;
	/* Linux 6.1 learns only from a test for "at most", not from one for zero */
	tbg_keep(last);
	if (last >= TBG_REQ_MAX)
		return -1;
	len = last + 1;
	if (bpf_skb_load_bytes(skb, 0, s->head.b, len))
		return -1;
	if (!depth)
		return 0;
	r->why = tbg_request_parse(&s->head, &s->scan, len, &r->req);
	if (r->why || depth == 1)
		return r->why;
	/* as in wire, whose steps are functions: results are read again */
	asm volatile("" ::: "memory");
	r->why = tbg_path_load(&s->head, r->req.path_off, r->req.path_len, &s->path);
	if (r->why)
		return r->why;
	tbg_key_make(e->key, e->vhost, &s->path, r->req.path_len, &r->key);
	if (depth == 2)
		return 0;
	key = r->key;	/* Linux 6.1 takes map keys only from the stack */
	found = bpf_map_lookup_elem(&paths, &key);
	r->found = found && found->path_len == r->req.path_len &&
		   tbg_path_equal(&s->path, found->path, r->req.path_len);
	if (depth == 3)
		return 0;
	status = tbg_condition(&s->head, &r->req, e->etag, e->etag_len, e->modified_s);
	r->status = status;
	r->encoding = tbg_encoding_choose(&s->head, r->req.ae_off, r->req.ae_len,
					  e->variants);
	return 0;
}

/* Copies the request, which the other programs do, too: their cost without it is their own. */
SEC("tc")
int core_copy(struct __sk_buff *skb)
{
	return run(skb, 0);
}

SEC("tc")
int core_parse(struct __sk_buff *skb)
{
	return run(skb, 1);
}

SEC("tc")
int core_key(struct __sk_buff *skb)
{
	return run(skb, 2);
}

SEC("tc")
int core_lookup(struct __sk_buff *skb)
{
	return run(skb, 3);
}

SEC("tc")
int core_full(struct __sk_buff *skb)
{
	return run(skb, 4);
}

char _license[] SEC("license") = "GPL";
