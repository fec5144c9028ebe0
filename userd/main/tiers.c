// SPDX-License-Identifier: GPL-2.0
/*
 * Starts and ends the kernel tiers, and logs why one is off. Called at the start and
 * as the last step of the daemon; a tier that fails does not fail the start.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "tiers/attach.h"
#include "os/clock.h"
#include "tiers/flow.h"
#include "os/loop.h"
#include "os/limits.h"
#include "os/message.h"
#include "os/privilege.h"
#include "os/sysctl.h"
#include "os/timers.h"
#include "serve/server.h"
#include "tiers/sock.h"
#include "tiers/wire.h"
#include "client/connection.h"
#include "serve/worker.h"
#include "main/internal.h"

#define DETACH_WAIT_MS	2000	/* for the last clients to close while wire translates */

/* tbg-repair resets some of the connections that a killed daemon was giving back by such a port. */
static void repair_note(const struct tbg_server *s)
{
	long long free = tbg_sysctl("/proc/sys/net/ipv4/ip_unprivileged_port_start", 1024);

	if (tbg_privilege_binds())
		return;
	for (unsigned int i = 0; i < s->opt.listen_nr; i++) {
		const struct sockaddr_in6 *at = (const void *)&s->opt.listen[i];

		/* sockaddr_in has the port at the same place */
		if (ntohs(at->sin6_port) >= free)
			continue;
		tbg_notice("toboggand: wire: %s: without CAP_NET_BIND_SERVICE, a client whose connection a killed daemon was giving back may wait for ever; grant it, or give --give-back 0",
			   s->opt.listen_text[i]);
		return;
	}
}

void tbg_tiers_wire_open(struct start *t)
{
	uid_t owner = t->id.change ? t->id.uid : geteuid();
	struct tbg_server *s = &t->s;

	if (!strcmp(s->opt.wire, "off"))
		strcpy(s->wire_off, "--wire off");
	else if (!s->opt.tier_wire)
		snprintf(s->wire_off, sizeof(s->wire_off), "--tiers %suser",
			 s->opt.tier_sock ? "sock," : "");
	else if (tbg_wire_open(&s->wire, s->opt.wire, owner, !s->opt.translate,
			       s->opt.births, s->opt.wire_size, &s->plan, s->opt.listen,
			       s->opt.listen_nr, s->wire_off, sizeof(s->wire_off)))
		s->wire = NULL;
	if (s->wire && tbg_listeners_give(s, s->wire, NULL, s->wire_off,
				      sizeof(s->wire_off))) {
		tbg_wire_close(s->wire);
		s->wire = NULL;
	}
	if (s->wire) {
		tbg_wire_given(s->wire);
		s->maps = tbg_wire_maps(s->wire);
		/* workers close connections that are idle for longer */
		tbg_wire_limits(s->wire, s->opt.idle_ms, s->opt.header_ms);
		if (tbg_wire_owns(s->wire) && s->opt.give_back && !s->opt.tier_sock)
			repair_note(s);
	} else {
		tbg_warn("toboggand: wire is off: %s", s->wire_off);
	}
}

static int news_open(struct tbg_server *s, char *ret_why, size_t len)
{
	int err = 0;

	for (unsigned int i = 0; i < s->workers_nr; i++)
		err = err ?: tbg_conn_news_open(&s->workers[i]);
	if (!err)
		return 0;
	for (unsigned int i = 0; i < s->workers_nr; i++)
		tbg_conn_news_close(&s->workers[i]);
	snprintf(ret_why, len, "ring buffers: %s; %s", strerror(-err), tbg_maps_advice(err));
	return err;
}

void tbg_tiers_sock_open(struct tbg_server *s)
{
	if (!s->opt.tier_sock) {
		snprintf(s->sock_off, sizeof(s->sock_off), "--tiers %suser",
			 s->opt.tier_wire ? "wire," : "");
		return;
	}
	if (tbg_sock_open(&s->sock, &s->plan, s->workers_nr,
			  s->wire ? tbg_wire_object(s->wire) : NULL,
			  s->opt.sock_unlisted, s->sock_off, sizeof(s->sock_off)))
		s->sock = NULL;
	if (s->sock && (tbg_listeners_give(s, NULL, s->sock, s->sock_off,
				       sizeof(s->sock_off)) ||
			news_open(s, s->sock_off, sizeof(s->sock_off)))) {
		tbg_sock_close(s->sock);
		s->sock = NULL;
	}
	if (!s->sock)
		tbg_warn("toboggand: sock is off: %s", s->sock_off);
	else if (!s->maps)
		s->maps = tbg_sock_maps(s->sock);
}

static void on_wire_news(void *wire, uint32_t events)
{
	tbg_wire_news(wire, tbg_mono_ns());
}

static void on_untracked(void *track, uint32_t events)
{
	tbg_track_admit(track);
}

int tbg_tiers_follow(struct tbg_server *s)
{
	struct tbg_track *track = s->wire ? tbg_wire_track(s->wire) : NULL;
	int fds[TBG_WIRE_NEWS_NR], err = 0;

	if (!s->wire)
		return 0;
	tbg_wire_news_fds(s->wire, fds);
	for (int i = 0; i < TBG_WIRE_NEWS_NR && !err; i++)
		if (fds[i] >= 0)
			err = tbg_loop_add(s->loop, fds[i], EPOLLIN, on_wire_news, s->wire);
	if (!err && tbg_track_fd(track) >= 0)
		err = tbg_loop_add(s->loop, tbg_track_fd(track), EPOLLIN, on_untracked, track);
	return err;
}

void tbg_tiers_sweep(struct start *t)
{
	tbg_left_sweep(&t->left, tbg_flows_needed, tbg_mono_ns());
}

void tbg_tiers_detach_await(struct start *t, uint64_t now_ns)
{
	unsigned int left = t->s.wire ? tbg_wire_flows_open(t->s.wire, t->drain_ns) : 0;
	unsigned int most_ms = tbg_option_now(&t->s.opt.drain_ms);

	if (most_ms > tbg_timer_ms(TBG_TIMER_DRAIN))
		most_ms = tbg_timer_ms(TBG_TIMER_DRAIN);
	if (!t->ended_ns)
		t->ended_ns = now_ns;
	if (left && (now_ns - t->drain_ns < most_ms * 1000000ull ||
		     now_ns - t->ended_ns < DETACH_WAIT_MS * 1000000ull))
		return;
	if (left)
		tbg_warn("toboggand: wire: %u connections that clients have not closed lose their translation; they end by timers",
			left);
	tbg_loop_stop(t->s.loop);
}
