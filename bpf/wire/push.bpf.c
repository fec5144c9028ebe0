// SPDX-License-Identifier: GPL-2.0
/*
 * The program that the daemon runs with BPF_PROG_TEST_RUN, to have something done that no
 * incoming segment triggers: TBG_PUSH_* in cb[0]. It is attached to no hook. tbg_answer
 * does it: most of it needs the look-up and the replies, which the verifier so checks once.
 */
#include "maps.bpf.h"

SEC("tc")
int tbg_push(struct __sk_buff *skb)
{
	struct tbg_scratch *s = tbg_scratch_get();

	if (!s)
		return 0;
	s->push = skb->cb[0];
	bpf_tail_call(skb, &tbg_tail, 0);
	s->push = 0;
	return 0;
}
