// SPDX-License-Identifier: GPL-2.0
/*
 * userd/site/site.c and config/sites.c: which site and location answer, the fields that
 * they add, and that bpf/core/host.h reads a host name as the daemon does.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ktap.h"
#include "head.h"
#include "core/host.h"
#include "core/key.h"
#include "core/request.h"
#include "os/root.h"
#include "config/settings.h"
#include "control/control.h"
#include "log/access.h"
#include "site/site.h"

/* Called for paths before a start: no such path is used here. */
int tbg_socket_file_check(const char *path)
{
	return 0;
}

int tbg_log_check(const char *path)
{
	return 0;
}

static struct tbg_roots *roots;

static struct tbg_scope *scope(struct tbg_scope *in, enum tbg_scope_kind kind,
			       const char *title)
{
	struct tbg_scope *s = tbg_scope_new(kind, title);

	if (!s || (in && tbg_scope_add(in, s)))
		ktap_fail("out of memory");
	return s;
}

static void set(struct tbg_scope *s, const char *name, const char *value)
{
	const char *why;
	int row = tbg_setting_find(name, strlen(name));

	if (row < 0 || !tbg_scope_set(s, row, 0, value, roots, &why))
		ktap_fail("%s %s: %s", name, value, row < 0 ? "no such" : why);
}

static bool takes(const char *name, const char *value)
{
	struct tbg_scope *s = scope(NULL, TBG_SCOPE_TOP, "");
	const char *why;
	bool ret = tbg_scope_set(s, tbg_setting_find(name, strlen(name)), 0, value, roots, &why);

	tbg_scope_free(s);
	return ret;
}

static struct tbg_scope *top_new(void)
{
	struct tbg_scope *top = scope(NULL, TBG_SCOPE_TOP, "");

	if (!roots && tbg_roots_open(&roots))
		ktap_fail("no roots");
	set(top, "root", "/tmp");
	return top;
}

/* Makes the sites of top, and frees it. */
static struct tbg_sites *make(struct tbg_scope *top, const struct tbg_sites *old)
{
	struct tbg_settings_error error;
	struct tbg_sites *ret = NULL;

	if (tbg_sites_make(&ret, top, old, roots, &error))
		ktap_fail("line %u: %s", error.line, error.text);
	tbg_scope_free(top);
	return ret;
}

static const char *site_of(const struct tbg_sites *s, const char *host)
{
	return tbg_site_find(s, host, strlen(host))->name;
}

static const char *location_of(const struct tbg_sites *s, const char *path)
{
	return tbg_location_find(s->fallback, path, strlen(path))->title;
}

static const char *fields_of(const struct tbg_sites *s, const char *path,
			     const char *type)
{
	static char ret[TBG_FIELDS_MAX + 1];

	tbg_location_fields(tbg_location_find(s->fallback, path, strlen(path)),
			    200, type, ret);
	return ret;
}

#define KTAP_TEXT(a, b) do {						\
	const char *a_ = (a), *b_ = (b);				\
	if (strcmp(a_, b_))						\
		ktap_fail("%s:%d: \"%s\", wanted \"%s\"", __FILE__, __LINE__, a_, b_); \
} while (0)

KTAP_TEST(t_host_selects_the_site)
{
	struct tbg_scope *top = top_new(), *h;
	struct tbg_sites *s;

	scope(top, TBG_SCOPE_HOST, "first.example");
	h = scope(top, TBG_SCOPE_HOST, "B.Example");
	set(h, "alias", "www.b.example");
	set(h, "alias", "*.cdn.example");
	set(h, "alias", "[::1]");
	h = scope(top, TBG_SCOPE_HOST, "*.example");
	set(h, "default", "yes");
	s = make(top, NULL);
	KTAP_TEXT(site_of(s, "first.example"), "first.example");
	KTAP_TEXT(site_of(s, "b.example"), "B.Example");
	KTAP_TEXT(site_of(s, "b.exaMPLE.:8080"), "B.Example");
	KTAP_TEXT(site_of(s, "WWW.b.example"), "B.Example");
	KTAP_TEXT(site_of(s, "x.cdn.example"), "B.Example");
	KTAP_TEXT(site_of(s, "x.y.cdn.example:1"), "B.Example");
	KTAP_TEXT(site_of(s, "[::1]:80"), "B.Example");
	KTAP_TEXT(site_of(s, "cdn.example"), "*.example");
	KTAP_TEXT(site_of(s, "example"), "*.example");	/* the default */
	KTAP_TEXT(site_of(s, "..."), "*.example");
	KTAP_TEXT(site_of(s, ""), "*.example");
	KTAP_TEXT(tbg_site_find(s, NULL, 0)->name, "*.example");
	tbg_sites_close(s, NULL, NULL);
}

KTAP_TEST(t_first_host_is_the_default)
{
	struct tbg_scope *top = top_new();
	struct tbg_sites *s;

	scope(top, TBG_SCOPE_HOST, "a");
	scope(top, TBG_SCOPE_HOST, "b");
	s = make(top, NULL);
	KTAP_TEXT(site_of(s, "c"), "a");
	KTAP_TEXT(site_of(s, "b"), "b");
	tbg_sites_close(s, NULL, NULL);
}

/* Every host that the fast grammar accepts has the same meaning in both. */
KTAP_TEST(t_host_is_the_same_name_in_the_kernel)
{
	static const char set[] = "aZ09-_.:[]fF";
	struct tbg_head head;
	struct tbg_path name;
	char host[300], mine[TBG_PATH_MAX];
	uint32_t r = 1, taken = 0;

	for (int i = 0; i < 300000; i++) {
		size_t len = 0, n;
		int k;

		r = r * 1664525 + 1013904223;
		n = r >> 16 & 1 ? (r >> 20) % 255 + 1 : (r >> 20) % 12 + 1;
		while (len < n) {
			r = r * 1664525 + 1013904223;
			host[len++] = set[(r >> 16) % (i % 3 ? 8 : 12)];
		}
		memset(&head, '.', sizeof(head));
		memcpy(head.b + 16 + i % 60, host, len);
		memcpy(head.b + 16 + i % 60 + len, "\r\nA: b:c\r\n\r\n", 12);
		if (tbg_host_check(&head, 16 + i % 60, len))
			continue;
		taken++;
		k = tbg_host_load(&head, 16 + i % 60, len, &name);
		n = tbg_host_name(host, len, mine);
		if (k < 0 ? n != 0 : (size_t)k != n ||
		    memcmp(name.w, mine, n))
			ktap_fail("%.*s: %d and %zu", (int)len, host, k, n);
		for (size_t b = n; k >= 0 && b < ((n + 7) & ~7ul); b++)
			KTAP_CHECK(!((char *)name.w)[b]);
	}
	ktap_note("%u of them taken", taken);
	KTAP_CHECK(taken > 1000);
}

KTAP_TEST(t_location_by_precedence)
{
	static const char *const titles[] = {
		"/a/", "/", "*.png", "=/a/x.png", "/a/b/", "*.min.png",
	};
	struct tbg_scope *top = top_new();
	struct tbg_sites *s;

	for (size_t i = 0; i < sizeof(titles) / sizeof(*titles); i++)
		scope(top, TBG_SCOPE_LOCATION, titles[i]);
	s = make(top, NULL);
	KTAP_TEXT(location_of(s, "/a/x.png"), "=/a/x.png");
	KTAP_TEXT(location_of(s, "/a/y.png"), "*.png");
	KTAP_TEXT(location_of(s, "/y.min.png"), "*.min.png");
	KTAP_TEXT(location_of(s, "/a/b"), "/a/");
	KTAP_TEXT(location_of(s, "/a/b/"), "/a/b/");
	KTAP_TEXT(location_of(s, "/a"), "/");
	KTAP_TEXT(location_of(s, "/"), "/");
	tbg_sites_close(s, NULL, NULL);
}

KTAP_TEST(t_inner_scope_wins_and_types_win_within_theirs)
{
	struct tbg_scope *top = top_new(), *l, *t;
	struct tbg_sites *s;

	set(top, "headers", "X-A: top");
	set(top, "headers", "X-B: top");
	set(top, "expires", "1h");
	t = scope(top, TBG_SCOPE_TYPE, "image/*");
	set(t, "cache-control", "public");
	l = scope(top, TBG_SCOPE_LOCATION, "/in/");
	set(l, "expires", "10");
	set(l, "headers", "x-a: in");
	t = scope(l, TBG_SCOPE_TYPE, "text/html");
	set(t, "expires", "off");
	set(t, "cache-control", "no-store");
	s = make(top, NULL);
	KTAP_TEXT(fields_of(s, "/", "text/css"),
		  "Cache-Control: max-age=3600\r\nX-A: top\r\nX-B: top\r\n");
	KTAP_TEXT(fields_of(s, "/", "image/png"),
		  "Cache-Control: max-age=3600, public\r\nX-A: top\r\nX-B: top\r\n");
	KTAP_TEXT(fields_of(s, "/in/", "image/png"),
		  "Cache-Control: max-age=10, public\r\nX-B: top\r\nx-a: in\r\n");
	KTAP_TEXT(fields_of(s, "/in/", "text/html; charset=utf-8"),
		  "Cache-Control: no-store\r\nX-B: top\r\nx-a: in\r\n");
	KTAP_TEXT(fields_of(s, "/in/", "text/htmlx"),
		  "Cache-Control: max-age=10\r\nX-B: top\r\nx-a: in\r\n");
	KTAP_TEXT(fields_of(s, "/in/", NULL),
		  "Cache-Control: max-age=10\r\nX-B: top\r\nx-a: in\r\n");
	tbg_sites_close(s, NULL, NULL);
}

/* In whatever order they stand. */
KTAP_TEST(t_whole_type_wins_over_one_with_a_star)
{
	for (int first = 0; first < 2; first++) {
		struct tbg_scope *top = top_new();
		struct tbg_sites *s;

		for (int i = 0; i < 2; i++)
			set(scope(top, TBG_SCOPE_TYPE, i == first ? "text/html" : "text/*"),
			    "expires", i == first ? "1" : "2");
		s = make(top, NULL);
		KTAP_TEXT(fields_of(s, "/", "text/html"), "Cache-Control: max-age=1\r\n");
		KTAP_TEXT(fields_of(s, "/", "text/css"), "Cache-Control: max-age=2\r\n");
		tbg_sites_close(s, NULL, NULL);
	}
}

KTAP_TEST(t_error_pages_and_index_are_inherited)
{
	struct tbg_scope *top = top_new(), *l;
	const struct tbg_location *in, *out;
	struct tbg_sites *s;

	set(top, "error-page", "404 /404.html");
	set(top, "error-page", "500 503 /50x.html");
	set(top, "index", "a.html");
	set(top, "index", "b.html");
	l = scope(top, TBG_SCOPE_LOCATION, "/in/");
	set(l, "error-page", "404 /in/404.html");
	set(l, "index", "off");
	s = make(top, NULL);
	in = tbg_location_find(s->fallback, "/in/", 4);
	out = tbg_location_find(s->fallback, "/", 1);
	KTAP_TEXT(tbg_location_error(out, 404), "/404.html");
	KTAP_TEXT(tbg_location_error(in, 404), "/in/404.html");
	KTAP_TEXT(tbg_location_error(in, 503), "/50x.html");
	KTAP_CHECK(!tbg_location_error(in, 403));
	KTAP_EQ(out->index_nr, 2);
	KTAP_TEXT(out->index[1], "b.html");
	KTAP_EQ(in->index_nr, 0);
	KTAP_EQ(in->body_max, 1 << 20);
	tbg_sites_close(s, NULL, NULL);
}

static struct tbg_scope *two_hosts(const char *expires)
{
	struct tbg_scope *top = top_new(), *h;

	h = scope(top, TBG_SCOPE_HOST, "a");
	set(h, "expires", expires);
	h = scope(top, TBG_SCOPE_HOST, "b");
	set(h, "alias", expires);	/* a name for it, of no matter */
	return top;
}

KTAP_TEST(t_site_that_answers_the_same_keeps_its_id)
{
	struct tbg_sites *one = make(two_hosts("1h"), NULL);
	struct tbg_sites *two = make(two_hosts("1h"), one);
	struct tbg_sites *three = make(two_hosts("2h"), two);
	struct tbg_sites *four = make(two_hosts("1h"), three);

	KTAP_EQ(two->site[0].id, one->site[0].id);
	KTAP_EQ(two->site[1].id, one->site[1].id);
	KTAP_CHECK(three->site[0].id != one->site[0].id);
	KTAP_EQ(three->site[1].id, one->site[1].id);
	/* an old id is never reused: objects may still have it */
	KTAP_CHECK(four->site[0].id != one->site[0].id &&
		   four->site[0].id != three->site[0].id);
	tbg_sites_close(one, NULL, NULL);
	tbg_sites_close(two, NULL, NULL);
	tbg_sites_close(three, NULL, NULL);
	tbg_sites_close(four, NULL, NULL);
}

static int gone_nr, gone_last;

static void gone(void *arg, int root)
{
	gone_nr++;
	gone_last = root;
}

KTAP_TEST(t_root_goes_with_the_last_sites_that_have_it)
{
	char path[] = "/tmp/tbg-site-XXXXXX";
	struct tbg_scope *top = top_new(), *h;
	struct tbg_sites *one, *two;
	const char *below;
	char name[16];
	int nr;

	KTAP_CHECK(mkdtemp(path));
	h = scope(top, TBG_SCOPE_LOCATION, "/x/");
	set(h, "root", path);
	one = make(top, NULL);
	nr = tbg_location_find(one->fallback, "/x/", 3)->root;
	snprintf(name, sizeof(name), "%d/f", nr);
	KTAP_CHECK(tbg_root_fd(roots, name, &below) >= 0);
	KTAP_TEXT(below, "f");
	two = make(top_new(), one);
	gone_nr = 0;
	tbg_sites_close(one, gone, NULL);
	KTAP_EQ(gone_nr, 1);
	KTAP_EQ(gone_last, nr);
	KTAP_EQ(tbg_root_fd(roots, name, &below), -1);
	tbg_sites_close(two, gone, NULL);
	rmdir(path);
}

KTAP_TEST(t_values_that_are_not_taken)
{
	static const char *const bad[][2] = {
		{ "root", "" }, { "root", "/nonexistent" }, { "root", "/etc/passwd" },
		{ "index", "" }, { "index", "a/b" }, { "autoindex", "perhaps" },
		{ "error-page", "404" }, { "error-page", "/404.html" },
		{ "error-page", "399 /x" }, { "error-page", "600 /x" },
		{ "error-page", "404 x" }, { "expires", "soon" },
		{ "expires", "-1" }, { "expires", "1x" }, { "expires", "101y" },
		{ "expires", "99999999999999999999" }, { "cache-control", "" },
		{ "cache-control", "a\nb" }, { "headers", "X" },
		{ "headers", ": y" }, { "headers", "X y: z" },
		{ "headers", "X:" }, { "headers", "X: " }, { "headers", "X: a\r\nY: b" },
		{ "headers", "Content-Length: 1" }, { "headers", "date: x" },
		{ "headers", "Vary: Cookie" }, { "cookies", "eat" },
		{ "body-max", "-1" }, { "body-max", "2048G" }, { "alias", "a b" },
		{ "alias", "a*" }, { "alias", "*" }, { "alias", "a:80" },
		{ "alias", "[::1" }, { "types", "text" }, { "types", "a/b" },
		{ "types", "x y" },
	};
	static const char *const good[][2] = {
		{ "expires", "0" }, { "expires", "100y" }, { "expires", "max" },
		{ "expires", "epoch" }, { "headers", "X-Y: a b: c" },
		{ "error-page", "404 403 /a.html" }, { "body-max", "0" },
		{ "alias", "*.a" }, { "alias", "[::1]" }, { "types", "a/b c" },
		{ "cache-control", "off" }, { "index", "off" },
	};

	tbg_scope_free(top_new());
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		if (takes(bad[i][0], bad[i][1]))
			ktap_fail("%s %s is taken", bad[i][0], bad[i][1]);
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
		if (!takes(good[i][0], good[i][1]))
			ktap_fail("%s %s is not taken", good[i][0], good[i][1]);
}

KTAP_TEST(t_root_without_a_descriptor_is_not_one_too_many)
{
	struct tbg_scope *top = top_new();
	struct rlimit was, none;
	const char *why = "";
	bool took;

	if (getrlimit(RLIMIT_NOFILE, &was))
		ktap_fail("no limit to lower");
	none = (struct rlimit){ .rlim_max = was.rlim_max };
	setrlimit(RLIMIT_NOFILE, &none);
	took = tbg_scope_set(top, tbg_setting_find("root", strlen("root")), 0, "/tmp", roots, &why);
	setrlimit(RLIMIT_NOFILE, &was);
	tbg_scope_free(top);
	KTAP_CHECK(!took);
	KTAP_TEXT(why, strerror(EMFILE));
}

KTAP_MAIN()
