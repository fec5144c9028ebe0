# SPDX-License-Identifier: GPL-2.0
#
# What the suites share: each TEST_GEN_PROGS is built from the .c file of its
# name and $(<name>-src) with $(suite_cflags), $(<name>-libs), into
# $(O)/tests/<suite>. Set `suite` and the lists, then include this.

O	?= $(abspath ../../build)
out	:= $(O)/tests/$(suite)

ifneq ($(V),1)
Q	?= @
endif

our_cflags := -std=gnu17 -g -Wall -Wextra -Wno-unused-parameter \
	-Wno-sign-compare -fno-strict-aliasing -D_GNU_SOURCE \
	-iquote ../lib -iquote ../../userd -iquote ../../bpf -iquote $(O) -iquote $(out)
ifeq ($(CI),true)
our_cflags += -Werror
endif

suite_headers := $(wildcard ../lib/*.h ../../userd/*.h ../../userd/*/*.h ../../bpf/*/*.h *.h)
sanitizers := -O1 -fsanitize=address,undefined -fno-sanitize-recover=all \
	-fno-omit-frame-pointer

all: $(TEST_GEN_PROGS:%=$(out)/%)

.SECONDEXPANSION:
$(out)/%: %.c $$($$*-src) $$($$*-deps) $(suite_headers) | $(out)
	$(Q)$(CC) $(our_cflags) $(suite_cflags) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) \
		-o $@ $< $($*-src) $($*-libs) -lpthread

$(out):
	$(Q)mkdir -p $@

.PHONY: all
