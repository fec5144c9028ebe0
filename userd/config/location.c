// SPDX-License-Identifier: GPL-2.0
/*
 * Locations: parses values of their settings, and makes a location from its
 * scopes, from the outermost to its own. Called for each site; afterwards the
 * handler of each location is known.
 */
#include "config/build.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "http/content_coding.h"
#include "os/limits.h"
#include "os/root.h"
#include "http/token.h"
#include "os/units.h"

#define LOCATIONS_MAX	1000	/* of a site */
#define CODING_MAX	32	/* bytes of the name of a content coding */

bool tbg_root_set(struct tbg_target *t, const char *v)
{
	int nr = *v ? tbg_sites_root(t->sites, v) : -ENOENT;

	t->why = nr == -E2BIG ? "more than " TBG_STRING(TBG_SITES_ROOTS) " different roots, or "
				TBG_STRING(TBG_ROOTS_MAX) " with previous ones that are still in use" :
		 nr < 0 ? strerror(-nr) : "";
	if (nr < 0)
		return false;
	t->location->root = nr;
	t->location->handler = TBG_HANDLER_FILES;
	return true;
}

bool tbg_index_set(struct tbg_target *t, const char *v)
{
	struct tbg_location *l = t->location;

	if (t->begins)
		l->index_nr = 0;
	if (!strcmp(v, "off"))
		return true;
	return tbg_file_name(v) && strlen(v) < TBG_INDEX_ROOM &&
	       tbg_text_list_add(t, &l->index, &l->index_nr, v);
}

static bool error_page_add(struct tbg_target *t, unsigned int status,
			   const char *path)
{
	struct tbg_location *l = t->location;
	struct tbg_error_page *more;

	for (unsigned int i = 0; i < l->error_pages_nr; i++)
		if (l->error_pages[i].status == status) {
			l->error_pages[i].path = path;
			return true;
		}
	more = tbg_list_grow(t, l->error_pages, l->error_pages_nr, sizeof(*more));
	if (!more)
		return false;
	more[l->error_pages_nr++] = (struct tbg_error_page){ status, path };
	l->error_pages = more;
	return true;
}

/* "404 /404.html", "500 503 /50x.html" */
bool tbg_error_page_set(struct tbg_target *t, const char *v)
{
	char *copy = tbg_sites_text(t->sites, v), *save, *word;
	char *path = copy ? strrchr(copy, ' ') : NULL;
	unsigned int status, nr = 0;

	if (t->begins)
		memset(t->paged, 0, sizeof(t->paged));
	/* the handler of a page is selected by this path, so it must be canonical */
	if (!path || path[1] != '/' || !tbg_path_plain(path + 1) ||
	    !tbg_file_name(strrchr(path, '/') + 1))
		return false;
	*path++ = 0;
	for (word = strtok_r(copy, " ", &save); word;
	     word = strtok_r(NULL, " ", &save), nr++) {
		if (!tbg_value_number(word, 400, 599, &status) ||
		    t->paged[status - 400] || !error_page_add(t, status, path))
			return false;
		t->paged[status - 400] = true;
	}
	return nr;
}

bool tbg_precompressed_set(struct tbg_target *t, const char *v)
{
	t->location->precompressed_old = !strcmp(v, "any-age");
	if (t->location->precompressed_old)
		v = "on";
	return tbg_value_bool(v, &t->location->precompressed);
}

static bool coding_add(struct tbg_target *t, const char *coding, const char *suffix)
{
	struct tbg_location *l = t->location;
	struct tbg_coding *more = tbg_list_grow(t, l->codings, l->codings_nr, sizeof(*more));

	if (!more)
		return false;
	l->codings = more;
	more[l->codings_nr++] = (struct tbg_coding){ coding, suffix };
	return true;
}

static bool coding_valid(const char *coding)
{
	size_t len = 0;

	while (tbg_token_byte(coding[len]))
		len++;
	return len && !coding[len] && len <= CODING_MAX;
}

/* "gzip svgz emz" */
bool tbg_codings_set(struct tbg_target *t, const char *v)
{
	char *copy = tbg_sites_text(t->sites, v), *save, *coding, *suffix;
	unsigned int nr = 0;

	if (t->begins)
		t->location->codings_nr = 0;
	if (!copy || !strcmp(v, "off"))
		return copy;
	coding = strtok_r(copy, " ", &save);
	if (!coding || !coding_valid(coding))
		return false;
	while ((suffix = strtok_r(NULL, " ", &save))) {
		if (!tbg_file_name(suffix) || strchr(suffix, '.') ||
		    !coding_add(t, coding, suffix))
			return false;
		nr++;
	}
	return nr;
}

bool tbg_compress_set(struct tbg_target *t, const char *v)
{
	enum tbg_encoding e = tbg_encoding_named(v);

	if (t->begins)
		t->location->compress = 0;
	if (!strcmp(v, "off"))
		return true;
	if (e == TBG_ENCODING_IDENTITY || e == TBG_ENCODING_NR)
		return false;
	t->location->compress |= 1u << e;
	return true;
}

bool tbg_body_buffer_set(struct tbg_target *t, const char *v)
{
	uint64_t bytes;

	t->location->body_buffer = TBG_BODY_STREAMED;
	if (!strcmp(v, "off"))
		return true;
	if (!tbg_value_size(v, 0, 1ull << 30, &bytes))
		return false;
	t->location->body_buffer = bytes;
	return true;
}

bool tbg_body_folder_set(struct tbg_target *t, const char *v)
{
	struct stat st;

	if (*v != '/')
		return false;
	if (stat(v, &st))
		t->why = strerror(errno);
	else if (!S_ISDIR(st.st_mode))
		t->why = strerror(ENOTDIR);
	if (*t->why)
		return false;
	t->location->body_folder = tbg_sites_text(t->sites, v);
	return t->location->body_folder;
}

bool tbg_trusted_proxies_set(struct tbg_target *t, const char *v)
{
	struct tbg_location *l = t->location;
	struct tbg_prefix *more;

	if (t->begins)
		l->proxies_nr = 0;
	if (!strcmp(v, "off"))
		return true;
	more = tbg_list_grow(t, l->proxies, l->proxies_nr, sizeof(*more));
	if (!more)
		return false;
	l->proxies = more;
	return tbg_value_prefix(v, &more[l->proxies_nr++]);
}

static void clients_add(struct tbg_client_rule *rule, unsigned int *nr,
			const struct tbg_setting *s, bool deny)
{
	for (unsigned int i = 0; s && i < s->values_nr; i++) {
		tbg_value_clients(s->values[i], &rule[*nr].prefix);
		rule[(*nr)++].deny = deny;
	}
}

/*
 * Lists of the location or its host; those of the file itself are checked for every
 * request.
 */
static int clients_make(struct tbg_build *m, struct tbg_location *l,
			const struct tbg_scope *const scopes[2])
{
	const struct tbg_setting *deny = NULL, *allow = NULL;
	struct tbg_client_rule *rule;
	unsigned int nr;

	for (int i = 0; i < 2 && !deny && !allow; i++) {
		if (!scopes[i])
			continue;
		deny = tbg_setting_of(scopes[i], "deny");
		allow = tbg_setting_of(scopes[i], "allow");
	}
	if (!deny && !allow)
		return 0;
	nr = (deny ? deny->values_nr : 0) + (allow ? allow->values_nr : 0);
	if (nr > TBG_CLIENT_LIST_MAX)
		return tbg_build_wrong(m, (deny ?: allow)->line, "deny and allow: %u clients of one scope; expected at most %d",
				       nr, TBG_CLIENT_LIST_MAX);
	rule = tbg_sites_alloc(m->sites, nr * sizeof(*rule));
	if (!rule)
		return -ENOMEM;
	nr = 0;
	clients_add(rule, &nr, deny, true);
	clients_add(rule, &nr, allow, false);
	tbg_client_list_make(&l->clients, rule, nr);
	return 0;
}

/* Estimates the length of the lines that it adds, and sets whether it adds any. */
static size_t fields_bytes(struct tbg_location *l)
{
	size_t ret = 0;

	for (unsigned int i = 0; i < l->header_rules_nr; i++) {
		const struct tbg_header_rules *p = &l->header_rules[i];

		l->adds |= p->headers_nr || p->expires || p->cache_control;
		ret += strlen(p->expires ?: "") + strlen(p->cache_control ?: "") + 32;
		for (unsigned int j = 0; j < p->headers_nr; j++)
			ret += strlen(p->headers[j]) + 2;
	}
	return ret;
}

/* The handler that a scope sets, other than a root: one or none. */
static int pool_given(struct tbg_build *m, const struct tbg_scope *scope,
		     const struct tbg_setting **ret, enum tbg_pool_kind *ret_kind)
{
	const struct tbg_setting *upstream = tbg_setting_of(scope, "upstream");
	const struct tbg_setting *cgi = tbg_setting_of(scope, "cgi");
	const struct tbg_setting *module = tbg_setting_of(scope, "module");

	*ret = cgi ?: module ?: upstream;
	*ret_kind = cgi ? TBG_POOL_CGI : module ? TBG_POOL_MODULE : 0;
	if (!!upstream + !!cgi + !!module < 2)
		return 0;
	return tbg_build_wrong(m, (*ret)->line, "%.100s: upstream, cgi and module are mutually exclusive in one scope; expected one of them",
				tbg_scope_name(scope));
}

/*
 * Sets the handler of a location after all settings were applied: the
 * innermost scope that sets one wins.
 */
static int location_handler(struct tbg_build *m, struct tbg_target *t,
			    const struct tbg_scope *const scopes[3])
{
	const struct tbg_setting *given = NULL, *root = NULL;
	struct tbg_location *l = t->location;
	enum tbg_pool_kind kind = 0;
	int err = 0;

	for (int i = 0; i < 3 && !given && !root; i++) {
		if (!scopes[i])
			continue;
		root = tbg_setting_of(scopes[i], "root");
		err = pool_given(m, scopes[i], &given, &kind);
		if (err)
			return err;
	}
	if (!given)
		return 0;
	if (kind)
		return tbg_pool_make(m, t, kind, given->line);
	if (t->beside)
		return tbg_build_wrong(m, given->line, "upstream \"%.100s\": beside others; expected the name of an upstream alone, or servers",
					t->beside);
	l->handler = TBG_HANDLER_UPSTREAM;
	if (t->named)
		l->upstream = tbg_sites_upstream_find(m->sites, t->named);
	else
		err = tbg_upstream_given(m, t, given->line);
	if (err)
		return err;
	if (!l->upstream)
		return tbg_build_wrong(m, given->line, "upstream \"%.100s\": there is none of that name; expected that of a section such as upstream \"%.100s\" { server = \"HOST:PORT\" }",
					t->named, t->named);
	if (tbg_protocol_needs_root(l->upstream->settings.protocol) && l->root < 0 &&
	    !l->upstream->settings.script.root && !l->upstream->settings.script.file)
		return tbg_build_wrong(m, given->line, "upstream \"%.100s\": no root; expected root = \"a folder\" around it, or script-root = \"/a/path\" in the upstream",
					l->upstream->name);
	if (root && !tbg_protocol_needs_root(l->upstream->settings.protocol))
		return tbg_build_wrong(m, given->line, "root and upstream are mutually exclusive in one scope; expected one of them");
	return 0;
}

static void location_match(struct tbg_location *l, struct tbg_sites *s,
			   const char *title)
{
	l->title = tbg_sites_text(s, title);
	l->match = l->title ? l->title + (*title != '/') : "/";
	l->kind = *title == '=' ? TBG_MATCH_EXACT :
		  *title == '*' ? TBG_MATCH_SUFFIX : TBG_MATCH_PREFIX;
	l->match_len = strlen(l->match);
}

/* own NULL: the location of all other paths of the host. */
static int location_make(struct tbg_build *m, struct tbg_location *l,
			 const struct tbg_scope *host,
			 const struct tbg_scope *own)
{
	struct tbg_pool_command cgi, module;
	struct tbg_upstream_settings settings = { 0 };
	struct tbg_target t = {
		.sites = m->sites, .location = l, .upstream = &settings, .why = "",
		.cgi = &cgi, .module = &module,
	};
	const struct tbg_scope *scopes[] = { own, host, m->top };
	const struct tbg_scope *last = own ?: host ?: m->top;
	const struct tbg_setting *headers = NULL;
	int err;

	*l = (struct tbg_location){
		.root = -1, .body_buffer = TBG_BODY_AS_NEEDED, .body_folder = TBG_BODY_FOLDER,
	};
	location_match(l, m->sites, own ? own->title : "/");
	err = tbg_settings_default(&t, TBG_OBJECT_LOCATION);
	err = err ?: tbg_pools_default(&t);
	for (int i = 2; i >= 0 && !err; i--)
		err = scopes[i] ? tbg_level_apply(m, &t, scopes[i]) : 0;
	err = err ?: clients_make(m, l, scopes);
	err = err ?: location_handler(m, &t, scopes);
	if (err)
		return err;
	m->sites->files |= l->handler == TBG_HANDLER_FILES;
	m->sites->proxies |= l->proxies_nr > 0;
	if (l->root < 0 && l->handler == TBG_HANDLER_FILES)
		return tbg_build_wrong(m, last->line, "%.100s: no root; expected root = \"a folder\" or upstream = \"a name\" there or outside of it",
					*last->title ? last->title : "root");
	if (fields_bytes(l) <= TBG_FIELDS_MAX) {
		m->sites->adds |= l->adds && l->handler != TBG_HANDLER_FILES;
		return 0;
	}
	for (int i = 2; i >= 0; i--)
		headers = scopes[i] ? tbg_setting_of(scopes[i], "headers") ?: headers : headers;
	return tbg_build_wrong(m, headers ? headers->line : last->line, "%.100s: %zu bytes of headers; expected at most %d, those of outer scopes included",
				tbg_scope_name(last), fields_bytes(l), TBG_FIELDS_MAX);
}

static int precedence(const void *a, const void *b)
{
	const struct tbg_location *x = a, *y = b;

	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	if (x->match_len != y->match_len)
		return x->match_len > y->match_len ? -1 : 1;
	return strcmp(x->match, y->match);
}

static bool is_location(const struct tbg_scope *s)
{
	return s->kind == TBG_SCOPE_LOCATION;
}

int tbg_site_locations(struct tbg_build *m, struct tbg_site *site,
		       const struct tbg_scope *host)
{
	const struct tbg_scope *in = host ?: m->top;
	unsigned int nr = 0, line = 0;
	bool slash = false;
	int err = 0;

	for (unsigned int i = 0; i < in->below_nr; i++) {
		if (!is_location(in->below[i]))
			continue;
		nr++;
		line = in->below[i]->line;
		slash |= !strcmp(in->below[i]->title, "/");
	}
	if (nr > LOCATIONS_MAX)
		return tbg_build_wrong(m, line, "%.100s: %u locations; expected at most %d",
					tbg_scope_name(in), nr, LOCATIONS_MAX);
	site->locations = tbg_sites_alloc(m->sites, (nr + 1) * sizeof(*site->locations));
	if (!site->locations)
		return -ENOMEM;
	for (unsigned int i = 0; i < in->below_nr && !err; i++) {
		struct tbg_location *l = &site->locations[site->locations_nr];

		if (!is_location(in->below[i]))
			continue;
		site->locations_nr++;
		err = location_make(m, l, host, in->below[i]);
		err = err ?: tbg_effect_check(m, in->below[i], tbg_reach_location(l));
	}
	if (!err && !slash)
		err = location_make(m, &site->locations[site->locations_nr++], host, NULL);
	if (err)
		return err;
	for (unsigned int i = 0; i < site->locations_nr; i++)
		site->locations[i].site = site;
	qsort(site->locations, site->locations_nr, sizeof(*site->locations),
	      precedence);
	return host ? tbg_effect_check(m, host, tbg_reach_site(site)) : 0;
}

int tbg_locations_check(struct tbg_build *m)
{
	for (unsigned int i = 0; i < m->top->below_nr; i++) {
		const struct tbg_scope *s = m->top->below[i];

		if (!is_location(s))
			continue;
		return tbg_build_wrong(m, s->line, "location \"%.100s\": outside of the hosts; expected it in a host, or no hosts",
					s->title);
	}
	return 0;
}
