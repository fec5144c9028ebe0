// SPDX-License-Identifier: GPL-2.0
/* The parent of an entry is at half its place and is not due later. */
#include "os/due.h"

#include <errno.h>
#include <stdlib.h>

static struct tbg_due *at(const struct tbg_due_heap *h, unsigned int place)
{
	return h->entry[place - 1];
}

static void put(struct tbg_due_heap *h, struct tbg_due *d, unsigned int place)
{
	h->entry[place - 1] = d;
	d->place = place;
}

/* Puts an entry into the heap. place: a free one, from which others move up or down as needed. */
static void settle(struct tbg_due_heap *h, struct tbg_due *d, unsigned int place)
{
	unsigned int below;

	for (; place > 1 && at(h, place / 2)->at_ns > d->at_ns; place /= 2)
		put(h, at(h, place / 2), place);
	for (; (below = 2 * place) <= h->nr; place = below) {
		if (below < h->nr && at(h, below + 1)->at_ns < at(h, below)->at_ns)
			below++;
		if (at(h, below)->at_ns >= d->at_ns)
			break;
		put(h, at(h, below), place);
	}
	put(h, d, place);
}

static int room_make(struct tbg_due_heap *h)
{
	unsigned int room = h->room ? 2 * h->room : 16;
	struct tbg_due **more;

	if (h->nr < h->room)
		return 0;
	more = reallocarray(h->entry, room, sizeof(*more));
	if (!more)
		return -ENOMEM;
	h->entry = more;
	h->room = room;
	return 0;
}

static void take_out(struct tbg_due_heap *h, struct tbg_due *d)
{
	struct tbg_due *last = at(h, h->nr--);

	if (last != d)
		settle(h, last, d->place);
	d->place = 0;
}

int tbg_due_set(struct tbg_due_heap *h, struct tbg_due *d, uint64_t at_ns)
{
	if (at_ns && !d->place && room_make(h))
		return -ENOMEM;
	d->at_ns = at_ns;
	if (at_ns)
		settle(h, d, d->place ?: ++h->nr);
	else if (d->place)
		take_out(h, d);
	return 0;
}

struct tbg_due *tbg_due_first(const struct tbg_due_heap *h)
{
	return h->nr ? at(h, 1) : NULL;
}

void tbg_due_free(struct tbg_due_heap *h)
{
	free(h->entry);
	*h = (struct tbg_due_heap){ 0 };
}
