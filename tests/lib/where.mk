# SPDX-License-Identifier: GPL-2.0
#
# Where a suite is built: first in its Makefile. In this repository O is the build
# folder. In a copy of it at tools/testing/selftests/toboggan of a kernel, `selftests`
# is that tree, whose lib.mk has the rules (kselftest.mk), and O is the copy's own:
# there O= means the kernel's objects.

selftests := $(if $(TBG_ALONE),,$(wildcard ../../../kselftest/runner.sh))
ifneq ($(selftests),)
override O := $(abspath ../../build)
else
O	?= $(abspath ../../build)
endif
export O
