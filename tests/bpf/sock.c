// SPDX-License-Identifier: GPL-2.0
/*
 * Whether this kernel's verifier accepts the programs of the sock tier, and at what
 * cost; emulated kernels must load them, too. Their behaviour needs sockets and is
 * tested in net/sock/t_sock.py. Needs root. Attaches nothing.
 */
#include "ktap.h"
#include "requires.h"

#include <stdlib.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "bpf/sock.skel.h"

/*
 * Verified instructions, of at most a million. All but 3,000 of the verdict program's
 * are grammar and lookup, which wire shares: 145,000 on 6.1, 197,000 on 6.12, 184,000
 * on 6.18, 194,000 on 7.2.
 */
#define VERDICT_MAX 900000
#define OTHERS_MAX  20000

static struct tbg_sock_bpf *bpf;

static bool load(void)
{
	if (!bpf)
		bpf = tbg_sock_bpf__open_and_load();
	return bpf;
}

#define NEED_BPF()							\
	do {								\
		if (geteuid())						\
			KTAP_SKIP("not root");				\
		KTAP_CHECK(load());					\
	} while (0)

static uint32_t verified(const struct bpf_program *prog)
{
	struct bpf_prog_info info = {};
	uint32_t len = sizeof(info);

	if (bpf_obj_get_info_by_fd(bpf_program__fd(prog), &info, &len))
		return UINT32_MAX;
	ktap_note("%s: %u instructions verified", info.name, info.verified_insns);
	return info.verified_insns;
}

KTAP_TEST(t_cheap_to_verify)
{
	NEED_BPF();
	KTAP_CHECK(verified(bpf->progs.tbg_verdict) < VERDICT_MAX);
	KTAP_CHECK(verified(bpf->progs.tbg_expand) < OTHERS_MAX);
	KTAP_CHECK(verified(bpf->progs.tbg_life) < OTHERS_MAX);
}

KTAP_TEST(t_programs_go_onto_a_map_of_sockets)
{
	NEED_BPF();
	int socks = bpf_map__fd(bpf->maps.tbg_socks);

	KTAP_EQ(bpf_prog_attach(bpf_program__fd(bpf->progs.tbg_verdict), socks,
				BPF_SK_SKB_STREAM_VERDICT, 0), 0);
	KTAP_EQ(bpf_prog_attach(bpf_program__fd(bpf->progs.tbg_expand), socks,
				BPF_SK_MSG_VERDICT, 0), 0);
}

KTAP_TEST(t_helpers_that_it_calls_are_required_of_the_kernel)
{
	NEED_BPF();
	KTAP_EQ(requires_left_out(bpf->obj, "sock"), 0);
}

KTAP_MAIN()
