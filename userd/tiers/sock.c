// SPDX-License-Identifier: GPL-2.0
/*
 * Loads, attaches and removes the sock tier, and manages its slots. A slot is
 * free (in the queue), or belongs to a socket from its enrolment until the
 * sweeper finds the socket closed and the slot not held. Every error becomes
 * one sentence for the operator.
 */
#include "tiers/sock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "bpf/sock.skel.h"
#include "bpf/sock_direct.skel.h"
#include "level.h"
#include "tiers/direct.h"
#include "tiers/sock_selftest.h"

TBG_DIRECT_OPEN(sock)

#define RECORD_BYTES	16		/* of one slot in a ring buffer */
/*
 * Minimum send buffer of a new connection: the longest answer fits, in segments for
 * a client's window of 16 KiB. The kernel begins with 69,120 bytes (6.18, MTU 1500),
 * and only enlarges it after it was too small.
 */
#define SEND_BYTES	(96 << 10)

struct tbg_sock {
	struct tbg_sock_bpf *bpf;
	struct tbg_maps maps;
	struct tbg_mapping conns_map, pends_map;
	struct tbg_sock_conn *conns;
	uint8_t *pends;			/* elements of pend_bytes */
	size_t pend_bytes;
	uint32_t conns_nr;
	_Atomic uint8_t *held;		/* by slot: a connection of the daemon uses it */
	uint8_t *ended;			/* by slot: found closed at the last tick */
	int *news;			/* by worker: its ring buffer; -1: none yet */
	unsigned int workers_nr;
	struct bpf_link *life;
};

static const char fixes[] =
#include "sock_fixes.inc"
;

/* Whether the kernel has the fixes that sock requires. */
static int level_check(bool unlisted, char *ret_msg, size_t msg_len)
{
	struct tbg_version v = { .text = "of an unknown version" };
	enum tbg_level level = tbg_level_running(fixes, &v);

	if (level == TBG_LEVEL_FIXED || (level == TBG_LEVEL_UNLISTED && unlisted))
		return 0;
	if (level == TBG_LEVEL_UNLISTED)
		snprintf(ret_msg, msg_len, "kernel %s: not known to have the fixes of %s; boot one that has, or run with --sock unlisted",
			 v.text, fixes);
	else
		snprintf(ret_msg, msg_len, "kernel %s: lacks fixes of sockmap; boot one of %s or newer",
			 v.text, fixes);
	return -EOPNOTSUPP;
}

/* Whether maps of sockets can be created, tested before other requirements. */
static int privilege_check(void)
{
	int fd = bpf_map_create(BPF_MAP_TYPE_SOCKMAP, "tbg_may", sizeof(int),
				sizeof(int), 1, NULL);

	if (fd < 0)
		return errno == EPERM ? -EPERM : 0;
	close(fd);
	return 0;
}

static int fail(int err, char *ret_msg, size_t msg_len, const char *what)
{
	snprintf(ret_msg, msg_len, "%s: %s; %s", what, strerror(-err),
		 tbg_maps_advice(err));
	return err;
}

static int set_sizes(struct tbg_sock *s, const struct tbg_plan *plan)
{
	struct tbg_sock_bpf *b = s->bpf;
	int err = tbg_maps_size(b->obj, b->rodata->tbg_class_base, plan);

	err = err ?: bpf_map__set_max_entries(b->maps.tbg_sock_free, s->conns_nr);
	err = err ?: bpf_map__set_max_entries(b->maps.tbg_sock_slots, s->conns_nr);
	err = err ?: bpf_map__set_max_entries(b->maps.tbg_sock_news, s->workers_nr);
	return err ?: bpf_map__set_max_entries(b->maps.tbg_socks, s->conns_nr);
}

static int queue_fill(const struct bpf_map *queue, uint32_t nr)
{
	int err = 0;

	for (uint32_t i = 0; i < nr && !err; i++)
		err = bpf_map_update_elem(bpf_map__fd(queue), NULL, &i, 0);
	return err;
}

static int load(struct tbg_sock *s, const struct tbg_plan *plan,
		const struct bpf_object *wire)
{
	libbpf_print_fn_t print = libbpf_set_print(NULL);
	int err;

	s->bpf = sock_open();
	err = s->bpf ? set_sizes(s, plan) : -errno;
	if (!err && wire)
		err = tbg_maps_share(s->bpf->obj, wire) ?:
		      bpf_program__set_autoload(s->bpf->progs.tbg_ask, false);
	err = err ?: tbg_sock_bpf__load(s->bpf);
	libbpf_set_print(print);
	return err;
}

/*
 * Twice the maximum of unread reports of a worker's connections: a reused
 * slot may have a second one.
 */
static int news_open(struct tbg_sock *s)
{
	int outer = bpf_map__fd(s->bpf->maps.tbg_sock_news), err = 0;
	uint32_t bytes = sysconf(_SC_PAGESIZE);

	while (bytes < 2ull * RECORD_BYTES * s->conns_nr / s->workers_nr)
		bytes *= 2;
	for (uint32_t i = 0; i < s->workers_nr && !err; i++) {
		s->news[i] = bpf_map_create(BPF_MAP_TYPE_RINGBUF, "tbg_sock_news",
					    0, 0, bytes, NULL);
		err = s->news[i] < 0 ? -errno :
		      bpf_map_update_elem(outer, &i, &s->news[i], 0);
	}
	return err;
}

static int map_all(struct tbg_sock *s)
{
	int err = tbg_maps_open(&s->maps, s->bpf->obj);

	err = err ?: tbg_map_mmap(s->bpf->maps.tbg_sock_conns, &s->conns_map);
	err = err ?: tbg_map_mmap(s->bpf->maps.tbg_pends, &s->pends_map);
	s->conns = s->conns_map.at;
	s->pends = s->pends_map.at;
	s->pend_bytes = (bpf_map__value_size(s->bpf->maps.tbg_pends) + 7) & ~7ul;
	err = err ?: queue_fill(s->bpf->maps.tbg_sock_free, s->conns_nr);
	return err ?: queue_fill(s->bpf->maps.tbg_pend_free, TBG_SOCK_PENDS);
}

/* Finds a mount point of cgroup2; false: none. */
static bool cgroup_mount(char ret[PATH_MAX])
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char line[2 * PATH_MAX];
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f))
		found = strstr(line, " - cgroup2 ") &&
			sscanf(line, "%*s %*s %*s %*s %4095s", ret) == 1;
	if (f)
		fclose(f);
	return found;
}

/*
 * Opens the root of the cgroup2 hierarchy: at its mount point, or else by a
 * private mount. `ip netns exec` hides the mount point below a new /sys.
 */
static int cgroup_top(void)
{
	char mount[PATH_MAX];
	int fs, fd = -1, err;

	if (cgroup_mount(mount))
		fd = open(mount, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0)
		return fd;
	fs = fsopen("cgroup2", FSOPEN_CLOEXEC);
	if (fs < 0)
		return -errno;
	if (!fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		fd = fsmount(fs, FSMOUNT_CLOEXEC, 0);
	err = errno;
	close(fs);
	return fd < 0 ? -err : fd;
}

/* The daemon's own cgroup, or else the root of the hierarchy. */
static int cgroup_open(void)
{
	char path[PATH_MAX + 2] = ".", line[PATH_MAX];
	int top = cgroup_top(), fd, err;
	FILE *f;

	if (top < 0)
		return top;
	f = fopen("/proc/self/cgroup", "re");
	while (f && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		if (!strncmp(line, "0::/", 4))
			snprintf(path, sizeof(path), "./%s", line + 4);
	}
	if (f)
		fclose(f);
	fd = openat(top, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		fd = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	err = errno;
	close(top);
	return fd < 0 ? -err : fd;
}

static int attach(struct tbg_sock *s, char *ret_msg, size_t msg_len)
{
	int socks = bpf_map__fd(s->bpf->maps.tbg_socks), cgroup, err;
	libbpf_print_fn_t print;

	if (bpf_prog_attach(bpf_program__fd(s->bpf->progs.tbg_verdict), socks,
			    BPF_SK_SKB_STREAM_VERDICT, 0) ||
	    bpf_prog_attach(bpf_program__fd(s->bpf->progs.tbg_expand), socks,
			    BPF_SK_MSG_VERDICT, 0))
		return fail(-errno, ret_msg, msg_len, "attach to the map of sockets");
	cgroup = cgroup_open();
	if (cgroup < 0)
		return fail(cgroup, ret_msg, msg_len, "cgroup2: not to be opened or mounted");
	print = libbpf_set_print(NULL);
	s->life = bpf_program__attach_cgroup(s->bpf->progs.tbg_life, cgroup);
	err = s->life ? 0 : -errno;
	libbpf_set_print(print);
	close(cgroup);
	return err ? fail(err, ret_msg, msg_len, "attach to the daemon's cgroup") : 0;
}

int tbg_sock_open(struct tbg_sock **ret, const struct tbg_plan *plan,
		  unsigned int workers, const struct bpf_object *wire,
		  bool unlisted, char *ret_msg, size_t msg_len)
{
	int err = privilege_check();
	struct tbg_sock *s;

	if (err)
		return fail(err, ret_msg, msg_len, "load");
	err = level_check(unlisted, ret_msg, msg_len);
	err = err ?: tbg_sock_selftest(ret_msg, msg_len);
	s = err ? NULL : calloc(1, sizeof(*s));
	if (!s)
		return err ?: -ENOMEM;
	s->conns_nr = plan->conns;
	s->held = calloc(s->conns_nr, sizeof(*s->held));
	s->ended = calloc(s->conns_nr, sizeof(*s->ended));
	s->news = malloc(workers * sizeof(*s->news));
	for (; s->news && s->workers_nr < workers; s->workers_nr++)
		s->news[s->workers_nr] = -1;
	err = s->held && s->ended && s->news ? load(s, plan, wire) : -ENOMEM;
	err = err ?: news_open(s);
	if (err) {
		fail(err, ret_msg, msg_len, "load");
		goto out;
	}
	err = map_all(s);
	if (err) {
		fail(err, ret_msg, msg_len, "mmap of BPF maps");
		goto out;
	}
	err = attach(s, ret_msg, msg_len);
	if (err)
		goto out;
	s->maps.knob->answer = 1;
	*ret = s;
	return 0;
out:
	tbg_sock_close(s);
	return err;
}

/* Makes the send buffer large enough, while the kernel can still enlarge it. */
static int room_set(int fd)
{
	int bytes, unlocked = 0;
	socklen_t len = sizeof(bytes);

	if (getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, &len))
		return -errno;
	if (bytes >= SEND_BYTES)
		return 0;
	bytes = SEND_BYTES / 2;		/* the kernel doubles the value */
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)) ||
	    setsockopt(fd, SOL_SOCKET, SO_BUF_LOCK, &unlocked, sizeof(unlocked)))
		return -errno;
	return 0;
}

int tbg_sock_listen(struct tbg_sock *s, int fd)
{
	unsigned int lowat = UINT32_MAX;
	struct tbg_sock_id id = { 0 };
	int err = room_set(fd);

	/*
	 * both are inherited: an answer for which the verdict has found room must be
	 * accepted completely
	 */
	if (!err && setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &lowat, sizeof(lowat)))
		err = -errno;
	if (err)
		return err;
	return bpf_map_update_elem(bpf_map__fd(s->bpf->maps.tbg_sock_ids), &fd,
				   &id, BPF_ANY);
}

const struct tbg_maps *tbg_sock_maps(const struct tbg_sock *s)
{
	return &s->maps;
}

int tbg_sock_ask_fd(const struct tbg_sock *s)
{
	return bpf_program__fd(s->bpf->progs.tbg_ask);
}

void tbg_sock_close(struct tbg_sock *s)
{
	if (!s)
		return;
	bpf_link__destroy(s->life);
	tbg_map_munmap(&s->conns_map);
	tbg_map_munmap(&s->pends_map);
	tbg_maps_close(&s->maps);
	tbg_sock_bpf__destroy(s->bpf);
	for (unsigned int i = 0; i < s->workers_nr; i++)
		if (s->news[i] >= 0)
			close(s->news[i]);
	free(s->news);
	free((void *)s->held);
	free(s->ended);
	free(s);
}

/* Slots */

uint32_t tbg_sock_slots(const struct tbg_sock *s)
{
	return s->conns_nr;
}

int tbg_sock_news_fd(const struct tbg_sock *s, unsigned int worker)
{
	return s->news[worker];
}

struct tbg_sock_conn *tbg_sock_conn(const struct tbg_sock *s, int slot)
{
	return &s->conns[slot];
}

int tbg_sock_claim(struct tbg_sock *s, int fd)
{
	struct tbg_sock_id id;

	if (bpf_map_lookup_elem(bpf_map__fd(s->bpf->maps.tbg_sock_ids), &fd, &id) ||
	    !id.cookie || id.slot >= s->conns_nr)
		return -1;
	/* the sweeper takes the cookie first, and then checks whether the slot is held */
	atomic_store(&s->held[id.slot], 1);
	if (__atomic_load_n(&s->conns[id.slot].cookie, __ATOMIC_SEQ_CST) == id.cookie)
		return id.slot;
	atomic_store(&s->held[id.slot], 0);
	return -1;
}

void tbg_sock_release(struct tbg_sock *s, int slot)
{
	s->conns[slot].released = 1;
	atomic_store(&s->held[slot], 0);
}

bool tbg_sock_owes(const struct tbg_sock_conn *c)
{
	/* BPF counts `passed` before `done` for requests given to the daemon */
	uint32_t done = __atomic_load_n(&c->done, __ATOMIC_ACQUIRE);

	/* after a reset the kernel drops its queues silently */
	if (__atomic_load_n(&c->flags, __ATOMIC_ACQUIRE) & TBG_SOCK_CLOSED)
		return false;
	return done != __atomic_load_n(&c->queued, __ATOMIC_ACQUIRE) ||
	       __atomic_load_n(&c->passed, __ATOMIC_ACQUIRE) != c->received;
}

bool tbg_sock_shut(struct tbg_sock_conn *c)
{
	__atomic_store_n(&c->shut, 1, __ATOMIC_SEQ_CST);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return !tbg_sock_owes(c);
}

void tbg_sock_reopen(struct tbg_sock_conn *c)
{
	__atomic_store_n(&c->shut, 0, __ATOMIC_SEQ_CST);
}

/*
 * BPF updates counts before it reads `quiet`; a worker sets `quiet` before it reads
 * counts: one of them notices.
 */
void tbg_sock_rest(struct tbg_sock_conn *c)
{
	__atomic_store_n(&c->quiet, 1, __ATOMIC_SEQ_CST);
}

bool tbg_sock_rests(const struct tbg_sock_conn *c)
{
	return __atomic_load_n(&c->quiet, __ATOMIC_SEQ_CST) &&
	       __atomic_load_n(&c->passed, __ATOMIC_SEQ_CST) == c->received &&
	       !__atomic_load_n(&c->flags, __ATOMIC_SEQ_CST);
}

/* Frees pending hits that were overtaken by the end of their connection. */
static void pends_free(struct tbg_sock *s, uint64_t cookie)
{
	for (uint32_t i = 0; i < TBG_SOCK_PENDS; i++) {
		struct tbg_pend_head *p = (void *)(s->pends + i * s->pend_bytes);

		if (p->cookie != cookie)
			continue;
		p->cookie = 0;
		bpf_map_update_elem(bpf_map__fd(s->bpf->maps.tbg_pend_free), NULL,
				    &i, 0);
	}
}

static void slot_free(struct tbg_sock *s, uint32_t slot)
{
	struct tbg_sock_conn *c = &s->conns[slot];
	uint64_t cookie = __atomic_exchange_n(&c->cookie, 0, __ATOMIC_SEQ_CST);

	if (atomic_load(&s->held[slot])) {
		__atomic_store_n(&c->cookie, cookie, __ATOMIC_SEQ_CST);
		return;
	}
	if (c->queued != c->done)
		pends_free(s, cookie);
	bpf_map_delete_elem(bpf_map__fd(s->bpf->maps.tbg_sock_slots), &cookie);
	bpf_map_update_elem(bpf_map__fd(s->bpf->maps.tbg_sock_free), NULL, &slot, 0);
}

void tbg_sock_tick(struct tbg_sock *s)
{
	for (uint32_t slot = 0; slot < s->conns_nr; slot++) {
		const struct tbg_sock_conn *c = &s->conns[slot];
		bool ended = c->cookie && !atomic_load(&s->held[slot]) &&
			     (c->released || c->flags & TBG_SOCK_CLOSED);

		/* found twice: one that was just accepted may still be claimed */
		if (ended && s->ended[slot]) {
			slot_free(s, slot);
			ended = false;
		}
		s->ended[slot] = ended;
	}
}
