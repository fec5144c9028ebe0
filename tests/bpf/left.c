// SPDX-License-Identifier: GPL-2.0
/*
 * Programs that dead daemons left on interfaces: the user is asked once per daemon, and
 * they are removed in an order that sends no wrong byte. Programs and interfaces are
 * real, flows are simulated. Needs root.
 */
#include "ktap.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>

#define DETACHED_MAX 16

static char detached[DETACHED_MAX + 1];	/* "ie": from ingress, then egress */

static void note(bool egress)
{
	size_t at = strlen(detached);

	if (at < DETACHED_MAX)
		detached[at] = egress ? 'e' : 'i';
}

static int prog_detach(int prog_fd, int ifindex, enum bpf_attach_type type)
{
	note(type == 47);		/* BPF_TCX_EGRESS */
	return bpf_prog_detach2(prog_fd, ifindex, type);
}

static int tc_detach(const struct bpf_tc_hook *hook, const struct bpf_tc_opts *opts)
{
	note(hook->attach_point == BPF_TC_EGRESS);
	return bpf_tc_detach(hook, opts);
}

#define bpf_prog_detach2 prog_detach
#define bpf_tc_detach tc_detach
#include "../../userd/tiers/attach.c"

static unsigned int asked;
static bool answer;

static bool needed(int flows_fd, uint64_t now_ns)
{
	asked++;
	return answer;
}

/* Attaches the programs of a daemon and closes their descriptors, as if it had died. */
static bool daemon_make(int ret[TBG_HOOK_NR])
{
	static const struct bpf_insn pass[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .imm = -1 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	int tail = bpf_map_create(BPF_MAP_TYPE_PROG_ARRAY, "tbg_tail", 4, 4, 1, NULL);
	int flows = bpf_map_create(BPF_MAP_TYPE_HASH, "tbg_flows", 4, 4, 1, NULL);

	for (int i = 0; i < TBG_HOOK_NR; i++) {
		ret[i] = bpf_prog_load(BPF_PROG_TYPE_SCHED_CLS, prog_names[i], "GPL", pass,
				       2, NULL);
		if (ret[i] < 0 || bpf_prog_bind_map(ret[i], tail, NULL) ||
		    bpf_prog_bind_map(ret[i], flows, NULL))
			return false;
	}
	close(tail);
	close(flows);
	return true;
}

/* Two daemons have died, each attached to lo and v0. */
static bool daemons_die(void)
{
	static const char *const names[] = { "lo", "v0" };
	const struct tbg_pins nowhere = { .dir_fd = -1 };
	struct tbg_attachment a;
	int fds[TBG_HOOK_NR];

	if (system("ip link set lo up && ip link add v0 type veth peer name v1"))
		return false;
	for (int nr = 0; nr < 2; nr++) {
		if (!daemon_make(fds))
			return false;
		for (int i = 0; i < 2; i++)
			if (tbg_attach(&a, if_nametoindex(names[i]), fds, &nowhere, true))
				return false;
		close(fds[TBG_HOOK_INGRESS]);
		close(fds[TBG_HOOK_EGRESS]);
	}
	return true;
}

/*
 * Either all programs of a daemon stay or all are removed, even if its flows change
 * meanwhile. Egress is removed last: an answer with the socket's own numbers would
 * insert wrong bytes into the client's stream, while an ingress segment with the
 * client's numbers acknowledges bytes that the socket has not sent, and is dropped.
 */
KTAP_TEST(t_dead_daemons_are_asked_about_once_and_sending_goes_last)
{
	int back = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	unsigned int kept_asked, gone_asked;
	struct tbg_left_list left = LIST_HEAD_INITIALIZER(left), none;
	bool died, gone;
	char kept[sizeof(detached)];

	if (geteuid())
		KTAP_SKIP("not root");
	KTAP_CHECK(!unshare(CLONE_NEWNET));
	died = daemons_die();
	if (died)
		tbg_left_find(&left);
	answer = true;
	tbg_left_sweep(&left, needed, 0);
	kept_asked = asked;
	strcpy(kept, detached);
	asked = 0;
	answer = false;
	tbg_left_sweep(&left, needed, 0);
	gone_asked = asked;
	tbg_left_find(&none);
	gone = LIST_EMPTY(&left) && LIST_EMPTY(&none);
	setns(back, CLONE_NEWNET);
	close(back);
	KTAP_CHECK(died);
	KTAP_EQ(kept_asked, 2);
	KTAP_CHECK(!*kept);
	KTAP_EQ(gone_asked, 2);
	ktap_note("detached from: %s", detached);
	KTAP_CHECK(!strcmp(detached, "iiiieeee"));
	KTAP_CHECK(gone);
}

KTAP_MAIN()
