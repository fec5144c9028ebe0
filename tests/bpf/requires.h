/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Compares the kernel functions that a tier's programs call with kernel/requirements:
 * `toboggan probe` uses its lines to decide whether a tier can be on.
 */
#ifndef TBG_TESTS_BPF_REQUIRES_H
#define TBG_TESTS_BPF_REQUIRES_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <bpf/libbpf.h>
#include <linux/bpf.h>

static const char requires_table[] =
#include "tools/requirements.inc"
;

static bool requires_calls(const struct bpf_object *o, const char *helper)
{
	static const char *const names[] = {
#define X(name) [BPF_FUNC_##name] = "bpf_" #name
		__BPF_FUNC_MAPPER(X)
#undef X
	};
	struct bpf_program *prog;

	bpf_object__for_each_program(prog, o) {
		const struct bpf_insn *insns = bpf_program__insns(prog);

		for (size_t i = 0; i < bpf_program__insn_cnt(prog); i++) {
			size_t id = insns[i].imm;

			if (insns[i].code == (BPF_JMP | BPF_CALL) && !insns[i].src_reg &&
			    id < sizeof(names) / sizeof(*names) && !strcmp(names[id], helper))
				return true;
		}
	}
	return false;
}

/* Returns the number of helpers whose lines omit the tier although its programs call them. */
static unsigned int requires_left_out(const struct bpf_object *o, const char *tier)
{
	char copy[sizeof(requires_table)], *rest = copy, *line;
	unsigned int named = 0, left_out = 0;

	memcpy(copy, requires_table, sizeof(copy));
	while ((line = strsep(&rest, "\n"))) {
		char tiers[64], helper[64];

		if (*line == '#' || sscanf(line, "%*[^|]|%63[^|]|%*[^|]|helper:%*[^/]/%63[^|]",
					   tiers, helper) != 2)
			continue;
		named++;
		if (!requires_calls(o, helper) || strstr(tiers, tier))
			continue;
		ktap_note("%s calls %s", tier, helper);
		left_out++;
	}
	return named ? left_out : 1;
}

#endif
