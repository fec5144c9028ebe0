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

headers	:= $(wildcard ../../bpf/*.h ../../bpf/*/*)

define skeleton
$(Q)mkdir -p $(@D)
$(Q)$(CLANG) $(bpf_cflags) -c $< -o $(@:.skel.h=.bpf.o)
$(Q)$(BPFTOOL) gen skeleton $(@:.skel.h=.bpf.o) name tbg_$(basename $(basename $(@F))) > $@.tmp && \
	mv $@.tmp $@
endef

.PRECIOUS: $(out)/%.skel.h
$(out)/%.skel.h: %.bpf.c $(headers)
	$(skeleton)
