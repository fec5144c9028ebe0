# SPDX-License-Identifier: GPL-2.0
#
# BPF programs of a suite's own. Included by its Makefile, which has set `out`:
# $(out)/NAME.skel.h is the skeleton tbg_NAME of NAME.bpf.c.

CLANG	?= clang
BPFTOOL	?= $(firstword $(wildcard /usr/sbin/bpftool) bpftool)
multiarch := $(shell $(CLANG) -print-multiarch 2>/dev/null || echo $(shell uname -m)-linux-gnu)
bpf_cflags := -O2 -g -target bpf -mcpu=v3 -std=gnu17 -Wall -Wextra \
	-Wno-unused-parameter -Wno-sign-compare \
	-Wno-gnu-variable-sized-type-not-at-end -fno-stack-protector \
	-iquote ../../bpf -I/usr/include/$(multiarch)

.PRECIOUS: $(out)/%.skel.h
$(out)/%.skel.h: %.bpf.c $(wildcard ../../bpf/*.h ../../bpf/*/*)
	$(Q)mkdir -p $(@D)
	$(Q)$(CLANG) $(bpf_cflags) -c $< -o $(out)/$*.bpf.o
	$(Q)$(BPFTOOL) gen skeleton $(out)/$*.bpf.o name tbg_$* > $@.tmp && mv $@.tmp $@
