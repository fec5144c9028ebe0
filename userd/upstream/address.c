// SPDX-License-Identifier: GPL-2.0
/*
 * Looks up each name once, however often it is configured, and several names in
 * parallel. At the start another process does it, which can be killed when it takes too
 * long; later a thread of the caller.
 */
#include "upstream/address.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/queue.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/message.h"
#include "os/timers.h"

#define AT_ONCE	8	/* parallel lookups */

/* The result of a lookup. */
struct found {
	atomic_bool done;
	int err;		/* of getaddrinfo() */
	unsigned int nr;
	struct sockaddr_storage addresses[TBG_ADDRESSES_MAX];
};

struct name {
	LIST_ENTRY(name) link;
	char *host, *port;
	bool number;		/* a numeric address */
	bool known;		/* need not be looked up */
	bool used;		/* by the configuration read last */
	int err;		/* of the last lookup */
	int logged;		/* the error that was logged, or 0 */
	unsigned int nr;	/* number of addresses; kept after an error */
	struct sockaddr_storage *addresses;
};

/* The state that the threads of one lookup share. */
struct look {
	const struct name **names;
	struct found *found;
	unsigned int nr;
	_Atomic unsigned int next;
};

static LIST_HEAD(, name) names;
static bool notes;		/* names are only collected, not looked up */

static int address_compare(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct sockaddr_storage));
}

/*
 * Sorts the addresses: all are used in turn, and a resolver may change their order each
 * time.
 */
static void look_one(const struct name *n, int flags, struct found *ret)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = flags }, *found;

	ret->nr = 0;
	ret->err = getaddrinfo(n->host, n->port, &hints, &found);
	if (!ret->err) {
		for (const struct addrinfo *a = found; a; a = a->ai_next)
			if (ret->nr < TBG_ADDRESSES_MAX &&
			    (a->ai_family == AF_INET || a->ai_family == AF_INET6))
				memcpy(&ret->addresses[ret->nr++], a->ai_addr, a->ai_addrlen);
		freeaddrinfo(found);
		qsort(ret->addresses, ret->nr, sizeof(*ret->addresses), address_compare);
		ret->err = ret->nr ? 0 : EAI_NONAME;
	}
	atomic_store(&ret->done, true);
}

static void *look_several(void *arg)
{
	struct look *l = arg;

	for (unsigned int i; (i = atomic_fetch_add(&l->next, 1)) < l->nr;)
		look_one(l->names[i], 0, &l->found[i]);
	return NULL;
}

static void look_all(struct look *l)
{
	pthread_t threads[AT_ONCE];
	unsigned int nr = 0;

	while (nr + 1 < AT_ONCE && nr + 1 < l->nr &&
	       !pthread_create(&threads[nr], NULL, look_several, l))
		nr++;
	look_several(l);
	while (nr)
		pthread_join(threads[--nr], NULL);
}

/* Takes and logs the result. Returns whether the addresses have changed. */
static bool found_take(struct name *n, const struct found *f)
{
	size_t len = f->nr * sizeof(*f->addresses);
	bool other;

	n->known = true;
	n->err = atomic_load(&f->done) ? f->err : EAI_AGAIN;
	if (n->err && n->logged != n->err && n->nr)
		tbg_warn("toboggand: server name \"%s\": %s; keeping its previous addresses",
			 n->host, gai_strerror(n->err));
	else if (n->err && n->logged != n->err)
		tbg_warn("toboggand: server name \"%s\": %s; it is looked up again every %u s, until then requests that only it can answer get 502",
			 n->host, gai_strerror(n->err),
			 tbg_timer_ms(TBG_TIMER_ADDRESSES_MISSING) / 1000);
	else if (!n->err && n->logged)
		tbg_notice("toboggand: server name \"%s\": it has an address now", n->host);
	n->logged = n->err;
	if (n->err)
		return false;
	other = n->nr != f->nr || memcmp(n->addresses, f->addresses, len);
	n->nr = f->nr;
	memcpy(n->addresses, f->addresses, len);
	return other;
}

/* Collects the names to look up. ret->nr 0: none, or no memory. */
static void look_make(struct look *ret)
{
	const struct name *n;
	unsigned int nr = 0;

	*ret = (struct look){ 0 };
	LIST_FOREACH(n, &names, link)
		nr += !n->known;
	if (!nr)
		return;
	ret->names = calloc(nr, sizeof(*ret->names));
	ret->found = mmap(NULL, nr * sizeof(*ret->found), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (!ret->names || ret->found == MAP_FAILED) {
		free(ret->names);
		return;
	}
	LIST_FOREACH(n, &names, link)
		if (!n->known)
			ret->names[ret->nr++] = n;
}

static bool look_take(struct look *l)
{
	bool other = false;
	unsigned int i = 0;
	struct name *n;

	LIST_FOREACH(n, &names, link)
		if (i < l->nr && l->names[i] == n)
			other |= found_take(n, &l->found[i++]);
	if (l->nr) {
		munmap(l->found, l->nr * sizeof(*l->found));
		free(l->names);
	}
	return other;
}

static void name_free(struct name *n)
{
	free(n->host);
	free(n->port);
	free(n->addresses);
	free(n);
}

/* Returns whether the name can exist: "10.0.0.300" cannot, nor can a name with a blank. */
static bool plausible(const char *name)
{
	const char *last = strrchr(name, '.');

	last = last ? last + 1 : name;
	return strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._") ==
	       strlen(name) && (!*last || strspn(last, "0123456789") != strlen(last));
}

/*
 * Adds a name. Numeric addresses are known at once. NULL: no memory, or (EINVAL)
 * neither a number nor a valid name.
 */
static struct name *name_new(const char *host, const char *port)
{
	struct name *n = calloc(1, sizeof(*n));
	struct found *f = calloc(1, sizeof(*f));

	errno = ENOMEM;
	if (n && f) {
		n->host = strdup(host);
		n->port = strdup(port);
		n->addresses = calloc(TBG_ADDRESSES_MAX, sizeof(*n->addresses));
	}
	if (!n || !f || !n->host || !n->port || !n->addresses) {
		if (n)
			name_free(n);
		free(f);
		return NULL;
	}
	look_one(n, AI_NUMERICHOST, f);
	n->number = n->known = !f->err;
	if (n->number)
		found_take(n, f);
	free(f);
	if (!n->number && !plausible(host)) {
		name_free(n);
		errno = EINVAL;
		return NULL;
	}
	LIST_INSERT_HEAD(&names, n, link);
	return n;
}

int tbg_address_find(const char *host, const char *port, unsigned int nr,
		     struct sockaddr_storage *ret, socklen_t *ret_len)
{
	struct name *n;

	LIST_FOREACH(n, &names, link)
		if (!strcmp(n->host, host) && !strcmp(n->port, port))
			break;
	n = n ?: name_new(host, port);
	if (!n)
		return errno == EINVAL ? EAI_NONAME : EAI_MEMORY;
	n->used = true;
	if (!n->known && !notes)
		tbg_addresses_look();
	if (nr >= n->nr)
		return n->nr ? EAI_NONAME : EAI_AGAIN;
	*ret = n->addresses[nr];
	*ret_len = ret->ss_family == AF_INET ? sizeof(struct sockaddr_in)
					     : sizeof(struct sockaddr_in6);
	return 0;
}

void tbg_addresses_note(void)
{
	for (struct name *n = LIST_FIRST(&names), *next; n; n = next) {
		next = LIST_NEXT(n, link);
		if (!n->used) {
			LIST_REMOVE(n, link);
			name_free(n);
			continue;
		}
		n->known = n->number;
		n->used = false;
		n->logged = 0;
	}
	notes = true;
}

bool tbg_addresses_noted(void)
{
	const struct name *n;

	LIST_FOREACH(n, &names, link)
		if (!n->known && n->used)
			return true;
	return false;
}

bool tbg_addresses_again(unsigned int passed_s)
{
	bool again = passed_s * 1000ull >= tbg_timer_ms(TBG_TIMER_ADDRESSES_AGAIN), due = false;
	struct name *n;

	if (passed_s * 1000ull < tbg_timer_ms(TBG_TIMER_ADDRESSES_MISSING))
		return false;
	LIST_FOREACH(n, &names, link)
		due |= !n->number && (!n->nr || again);
	if (!due)
		return false;
	LIST_FOREACH(n, &names, link)
		n->known = n->number;
	return true;
}

bool tbg_addresses_look(void)
{
	struct look l;

	look_make(&l);
	if (l.nr)
		look_all(&l);
	return look_take(&l);
}

void tbg_addresses_start(unsigned int limit_ms)
{
	struct look l;
	struct pollfd p = { .events = POLLIN };
	pid_t child;

	look_make(&l);
	child = l.nr ? fork() : 0;
	if (!child && l.nr) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		look_all(&l);
		_exit(0);
	}
	if (child > 0) {
		p.fd = syscall(SYS_pidfd_open, child, 0);
		if (p.fd >= 0) {
			while (poll(&p, 1, limit_ms) < 0 && errno == EINTR)
				;
			close(p.fd);
		}
		kill(child, SIGKILL);
		while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
			;
	}
	look_take(&l);
}
