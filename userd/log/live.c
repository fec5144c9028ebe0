// SPDX-License-Identifier: GPL-2.0
/*
 * A watcher has a slot and a buffer that its thread empties regularly. Writers check a
 * counter first: without a watcher a request costs no more than that.
 */
#include "log/live.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "log/access.h"
#include "log/hits.h"
#include "log/line.h"
#include "os/units.h"
#include "site/site.h"

#define ROOM	(1u << 20)	/* bytes of lines queued for a watcher */

/* The format of a line. All values are escaped for JSON. */
#define PATTERN	"{\"time\":\"$time_iso\",\"tier\":\"$tier\",\"status\":$status,\"seconds\":$seconds," \
	"\"client\":\"$client\",\"host\":\"$host\",\"request\":\"$request\",\"body\":$body_bytes," \
	"\"bytes\":$bytes,\"reason\":\"$reason\",\"upstream\":\"$upstream\"," \
	"\"upstream_seconds\":\"$upstream_seconds\",\"agent\":\"$agent\",\"id\":\"$request_id\"}"

struct tbg_watcher {
	struct tbg_live_filter filter;
	pthread_mutex_t lock;
	char *b;		/* ROOM bytes; NULL: not allocated */
	size_t len;
	uint64_t lost;		/* since the last tbg_live_take() */
	bool kernel;		/* shows hits of kernel tiers */
	uint64_t kernel_lost;	/* lost in the kernel's ring buffer until the last take */
};

static struct {
	pthread_rwlock_t lock;	/* of the slots; write-locked to add or remove watchers */
	struct tbg_watcher *watcher[TBG_LIVE_MAX];
	atomic_uint nr;
} live = { .lock = PTHREAD_RWLOCK_INITIALIZER };

/* --- filters ------------------------------------------------------------- */

static const char *host_set(struct tbg_live_filter *f, const char *text)
{
	char name[TBG_PATH_MAX];
	size_t len = tbg_host_name(text, strlen(text), name);

	if (!len || len >= sizeof(f->host) || strpbrk(text, " \t\"/"))
		return "the name of a host";
	memcpy(f->host, name, len);
	f->host[len] = 0;
	return NULL;
}

static bool tier_find(struct tbg_live_filter *f, const char *word, size_t len)
{
	for (int i = 0; i < TBG_TIER_NR; i++) {
		const char *name = tbg_log_tier_text(i);

		if (strlen(name) != len || memcmp(name, word, len))
			continue;
		f->tier[i] = f->tiers = true;
		return true;
	}
	return false;
}

/* "404" or "4xx" */
static bool status_find(struct tbg_live_filter *f, const char *word, size_t len)
{
	unsigned int first, nr = 1;

	if (len != 3 || *word < '1' || *word > '5')
		return false;
	first = (*word - '0') * 100;
	if (word[1] == 'x' && word[2] == 'x')
		nr = 100;
	else if (strspn(word, "0123456789") >= 3)
		first += (word[1] - '0') * 10 + word[2] - '0';
	else
		return false;
	memset(f->status + first, true, nr);
	f->statuses = true;
	return true;
}

static bool words_set(struct tbg_live_filter *f, const char *text,
		      bool (*find)(struct tbg_live_filter *f, const char *word, size_t len))
{
	size_t len;

	for (;; text += len + 1) {
		len = strcspn(text, ",");
		if (!find(f, text, len))
			return false;
		if (!text[len])
			return true;
	}
}

const char *tbg_live_filter_set(struct tbg_live_filter *f, const char *name, const char *text)
{
	unsigned int ms;

	if (!strcmp(name, "host"))
		return host_set(f, text);
	if (!strcmp(name, "tier"))
		return words_set(f, text, tier_find) ? NULL :
		       "one or more of wire, sock and user with commas";
	if (!strcmp(name, "status"))
		return words_set(f, text, status_find) ? NULL :
		       "statuses such as 404, or classes such as 5xx, with commas";
	if (!strcmp(name, "slow")) {
		if (!tbg_value_ms(text, &ms))
			return "a time such as 100ms or 2s";
		f->slow_ns = ms * 1000000ull;
		return NULL;
	}
	if (strcmp(name, "path") || *text != '/' || strlen(text) >= sizeof(f->path))
		return "what a path begins with, from its slash on";
	strcpy(f->path, text);
	return NULL;
}

/* Checks the conditions that need no formatted line. */
static bool record_fits(const struct tbg_live_filter *f, const struct tbg_log_record *r)
{
	return (!f->tiers || f->tier[r->tier]) &&
	       (!f->statuses || (r->status < TBG_LIVE_STATUS && f->status[r->status])) &&
	       r->took_ns >= f->slow_ns;
}

static bool host_fits(const struct tbg_live_filter *f, const char *site,
		      const struct tbg_log_text *host)
{
	char name[TBG_PATH_MAX];
	size_t len;

	if (!*f->host || !strcasecmp(f->host, site))
		return true;
	len = tbg_host_name(host->p, host->len, name);
	return len == strlen(f->host) && !memcmp(name, f->host, len);
}

/* Compares the text after the method and its blank. */
static bool path_fits(const struct tbg_live_filter *f, const struct tbg_log_text *request)
{
	const char *blank = memchr(request->p, ' ', request->len);
	size_t len = strlen(f->path);

	return !len || (blank && (size_t)(request->p + request->len - blank - 1) >= len &&
			!memcmp(blank + 1, f->path, len));
}

/* --- lines --------------------------------------------------------------- */

bool tbg_live_watched(void)
{
	return atomic_load_explicit(&live.nr, memory_order_relaxed);
}

static void line_add(struct tbg_watcher *w, const struct tbg_log_made *line)
{
	pthread_mutex_lock(&w->lock);
	if (!w->b)
		w->b = malloc(ROOM);
	if (w->b && w->len + line->len <= ROOM) {
		tbg_log_put(line, w->b + w->len);
		w->len += line->len;
	} else {
		w->lost++;
	}
	pthread_mutex_unlock(&w->lock);
}

void tbg_live_write(const char *site, const struct tbg_log_record *r)
{
	struct tbg_log_made line;

	line.nr = 0;
	pthread_rwlock_rdlock(&live.lock);
	for (int i = 0; i < TBG_LIVE_MAX; i++) {
		struct tbg_watcher *w = live.watcher[i];

		if (!w || !record_fits(&w->filter, r))
			continue;
		if (!line.nr)
			tbg_log_make(&line, r, TBG_LOG_JSON, PATTERN);
		if (host_fits(&w->filter, site, &line.parts.host) &&
		    path_fits(&w->filter, &line.parts.request))
			line_add(w, &line);
	}
	pthread_rwlock_unlock(&live.lock);
}

/* --- watchers ------------------------------------------------------------ */

static bool slot_take(struct tbg_watcher *w)
{
	int i = 0;

	pthread_rwlock_wrlock(&live.lock);
	while (i < TBG_LIVE_MAX && live.watcher[i])
		i++;
	if (i < TBG_LIVE_MAX) {
		live.watcher[i] = w;
		atomic_fetch_add(&live.nr, 1);
	}
	pthread_rwlock_unlock(&live.lock);
	return i < TBG_LIVE_MAX;
}

struct tbg_watcher *tbg_live_begin(const struct tbg_live_filter *f)
{
	struct tbg_watcher *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->filter = *f;
	pthread_mutex_init(&w->lock, NULL);
	w->kernel = !f->tiers || f->tier[TBG_TIER_wire] || f->tier[TBG_TIER_sock];
	w->kernel_lost = tbg_hits_lost();
	if (!slot_take(w)) {
		pthread_mutex_destroy(&w->lock);
		free(w);
		return NULL;
	}
	if (w->kernel)
		tbg_hits_want();
	return w;
}

void tbg_live_end(struct tbg_watcher *w)
{
	if (w->kernel)
		tbg_hits_unwant();
	pthread_rwlock_wrlock(&live.lock);
	for (int i = 0; i < TBG_LIVE_MAX; i++) {
		if (live.watcher[i] != w)
			continue;
		live.watcher[i] = NULL;
		atomic_fetch_sub(&live.nr, 1);
	}
	pthread_rwlock_unlock(&live.lock);
	pthread_mutex_destroy(&w->lock);
	free(w->b);
	free(w);
}

char *tbg_live_take(struct tbg_watcher *w, size_t *ret_len, uint64_t *ret_lost)
{
	uint64_t kernel_lost = w->kernel ? tbg_hits_lost() : w->kernel_lost;
	char *ret;

	pthread_mutex_lock(&w->lock);
	ret = w->b;
	*ret_len = w->len;
	*ret_lost = w->lost + kernel_lost - w->kernel_lost;
	w->b = NULL;
	w->len = w->lost = 0;
	pthread_mutex_unlock(&w->lock);
	w->kernel_lost = kernel_lost;
	return ret;
}
