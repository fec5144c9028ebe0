// SPDX-License-Identifier: GPL-2.0
/*
 * The rules in the order of RFC 9111, each with its section. Where the RFC
 * leaves a choice, the careful one is taken: of repeated values the least
 * counts, and unreadable values count as stale.
 */
#include <string.h>

#include "os/clock.h"
#include "core/fresh.h"
#include "http/header.h"
#include "http/freshness.h"
#include "http/structured_field.h"

#define HEURISTIC_PART	10		/* of the time since Last-Modified (4.2.2) */
#define HEURISTIC_MAX_S	(24 * 3600)	/* longer ones would need a Warning */
#define REFRESH_PART	10		/* of a lifetime, before its end */
#define VARY_MAX	32		/* names; more count as "*" */
#define DISCONNECTED_S	(24 * 3600)	/* of staleness without an upstream */

/* Cache-Control (5.2) */

/* Whether the value is exactly one quoted string (RFC 9110 5.6.4). */
static bool quoted(struct tbg_slice v)
{
	size_t i = 1;

	if (v.len < 2 || *v.text != '"')
		return false;
	while (i < v.len && v.text[i] != '"')
		i += v.text[i] == '\\' ? 2 : 1;
	return i == v.len - 1;
}

/* Splits a directive into name and argument; removes the quotes of a quoted argument. */
static void directive_split(struct tbg_slice d, struct tbg_slice *ret_name,
			    struct tbg_slice *ret_arg)
{
	const char *eq = memchr(d.text, '=', d.len);

	*ret_name = d;
	*ret_arg = (struct tbg_slice){ NULL, 0 };
	if (!eq)
		return;
	ret_name->len = eq - d.text;
	*ret_arg = (struct tbg_slice){ eq + 1, d.text + d.len - eq - 1 };
	if (quoted(*ret_arg)) {
		ret_arg->text++;
		ret_arg->len -= 2;
	}
}

/* Parses seconds; invalid ones count as 0 (4.2.1: invalid is stale). */
static int64_t seconds_of(struct tbg_slice v)
{
	int64_t n = 0;

	for (size_t i = 0; i < v.len; i++) {
		if (v.text[i] < '0' || v.text[i] > '9')
			return 0;
		n = n * 10 + v.text[i] - '0';
		if (n > TBG_SECONDS_MAX)
			n = TBG_SECONDS_MAX;
	}
	return n;
}

/* Keeps the least of several values. */
static void seconds_take(int64_t *to, struct tbg_slice arg)
{
	int64_t s = seconds_of(arg);

	if (*to < 0 || s < *to)
		*to = s;
}

static const struct {
	struct tbg_slice name;
	size_t off;
} flags[] = {
	{ TBG_SLICE("no-store"), offsetof(struct tbg_cc, no_store) },
	{ TBG_SLICE("public"), offsetof(struct tbg_cc, public_) },
	{ TBG_SLICE("must-revalidate"), offsetof(struct tbg_cc, must_revalidate) },
	{ TBG_SLICE("proxy-revalidate"), offsetof(struct tbg_cc, proxy_revalidate) },
	{ TBG_SLICE("must-understand"), offsetof(struct tbg_cc, must_understand) },
	{ TBG_SLICE("only-if-cached"), offsetof(struct tbg_cc, only_if_cached) },
}, times[] = {
	{ TBG_SLICE("max-age"), offsetof(struct tbg_cc, max_age) },
	{ TBG_SLICE("s-maxage"), offsetof(struct tbg_cc, s_maxage) },
	{ TBG_SLICE("min-fresh"), offsetof(struct tbg_cc, min_fresh) },
	{ TBG_SLICE("stale-while-revalidate"),
	  offsetof(struct tbg_cc, stale_while_revalidate) },
	{ TBG_SLICE("stale-if-error"), offsetof(struct tbg_cc, stale_if_error) },
};

#define NR(a) (sizeof(a) / sizeof(*(a)))

static void directive_set(struct tbg_cc *cc, struct tbg_slice name,
			  struct tbg_slice arg)
{
	/* after an unterminated quote they could mean anything */
	bool names = arg.len && *arg.text != '"';

	for (size_t i = 0; i < NR(flags); i++)
		if (tbg_slice_same(name, flags[i].name))
			*(bool *)((char *)cc + flags[i].off) = true;
	for (size_t i = 0; i < NR(times); i++)
		if (tbg_slice_same(name, times[i].name))
			seconds_take((int64_t *)((char *)cc + times[i].off), arg);
	/* without an argument: any age (5.2.1.2) */
	if (tbg_slice_is(name, "max-stale")) {
		if (!arg.text)
			cc->max_stale = TBG_SECONDS_MAX;
		else
			seconds_take(&cc->max_stale, arg);
	}
	if (tbg_slice_is(name, "no-cache"))
		*(names ? &cc->no_cache_fields : &cc->no_cache) = true;
	if (tbg_slice_is(name, "private"))
		*(names ? &cc->private_fields : &cc->private_) = true;
}

static const struct tbg_cc cc_none = {
	.max_age = -1, .s_maxage = -1, .max_stale = -1, .min_fresh = -1,
	.stale_while_revalidate = -1, .stale_if_error = -1,
};

/* Reads one line. */
static void cc_take(struct tbg_cc *cc, struct tbg_slice v)
{
	struct tbg_slice name, d, arg;
	size_t in = 0;

	cc->present = true;
	while (tbg_list_next(v, &in, &d)) {
		directive_split(d, &name, &arg);
		directive_set(cc, name, arg);
	}
}

/*
 * Directives are flags or non-negative numbers. A list of fields (no-cache="a")
 * counts for the whole response. The last member of a name counts (RFC 8941
 * 3.2).
 */
static void member_take(struct tbg_cc *cc, const struct tbg_member *m)
{
	bool given = m->type == TBG_MEMBER_TRUE || m->type == TBG_MEMBER_STRING;

	for (size_t i = 0; i < NR(flags); i++)
		if (tbg_slice_same(m->name, flags[i].name))
			*(bool *)((char *)cc + flags[i].off) = given;
	for (size_t i = 0; i < NR(times); i++)
		if (tbg_slice_same(m->name, times[i].name))
			*(int64_t *)((char *)cc + times[i].off) =
				m->type == TBG_MEMBER_INTEGER ? seconds_of(m->text) : -1;
	if (tbg_slice_is(m->name, "no-cache"))
		cc->no_cache = given;
	if (tbg_slice_is(m->name, "private"))
		cc->private_ = given;
}

/*
 * Reads all lines of CDN-Cache-Control (RFC 9213), which replaces Cache-Control
 * and Expires. False, with *cc unchanged: there is no valid one.
 */
static bool cc_targeted(struct tbg_cc *cc, const struct tbg_fields *fields)
{
	const struct tbg_field_line *f = NULL;
	struct tbg_cc found = cc_none;
	struct tbg_member m;

	while ((f = tbg_fields_next(fields, f, TBG_NAME_CDN_CACHE_CONTROL))) {
		size_t in = 0;
		int more;

		while ((more = tbg_member_next(f->value, &in, &m)) > 0) {
			found.present = true;
			member_take(&found, &m);
		}
		if (more < 0)
			return false;
	}
	if (found.present)
		*cc = found;
	return found.present;
}

static bool directive_names(struct tbg_slice d, const char *directive,
			    struct tbg_slice name)
{
	struct tbg_slice what, arg, one;
	size_t at = 0;

	directive_split(d, &what, &arg);
	if (!arg.text || !tbg_slice_is(what, directive))
		return false;
	while (tbg_list_next(arg, &at, &one))
		if (tbg_slice_same(one, name))
			return true;
	return false;
}

bool tbg_cc_names(const struct tbg_fields *fields, const char *directive,
		  struct tbg_slice name)
{
	const struct tbg_field_line *f = NULL;
	struct tbg_slice d;

	while ((f = tbg_fields_next(fields, f, TBG_NAME_CACHE_CONTROL)))
		for (size_t at = 0; tbg_list_next(f->value, &at, &d);)
			if (directive_names(d, directive, name))
				return true;
	return false;
}

/* Requests */

void tbg_request_directives_read(struct tbg_request_directives *w, unsigned int method,
				 const struct tbg_fields *fields)
{
	const struct tbg_field_line *f = NULL;
	bool pragma;

	*w = (struct tbg_request_directives){
		.cc = cc_none,
		.get = method == TBG_METHOD_GET, .head = method == TBG_METHOD_HEAD,
		.authorization = tbg_name_in(TBG_NAME_AUTHORIZATION, fields->has),
		.cookie = tbg_name_in(TBG_NAME_COOKIE, fields->has),
		.range = tbg_name_in(TBG_NAME_RANGE, fields->has),
		.conditional = fields->has & tbg_names_with(TBG_CONDITION),
		.origin_condition = fields->has & tbg_names_with(TBG_OF_ORIGIN),
	};
	while ((f = tbg_fields_next(fields, f, TBG_NAME_CACHE_CONTROL)))
		cc_take(&w->cc, f->value);
	pragma = tbg_fields_have(fields, TBG_NAME_PRAGMA, TBG_SLICE("no-cache"));
	w->no_cache = w->cc.no_cache || w->cc.no_cache_fields ||
		      (pragma && !w->cc.present);
}

/* Responses */

/* Heuristically cacheable (RFC 9110 15.1, and RFC 7725 3 of 451). */
static bool status_heuristic(unsigned int status)
{
	switch (status) {
	case 200: case 203: case 204: case 206: case 300: case 301: case 308:
	case 404: case 405: case 410: case 414: case 451: case 501:
		return true;
	}
	return false;
}

/*
 * Statuses whose caching requirements are implemented (3): the final ones of
 * RFC 9110 except 304, which is not stored itself, and 451.
 */
static bool status_understood(unsigned int status)
{
	return (status >= 200 && status <= 206) ||
	       (status >= 300 && status <= 303) || status == 305 ||
	       status == 307 || status == 308 ||
	       (status >= 400 && status <= 417) || status == 421 ||
	       status == 422 || status == 426 || status == 451 ||
	       (status >= 500 && status <= 505);
}

/* The values of the fields, before evaluation. */
struct fields {
	int64_t expires_s, modified_s, age_s;
	bool has_expires, expires_bad, has_modified;
	bool age_seen;
	unsigned int vary_nr;
	bool targeted;		/* CDN-Cache-Control: Expires does not count */
};

/* The first member counts; anything but a number is ignored (5.1). */
static void age_take(struct fields *s, struct tbg_slice v)
{
	struct tbg_slice first;
	size_t at = 0;

	if (s->age_seen || !tbg_list_next(v, &at, &first))
		return;
	s->age_seen = true;
	for (size_t i = 0; i < first.len; i++)
		if (first.text[i] < '0' || first.text[i] > '9')
			return;
	s->age_s = seconds_of(first);
}

/* Reads a date without regard to case (4.2). */
static int date_read(struct tbg_slice v, int64_t *ret)
{
	char text[48];
	bool gmt = false, within = false;

	if (!tbg_date_parse(v.text, v.len, ret))	/* the usual case */
		return 0;
	if (v.len < 3 || v.len > sizeof(text))
		return -1;
	for (size_t i = 0; i < v.len; i++) {
		char c = v.text[i], low = c | 0x20;
		bool letter = low >= 'a' && low <= 'z';

		if (letter && !within)
			gmt = i + 3 == v.len;
		text[i] = !letter ? c : within && !gmt ? low : (char)(low & ~0x20);
		within = letter;
	}
	return tbg_date_parse(text, v.len, ret);
}

/* Several, or one that is no date: already expired (5.3). */
static void expires_take(struct fields *s, struct tbg_slice v)
{
	int64_t second;

	if (date_read(v, &second))
		s->expires_bad = true;
	else if (!s->has_expires || second < s->expires_s)
		s->expires_s = second;
	s->has_expires = true;
}

/* Reads "bytes 0-9/20". An unknown size, or two such fields, make no usable range. */
static void range_take(struct tbg_response_directives *t, struct tbg_slice v)
{
	const char *dash = memchr(v.text, '-', v.len);
	const char *slash = memchr(v.text, '/', v.len);
	uint64_t first, last, size;
	bool again = t->range_len;

	t->size = 0;
	t->range_len = 1;
	if (again || v.len < 6 || !tbg_slice_is((struct tbg_slice){ v.text, 6 }, "bytes ") ||
	    !dash || !slash || slash < dash ||
	    !tbg_digits_parse((struct tbg_slice){ v.text + 6, dash - v.text - 6 }, &first) ||
	    !tbg_digits_parse((struct tbg_slice){ dash + 1, slash - dash - 1 }, &last) ||
	    !tbg_digits_parse((struct tbg_slice){ slash + 1, v.text + v.len - slash - 1 }, &size) ||
	    last < first || last >= size)
		return;
	t->range_from = first;
	t->range_len = last - first + 1;
	t->size = size;
}

/* "*", and fields that the daemon writes or extends: no two requests are the same. */
static bool selects_none(struct tbg_slice name)
{
	return tbg_slice_is(name, "*") ||
	       tbg_name_in(tbg_name_of(name), TBG_NAME_BIT(FORWARDED) | TBG_NAME_BIT(VIA) |
					      TBG_NAME_BIT(X_FORWARDED_FOR) |
					      TBG_NAME_BIT(X_REQUEST_ID));
}

static void vary_take(struct tbg_response_directives *t, struct fields *s, struct tbg_slice v)
{
	struct tbg_slice one;
	size_t at = 0;

	while (tbg_list_next(v, &at, &one)) {
		t->has_vary = true;
		if (selects_none(one) || ++s->vary_nr > VARY_MAX)
			t->vary_any = true;
	}
}

static void field_take(struct tbg_response_directives *t, struct fields *s,
		       const struct tbg_field_line *f)
{
	struct tbg_slice v = f->value;

	switch (f->id) {
	case TBG_NAME_CACHE_CONTROL:
		cc_take(&t->cc, v);
		break;
	case TBG_NAME_DATE:
		if (!t->has_date && !date_read(v, &t->date_s))
			t->has_date = true;
		break;
	case TBG_NAME_EXPIRES:
		expires_take(s, v);
		break;
	case TBG_NAME_AGE:
		age_take(s, v);
		break;
	case TBG_NAME_LAST_MODIFIED:
		if (!date_read(v, &s->modified_s))
			s->has_modified = true;
		break;
	case TBG_NAME_ETAG:
		t->has_validator |= v.len > 0;
		break;
	case TBG_NAME_VARY:
		vary_take(t, s, v);
		break;
	case TBG_NAME_CONTENT_RANGE:
		if (t->status == 206)
			range_take(t, v);
		break;
	case TBG_NAME_SET_COOKIE:
		t->set_cookie = true;
		break;
	default:
		break;
	}
}

/* The lifetime by 4.2.1, or by 4.2.2 if the origin gives none. */
static void lifetime_set(struct tbg_response_directives *t, const struct fields *s)
{
	const struct tbg_cc *cc = &t->cc;

	t->explicit_life = true;
	if (cc->s_maxage >= 0) {
		t->lifetime_s = cc->s_maxage;
	} else if (cc->max_age >= 0) {
		t->lifetime_s = cc->max_age;
	} else if (s->has_expires && !s->targeted) {
		t->lifetime_s = s->expires_bad ? 0 : s->expires_s - t->date_s;
	} else {
		t->explicit_life = false;
		if (s->has_modified && s->modified_s < t->date_s &&
		    !t->set_cookie &&
		    (status_heuristic(t->status) || cc->public_))
			t->lifetime_s = (t->date_s - s->modified_s) / HEURISTIC_PART;
		if (t->lifetime_s > HEURISTIC_MAX_S)
			t->lifetime_s = HEURISTIC_MAX_S;
	}
	if (t->lifetime_s < 0)
		t->lifetime_s = 0;
	if (t->lifetime_s > TBG_SECONDS_MAX)
		t->lifetime_s = TBG_SECONDS_MAX;
}

void tbg_response_directives_read(struct tbg_response_directives *t, unsigned int status,
		    const struct tbg_fields *fields,
		    int64_t now_s, uint64_t now_ns, uint64_t delay_ns)
{
	struct fields s = { 0 };
	int64_t apparent_s;

	*t = (struct tbg_response_directives){ .status = status, .received_ns = now_ns,
				 .delay_ns = delay_ns };
	t->cc = cc_none;
	for (uint32_t i = 0; i < fields->nr; i++)
		field_take(t, &s, &fields->all[i]);
	/* the stored response then lacks the field (5.2.2.4, 5.2.2.7) */
	t->set_cookie &= !tbg_cc_names(fields, "no-cache", TBG_SLICE("Set-Cookie")) &&
			 !tbg_cc_names(fields, "private", TBG_SLICE("Set-Cookie"));
	s.targeted = cc_targeted(&t->cc, fields);
	if (!t->has_date)
		t->date_s = now_s;
	t->has_validator |= s.has_modified;
	t->has_validator &= status == 200 || status == 203 || status == 206;
	lifetime_set(t, &s);
	/* 4.2.3; the delay counts only if it is a second or more */
	apparent_s = now_s > t->date_s ? now_s - t->date_s : 0;
	s.age_s += delay_ns / 1000000000;
	t->initial_age_s = apparent_s > s.age_s ? apparent_s : s.age_s;
}

void tbg_response_directives_of(struct tbg_response_directives *t,
				const struct tbg_request_directives *w)
{
	if (!t->explicit_life && (!w->heuristic || (w->cookie && !t->cc.public_)))
		t->lifetime_s = 0;
}

/* Explicit: a heuristic lifetime does not permit stale use. */
static bool lifetime_of_its_own(const struct tbg_response_directives *t)
{
	return t->explicit_life && t->lifetime_s > 0;
}

/*
 * Whether stale use is forbidden (4.2.4), or there is no explicit lifetime, not even 0:
 * then the origin has not permitted it for others.
 */
static bool never_stale(const struct tbg_response_directives *t)
{
	return t->cc.must_revalidate || t->cc.proxy_revalidate || t->cc.no_cache ||
	       t->cc.s_maxage >= 0 || !t->explicit_life;
}

/* Whether it may be used later: fresh, after validation, or stale (RFC 5861). */
static bool worth_storing(const struct tbg_response_directives *t)
{
	const struct tbg_cc *cc = &t->cc;

	return t->lifetime_s > 0 || t->has_validator ||
	       (!never_stale(t) &&
		(cc->stale_while_revalidate > 0 || cc->stale_if_error > 0));
}

/* Whether it answers only the condition or the range of its own request. */
static bool of_request(unsigned int status)
{
	return status == 304 || status == 412 || status == 416;
}

bool tbg_response_directives_storable(const struct tbg_response_directives *t,
				      const struct tbg_request_directives *w)
{
	const struct tbg_cc *cc = &t->cc;
	bool got = w->get && !w->content;
	bool posted = w->represents && t->status == 200 && t->explicit_life &&
		      t->lifetime_s > 0;

	if ((!got && !posted) || w->cc.no_store || t->vary_any)
		return false;
	if (t->status < 200 || of_request(t->status))
		return false;
	/* a 206 is not validated, and must have been requested (3.3) */
	if (t->status == 206 && (!w->range || !t->size || t->lifetime_s <= 0))
		return false;
	if (cc->must_understand ? !status_understood(t->status) : cc->no_store)
		return false;
	if (cc->private_)
		return false;
	/* the cookie may be personal; an explicit lifetime shows that it is not */
	if (t->set_cookie && !(w->store_cookies && lifetime_of_its_own(t)))
		return false;
	/* 3.5 */
	if (w->authorization && !cc->must_revalidate && !cc->public_ &&
	    cc->s_maxage < 0)
		return false;
	if (!t->explicit_life && !cc->public_ && !status_heuristic(t->status))
		return false;
	return worth_storing(t);
}

int64_t tbg_response_directives_age(const struct tbg_response_directives *t, uint64_t now_ns)
{
	uint64_t resident_ns = now_ns > t->received_ns ?
			       now_ns - t->received_ns : 0;

	return t->initial_age_s + resident_ns / 1000000000;
}

int64_t tbg_response_directives_ttl(const struct tbg_response_directives *t, uint64_t now_ns)
{
	return t->lifetime_s - tbg_response_directives_age(t, now_ns);
}

uint64_t tbg_response_directives_born_ns(const struct tbg_response_directives *t)
{
	return t->received_ns - t->initial_age_s * TBG_NS_PER_S;
}

/*
 * Fractions of a second of the delay are not in Age, but they count: the
 * answer was made before it was received.
 */
uint64_t tbg_response_directives_expires_ns(const struct tbg_response_directives *t)
{
	if (t->lifetime_s <= t->initial_age_s)
		return 0;
	return t->received_ns - t->delay_ns % TBG_NS_PER_S +
	       (t->lifetime_s - t->initial_age_s) * TBG_NS_PER_S;
}

uint64_t tbg_response_directives_refresh_ns(const struct tbg_response_directives *t, bool again)
{
	uint64_t end = tbg_response_directives_expires_ns(t), part, rest, least, most;

	if (end <= t->received_ns)
		return 0;
	rest = end - t->received_ns;
	part = again ? rest / REFRESH_PART : t->lifetime_s * TBG_NS_PER_S / REFRESH_PART;
	/* a fast upstream may be slower the next time */
	least = rest / 4 < TBG_NS_PER_S ? rest / 4 : TBG_NS_PER_S;
	part = part > least ? part : least;
	/* a slow upstream is asked earlier, at the earliest now */
	most = t->delay_ns < rest - rest / 8 ? rest - rest / 8 : rest;
	if (part < 2 * t->delay_ns)
		part = 2 * t->delay_ns < most ? 2 * t->delay_ns : most;
	return end - part;
}

enum tbg_reuse tbg_response_directives_reuse(const struct tbg_response_directives *t,
			       const struct tbg_request_directives *w, uint64_t now_ns)
{
	int64_t age_s = tbg_response_directives_age(t, now_ns);
	int64_t ttl_s = t->lifetime_s - age_s;

	if (w->no_cache || t->cc.no_cache)
		return TBG_REUSE_VALIDATE;
	/* with "max-age=0" a client requests validation at any age */
	if (w->cc.max_age >= 0 && (age_s > w->cc.max_age || !w->cc.max_age))
		return TBG_REUSE_VALIDATE;
	if (w->cc.min_fresh >= 0 && ttl_s < w->cc.min_fresh)
		return TBG_REUSE_VALIDATE;
	if (tbg_fresh(tbg_response_directives_expires_ns(t), now_ns))
		return TBG_REUSE;
	if (never_stale(t))
		return TBG_REUSE_VALIDATE;
	if (w->client_stale && lifetime_of_its_own(t) && w->cc.max_stale >= 0 &&
	    -ttl_s <= w->cc.max_stale)
		return TBG_REUSE;
	if (w->cc.max_age >= 0)		/* the client accepts nothing older (5.2.1.1) */
		return TBG_REUSE_VALIDATE;
	if (t->cc.stale_while_revalidate > 0 &&
	    -ttl_s < t->cc.stale_while_revalidate)
		return TBG_REUSE_REFRESH;
	return TBG_REUSE_VALIDATE;
}

bool tbg_response_directives_for_one(const struct tbg_response_directives *t, uint64_t now_ns)
{
	return t->cc.no_cache ||
	       (t->lifetime_s <= 0 && t->cc.stale_while_revalidate <= 0) ||
	       (!tbg_fresh(tbg_response_directives_expires_ns(t), now_ns) && never_stale(t));
}

bool tbg_response_directives_error_stale(const struct tbg_response_directives *t,
					 const struct tbg_request_directives *w,
					 bool answered, uint64_t now_ns)
{
	int64_t stale_s = -tbg_response_directives_ttl(t, now_ns);

	if (never_stale(t) || w->no_cache)
		return false;
	if (stale_s < t->cc.stale_if_error)
		return true;
	if (!lifetime_of_its_own(t))	/* it was stored to be validated */
		return false;
	if (w->client_stale && stale_s < w->cc.stale_if_error)
		return true;
	return !answered && t->cc.stale_if_error < 0 && stale_s < DISCONNECTED_S;
}

bool tbg_method_invalidates(unsigned int method, unsigned int status)
{
	switch (method) {
	case TBG_METHOD_GET:
	case TBG_METHOD_HEAD:
	case TBG_METHOD_OPTIONS:
	case TBG_METHOD_TRACE:
		return false;
	}
	return status >= 200 && status < 400;
}

bool tbg_method_idempotent(unsigned int method)
{
	switch (method) {
	case TBG_METHOD_GET:
	case TBG_METHOD_HEAD:
	case TBG_METHOD_OPTIONS:
	case TBG_METHOD_TRACE:
	case TBG_METHOD_PUT:
	case TBG_METHOD_DELETE:
		return true;
	}
	return false;
}
