# SPDX-License-Identifier: GPL-2.0
#
# A suite's rules inside a kernel's tools/testing/selftests/toboggan/tests: those of
# the kernel's lib.mk. Last in its Makefile, which has set `suite`, TEST_PROGS and
# TEST_GEN_PROGS. Our own Makefiles build; lib.mk runs, installs and lists.

built	:= $(TEST_GEN_PROGS)
OVERRIDE_TARGETS := 1
.DEFAULT_GOAL := all

all: beside
run_tests install: beside

include ../../../lib.mk

# What runs needs our library beside its folder, wherever the kernel's objects are. There a
# program that has a folder in its suite has none, and looks one folder further up.
beside: alone
	@[ $(OUTPUT) -ef . ] || ln -sfnr ../../tests/lib $(OUTPUT)/../lib
	@[ $(OUTPUT) -ef . ] || ln -sfnr ../../tests/lib $(OUTPUT)/../../lib

alone:
	@env -u MAKEFLAGS -u MAKELEVEL -u OUTPUT -u INSTALL_PATH $(MAKE) -C ../.. \
		O=$(O) TBG_ALONE=1 all
	@env -u MAKEFLAGS -u MAKELEVEL -u OUTPUT -u INSTALL_PATH $(MAKE) -C .. \
		O=$(O) TBG_ALONE=1 suite-$(suite)

$(addprefix $(OUTPUT)/,$(built)): $(OUTPUT)/%: alone
	@cp $(O)/tests/$(suite)/$* $@

install: runtime
runtime: alone
	@../kselftest/install --runtime $(INSTALL_PATH)/../..

.PHONY: beside alone runtime
