/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What answers under which name: a site by the request's host, a location by
 * its path. One struct tbg_sites is one reading of the configuration, made by
 * settings/sites.c and never changed afterwards; a reload makes another.
 *
 * Any thread may look things up. A worker uses the sites that it took at the
 * begin of its round (worker.h) and all that they point to until the round
 * ends; whoever keeps a location for longer holds its sites meanwhile.
 */
#ifndef TBG_USERD_SITE_SITE_H
#define TBG_USERD_SITE_SITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/cache.h"
#include "abi/metric.h"
#include "os/client_list.h"
#include "os/root.h"

#define TBG_FIELDS_MAX	2048	/* bytes of the lines that one location adds */
#define TBG_INDEX_ROOM	128	/* for the name of an index file, with its NUL */

struct tbg_log;
struct tbg_mime;
struct tbg_prefix;
struct tbg_upstream;

/* What one scope adds to answers of a media type; NULL: says nothing of it. */
struct tbg_header_rules {
	const char *type;	/* "text/css", "image/" (all that begins so), NULL: any */
	const char *expires;	/* "max-age=60", "" for off */
	const char *cache_control;	/* "public", "" for off */
	const char **headers;	/* "Name: value" */
	unsigned int headers_nr;
};

struct tbg_error_page {
	uint16_t status;
	const char *path;	/* below the location's root, with its slash */
};

/* "gzip svgz": files with this suffix are in this coding. */
struct tbg_coding {
	const char *coding, *suffix;
};

/* In order of precedence; of one kind, the longest match wins. */
enum tbg_match {
	TBG_MATCH_EXACT,	/* "=/robots.txt" */
	TBG_MATCH_SUFFIX,	/* "*.png" */
	TBG_MATCH_PREFIX,	/* "/static/" */
};

/* In place of a size: bodies are sent on as they come. */
#define TBG_BODY_STREAMED	-1
#define TBG_BODY_AS_NEEDED	-2	/* unless gather.c has a use for the whole */

/* What answers; of a scope and those around it, the innermost that says. */
enum tbg_handler {
	TBG_HANDLER_FILES,		/* below root */
	TBG_HANDLER_UPSTREAM,		/* in that one's protocol */
};

struct tbg_location {
	const struct tbg_site *site;
	enum tbg_match kind;
	const char *match;		/* without the sign of its kind */
	size_t match_len;
	const char *title;		/* as it was written */
	enum tbg_handler handler;
	int root;			/* see root.h; the whole path is below it; -1: none */
	struct tbg_upstream *upstream;	/* HANDLER_UPSTREAM's */
	const char **index;		/* file names for a path that ends in '/' */
	unsigned int index_nr;
	bool autoindex;
	bool precompressed;		/* name.gz and so on answer for name */
	bool precompressed_old;		/* also those older than name */
	struct tbg_coding *codings;	/* of files themselves, by their suffix */
	unsigned int codings_nr;
	uint8_t compress;		/* 1 << enum tbg_encoding each: what we make */
	uint64_t compress_min;		/* bytes of the smallest text worth it */
	bool cookies_pass;		/* kernel tiers leave a Cookie to us */
	bool odd_names;			/* request fields of odd names are sent on */
	bool store_cookies;		/* answers with Set-Cookie may be stored */
	bool heuristic;			/* Last-Modified alone gives answers a lifetime */
	bool client_stale;		/* requests may ask for what is stale */
	uint64_t body_max;		/* bytes of a request's body; more: 413 */
	int64_t body_buffer;		/* of it in memory, received whole; or TBG_BODY_… */
	const char *body_folder;	/* for what is more than that */
	struct tbg_client_list clients;	/* its own, beside those of the daemon */
	struct tbg_prefix *proxies;	/* trusted ones: site/forwarded.h, http/forward.h */
	unsigned int proxies_nr;
	struct tbg_header_rules *header_rules;	/* of outer scopes first */
	unsigned int header_rules_nr;
	bool adds;			/* some of them says something */
	struct tbg_error_page *error_pages;
	unsigned int error_pages_nr;
};

struct tbg_site {
	const struct tbg_sites *sites;
	uint32_t id;	/* the vhost in keys and objects; its last byte: abi/metric.h */
	const char *name;		/* "" without any host in the configuration */
	struct tbg_location *locations;	/* in order of precedence, never empty */
	unsigned int locations_nr;
	const char *log_path;		/* "": no log; NULL: the daemon's */
	const char *log_format;		/* NULL: the daemon's */
	unsigned int log_line;		/* of the file, that says so */
	struct tbg_log *log;		/* its own, see main/access_log.h; NULL: none */
	const char *print;		/* all that its answers depend on, as text */
	bool fallback;
};

struct tbg_host_name {
	char name[TBG_PATH_MAX];	/* normalised, see tbg_host_name() */
	uint16_t len;
	bool wild;			/* ".example.org": whatever ends so */
	const struct tbg_site *site;
};

struct tbg_sites {
	struct tbg_site *site;
	unsigned int nr;
	const struct tbg_site *fallback;	/* of hosts that nobody has */
	struct tbg_host_name *hosts;
	unsigned int hosts_nr;
	bool wild;			/* some host name is */
	struct tbg_mime *mime;
	struct tbg_roots *roots;
	struct tbg_upstream **upstreams;	/* all that are named, or given */
	unsigned int upstreams_nr;
	bool files;			/* some location is answered with files */
	bool adds;			/* one that is not adds fields */
	bool proxies;			/* one trusts some */
	bool logs;			/* some host has a log_path */
	/* names of the sites that monitoring knows by number, those of before too */
	const char *numbered[TBG_METRIC_OTHER];
	unsigned int numbered_nr;
	/* the rest is site.c's */
	uint32_t next_id;
	uint32_t *table;		/* hosts + 1, by hash */
	uint32_t table_mask;
	int *held;			/* roots, one entry for each reference */
	unsigned int held_nr, roots_nr;
	bool has_root[TBG_ROOTS_MAX];	/* roots_nr of them */
	void **blocks;
	unsigned int blocks_nr;
	_Atomic unsigned int refs;
};

/*
 * Normalised host of a Host value or an authority, port and all: lower case,
 * without port and one final dot. Length; 0: none that a site could have. What
 * tbg_host_load() (bpf/core/host.h) makes of a value, this makes of it too.
 */
size_t tbg_host_name(const char *raw, size_t len, char ret[TBG_PATH_MAX]);

/* The site of a raw host; NULL: the request has none. */
const struct tbg_site *tbg_site_find(const struct tbg_sites *s,
				     const char *host, size_t len);

/* Does some site have this name, as it is, in small letters and without a port? */
bool tbg_site_whole(const struct tbg_sites *s, const char *name, size_t len);

/* Does some site have the name, or one with a star that it fits, or all of them? */
bool tbg_site_named(const struct tbg_sites *s, const char *host);

/* The location of a canonical path. Never NULL. */
const struct tbg_location *tbg_location_find(const struct tbg_site *site,
					     const char *path, size_t len);

/* The page that a location has for a status; NULL: the short text. */
const char *tbg_location_error(const struct tbg_location *l,
			       unsigned int status);

/*
 * The lines that a location adds to the head of an answer of this type (NULL:
 * of none), each with its CRLF; their length. A 304 gets Cache-Control alone
 * (RFC 9110 15.4.5): the client has the other fields. An error gets the
 * others.
 */
size_t tbg_location_fields(const struct tbg_location *l, unsigned int status,
			   const char *type, char ret[TBG_FIELDS_MAX + 1]);

/* Memory and roots that live as long as the sites do. NULL without memory. */
void *tbg_sites_alloc(struct tbg_sites *s, size_t size);
char *tbg_sites_text(struct tbg_sites *s, const char *text);
/* Its number; negative errno, -E2BIG: one more than TBG_SITES_ROOTS or TBG_ROOTS_MAX. */
int tbg_sites_root(struct tbg_sites *s, const char *path);
/* Takes over the reference, also where it fails. False: no memory. */
bool tbg_sites_upstream(struct tbg_sites *s, struct tbg_upstream *u);
struct tbg_upstream *tbg_sites_upstream_find(const struct tbg_sites *s,
					     const char *name);

struct tbg_sites *tbg_sites_new(struct tbg_roots *roots);
/* False: another site has the name, or there is no room. name: as written. */
bool tbg_sites_host(struct tbg_sites *s, const char *name,
		    const struct tbg_site *site);
int tbg_sites_index(struct tbg_sites *s);	/* after the last host */

/* Any thread: keeps them from being freed. */
void tbg_sites_hold(const struct tbg_sites *s);
void tbg_sites_put(const struct tbg_sites *s);
bool tbg_sites_held(const struct tbg_sites *s);

/*
 * Frees them. gone: called for each root that nobody else serves, before it is
 * closed. Control thread alone, once no worker's round uses them and nobody
 * holds them. NULL allowed.
 */
void tbg_sites_close(struct tbg_sites *s, void (*gone)(void *arg, int root),
		     void *arg);

#endif
