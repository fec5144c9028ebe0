// SPDX-License-Identifier: GPL-2.0
/*
 * Forms of a reference: with a scheme, with an authority, from the root, a
 * query alone, or relative to the folder of the base. Dot segments are removed
 * only from its own path: the base is stored as clients wrote it.
 */
#include <string.h>

#include "http/uri_reference.h"

/* Number of bytes before the first one in stops. */
static size_t until(struct tbg_slice v, const char *stops)
{
	size_t n = 0;

	while (n < v.len && (!v.text[n] || !strchr(stops, v.text[n])))
		n++;
	return n;
}

static struct tbg_slice from(struct tbg_slice v, size_t n)
{
	return (struct tbg_slice){ v.text + n, v.len - n };
}

/* Removes "//authority" from *v. False: it is another authority. */
static bool authority_take(struct tbg_slice *v, struct tbg_slice ours, bool https)
{
	const char *port = https ? ":443" : ":80";
	size_t port_len = strlen(port);
	struct tbg_slice theirs = from(*v, 2);

	theirs.len = until(theirs, "/?");
	*v = from(*v, 2 + theirs.len);
	if (theirs.len > port_len &&
	    !memcmp(theirs.text + theirs.len - port_len, port, port_len))
		theirs.len -= port_len;
	else if (theirs.len && theirs.text[theirs.len - 1] == ':')
		theirs.len--;
	return tbg_slice_same(theirs, ours);
}

/* Removes "." and ".." from the path that begins at start (RFC 3986 5.2.4). */
static void dots_remove(struct tbg_lines *l, size_t start)
{
	size_t to = start, end = l->len;
	char *t = l->text;

	for (size_t at = start; at < end;) {
		struct tbg_slice rest = { t + at + 1, end - at - 1 };
		size_t n = until(rest, "/");
		bool last = n == rest.len;

		if (n == 1 && rest.text[0] == '.') {
			if (last)
				t[to++] = '/';
		} else if (n == 2 && !memcmp(rest.text, "..", 2)) {
			while (to > start && t[--to] != '/')
				;
			if (last)
				t[to++] = '/';
		} else {
			memmove(t + to, t + at, n + 1);
			to += n + 1;
		}
		at += n + 1;
	}
	l->len = to;
}

bool tbg_uri_reference_resolve(struct tbg_lines *ret, struct tbg_slice base, bool https,
			   size_t path_off, struct tbg_slice reference)
{
	struct tbg_slice ours = { base.text, path_off }, target = from(base, path_off);
	struct tbg_slice v = { reference.text, until(reference, "#") };
	size_t scheme = until(v, ":/?"), path, folder = until(target, "?");
	bool absolute = false;

	if (scheme < v.len && v.text[scheme] == ':') {
		if (!tbg_slice_is((struct tbg_slice){ v.text, scheme },
				  https ? "https" : "http"))
			return false;
		v = from(v, scheme + 1);
		absolute = true;
	}
	if (v.len > 1 && !memcmp(v.text, "//", 2)) {
		if (!authority_take(&v, ours, https))
			return false;
		absolute = true;
	} else if (absolute) {
		return false;
	}
	tbg_lines_put(ret, ours.text, ours.len);
	path = until(v, "?");
	if (absolute && !path) {
		tbg_lines_put(ret, "/", 1);
	} else if (!path) {
		tbg_lines_put(ret, target.text, v.len ? folder : target.len);
	} else {
		while (*v.text != '/' && folder && target.text[folder - 1] != '/')
			folder--;
		if (*v.text != '/')
			tbg_lines_put(ret, target.text, folder);
		tbg_lines_put(ret, v.text, path);
		if (!ret->failed)
			dots_remove(ret, path_off);
	}
	tbg_lines_put(ret, v.text + path, v.len - path);
	return !ret->failed;
}
