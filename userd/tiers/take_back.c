// SPDX-License-Identifier: GPL-2.0
/*
 * Finds the bytes of an overdue reply that a socket must send. They are
 * exactly those that wire has sent, Date included, or none: a client must
 * never get a mixture of two versions.
 */
#include <errno.h>
#include <linux/if_ether.h>
#include <stdio.h>
#include <string.h>

#include <bpf/bpf.h>

#include "cache/slots.h"
#include "tiers/guard.h"
#include "tiers/take_back.h"

/* A frame for the program: it must be as long as an Ethernet header at least. */
struct input {
	uint8_t eth[ETH_HLEN];
	struct tbg_take_back y;
} __attribute__((packed));

/* Runs the program; returns TBG_TAKE_BACK_* with its output in *y. */
static int ask(const struct tbg_maps *maps, struct tbg_take_back *y)
{
	struct input f = { .y = *y };
	LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = &f,
		    .data_size_in = sizeof(f), .data_out = &f,
		    .data_size_out = sizeof(f), .repeat = 1);

	if (bpf_prog_test_run_opts(maps->take_back_fd, &opts))
		return TBG_TAKE_BACK_NOTHING;
	*y = f.y;
	return opts.retval;
}

/* Writes the Date or Age of the exchange, as far as it lies in from..end. */
static bool timed_put(const struct tbg_maps *maps, const struct tbg_exchange *x,
		      const struct tbg_blob *b, uint32_t from, uint32_t end,
		      uint8_t *out)
{
	const struct tbg_date *d = &maps->knob->date[x->date_s & (TBG_DATE_RING - 1)];
	uint32_t off = b->part[x->part].date_off, len = tbg_blob_timed(b);
	char age[16];

	if (!b->age_len && d->second != x->date_s)
		return false;
	snprintf(age, sizeof(age), "%0*u", b->age_len, x->date_s);
	for (uint32_t at = off; at < off + len; at++)
		if (at >= from && at < end)
			out[at - from] = b->age_len ? (uint8_t)age[at - off] :
						      d->text[at - off];
	return true;
}

/*
 * Writes the last len bytes of a reply, as wire has sent it, to out. Returns their
 * number, or -ESTALE: they are no longer available.
 */
static int exchange_read(const struct tbg_maps *maps, const struct tbg_exchange *x,
			 uint32_t len, uint8_t *out, size_t size)
{
	unsigned int class = TBG_BLOB_CLASS(x->blob);
	const struct tbg_blob_part *part;
	const struct tbg_blob *b;
	uint32_t from = x->len - len;

	if (class >= TBG_CLASS_NR || x->part >= TBG_PART_NR || len > size)
		return -ESTALE;
	b = (void *)((uint8_t *)maps->cache.blobs[class] +
		     (size_t)TBG_BLOB_SLOT(x->blob) * tbg_class_bytes(class));
	if (__atomic_load_n(&b->gen, __ATOMIC_ACQUIRE) != x->gen)
		return -ESTALE;
	part = &b->part[x->part];
	if (part->len != x->len || part->off > tbg_class_room(class) ||
	    part->len > tbg_class_room(class) - part->off)
		return -ESTALE;
	memcpy(out, b->data + part->off + from, len);
	if (!timed_put(maps, x, b, from, x->len, out))
		return -ESTALE;
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return __atomic_load_n(&b->gen, __ATOMIC_RELAXED) == x->gen ?
	       (int)len : -ESTALE;
}

/*
 * The bytes are copied before the flow changes: if that fails, the flow still has
 * its numbers, and the client accepts the following reset.
 */
int tbg_take_back_bytes(const struct tbg_maps *maps, int slot, uint32_t written,
		   uint8_t *out, size_t size)
{
	struct tbg_take_back y = { .slot = slot, .written = written };
	int len;

	if (bpf_map_lookup_elem(maps->owners_fd, &slot, &y.key))
		return 0;
	switch (ask(maps, &y)) {
	case TBG_TAKE_BACK_LOST:
		tbg_guard_reset(maps->guard, &y.key, y.seq, y.ack);
		return -ENETUNREACH;
	case TBG_TAKE_BACK_BYTES:
		break;
	default:
		return 0;
	}
	len = exchange_read(maps, &y.last, y.len, out, size);
	y.commit = 1;
	return len < 0 || ask(maps, &y) == TBG_TAKE_BACK_BYTES ? len : 0;
}
