/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Sites by the request's host, and locations by its path. A struct tbg_sites is one
 * version of the configuration, made by config/sites.c and never changed; a reload
 * makes another one.
 *
 * Any thread may look up. A worker uses the sites that it loaded at the start of its
 * round (worker.h), and everything that they point to, until the round ends. To keep a
 * location for longer, hold its sites.
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

#define TBG_FIELDS_MAX	2048	/* limit for the lines that one location adds */
#define TBG_INDEX_ROOM	128	/* for the name of an index file with its NUL */

struct tbg_log;
struct tbg_mime;
struct tbg_prefix;
struct tbg_upstream;

/* Fields that one scope adds to answers of a media type; NULL: not set there. */
struct tbg_header_rules {
	const char *type;	/* "text/css", "image/" (prefix), NULL: any */
	const char *expires;	/* "max-age=60", "" for off */
	const char *cache_control;	/* "public", "" for off */
	const char **headers;	/* "Name: value" */
	unsigned int headers_nr;
};

struct tbg_error_page {
	uint16_t status;
	const char *path;	/* absolute, in the location's root */
};

/* "gzip svgz": files with this suffix have this coding. */
struct tbg_coding {
	const char *coding, *suffix;
};

/* In order of precedence; within a kind, the longest match wins. */
enum tbg_match {
	TBG_MATCH_EXACT,	/* "=/robots.txt" */
	TBG_MATCH_SUFFIX,	/* "*.png" */
	TBG_MATCH_PREFIX,	/* "/static/" */
};

/* In place of a size: bodies are forwarded as they arrive. */
#define TBG_BODY_STREAMED	-1
#define TBG_BODY_AS_NEEDED	-2	/* buffered only if proxy/request_body.c needs it */

/* What answers requests; the innermost scope that sets it decides. */
enum tbg_handler {
	TBG_HANDLER_FILES,		/* below root */
	TBG_HANDLER_UPSTREAM,		/* in the upstream's protocol */
};

struct tbg_location {
	const struct tbg_site *site;
	enum tbg_match kind;
	const char *match;		/* without the character that marks its kind */
	size_t match_len;
	const char *title;		/* as written in the configuration */
	enum tbg_handler handler;
	int root;			/* see root.h; the complete path is below it; -1: none */
	struct tbg_upstream *upstream;	/* of HANDLER_UPSTREAM */
	const char **index;		/* file names for a path that ends in '/' */
	unsigned int index_nr;
	bool autoindex;
	bool precompressed;		/* name.gz and similar files answer for name */
	bool precompressed_old;		/* also if they are older than name */
	struct tbg_coding *codings;	/* of files themselves, by their suffix */
	unsigned int codings_nr;
	uint8_t compress;		/* 1 << enum tbg_encoding each: made by the daemon */
	uint64_t compress_min;		/* smallest text to compress, in bytes */
	bool cookies_pass;		/* kernel tiers pass requests with Cookie up */
	bool odd_names;			/* request fields with unusual names are forwarded */
	bool store_cookies;		/* answers with Set-Cookie may be stored */
	bool heuristic;			/* Last-Modified alone gives answers a lifetime */
	bool client_stale;		/* requests may ask for stale responses */
	uint64_t body_max;		/* limit of a request's body; beyond: 413 */
	int64_t body_buffer;		/* bytes in memory if received completely; or TBG_BODY_… */
	const char *body_folder;	/* for the rest of a body */
	struct tbg_client_list clients;	/* its own, in addition to the daemon's */
	struct tbg_prefix *proxies;	/* trusted: site/forwarded.h, http/forward.h */
	unsigned int proxies_nr;
	struct tbg_header_rules *header_rules;	/* outer scopes first */
	unsigned int header_rules_nr;
	bool adds;			/* one of them adds a field */
	struct tbg_error_page *error_pages;
	unsigned int error_pages_nr;
};

struct tbg_site {
	const struct tbg_sites *sites;
	uint32_t id;	/* vhost in keys and objects; its last byte: abi/metric.h */
	const char *name;		/* "" if the configuration has no hosts */
	struct tbg_location *locations;	/* in order of precedence, never empty */
	unsigned int locations_nr;
	const char *log_path;		/* "": no log; NULL: the daemon's */
	const char *log_format;		/* NULL: the daemon's */
	unsigned int log_line;		/* line of the configuration that sets it */
	struct tbg_log *log;		/* its own, see main/access_log.h; NULL: none */
	const char *print;		/* all settings that its answers depend on, as text */
	bool fallback;
};

struct tbg_host_name {
	char name[TBG_PATH_MAX];	/* normalised, see tbg_host_name() */
	uint16_t len;
	bool wild;			/* ".example.org": any name with this suffix */
	const struct tbg_site *site;
};

struct tbg_sites {
	struct tbg_site *site;
	unsigned int nr;
	const struct tbg_site *fallback;	/* for unknown hosts */
	struct tbg_host_name *hosts;
	unsigned int hosts_nr;
	bool wild;			/* some host name is wild */
	struct tbg_mime *mime;
	struct tbg_roots *roots;
	struct tbg_upstream **upstreams;	/* named ones, and those given in place */
	unsigned int upstreams_nr;
	bool files;			/* some location answers with files */
	bool adds;			/* some location without files adds fields */
	bool proxies;			/* some location trusts proxies */
	bool logs;			/* some host has a log_path */
	/* names of sites by number, for monitoring; includes former sites */
	const char *numbered[TBG_METRIC_OTHER];
	unsigned int numbered_nr;
	/* private to site.c */
	uint32_t next_id;
	uint32_t *table;		/* index into hosts + 1, by hash */
	uint32_t table_mask;
	int *held;			/* roots, one entry per reference */
	unsigned int held_nr, roots_nr;
	bool has_root[TBG_ROOTS_MAX];	/* roots_nr of them are set */
	void **blocks;
	unsigned int blocks_nr;
	_Atomic unsigned int refs;
};

/*
 * Normalises a Host value or an authority: lower case, without port and one final dot.
 * Returns the length; 0: no site can have this name. Gives the same result as
 * tbg_host_load() (bpf/core/host.h).
 */
size_t tbg_host_name(const char *raw, size_t len, char ret[TBG_PATH_MAX]);

/* Returns the site of a host as received; NULL: the request has none. */
const struct tbg_site *tbg_site_find(const struct tbg_sites *s,
				     const char *host, size_t len);

/* Returns whether a site has exactly this name, in lower case and without port. */
bool tbg_site_whole(const struct tbg_sites *s, const char *name, size_t len);

/* Returns whether a site has this name, a matching wildcard name, or answers for all names. */
bool tbg_site_named(const struct tbg_sites *s, const char *host);

/* Returns the location of a canonical path; never NULL. */
const struct tbg_location *tbg_location_find(const struct tbg_site *site,
					     const char *path, size_t len);

/* Returns the page that a location has for a status; NULL: none, use a short text. */
const char *tbg_location_error(const struct tbg_location *l,
			       unsigned int status);

/*
 * Makes the lines that a location adds to an answer of this type (NULL: none), each
 * with CRLF. Returns their length. A 304 gets only Cache-Control (RFC 9110 15.4.5),
 * because the client has the other fields; an error gets only the others.
 */
size_t tbg_location_fields(const struct tbg_location *l, unsigned int status,
			   const char *type, char ret[TBG_FIELDS_MAX + 1]);

/* Allocates memory or references that live as long as the sites. NULL: no memory. */
void *tbg_sites_alloc(struct tbg_sites *s, size_t size);
char *tbg_sites_text(struct tbg_sites *s, const char *text);
/*
 * Returns the root's number, or a negative errno; -E2BIG: more than TBG_SITES_ROOTS or
 * TBG_ROOTS_MAX.
 */
int tbg_sites_root(struct tbg_sites *s, const char *path);
/* Takes over the reference, even on failure. Returns false without memory. */
bool tbg_sites_upstream(struct tbg_sites *s, struct tbg_upstream *u);
struct tbg_upstream *tbg_sites_upstream_find(const struct tbg_sites *s,
					     const char *name);

struct tbg_sites *tbg_sites_new(struct tbg_roots *roots);
/* Adds a host name as written. Returns false if another site has it, or at the limit. */
bool tbg_sites_host(struct tbg_sites *s, const char *name,
		    const struct tbg_site *site);
int tbg_sites_index(struct tbg_sites *s);	/* after the last host */

/* Any thread: prevents that they are freed. */
void tbg_sites_hold(const struct tbg_sites *s);
void tbg_sites_put(const struct tbg_sites *s);
bool tbg_sites_held(const struct tbg_sites *s);

/*
 * Frees the sites. gone(): called for each root that no other sites use, before it is
 * closed. Called by the control thread when no worker's round uses them and nobody
 * holds them. Accepts NULL.
 */
void tbg_sites_close(struct tbg_sites *s, void (*gone)(void *arg, int root),
		     void *arg);

#endif
