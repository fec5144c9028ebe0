# SPDX-License-Identifier: GPL-2.0
#
# The table of contents. `sudo make run` and `sudo make check` do all set-up on
# a fresh Debian 12; products go to $(O). V=1 shows commands.

O	?= $(CURDIR)/build
PREFIX	?= /usr/local
DESTDIR	?=
ifneq ($(words $(CURDIR)) $(words $(O)),1 1)
$(error make cannot build where a path is empty or has blanks: "$(CURDIR)" to "$(O)"; clone elsewhere or give another O)
endif
ifneq ($(words x$(DESTDIR)) $(words x$(PREFIX)),1 1)
$(error make cannot install where a path has blanks: DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)")
endif
override O := $(abspath $(O))
export O PREFIX DESTDIR

ifneq ($(V),1)
MAKEFLAGS += --no-print-directory
Q := @
endif
export Q V

# Of what `make build-arm64` builds, in $(O)/arm64: against Debian's libraries in a folder.
cross_arm64 = CC="aarch64-linux-gnu-gcc --sysroot=$(O)/vm/root-arm64"

all: bpf userd tools examples	## build everything (default)

bpf:				## the kernel side
	$(Q)$(MAKE) -C bpf
userd: bpf			## the daemon
	$(Q)$(MAKE) -C userd
tools: bpf			## the command-line tool
	$(Q)$(MAKE) -C tools
examples:			## the example modules
	$(Q)$(MAKE) -C Documentation examples

deps:				## install the Debian packages that are missing
	$(Q)tools/deps

run:				## set up, build, serve a sample site, show each tier
	$(Q)tools/deps build run
	$(Q)$(MAKE) all
	$(Q)tools/run

check: deps build-sanitized	## set up, build, test; or TEST=net/t_x.py:t_y [KERNEL=6.1]
	$(Q)tests/check
check-quick: deps check-build	## three minutes: unit tests, fuzzers, one test kernel
	$(Q)tests/check quick
check-all: export COMPILERS = $(shell tests/compilers --all)
check-all: deps deps-compilers check-build	## hours: all suites on all kernels, and the long tests
	$(Q)tests/check all
check-asan: deps build-sanitized	## unit, net and http with ASan and UBSan; or TEST=...
	$(Q)tests/check asan
check-tsan: deps build-sanitized	## unit, and tests of several workers, with TSan; or TEST=...
	$(Q)$(MAKE) $(jobs) -C tests/unit O=$(O)/tsan sanitizers="$(cflags_tsan)" all
	$(Q)tests/check tsan

# As many at once as there are CPUs, where nothing else was asked for.
jobs = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))
check-build:
	$(Q)$(MAKE) $(jobs) all
	$(Q)$(MAKE) $(jobs) -C tests all
	$(Q)$(MAKE) $(jobs) -C vm all

# The daemon, the gateway, the tool and unit tests of threads with sanitizers, in $(O)/asan
# and $(O)/tsan; the kernel side and modules are those of $(O). As shared libraries the two
# of asan know nothing of each other: no options, no log.
sanitized_cflags := -UNDEBUG -O1 -g1 -w -fno-omit-frame-pointer
cflags_asan := $(sanitized_cflags) -fsanitize=address,undefined -fno-sanitize-recover=all
ldflags_asan := -static-libasan -static-libubsan
cflags_tsan := $(sanitized_cflags) -fsanitize=thread
threaded := test_cache_threads test_log test_watch_lost
build-sanitized: check-build
	$(Q)$(MAKE) $(jobs) build-asan build-tsan
build-asan build-tsan: build-%: sanitizer-folder-%
	$(Q)$(MAKE) -C userd O=$(O)/$* CFLAGS="$(cflags_$*)" LDFLAGS="$(ldflags_$*)" \
		$(O)/$*/toboggand $(O)/$*/toboggan-gateway
	$(Q)$(MAKE) -C tools O=$(O)/$* CFLAGS="$(cflags_$*)" LDFLAGS="$(ldflags_$*)" \
		$(O)/$*/toboggan
build-tsan: build-tsan-unit
build-tsan-unit: sanitizer-folder-tsan
	$(Q)$(MAKE) -C tests/unit O=$(O)/tsan sanitizers="$(cflags_tsan)" \
		$(threaded:%=$(O)/tsan/tests/unit/%)
sanitizer-folder-%:
	$(Q)test -L $(O)/$*/bpf || rm -rf $(O)/$*
	$(Q)mkdir -p $(O)/$*/tests
	$(Q)ln -sfn ../bpf ../modules $(O)/$*
	$(Q)ln -sfn ../../tests/net $(O)/$*/tests

check-unit: all			## unit tests and short fuzzing, no root needed
	$(Q)$(MAKE) -C tests all
	$(Q)tests/run unit fuzz
check-net: all			## BPF and network tests on this kernel
	$(Q)$(MAKE) -C tests all
	$(Q)tests/run bpf net http
# Only what these suites are made of is built: five minutes of two cores are the budget.
suites_vm = $(sort $(foreach word,$(or $(SUITES),bpf net),$(firstword $(subst /, ,$(word)))))
check-vm:			## bpf and wire in VMs, on three of Debian's kernels
	$(Q)$(MAKE) $(jobs) all
	$(Q)$(MAKE) $(jobs) -C tests $(suites_vm:%=suite-%)
	$(Q)$(MAKE) -C vm check
check-arm64: deps-arm64 build-arm64	## bpf and some of net on Debian's arm64 kernels, emulated
	$(Q)$(MAKE) -C vm check-arm64
build-arm64:			## everything for arm64, in $(O)/arm64 (cross)
	$(Q)$(MAKE) -C vm root-arm64
	$(Q)$(MAKE) O=$(O)/arm64 $(cross_arm64) all
	$(Q)$(MAKE) -C tests O=$(O)/arm64 $(cross_arm64) suite-bpf suite-net suite-http
	$(Q)$(MAKE) -C vm arm64
deps-compilers:
	$(Q)tools/deps compilers
deps-arm64:
	$(Q)tools/deps build run tests vm arm64
check-package: deb		## install, upgrade and purge the packages on fresh Debians in VMs
	$(Q)$(MAKE) -C vm package
check-image: deb		## an image of the packages serves, below Docker's profile and ours
	$(Q)$(MAKE) -C tests suite-net
	$(Q)tools/package/image
	$(Q)TBG_IMAGE=$(O)/image tests/run net/setup/t_contained.py
check-gigabyte: all		## 2 GiB through bad networks on each of them
	$(Q)$(MAKE) -C tests all
	$(Q)$(MAKE) -C vm gigabyte
check-scale: all			## 100,000 connections at once, and a million
	$(Q)$(MAKE) -C tests all
	$(Q)$(MAKE) -C vm scale

kselftest-tar:			## the suites as kselftest unpacks them (TARGETS=…)
	$(Q)$(MAKE) -C tests kselftest-tar

bench: all			## what a full core answers, in two minutes (BENCH=--quick, --help)
	$(Q)$(MAKE) -C tools/bench all
	$(Q)$(MAKE) -C tests/bpf all
	$(Q)tools/bench/bench $(BENCH)

fuzz:				## fuzz for FUZZ_S seconds per fuzzer (default 600)
	$(Q)$(MAKE) -C tests fuzz

format:				## clang-format the lines not committed yet, or FILES
	$(Q)$(if $(FILES),clang-format -i $(FILES),git clang-format -fq --extensions c,h)
lint:				## what CI holds against style
	$(Q)tools/lint

install: all			## to $(DESTDIR)$(PREFIX)
	$(Q)$(MAKE) -C userd install
	$(Q)$(MAKE) -C tools install
	$(Q)$(MAKE) -C Documentation install
	$(Q)$(MAKE) -C tools/package install

uninstall:			## remove what install puts there
	$(Q)tools/package/uninstall

deb: deps-package		## Debian packages in $(O)/deb, looked at by lintian
	$(Q)tools/package/deb
image: deps-package		## an OCI image of them in $(O)/image
	$(Q)tools/package/image
deps-package:
	$(Q)tools/deps build docs package

pictures: all			## the documentation's, of the page in a browser
	$(Q)TBG_PICTURES=$(CURDIR)/Documentation/operating/pictures tests/net/operate/t_page.py

clean:				## remove what was built, but not the test kernels
	$(Q)rm -rf "$(O)/bpf" "$(O)/userd" "$(O)/tools" "$(O)/tests" \
		"$(O)/toboggand" "$(O)/toboggan-gateway" "$(O)/toboggan" \
		"$(O)/asan" "$(O)/tsan" "$(O)/arm64" "$(O)/log" \
		"$(O)/modules" "$(O)/man" "$(O)/kselftest" "$(O)"/kselftest.tar.*
	$(Q)$(MAKE) -C vm clean

help:				## this list
	$(Q)grep -E '^[a-z0-9-]+:.*##' Makefile | \
		sed -E 's/:[^#]*## */\t/' | expand -t 16

.PHONY: all bpf userd tools examples deps run check check-quick check-all check-asan \
	check-tsan check-arm64 check-build build-arm64 deps-arm64 deps-compilers build-sanitized build-asan build-tsan build-tsan-unit check-unit check-net check-vm check-package check-image check-gigabyte \
	check-scale kselftest-tar bench fuzz format lint install uninstall deb image pictures \
	deps-package clean help
