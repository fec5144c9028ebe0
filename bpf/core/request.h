/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The fast grammar: one complete GET or HEAD request of HTTP/1.1 (RFC 9112)
 * in at most TBG_REQ_MAX bytes, with nothing in it that only the daemon
 * understands. A strict subset of the daemon's parser (userd/http/request.c): what is
 * accepted here is accepted there, with the same method, path and key.
 *
 *	("GET" / "HEAD") SP path ["?" query] SP "HTTP/1.1" CRLF
 *	*(name ":" *SP value CRLF) CRLF
 *
 * Where a tier can end a connection, also HTTP/1.0, and "Connection: close".
 *
 * It reads words of eight bytes and never relies on the bytes behind len.
 */
#ifndef TBG_CORE_REQUEST_H
#define TBG_CORE_REQUEST_H

#include "authority.h"
#include "persist.h"
#include "span.h"

#define TBG_REQ_HEAD	0x1	/* method HEAD, else GET */
#define TBG_REQ_COOKIE	0x2	/* has a Cookie field */
#define TBG_REQ_CLAIM	0x4	/* has X-Forwarded-Proto or X-Forwarded-Host */
#define TBG_REQ_OLD	0x8	/* HTTP/1.0 */
#define TBG_REQ_CLOSE	0x10	/* Connection: close */
#define TBG_REQ_KEEP	0x20	/* Connection: keep-alive, of a tier that can end it */

#define TBG_NAME_MAX	39	/* bytes of a field name */

/* Lines in one call, and bytes of a value: a long one goes on in the next. */
#define TBG_LINES	4
#define TBG_STRETCH	256

/* Calls: the shortest lines, and the longest values. */
#define TBG_CALLS_MAX	(TBG_REQ_MAX / 4 / TBG_LINES + 1 + TBG_REQ_MAX / TBG_STRETCH)

/* Offsets and lengths are in bytes from the start of the head. */
struct tbg_req {
	__u32 len;			/* of the whole request */
	__u16 flags;
	__u16 path_off, path_len;	/* canonical, 1..TBG_PATH_MAX */
	__u16 query_off, query_len;	/* behind the '?'; 0, 0: none */
	__u16 host_off, host_len;
	__u16 inm_off, inm_len;		/* If-None-Match; 0, 0: none */
	__u16 ims_off, ims_len;		/* If-Modified-Since; 0, 0: none */
	__u16 ae_off, ae_len;		/* Accept-Encoding; 0, 0: none */
};

/* Bits of fields that may occur once; TBG_REQ_COOKIE and _CLAIM are kept among them. */
#define TBG_SEEN_COOKIE	TBG_REQ_COOKIE
#define TBG_SEEN_CLAIM	TBG_REQ_CLAIM
#define TBG_SEEN_HOST	0x10
#define TBG_SEEN_INM	0x20
#define TBG_SEEN_IMS	0x40
#define TBG_SEEN_AE	0x80
#define TBG_SEEN_CONN	0x100
#define TBG_SEEN_LENGTH	0x200

/*
 * The parser's working memory, provided by the caller: the verifier tracks the
 * values on a stack and would walk each combination of them, but not those in a
 * map.
 */
struct tbg_scan {
	__u64 off;			/* of the line to look at next */
	__u64 from;			/* start of the value, if the field matters */
	__u64 at;			/* where a long value continues; 0: none */
	__u64 class;			/* enum tbg_field, of that line */
	__u64 len;
	__u64 seen;
	__u64 flags;			/* TBG_REQ_*, but for those in seen */
	__u64 may_close;		/* 1: the tier can end a connection */
	__u64 path, query, host, inm, ims, ae; /* offset << 16 | length */
	__u64 why;			/* at the end; TBG_SCAN_DONE: accepted */
};

#define TBG_SCAN_DONE	TBG_WHY_NR

/* Argument of a step of bpf_loop(). */
struct tbg_walk {
	const struct tbg_head *h;
	struct tbg_scan *s;
};

/*
 * Marks the bytes of w that are not allowed in a path; the first mark is exact.
 * Letters, digits and "&'()*+,-./:;_" are always tested; the rarer "!$=@~" only
 * if the first marked byte is no space.
 */
__tbg_inline __u64 tbg_path_marks(__u64 w)
{
	__u64 out = tbg_mark_within(tbg_or(w, 0x20 * TBG_ONES), 'a', 'z') ^
		    tbg_mark_within(w, '&', ';') ^ tbg_mark_not(w, '_');
	__u64 marks = (out | w) & TBG_MARKS;

	if (marks && marks & -marks & tbg_mark_not(w, ' '))
		marks &= tbg_mark_not(w, '!') & tbg_mark_not(w, '$') &
			 tbg_mark_not(w, '=') & tbg_mark_not(w, '@') &
			 tbg_mark_not(w, '~');
	return (marks | w) & TBG_MARKS;
}

/*
 * Scans the path that begins at the offset at, 7 at most. Returns 0 and its end,
 * or a why. "/." and "//" are passed up: dot segments and dot files, and what
 * the daemon would have to normalise.
 */
__tbg_inline int tbg_path_scan(const struct tbg_head *h, __u64 at, __u64 len,
			       __u64 *ret_end)
{
	__u64 w, next, marks, twins, end;
	const __u8 *b = h->b + at;
	__u32 i;

	if (at >= len)
		return TBG_WHY_SPLIT;
	if (*b != '/')
		return TBG_WHY_PATH;
	TBG_ROLLED
	for (i = 0; i <= TBG_PATH_MAX; i += 8) {
		w = tbg_word(b + i);
		marks = tbg_path_marks(w);
		/* a slash here, and behind it a slash or a dot */
		next = tbg_word(b + i + 1) | TBG_ONES;
		twins = tbg_xor(w, '/' * TBG_ONES) | tbg_xor(next, '/' * TBG_ONES);
		twins = ~(twins + 0x7f * TBG_ONES) & TBG_MARKS;
		if (!(marks | twins))
			continue;
		/* only those before the end; below the first mark all is exact */
		twins &= (marks & -marks) - 1;
		if (twins) {
			end = i + at + tbg_mark_first(twins);
			return end + 1 < len || len > at + TBG_PATH_MAX ?
			       TBG_WHY_PATH : TBG_WHY_SPLIT;
		}
		end = tbg_opaque(i + at + tbg_mark_first(marks), w) & 0xff;
		if (end > at + TBG_PATH_MAX)
			break;
		if (end >= len)
			return TBG_WHY_SPLIT;
		*ret_end = end;
		return 0;
	}
	return len > at + TBG_PATH_MAX ? TBG_WHY_PATH : TBG_WHY_SPLIT;
}

/* As tbg_mark_below(): what ends a value, in a query also SP and '#'. */
__tbg_inline __u64 tbg_text_marks(__u64 w, int query)
{
	if (!query)
		return tbg_mark_below(w, 0x20);
	return tbg_mark_below(w, 0x21) | ~tbg_mark_not(w, '#');
}

/*
 * Looks for the first such byte in steps * 32 bytes from *at on. 1: *at is its
 * offset; 0: continue at *at, where TBG_REQ_MAX or more means that there is
 * none.
 */
__tbg_inline int tbg_text_end(const struct tbg_head *h, __u32 steps, int query,
			      __u64 *at)
{
	__u64 w, noise, marks, p = *at;
	const __u8 *b;
	__u32 i, k;

	TBG_ROLLED
	for (i = 0; i < steps; i++) {
		tbg_keep(p);
		if (p >= TBG_REQ_MAX)
			break;
		b = h->b + p;
		TBG_UNROLLED
		for (k = 0; k < 32; k += 8) {
			w = tbg_word(b + k);
			noise = w + TBG_ONES;	/* used in the test as well */
			marks = tbg_text_marks(w, query) & TBG_MARKS;
			if (marks) {
				*at = tbg_opaque(p + k, noise) +
				      tbg_mark_first(marks);
				return 1;
			}
		}
		p += 32;
	}
	*at = p;
	return 0;
}

/* Request line. 0 or a why. */
__tbg_inline int tbg_request_line(const struct tbg_head *h, struct tbg_scan *s)
{
	__u64 w = tbg_word(h->b), len = s->len, at, end, from;
	int why;

	if ((w & tbg_word_low(4)) == TBG_TEXT("GET ")) {
		at = 4;
	} else if ((w & tbg_word_low(5)) == TBG_TEXT("HEAD ")) {
		at = 5;
		s->flags |= TBG_REQ_HEAD;
	} else {
		return len >= 8 ? TBG_WHY_METHOD : TBG_WHY_SPLIT;
	}
	/* what follows is walked once, and not for each method */
	at = tbg_opaque(at, w) & 7;
	why = tbg_path_scan(h, at, len, &end);
	if (why)
		return why;
	s->path = at << 16 | (end - at);

	if (h->b[end] == '?') {
		from = end + 1;
		end = from;
		if (!tbg_text_end(h, TBG_REQ_MAX / 32, 1, &end) ||
		    end >= TBG_REQ_MAX || end >= len)
			return TBG_WHY_SPLIT;
		s->query = from << 16 | (end - from);
		if (h->b[end] != ' ')
			return TBG_WHY_GRAMMAR;
	}
	w = tbg_word(h->b + end);
	if ((w & 0xff) != ' ')
		return TBG_WHY_PATH;
	if (end + 11 > len)
		return TBG_WHY_SPLIT;
	if ((w & tbg_word_low(6)) != TBG_TEXT(" HTTP/"))
		return TBG_WHY_GRAMMAR;
	if (w == TBG_TEXT(" HTTP/1.") && h->b[end + 8] == '0' && s->may_close)
		s->flags |= TBG_REQ_OLD;
	else if (w != TBG_TEXT(" HTTP/1.") || h->b[end + 8] != '1')
		return TBG_WHY_VERSION;
	if (h->b[end + 9] != '\r' || h->b[end + 10] != '\n')
		return TBG_WHY_GRAMMAR;
	s->off = end + 11;
	return 0;
}

/*
 * The class of the field with this name. name: the first eight bytes in
 * lower case, zero-padded; nl: length of the name; w1, w2: its next words in
 * lower case, with whatever follows.
 */
enum tbg_field {
	TBG_FIELD_HARMLESS = 0,
	TBG_FIELD_DAEMON,
	TBG_FIELD_HOST,
	TBG_FIELD_INM,
	TBG_FIELD_IMS,
	TBG_FIELD_AE,
	TBG_FIELD_CONN,
	TBG_FIELD_LENGTH,
	TBG_FIELD_COOKIE,
	TBG_FIELD_CLAIM,
};

/* Initials of all names that tbg_field_class() knows. */
#define TBG_INITIAL(c)	(1u << ((c) & 31))
#define TBG_INITIALS	(TBG_INITIAL('a') | TBG_INITIAL('c') | \
			 TBG_INITIAL('e') | TBG_INITIAL('h') | \
			 TBG_INITIAL('i') | TBG_INITIAL('k') | \
			 TBG_INITIAL('m') | TBG_INITIAL('p') | \
			 TBG_INITIAL('r') | TBG_INITIAL('t') | \
			 TBG_INITIAL('x'))

__tbg_inline enum tbg_field tbg_field_class(__u64 name, __u64 nl, __u64 w1,
					    __u64 w2)
{
	if (!(TBG_INITIALS >> (name & 31) & 1))
		return TBG_FIELD_HARMLESS;
	switch (name) {
	case TBG_CHARS('h', 'o', 's', 't', 0, 0, 0, 0):
		return TBG_FIELD_HOST;
	case TBG_CHARS('c', 'o', 'o', 'k', 'i', 'e', 0, 0):
		return TBG_FIELD_COOKIE;
	case TBG_CHARS('c', 'o', 'n', 'n', 'e', 'c', 't', 'i'):
		return nl == 10 && (w1 & 0xffff) == TBG_TEXT("on") ?
		       TBG_FIELD_CONN : TBG_FIELD_DAEMON;
	case TBG_CHARS('c', 'o', 'n', 't', 'e', 'n', 't', '-'):
		return nl == 14 && (w1 & tbg_word_low(6)) == TBG_TEXT("length") ?
		       TBG_FIELD_LENGTH : TBG_FIELD_DAEMON;
	case TBG_CHARS('a', 'c', 'c', 'e', 'p', 't', '-', 'e'):
		return nl == 15 && (w1 & tbg_word_low(7)) == TBG_TEXT("ncoding") ?
		       TBG_FIELD_AE : TBG_FIELD_DAEMON;
	case TBG_CHARS('i', 'f', '-', 'n', 'o', 'n', 'e', '-'):
		return nl == 13 && (w1 & tbg_word_low(5)) == TBG_TEXT("match") ?
		       TBG_FIELD_INM : TBG_FIELD_DAEMON;
	case TBG_CHARS('i', 'f', '-', 'm', 'o', 'd', 'i', 'f'):
		return nl == 17 && w1 == TBG_TEXT("ied-sinc") &&
		       (w2 & 0xff) == 'e' ?
		       TBG_FIELD_IMS : TBG_FIELD_DAEMON;
	case TBG_CHARS('x', '-', 'f', 'o', 'r', 'w', 'a', 'r'):
		if (nl == 17 && w1 == TBG_TEXT("ded-prot") && (w2 & 0xff) == 'o')
			return TBG_FIELD_CLAIM;
		return nl == 16 && w1 == TBG_TEXT("ded-host") ?
		       TBG_FIELD_CLAIM : TBG_FIELD_HARMLESS;
	case TBG_CHARS('t', 'e', 0, 0, 0, 0, 0, 0):
	case TBG_CHARS('r', 'a', 'n', 'g', 'e', 0, 0, 0):
	case TBG_CHARS('e', 'x', 'p', 'e', 'c', 't', 0, 0):
	case TBG_CHARS('p', 'r', 'a', 'g', 'm', 'a', 0, 0):
		return TBG_FIELD_DAEMON;
	/* Fields whose names begin like these. */
	case TBG_CHARS('t', 'r', 'a', 'i', 'l', 'e', 'r', 0):
	case TBG_CHARS('t', 'r', 'a', 'n', 's', 'f', 'e', 'r'):
	case TBG_CHARS('c', 'a', 'c', 'h', 'e', '-', 'c', 'o'):
	case TBG_CHARS('k', 'e', 'e', 'p', '-', 'a', 'l', 'i'):
	case TBG_CHARS('m', 'a', 'x', '-', 'f', 'o', 'r', 'w'):
	case TBG_CHARS('a', 'u', 't', 'h', 'o', 'r', 'i', 'z'):
		return TBG_FIELD_DAEMON;
	}
	if ((name & tbg_word_low(3)) == TBG_TEXT("if-") ||
	    (name & tbg_word_low(6)) == TBG_TEXT("proxy-"))
		return TBG_FIELD_DAEMON;
	return TBG_FIELD_HARMLESS;
}

/*
 * Marks the bytes of w that are not allowed in a name; the first mark is exact.
 * Allowed are letters (in lower case in x), "-" and digits, which are rare.
 */
__tbg_inline __u64 tbg_name_marks(__u64 w, __u64 x, int digits)
{
	__u64 out = tbg_mark_within(x, 'a', 'z') ^ tbg_mark_not(w, '-');

	if (digits)
		out ^= tbg_mark_within(w, '0', '9');
	return (out | w) & TBG_MARKS;
}

/*
 * The length of the name at b, with digits or without: up to the first byte that
 * is not allowed. Without such a byte: TBG_NAME_MAX + 1, or 0 without digits.
 * *ret_name: its first eight bytes, lower case, zero-padded. *ret_last: where
 * its last word begins, so that the scan behind it does not depend on the name;
 * noise is for tbg_opaque().
 */
__tbg_inline __u64 tbg_name_scan(const __u8 *b, int digits, __u64 noise,
				 __u64 *ret_name, __u64 *ret_last)
{
	__u64 w, x, marks, name = 0;
	__u32 k;

	TBG_UNROLLED
	for (k = 0; k <= TBG_NAME_MAX / 8; k++) {
		w = tbg_word(b + k * 8);
		x = tbg_or(w, 0x20 * TBG_ONES);
		marks = tbg_name_marks(w, x, digits);
		if (!k)
			name = x;
		if (marks)
			break;
	}
	*ret_name = name;
	*ret_last = 0;
	if (!marks)
		return digits ? TBG_NAME_MAX + 1 : 0;
	if (!k)
		*ret_name = name & tbg_mark_upto(marks) >> 8;
	*ret_last = tbg_opaque(k * 8, noise);
	return (*ret_last + tbg_mark_first(marks)) & 63;
}

/*
 * Whether the n bytes at from are a Connection value that changes nothing:
 * keep-alive of browsers, and Java's offer of h2c, which is not accepted (RFC
 * 9110 7.8). They are compared in lower case; what this confuses with them are
 * control bytes, no text.
 */
__tbg_inline int tbg_conn_keeps(const struct tbg_head *h, __u64 from, __u64 n)
{
	const __u64 low = 0x20 * TBG_ONES;
	__u64 w = tbg_word(h->b + from) | low;
	__u64 w1 = tbg_word(h->b + from + 8) | low;

	if (n == 10)
		return w == TBG_TEXT("keep-ali") && (w1 & 0xffff) == TBG_TEXT("ve");
	return n == 23 && w == TBG_TEXT("upgrade,") && w1 == TBG_TEXT(" http2-s") &&
	       ((tbg_word(h->b + from + 15) | low) == TBG_TEXT("settings"));
}

/*
 * Takes the Connection value of n bytes at from into s->flags. Returns 0, or 1 for the
 * why FIELD.
 */
__tbg_inline int tbg_conn_keep(const struct tbg_head *h, struct tbg_scan *s, __u64 from,
			       __u64 n)
{
	__u64 w = tbg_word(h->b + from) | 0x20 * TBG_ONES;

	if (s->may_close && n == 5 && (w & tbg_word_low(5)) == TBG_TEXT("close")) {
		s->flags |= TBG_REQ_CLOSE;
		return 0;
	}
	if (!tbg_conn_keeps(h, from, n))
		return 1;
	if (s->may_close && n == 10)
		s->flags |= TBG_REQ_KEEP;
	return 0;
}

/* Keeps the value in from..end of a field that matters. Returns 0, or 1 for the why FIELD. */
__tbg_inline int tbg_field_keep(const struct tbg_head *h, struct tbg_scan *s,
				__u64 end)
{
	__u64 from = s->from, w, bit = 0;

	if (s->class == TBG_FIELD_COOKIE) {
		s->seen |= TBG_SEEN_COOKIE;
		return 0;
	}
	if (s->class == TBG_FIELD_CLAIM) {
		s->seen |= TBG_SEEN_CLAIM;
		return 0;
	}
	/* Up to seven spaces before the value, none behind it, and a value. */
	if (from >= TBG_REQ_MAX)
		return 1;
	w = tbg_word(h->b + from);
	from += tbg_mark_first((tbg_mark_not(w, ' ') | w) & TBG_MARKS);
	if (from >= end || from >= TBG_REQ_MAX || h->b[from] == ' ' ||
	    h->b[(end - 1) & (TBG_REQ_MAX - 1)] == ' ')
		return 1;
	w = from << 16 | (end - from);
	switch (s->class) {
	case TBG_FIELD_HOST:
		bit = TBG_SEEN_HOST;
		s->host = w;
		break;
	case TBG_FIELD_INM:
		bit = TBG_SEEN_INM;
		s->inm = w;
		break;
	case TBG_FIELD_IMS:
		bit = TBG_SEEN_IMS;
		s->ims = w;
		break;
	case TBG_FIELD_AE:
		bit = TBG_SEEN_AE;
		s->ae = w;
		break;
	case TBG_FIELD_LENGTH:	/* zero: some clients send it with a GET */
		bit = TBG_SEEN_LENGTH;
		if (end - from != 1 || h->b[from] != '0')
			return 1;
		break;
	default:
		bit = TBG_SEEN_CONN;
		if (tbg_conn_keep(h, s, from, end - from))
			return 1;
	}
	if (s->seen & bit)
		return 1;
	s->seen |= bit;
	return 0;
}

/*
 * Sets s->why if the line at off is incomplete or no field. Its first nl bytes may be a
 * name.
 */
__tbg_inline void tbg_line_other(const struct tbg_head *h, struct tbg_scan *s,
				 __u64 off, __u64 nl)
{
	__u64 w = tbg_word(h->b + off), len = s->len;

	if (off + (nl > TBG_NAME_MAX ? TBG_NAME_MAX : nl) >= len)
		return;
	if ((w & 0xff) != '\r') {
		s->why = TBG_WHY_GRAMMAR;
	} else if (off + 1 < len) {
		s->off = off + 2;
		s->why = (w & 0xffff) == TBG_TEXT("\r\n") ? TBG_SCAN_DONE :
							     TBG_WHY_GRAMMAR;
	}
}

/*
 * Scans the value from at on. Returns where the next line begins, possibly behind
 * len. 0: the value is wrong (s->why), or long and continues at s->at; so the
 * verifier need not walk the longest value for every line.
 */
__tbg_inline __u64 tbg_value_scan(const struct tbg_head *h, struct tbg_scan *s,
				  __u64 at)
{
	if (!tbg_text_end(h, TBG_STRETCH / 32, 0, &at)) {
		if (at < TBG_REQ_MAX)
			s->at = at;
		return 0;
	}
	if (at >= TBG_REQ_MAX)
		return 0;
	if (tbg_half(h->b + at) != TBG_TEXT("\r\n")) {
		if (at < s->len && (h->b[at] != '\r' || at + 1 < s->len))
			s->why = TBG_WHY_GRAMMAR;
		return 0;
	}
	if (s->class) {
		if (tbg_field_keep(h, s, at)) {
			if (at + 2 <= s->len)
				s->why = TBG_WHY_FIELD;
			return 0;
		}
		s->class = TBG_FIELD_HARMLESS;
	}
	return at + 2;
}

/* Scans the line at off; returns as tbg_value_scan(). */
__tbg_inline __u64 tbg_line_scan(const struct tbg_head *h, struct tbg_scan *s,
				 __u64 off)
{
	__u64 nl, last, name, class;
	const __u8 *b = h->b + off;

	if (off >= TBG_REQ_MAX)
		return 0;
	nl = tbg_name_scan(b, 0, s->len, &name, &last);
	if (b[nl] != ':') {
		nl = tbg_name_scan(b, 1, s->len, &name, &last);
		if (nl > TBG_NAME_MAX || b[nl] != ':')
			goto other;
	}
	if (!nl)
		goto other;
	class = tbg_field_class(name, nl, tbg_word(b + 8) | 0x20 * TBG_ONES,
				b[16] | 0x20);
	if (class == TBG_FIELD_DAEMON) {
		if (off + nl < s->len)
			s->why = TBG_WHY_FIELD;
		return 0;
	}
	if (class) {
		s->class = class;
		s->from = off + nl + 1;
	}
	return tbg_value_scan(h, s, off + last);
other:
	tbg_line_other(h, s, off, nl);
	return 0;
}

/* Several lines in one call of bpf_loop(): returns are expensive with return thunks. */
static __attribute__((unused)) long tbg_line_step(__u32 i, void *arg)
{
	const struct tbg_walk *walk = arg;
	const struct tbg_head *h = walk->h;
	struct tbg_scan *s = walk->s;
	__u64 off = s->off, at = s->at;
	__u32 k;

	(void)i;
	if (at) {
		s->at = 0;
		off = tbg_value_scan(h, s, at);
		if (!off)
			return !s->at;
	}
	TBG_ROLLED
	for (k = 0; k < TBG_LINES; k++) {
		tbg_keep(k);
		off = tbg_line_scan(h, s, off);
		if (!off)
			return !s->at;
	}
	s->off = off;
	return 0;
}

/* As tbg_request_parse(); may_close: for a tier that can end connections. */
__tbg_inline int tbg_request_scan(const struct tbg_head *h, struct tbg_scan *s,
				  __u32 len, int may_close, struct tbg_req *ret)
{
	struct tbg_walk walk = { h, s };
	int why;

	if (len > TBG_REQ_MAX)
		return TBG_WHY_GRAMMAR;
	*s = (struct tbg_scan){ .len = len, .may_close = may_close, .why = TBG_WHY_SPLIT };
	why = tbg_request_line(h, s);
	if (why)
		return why;
	tbg_loop(TBG_CALLS_MAX, tbg_line_step, &walk);
	if (s->why != TBG_SCAN_DONE)
		return s->why;
	why = tbg_host_check(h, s->host >> 16, s->host & 0xffff);
	if (why)
		return why;
	if (s->off != len)
		return TBG_WHY_PIPELINED;

	*ret = (struct tbg_req){
		.len = len,
		.flags = s->flags | (s->seen & (TBG_SEEN_COOKIE | TBG_SEEN_CLAIM)),
		.path_off = s->path >> 16,	.path_len = s->path,
		.query_off = s->query >> 16,	.query_len = s->query,
		.host_off = s->host >> 16,	.host_len = s->host,
		.inm_off = s->inm >> 16,		.inm_len = s->inm,
		.ims_off = s->ims >> 16,		.ims_len = s->ims,
		.ae_off = s->ae >> 16,		.ae_len = s->ae,
	};
	return 0;
}

/*
 * Parses the first request of len bytes in h. Returns 0 and fills *ret, or
 * the TBG_WHY_* that passes it up: SPLIT (incomplete), PIPELINED (more bytes
 * behind it), METHOD, VERSION, PATH, FIELD, GRAMMAR. In BPF *s belongs in a map.
 */
__tbg_inline int tbg_request_parse(const struct tbg_head *h, struct tbg_scan *s,
				   __u32 len, struct tbg_req *ret)
{
	return tbg_request_scan(h, s, len, 0, ret);
}

/* Whether the connection persists after the answer to a request with these flags. */
__tbg_inline enum tbg_persist tbg_request_persist(__u32 flags)
{
	if (flags & TBG_REQ_CLOSE || (flags & TBG_REQ_OLD && !(flags & TBG_REQ_KEEP)))
		return TBG_PERSIST_NOT;
	return flags & TBG_REQ_OLD ? TBG_PERSIST_OLD : TBG_PERSIST;
}

#endif
