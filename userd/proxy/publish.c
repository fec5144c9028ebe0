// SPDX-License-Identifier: GPL-2.0
/*
 * An object expires at the first of three times: when the response is stale, when it
 * should be refreshed, or when Age gets one more digit. The next request then reaches
 * the daemon, is answered from the store, and starts the refresh or publishes the next
 * object. So Age is exact to the second, no hit waits for an upstream, and a response
 * without requests is not refreshed.
 */
#include <string.h>

#include "cache/objects.h"
#include "os/clock.h"
#include "core/fresh.h"
#include "proxy/deliver.h"
#include "http/header.h"
#include "proxy/publish.h"
#include "site/site.h"
#include "upstream/upstream.h"

static struct tbg_slice field_of(const struct tbg_stored *one, const char *name)
{
	struct tbg_slice v = { NULL, 0 };

	tbg_field_find(one->head, one->head_len, name, &v);
	return v;
}

const char *tbg_publish_doubt(const struct tbg_stored *one,
			      const struct tbg_uri *u)
{
	const struct tbg_response_directives *t = &one->directives;

	if (!u->path_off)
		return "its request named no host";
	if (u->https || u->proxy_host.len)
		return "a trusted proxy has named another scheme or host for it";
	if (u->len + t->has_vary > TBG_URI_MAX)
		return "host and target are too long together";
	if (t->status == 206)
		return "it is a part (206): which requests it answers, the daemon knows";
	if (t->has_vary && !one->by_encoding)
		return "it has a Vary of more than Accept-Encoding: which of them answers, the daemon knows";
	if (t->cc.no_cache)
		return "no-cache: it is validated for each request";
	if (t->set_cookie)
		return "it has Set-Cookie";
	if (one->authorized)
		return "its request had Authorization";
	if (field_of(one, "ETag").len > sizeof(((struct tbg_entry *)0)->etag))
		return "its ETag is too long";
	if (one->body->len + one->head_len + TBG_304_ROOM >
	    tbg_class_room(TBG_CLASS_NR - 1))
		return "it is too large";
	return NULL;
}

static unsigned int digits_of(uint64_t age_s)
{
	unsigned int nr = 1;

	for (; age_s > 9; age_s /= 10)
		nr++;
	return nr;
}

/* Returns when an Age of this many digits gets one more. */
static uint64_t digits_end_ns(const struct tbg_response_directives *t, unsigned int digits)
{
	uint64_t age_s = 1;

	while (digits--)
		age_s *= 10;
	return tbg_response_directives_born_ns(t) + age_s * TBG_NS_PER_S;
}

static uint64_t object_end_ns(const struct tbg_stored *one, unsigned int digits,
			      uint64_t now_ns)
{
	uint64_t end = tbg_response_directives_expires_ns(&one->directives);
	uint64_t other = digits_end_ns(&one->directives, digits);

	end = other < end ? other : end;
	other = one->refresh_ns;
	return other > now_ns && other < end ? other : end;
}

/* The end of each head: the tier's name and the bytes after it. */
#define TIER_ON		"wire\r\n\r\n"
#define TIER_BACK	(sizeof(TIER_ON) - 1)
static const char head_end[] = TBG_CACHE_STATUS "; hit; detail=" TIER_ON;

/* Heads of the parts, and the offset of Age in them. */
struct heads {
	struct tbg_lines get, not;
	uint32_t get_age, not_age;
};

static void heads_make(struct heads *h, const struct tbg_location *l,
		       const struct tbg_stored *one, uint64_t age_s)
{
	struct tbg_response_plan d = {
		.status = one->directives.status, .reason = one->reason,
		.reason_len = strlen(one->reason), .fields = one->head,
		.fields_len = one->head_len, .length = one->body->len,
		.age_s = age_s, .made_here = one->made_here, .older = one->older,
		.location = l->adds ? l : NULL,
	};

	tbg_deliver_head(&h->get, &d, &h->get_age);
	tbg_lines_text(&h->get, head_end);
	d.status = 304;
	d.reason = tbg_status_text(304);
	d.reason_len = strlen(d.reason);
	d.length = -1;
	tbg_deliver_head(&h->not, &d, &h->not_age);
	tbg_lines_text(&h->not, head_end);
}

static void body_copy(uint8_t *to, const struct tbg_byte_chain *body)
{
	const struct tbg_piece *p;

	TAILQ_FOREACH(p, &body->pieces, link) {
		memcpy(to, p->data, p->len);
		to += p->len;
	}
}

/* Sets the validators, as transfer.c compares them. */
static void validators_set(struct tbg_object *o, const struct tbg_stored *one)
{
	struct tbg_slice tag = field_of(one, "ETag");
	struct tbg_slice modified = field_of(one, "Last-Modified");

	if (tag.len > 2 && !memcmp(tag.text, "W/", 2)) {
		tag.text += 2;
		tag.len -= 2;
	}
	memcpy(o->etag, tag.text ?: "", tag.len);
	o->etag_len = tag.len;
	o->modified_s = one->directives.date_s;
	if (modified.len)
		tbg_date_parse(modified.text, modified.len, &o->modified_s);
}

static void draft_fill(struct tbg_draft *d, const struct heads *h,
		       const struct tbg_stored *one)
{
	struct tbg_blob *b = d->blob;
	uint32_t head = h->get.len, body = one->body->len;

	memcpy(b->data, h->get.text, head);
	body_copy(b->data + head, one->body);
	memcpy(b->data + head + body, h->not.text, h->not.len);
	b->part[TBG_PART_GET] = (struct tbg_blob_part){
		.len = head + body, .date_off = h->get_age, .tier_off = head - TIER_BACK,
		.status = one->directives.status,
	};
	b->part[TBG_PART_HEAD] = b->part[TBG_PART_GET];
	b->part[TBG_PART_HEAD].len = head;
	b->part[TBG_PART_304] = (struct tbg_blob_part){
		.off = head + body, .len = h->not.len, .date_off = h->not_age,
		.tier_off = h->not.len - TIER_BACK, .status = 304,
	};
	validators_set(d->object, one);
}

int tbg_publish_text(const struct tbg_stored *one, const struct tbg_uri *u,
		     const char *req, size_t req_len, char ret[TBG_URI_MAX])
{
	struct tbg_slice name, v, accept = { "", 0 };
	bool present = false;
	size_t at = 0;

	if (one->by_encoding && tbg_elements_have(req, req_len, TBG_SLICE("Connection"),
						  TBG_SLICE("Accept-Encoding")))
		return -1;		/* see http/vary.c */
	while (one->by_encoding && tbg_field_next(req, req_len, &at, &name, &v)) {
		if (!tbg_slice_is(name, "Accept-Encoding"))
			continue;
		if (present || !v.len)
			return -1;
		present = true;
		accept = v;
	}
	if (u->len + one->by_encoding + accept.len > TBG_URI_MAX)
		return -1;
	memcpy(ret, u->text, u->len);
	if (!one->by_encoding)
		return u->len;
	ret[u->len] = ' ';
	memcpy(ret + u->len + 1, accept.text, accept.len);
	return u->len + 1 + accept.len;
}

static void key_make(const struct tbg_cache *cache, uint32_t vhost,
		     const char *text, uint32_t len, struct tbg_key *ret)
{
	struct tbg_path words = { 0 };

	memcpy(words.w, text, len);
	tbg_key_make((const __u64 *)tbg_cache_hash_key(cache), vhost, &words,
		     len, ret);
}

/*
 * Returns the location that leads to the upstream of the response; NULL: there is none,
 * perhaps after a reload during the fetch.
 */
static const struct tbg_location *location_of(const struct tbg_site *site,
					      const struct tbg_uri *u)
{
	const struct tbg_location *l;

	const char *target = u->text + u->path_off;
	size_t len = u->len - u->path_off;
	const char *query = memchr(target, '?', len);
	char path[TBG_PATH_MAX + 1];
	int n;

	n = tbg_path_decode((const uint8_t *)target, query ? (size_t)(query - target) : len,
			    path);
	if (n < 0)
		return NULL;
	l = tbg_location_find(site, path, n);
	return l->upstream && l->upstream->id == u->upstream ? l : NULL;
}

static bool published(struct tbg_cache *cache, const struct tbg_key *key,
		      uint32_t vhost, const char *text, uint32_t len,
		      uint64_t now_ns)
{
	struct tbg_object *o = tbg_cache_find(cache, key, vhost, text, len);
	bool ret = o && tbg_fresh(atomic_load(&o->expires_ns), now_ns);

	tbg_object_put(o);
	return ret;
}

static void publish(struct tbg_cache *cache, struct tbg_store *store,
		    const struct tbg_location *l, const char *text, uint32_t len,
		    struct tbg_stored *one,
		    const struct tbg_key *key, uint64_t now_ns)
{
	uint64_t age_s = tbg_response_directives_age(&one->directives, now_ns);
	unsigned int digits = digits_of(age_s);
	struct tbg_draft d = { 0 };
	struct heads h = { 0 };

	heads_make(&h, l, one, age_s);
	if (digits > TBG_AGE_MAX || h.get.failed || h.not.failed ||
	    h.not.len > TBG_304_ROOM || h.get.len > TBG_HEAD_ROOM)
		goto out;
	if (tbg_draft_open(cache, key, l->site->id, text, len, NULL,
			   h.get.len + one->body->len + TBG_304_ROOM, &d))
		goto out;
	draft_fill(&d, &h, one);
	d.blob->age_len = digits;
	d.object->born_ns = tbg_response_directives_born_ns(&one->directives);
	d.object->flags = (l->cookies_pass ? TBG_ENTRY_COOKIES : 0) |
			  (l->proxies_nr ? TBG_ENTRY_CLAIMS : 0) |
			  (l->clients.nr ? TBG_ENTRY_LISTED : 0) |
			  (one->directives.status != 200 ? TBG_ENTRY_PLAIN : 0);
	atomic_store(&d.object->expires_ns, object_end_ns(one, digits, now_ns));
	tbg_store_publish(store, one, &d, now_ns);
out:
	tbg_lines_free(&h.get);
	tbg_lines_free(&h.not);
}

void tbg_publish(struct tbg_cache *cache, struct tbg_store *store,
		 const struct tbg_site *site, const struct tbg_uri *u, struct tbg_stored *one,
		 const char *req, size_t req_len, uint64_t now_ns)
{
	const struct tbg_location *l;
	char text[TBG_URI_MAX];
	struct tbg_key key;
	int len;

	if (!site || tbg_publish_doubt(one, u) ||
	    !tbg_fresh(tbg_response_directives_expires_ns(&one->directives), now_ns))
		return;
	len = tbg_publish_text(one, u, req, req_len, text);
	if (len < 0)
		return;
	key_make(cache, site->id, text, len, &key);
	if (published(cache, &key, site->id, text, len, now_ns))
		return;
	l = location_of(site, u);
	if (l && tbg_store_wants(store, one, &key, now_ns))
		publish(cache, store, l, text, len, one, &key, now_ns);
}
