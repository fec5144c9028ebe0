// SPDX-License-Identifier: GPL-2.0
/*
 * The parsing algorithm of RFC 8941 4.2, without values that are not needed:
 * items are only checked for validity and their ends.
 */
#include <stdbool.h>
#include <string.h>

#include "http/structured_field.h"
#include "http/token.h"

struct scan {
	const char *at, *end;
};

static bool peek(const struct scan *s, char c)
{
	return s->at < s->end && *s->at == c;
}

static bool take(struct scan *s, char c)
{
	bool is = peek(s, c);

	s->at += is;
	return is;
}

static bool digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool lower(char c)
{
	return c >= 'a' && c <= 'z';
}

static bool alpha(char c)
{
	return lower(c) || (c >= 'A' && c <= 'Z');
}

static void spaces(struct scan *s, const char *which)
{
	while (s->at < s->end && strchr(which, *s->at))
		s->at++;
}

static bool key(struct scan *s, struct tbg_slice *ret)
{
	const char *from = s->at;

	if (s->at == s->end || (!lower(*s->at) && *s->at != '*'))
		return false;
	while (s->at < s->end && *s->at && (lower(*s->at) || digit(*s->at) ||
					    strchr("_-.*", *s->at)))
		s->at++;
	*ret = (struct tbg_slice){ from, s->at - from };
	return true;
}

static size_t digits(struct scan *s)
{
	const char *from = s->at;

	while (s->at < s->end && digit(*s->at))
		s->at++;
	return s->at - from;
}

/* An integer of up to 15 digits, a decimal of up to 12 and 3. */
static bool number(struct scan *s, struct tbg_member *ret)
{
	const char *from = s->at;
	size_t whole, part;

	take(s, '-');
	whole = digits(s);
	ret->type = TBG_MEMBER_INTEGER;
	ret->text = (struct tbg_slice){ from, s->at - from };
	if (!whole || whole > 15)
		return false;
	if (!take(s, '.'))
		return true;
	ret->type = TBG_MEMBER_OTHER;
	part = digits(s);
	return whole <= 12 && part && part <= 3;
}

static bool string(struct scan *s, struct tbg_member *ret)
{
	const char *from = ++s->at;

	for (; s->at < s->end && *s->at != '"'; s->at++) {
		if (*s->at < 0x20 || *s->at > 0x7e)
			return false;
		if (*s->at == '\\' && (++s->at == s->end || !strchr("\"\\", *s->at)))
			return false;
	}
	ret->type = TBG_MEMBER_STRING;
	ret->text = (struct tbg_slice){ from, s->at - from };
	return take(s, '"');
}

static bool token(struct scan *s)
{
	while (s->at < s->end &&
	       (tbg_token_byte(*s->at) || *s->at == ':' || *s->at == '/'))
		s->at++;
	return true;
}

static bool bytes(struct scan *s)
{
	s->at++;
	while (s->at < s->end && *s->at &&
	       (alpha(*s->at) || digit(*s->at) || strchr("+/=", *s->at)))
		s->at++;
	return take(s, ':');
}

static bool item(struct scan *s, struct tbg_member *ret)
{
	char c = s->at < s->end ? *s->at : 0;

	if (c == '-' || digit(c))
		return number(s, ret);
	if (c == '"')
		return string(s, ret);
	if (c == '?') {
		s->at++;
		ret->type = peek(s, '1') ? TBG_MEMBER_TRUE : TBG_MEMBER_FALSE;
		return take(s, '1') || take(s, '0');
	}
	ret->type = TBG_MEMBER_OTHER;
	if (c == ':')
		return bytes(s);
	return (c == '*' || alpha(c)) && token(s);
}

static bool parameters(struct scan *s)
{
	struct tbg_member ignored;

	while (take(s, ';')) {
		spaces(s, " ");
		if (!key(s, &ignored.name) || (take(s, '=') && !item(s, &ignored)))
			return false;
	}
	return true;
}

static bool inner_list(struct scan *s)
{
	struct tbg_member ignored;

	while (s->at < s->end) {
		spaces(s, " ");
		if (take(s, ')'))
			return true;
		if (!item(s, &ignored) || !parameters(s) ||
		    (!peek(s, ' ') && !peek(s, ')')))
			return false;
	}
	return false;
}

static bool member(struct scan *s, struct tbg_member *ret)
{
	*ret = (struct tbg_member){ .type = TBG_MEMBER_TRUE };
	if (!key(s, &ret->name))
		return false;
	if (take(s, '=')) {
		if (take(s, '(')) {
			ret->type = TBG_MEMBER_OTHER;
			if (!inner_list(s))
				return false;
		} else if (!item(s, ret)) {
			return false;
		}
	}
	return parameters(s);
}

int tbg_member_next(struct tbg_slice dictionary, size_t *at,
		    struct tbg_member *ret)
{
	struct scan s = { dictionary.text + *at, dictionary.text + dictionary.len };

	if (!*at)
		spaces(&s, " ");
	if (s.at == s.end)
		return 0;
	if (!member(&s, ret))
		return -1;
	spaces(&s, " \t");
	if (s.at < s.end) {
		if (!take(&s, ','))
			return -1;
		spaces(&s, " \t");
		if (s.at == s.end)	/* a comma, and nothing after it */
			return -1;
	}
	*at = s.at - dictionary.text;
	return 1;
}
