// SPDX-License-Identifier: GPL-2.0
/*
 * The cost of a hit and of a pass of wire. The program itself times a hit, from its request
 * to its reply. The rest of the time that the kernel has counted for the program belongs to
 * packets that it passed. Called by `top` and `stats`.
 */
#include "run_time.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "show.h"

/* Requests: with fewer, most of the daemon's time is its start, timers, and our questions. */
#define ASKED_LEAST 100

int tbg_run_time_begin(void)
{
	int fd = bpf_enable_stats(BPF_STATS_RUN_TIME);

	return fd < 0 ? -errno : fd;
}

bool tbg_run_time_read(const json_t *stats, struct tbg_run_time *ret)
{
	struct bpf_prog_info info = {};
	uint32_t len = sizeof(info), id = number_of(tier_of(stats, "wire"), "program");
	int fd = id ? bpf_prog_get_fd_by_id(id) : -1;
	bool known = fd >= 0 && !bpf_obj_get_info_by_fd(fd, &info, &len);

	if (fd >= 0)
		close(fd);
	ret->ns = info.run_time_ns;
	ret->runs = info.run_cnt;
	return known;
}

static double growth(const json_t *before, const json_t *now, const char *tier,
		     const char *key)
{
	return json_number_value(json_object_get(tier_of(now, tier), key)) -
	       json_number_value(json_object_get(tier_of(before, tier), key));
}

void tbg_wire_cost(const json_t *before, const json_t *now, const struct tbg_run_time *then,
		   const struct tbg_run_time *since, struct tbg_wire_cost *ret)
{
	double hits = growth(before, now, "wire", "requests");
	double took = growth(before, now, "wire", "took_ns");
	double asked = growth(before, now, "user", "requests");
	double cpu_ns = growth(before, now, "user", "cpu_s") * 1e9;
	double runs = (double)since->runs - then->runs - hits;
	double ns = (double)since->ns - then->ns - took;

	*ret = (struct tbg_wire_cost){ -1, -1, -1, -1 };
	if (hits > 0)
		ret->hit_ns = took / hits;
	if (runs > 0 && ns > 0)
		ret->pass_ns = ns / runs;
	if (asked >= ASKED_LEAST && cpu_ns > 0)
		ret->user_ns = cpu_ns / asked;
	tbg_wire_pays(ret);
}

void tbg_wire_pays(struct tbg_wire_cost *c)
{
	double saved = c->user_ns + c->pass_ns - c->hit_ns;	/* by a hit, not passed up */

	c->pays_from = -1;
	if (c->hit_ns >= 0 && c->pass_ns >= 0 && c->user_ns >= 0)
		c->pays_from = saved > 0 ? c->pass_ns / saved : 1;
}

/* "812 ns", "3.3 µs" */
static int time_text(double ns, char *ret, size_t room)
{
	if (ns < 1000)
		return snprintf(ret, room, "%.0f ns", ns);
	return snprintf(ret, room, "%.1f µs", ns / 1000);
}

bool tbg_wire_cost_text(const struct tbg_wire_cost *cost, char *ret, size_t room)
{
	char hit[24] = "-", pass[24] = "-", user[32], pays[40] = "";

	if (cost->hit_ns >= 0)
		time_text(cost->hit_ns, hit, sizeof(hit));
	if (cost->pass_ns >= 0)
		time_text(cost->pass_ns, pass, sizeof(pass));
	if (cost->user_ns >= 0)
		time_text(cost->user_ns, user, sizeof(user));
	else
		snprintf(user, sizeof(user), "- (fewer than %d came)", ASKED_LEAST);
	if (cost->pays_from >= 1)
		snprintf(pays, sizeof(pays), "; does not pay");
	else if (cost->pays_from >= 0)
		snprintf(pays, sizeof(pays), "; pays from %.0f %% hits on", 100 * cost->pays_from);
	snprintf(ret, room, "wire: a hit %s, a packet passed up %s; a request to the daemon %s%s",
		 hit, pass, user, pays);
	return cost->hit_ns >= 0 || cost->pass_ns >= 0;
}
