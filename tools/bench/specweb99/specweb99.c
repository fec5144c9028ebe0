// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The dynamic part of the SPECweb99 workload, from its public description: GET
 * of a file in a page, with or without rotation of advertisements by cookie and
 * table; POST with a log that all workers share; commands to reset and fetch.
 *
 *	module = {"specweb99.so", "/srv/www", "/var/tmp/specweb99"}
 *
 * The first argument holds file_set/, the second the tables (User.Personality,
 * Custom.Ads) and post.log, which must be writable.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>

#include "specweb99.h"
#include "toboggan-module.h"

#define ADS		360
#define AD_LEN		39	/* bytes of a line */
#define USER_LEN	15
#define USERS_FROM	10000	/* the first user's number */
#define LOG_HEAD	11	/* the number of records, and a newline */
#define LOG_LEN		139
#define NUMBER_MAX	9999999999ll	/* ten digits, as wide as records have them */
#define BODY_MAX	4096
#define FILES		256	/* that stay open */

struct table {
	const char *name;
	char *text;
	size_t len;
	struct timespec changed;
};

static struct {
	int files_fd, tables_fd;
	struct table users, ads;
} site = {
	.users = { .name = "User.Personality" }, .ads = { .name = "Custom.Ads" },
};

/* A file of the set, in the place that its name hashes to. */
struct file {
	char *name;
	int fd;
	dev_t dev;
	ino_t ino;
};

static struct file files[FILES];

/* A request that is being answered, or whose body is coming in. */
struct page {
	char *text;
	size_t len, room, off;
	char body[BODY_MAX];
	size_t body_len;
	bool posted;
};

/* --- pages --------------------------------------------------------------- */

static bool room_make(struct page *p, size_t more)
{
	size_t room = p->room ? p->room : 4096;
	char *text;

	while (room < p->len + more)
		room *= 2;
	text = room == p->room ? p->text : realloc(p->text, room);
	if (!text)
		return false;
	p->text = text;
	p->room = room;
	return true;
}

__attribute__((format(printf, 2, 3)))
static void add(struct page *p, const char *format, ...)
{
	va_list args;
	int n;

	if (!room_make(p, 16384))
		return;
	va_start(args, format);
	n = vsnprintf(p->text + p->len, p->room - p->len, format, args);
	va_end(args);
	if (n > 0 && (size_t)n < p->room - p->len)
		p->len += n;
}

static void add_escaped(struct page *p, const char *text)
{
	while (*text) {
		int n = strcspn(text, PAGE_MARKS);

		add(p, "%.*s", n, text);
		text += n;
		if (*text)
			add(p, PAGE_MARK, *text++);
	}
}

static void page_begin(struct page *p, struct tbg_request *r, const char *query)
{
	add(p, PAGE_BEGIN, tbg_request_variable(r, "SERVER_SOFTWARE") ?: "",
	    tbg_request_remote(r) ?: "");
	add_escaped(p, tbg_request_path(r));
	add(p, PAGE_QUERY);
	add_escaped(p, query);
	add(p, PAGE_FILE);
}

static struct file *place_of(const char *name)
{
	unsigned int hash = 0;

	while (*name)
		hash = hash * 31 + (unsigned char)*name++;
	return &files[hash % FILES];
}

/* Whether the name still leads to it: while it is open, no other file has its inode number. */
static bool is_there(const struct file *f, const char *name, size_t *ret_size)
{
	struct stat st;

	if (!f->name || strcmp(f->name, name) ||
	    fstatat(site.files_fd, name + (*name == '/'), &st, 0) ||
	    st.st_dev != f->dev || st.st_ino != f->ino)
		return false;
	*ret_size = st.st_size;
	return true;
}

/* Opening a file costs more than reading it. */
static int file_get(const char *name, size_t *ret_size)
{
	struct file *f = place_of(name);
	struct stat st;

	if (is_there(f, name, ret_size))
		return f->fd;
	if (f->name)
		close(f->fd);
	free(f->name);
	f->name = NULL;
	f->fd = page_file_open(site.files_fd, name, ret_size);
	if (f->fd < 0)
		return -1;
	f->name = fstat(f->fd, &st) ? NULL : strdup(name);
	if (!f->name) {
		close(f->fd);
		return -1;
	}
	f->dev = st.st_dev;
	f->ino = st.st_ino;
	return f->fd;
}

/* A file of the set. 0 or a status. */
static unsigned int page_file(struct page *p, const char *name)
{
	size_t size;
	ssize_t n = -1;
	int fd = file_get(name, &size);

	if (fd < 0)
		return 404;
	if (room_make(p, size))
		n = pread(fd, p->text + p->len, size, 0);
	if (n < 0)
		return 503;
	p->len += n;
	return 0;
}

static void page_send(struct tbg_request *r, void *state)
{
	struct page *p = tbg_request_get(r);
	ssize_t n;

	if (!p->text)		/* its body is still coming in */
		return;
	n = tbg_response_send(r, p->text + p->off, p->len - p->off);
	if (n < 0)
		return;
	p->off += n;
	if (p->off == p->len)
		tbg_response_end(r);
}

static void fail(struct tbg_request *r, unsigned int status)
{
	char text[64];
	int n = snprintf(text, sizeof(text), "%u\n", status);

	tbg_response_status(r, status);
	tbg_response_field(r, "Content-Type", "text/plain");
	tbg_response_send(r, text, n);
	tbg_response_end(r);
}

/* --- tables -------------------------------------------------------------- */

/* Read again when it has changed. */
static bool table_read(struct table *t)
{
	struct stat st;
	int fd = openat(site.tables_fd, t->name, O_RDONLY | O_CLOEXEC);
	char *text;

	if (fd < 0 || fstat(fd, &st)) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	if (t->text && !memcmp(&st.st_mtim, &t->changed, sizeof(st.st_mtim))) {
		close(fd);
		return true;
	}
	text = realloc(t->text, st.st_size + 1);
	if (text) {
		ssize_t n = read(fd, text, st.st_size);

		t->text = text;
		t->len = n < 0 ? 0 : n;
		text[t->len] = 0;
		t->changed = st.st_mtim;
	}
	close(fd);
	return text;
}

/* The weight of every group that user and advertisement have in common. */
static unsigned int match(unsigned int demographics, unsigned int weights)
{
	static const unsigned int masks[] = {
		0x30000000, 0x0f000000, 0x00f00000, 0x000ffc00, 0x000003ff,
	};
	unsigned int ret = 0;

	for (int i = 0; i < 5; i++)
		if (demographics & masks[i])
			ret += weights >> (16 - 4 * i) & 0xf;
	return ret;
}

struct ad {
	int id, weight, expired;
};

static struct ad ad_choose(int user, int last)
{
	struct ad none = { -1, 0, 1 };
	unsigned int wishes, demographics, weights;
	int number, id, least;
	long long expiry;

	if (!table_read(&site.users) || !table_read(&site.ads) || user < USERS_FROM ||
	    (size_t)(user - USERS_FROM + 1) * USER_LEN > site.users.len ||
	    site.ads.len < ADS * AD_LEN)
		return none;
	if (sscanf(site.users.text + (user - USERS_FROM) * USER_LEN, "%d %X", &number,
		   &wishes) != 2)
		return none;
	if (last < -1 || last >= ADS)
		last = -1;
	for (int i = 1; i <= ADS; i++) {
		const char *line = site.ads.text + (last + i) % ADS * AD_LEN;
		unsigned int sum;

		if (sscanf(line, "%d %X %X %d %lld", &id, &demographics, &weights,
			   &least, &expiry) != 5)
			return none;
		sum = match(wishes & demographics, weights);
		if (sum >= (unsigned int)least)
			return (struct ad){ id, sum, time(NULL) > expiry };
	}
	return none;
}

/* Replaces every mark in the page by the name of the advertisement's file. */
static void ads_put(struct page *p, size_t from, int ad)
{
	static const char mark[] = "<!WEB99CAD><IMG SRC=\"/file_set/dir";
	char *at = p->text + from, *end = p->text + p->len;
	char name[32];

	snprintf(name, sizeof(name), "%05d/class%d_%d", ad / 36, ad % 36 / 9, ad % 9);
	while ((at = memmem(at, end - at, mark, sizeof(mark) - 1))) {
		at += sizeof(mark) - 1;
		if ((size_t)(end - at) < strlen(name))
			return;
		memcpy(at, name, strlen(name));
	}
}

/* --- GET ----------------------------------------------------------------- */

static bool has_ads(const char *name)
{
	return strstr(name, "class1_") || strstr(name, "class2_");
}

static void get(struct tbg_request *r, struct page *p)
{
	const char *query = tbg_request_query(r);
	const char *cookie = tbg_request_cookie(r, "my_cookie");
	int user = 0, last = 0;
	unsigned int status;
	char text[100];
	size_t from;

	page_begin(p, r, query);
	from = p->len;
	status = page_file(p, query);
	if (status) {
		fail(r, status);
		return;
	}
	if (cookie) {
		struct ad ad = { -1, 0, 1 };

		if (sscanf(cookie, "user_id=%d&last_ad=%d", &user, &last) == 2)
			ad = ad_choose(user, last);
		if (ad.id >= 0 && has_ads(query))
			ads_put(p, from, ad.id);
		snprintf(text, sizeof(text), "found_cookie=Ad_id=%d&Ad_weight=%d&Expired=%d",
			 ad.id, ad.weight, ad.expired);
		tbg_response_field(r, "Set-Cookie", text);
	}
	add(p, PAGE_END);
	tbg_response_field(r, "Content-Type", "text/html");
	page_send(r, NULL);
}

/* --- POST ---------------------------------------------------------------- */

static long number(struct tbg_request *r, const struct page *p, const char *name)
{
	const char *v = tbg_form_parameter(r, p->body, p->body_len, name);

	return v ? strtol(v, NULL, 10) : -1;
}

/* Appends one record; the lock separates workers. */
static bool log_add(const char *fields)
{
	int fd = openat(site.tables_fd, "post.log", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	char head[32] = "", line[512];
	bool ok = false;
	long nr;

	if (fd < 0)
		return false;
	if (!flock(fd, LOCK_EX)) {
		nr = pread(fd, head, LOG_HEAD, 0) == LOG_HEAD ? strtol(head, NULL, 10) : 0;
		snprintf(head, sizeof(head), "%10ld\n", nr + 1);
		snprintf(line, sizeof(line), "%10ld %s", nr + 1, fields);
		ok = pwrite(fd, line, LOG_LEN, LOG_HEAD + nr * LOG_LEN) == LOG_LEN &&
		     pwrite(fd, head, LOG_HEAD, 0) == LOG_HEAD;
	}
	close(fd);
	return ok;
}

static void post(struct tbg_request *r, struct page *p)
{
	const char *cookie = tbg_request_cookie(r, "my_cookie");
	const char *root = tbg_form_parameter(r, p->body, p->body_len, "urlroot");
	long dir = number(r, p, "dir"), class = number(r, p, "class");
	long num = number(r, p, "num"), client = number(r, p, "client");
	char name[128], fields[LOG_LEN + 100], text[64];
	unsigned int status;
	long long user = 0;

	if (cookie)
		sscanf(cookie, "user_id=%lld", &user);
	if (!root || strlen(root) > 60 || dir < 0 || dir > 99999 || class < 0 ||
	    class > 3 || num < 0 || num > 8 || client < 0 || client > NUMBER_MAX ||
	    user < 0 || user > NUMBER_MAX) {
		fail(r, 400);
		return;
	}
	snprintf(name, sizeof(name), "%s/dir%05ld/class%ld_%ld", root, dir, class, num);
	snprintf(fields, sizeof(fields), "%10lld %10d %5ld %2ld %2ld %10ld %-60.60s %10d %10lld\n",
		 (long long)time(NULL), getpid(), dir, class, num, client, name,
		 getpid(), user);
	page_begin(p, r, tbg_request_query(r));
	status = page_file(p, name);
	if (!status && !log_add(fields))
		status = 500;
	if (status) {
		fail(r, status);
		return;
	}
	add(p, PAGE_END);
	snprintf(text, sizeof(text), "my_cookie=%lld", user);
	tbg_response_field(r, "Set-Cookie", text);
	tbg_response_field(r, "Content-Type", "text/html");
	page_send(r, NULL);
}

static void body_read(struct tbg_request *r, void *state)
{
	struct page *p = tbg_request_get(r);
	ssize_t n;

	while ((n = tbg_request_read(r, p->body + p->body_len,
				     sizeof(p->body) - p->body_len)) > 0)
		p->body_len += n;
	if (n == -EAGAIN || p->posted)
		return;
	p->posted = true;
	if (p->body_len == sizeof(p->body))
		fail(r, 413);
	else
		post(r, p);
}

/* --- commands ------------------------------------------------------------ */

static bool table_write(const char *name, const char *text, size_t len)
{
	char temporary[64];
	int fd;
	bool ok;

	snprintf(temporary, sizeof(temporary), "%s.%d", name, getpid());
	fd = openat(site.tables_fd, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0)
		return false;
	ok = write(fd, text, len) == (ssize_t)len;
	close(fd);
	return ok && !renameat(site.tables_fd, temporary, site.tables_fd, name);
}

/* One bit of each group, or all: every user has advertisements. */
static unsigned int demographics_make(unsigned int *seed)
{
	return 1u << (28 + rand_r(seed) % 2) | 1u << (24 + rand_r(seed) % 4) |
	       1u << (20 + rand_r(seed) % 4) | 1u << (10 + rand_r(seed) % 10) |
	       1u << rand_r(seed) % 10;
}

static bool tables_make(unsigned int users, unsigned int seed, long long first,
			long long last)
{
	size_t room = (users > ADS ? users : ADS) * (AD_LEN + 1) + 64, at = 0;
	char *text = malloc(room);
	bool ok = text;

	for (unsigned int i = 0; ok && i < users; i++)
		at += sprintf(text + at, "%5u %8X\n", (i + USERS_FROM) % 100000,
			      demographics_make(&seed));
	ok = ok && table_write(site.users.name, text, at);
	at = 0;
	for (unsigned int i = 0; ok && i < ADS; i++)
		at += sprintf(text + at, "%5u %8X %8X %3d %10lld\n", i,
			      demographics_make(&seed), rand_r(&seed) & 0xfffff,
			      rand_r(&seed) % 16, i % 2 ? first : last);
	ok = ok && table_write(site.ads.name, text, at);
	free(text);
	return ok;
}

static void reset(struct tbg_request *r)
{
	const char *load = tbg_request_parameter(r, "maxload");
	const char *seed = tbg_request_parameter(r, "pttime");
	const char *exp = tbg_request_parameter(r, "exp");
	long users = load ? strtol(load, NULL, 10) : 0;
	long long first = 0, last = 0;

	if (users < 1 || users > 80000)
		users = 1000;
	if (!exp || sscanf(exp, "%lld,%lld", &first, &last) != 2) {
		first = time(NULL) - 3600;
		last = time(NULL) + 3600;
	}
	if (first < 0 || first > NUMBER_MAX || last < 0 || last > NUMBER_MAX) {
		fail(r, 400);
		return;
	}
	if (!tables_make(users, seed ? strtoul(seed, NULL, 10) : 1, first, last) ||
	    !table_write("post.log", "         0\n", LOG_HEAD)) {
		fail(r, 500);
		return;
	}
	tbg_response_field(r, "Content-Type", "text/plain");
	tbg_response_end(r);
}

static void fetch(struct tbg_request *r, struct page *p)
{
	int fd = openat(site.tables_fd, "post.log", O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0) {
		fail(r, 404);
		return;
	}
	/* all records are complete, and the head counts them */
	if (!flock(fd, LOCK_SH) && !fstat(fd, &st) && room_make(p, st.st_size + 1)) {
		ssize_t n = read(fd, p->text, st.st_size);

		p->len = n < 0 ? 0 : n;
	}
	close(fd);
	tbg_response_field(r, "Content-Type", "text/plain");
	page_send(r, NULL);
}

/* --- the module ---------------------------------------------------------- */

static void request(struct tbg_request *r, void *state)
{
	const char *query = tbg_request_query(r);
	struct page *p = calloc(1, sizeof(*p));

	tbg_request_set(r, p);
	tbg_response_field(r, "Cache-Control", "no-store");
	if (!p)
		fail(r, 503);
	else if (!strcmp(tbg_request_method(r), "POST"))
		body_read(r, state);
	else if (!strncmp(query, "command/Reset", 13))
		reset(r);
	else if (!strncmp(query, "command/Fetch", 13))
		fetch(r, p);
	else
		get(r, p);
}

static void end(struct tbg_request *r, void *state)
{
	struct page *p = tbg_request_get(r);

	if (p)
		free(p->text);
	free(p);
}

static int start(int argc, char **argv, void **ret_state)
{
	if (argc != 2)
		return -EINVAL;
	site.files_fd = open(argv[0], O_PATH | O_DIRECTORY | O_CLOEXEC);
	site.tables_fd = open(argv[1], O_PATH | O_DIRECTORY | O_CLOEXEC);
	return site.files_fd < 0 || site.tables_fd < 0 ? -errno : 0;
}

const struct tbg_module tbg_module = {
	.abi = TBG_MODULE_ABI,
	.open = start,
	.request = request,
	.readable = body_read,
	.writable = page_send,
	.end = end,
};
