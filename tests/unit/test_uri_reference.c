// SPDX-License-Identifier: GPL-2.0
/*
 * References in Location and Content-Location (userd/http/uri_reference.c): the
 * examples of RFC 3986 5.4 that remain with http and an authority, and references to
 * another origin.
 */
#include <string.h>

#include "ktap.h"
#include "http/uri_reference.h"

static const struct {
	const char *base, *reference;
	const char *want;	/* NULL: of another origin */
} table[] = {
	{ "a/b/c/d;p?q", "g", "a/b/c/g" },
	{ "a/b/c/d;p?q", "./g", "a/b/c/g" },
	{ "a/b/c/d;p?q", "g/", "a/b/c/g/" },
	{ "a/b/c/d;p?q", "/g", "a/g" },
	{ "a/b/c/d;p?q", "?y", "a/b/c/d;p?y" },
	{ "a/b/c/d;p?q", "g?y", "a/b/c/g?y" },
	{ "a/b/c/d;p?q", "#s", "a/b/c/d;p?q" },
	{ "a/b/c/d;p?q", "g#s", "a/b/c/g" },
	{ "a/b/c/d;p?q", "g?y#s", "a/b/c/g?y" },
	{ "a/b/c/d;p?q", "", "a/b/c/d;p?q" },
	{ "a/b/c/d;p?q", ".", "a/b/c/" },
	{ "a/b/c/d;p?q", "./", "a/b/c/" },
	{ "a/b/c/d;p?q", "..", "a/b/" },
	{ "a/b/c/d;p?q", "../g", "a/b/g" },
	{ "a/b/c/d;p?q", "../..", "a/" },
	{ "a/b/c/d;p?q", "../../g", "a/g" },
	{ "a/b/c/d;p?q", "../../../../g", "a/g" },
	{ "a/b/c/d;p?q", "/./g", "a/g" },
	{ "a/b/c/d;p?q", "/../g", "a/g" },
	{ "a/b/c/d;p?q", "g.", "a/b/c/g." },
	{ "a/b/c/d;p?q", "..g", "a/b/c/..g" },
	{ "a/b/c/d;p?q", "./g/.", "a/b/c/g/" },
	{ "a/b/c/d;p?q", "g/../h", "a/b/c/h" },
	{ "a/b/c/d;p?q", "g?y/../x", "a/b/c/g?y/../x" },
	{ "a/b/c/d;p?q", "/x:y", "a/x:y" },
	{ "a/b/c/d;p?q", "g?x:y", "a/b/c/g?x:y" },
	{ "a/b?x/y", "g", "a/g" },
	{ "a/b", "//a/g", "a/g" },
	{ "a/b", "//a", "a/" },
	{ "a/b", "//a?q", "a/?q" },
	{ "a/b", "//A:80/g", "a/g" },
	{ "a/b", "//a:/g", "a/g" },
	{ "a/b", "http://a/g", "a/g" },
	{ "a/b", "HTTP://a/g/../h", "a/h" },
	{ "a:8080/b", "http://A:8080/g", "a:8080/g" },
	{ "[::1]/b", "http://[::1]/g", "[::1]/g" },
	{ "a/b", "//b/g", NULL },
	{ "a/b", "//aa/g", NULL },
	{ "aa/b", "//a/g", NULL },
	{ "a/b", "//a:81/g", NULL },
	{ "a:8080/b", "http://a/g", NULL },
	{ "a/b", "//u@a/g", NULL },
	{ "a/b", "https://a/g", NULL },
	{ "a/b", "mailto:a", NULL },
	{ "a/b", "http:/g", NULL },
	{ "a/b", "http:g", NULL },
	{ "a/b", "x:y", NULL },
	{ "a/b", "///g", NULL },
};

KTAP_TEST(t_references)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		struct tbg_slice base = { table[i].base, strlen(table[i].base) };
		struct tbg_slice v = { table[i].reference, strlen(table[i].reference) };
		const char *want = table[i].want ?: "";
		struct tbg_lines got = { 0 };
		size_t path_off = strchr(base.text, '/') - base.text;
		bool same = tbg_uri_reference_resolve(&got, base, false, path_off, v);

		if (same != !!table[i].want ||
		    (same && (got.len != strlen(want) || memcmp(got.text, want, got.len))))
			ktap_fail("\"%s\" from %s: %.*s, wanted %s", v.text, base.text,
				  same ? (int)got.len : 4, same ? got.text : "none",
				  table[i].want ?: "none");
		tbg_lines_free(&got);
	}
}

/* The base is an https URI: that scheme and its port are its own then. */
KTAP_TEST(t_of_https)
{
	static const struct {
		const char *reference;
		bool same;
	} rows[] = {
		{ "https://a/b", true }, { "https://a:443/b", true }, { "HTTPS://A/b", true },
		{ "//a:443/b", true }, { "/b", true },
		{ "http://a/b", false }, { "https://a:80/b", false }, { "//a:80/b", false },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct tbg_slice v = { rows[i].reference, strlen(rows[i].reference) };
		struct tbg_lines got = { 0 };

		KTAP_EQ(tbg_uri_reference_resolve(&got, TBG_SLICE("a/x"), true, 1, v), rows[i].same);
		if (rows[i].same)
			KTAP_CHECK(got.len == 3 && !memcmp(got.text, "a/b", 3));
		tbg_lines_free(&got);
	}
}

KTAP_MAIN()
