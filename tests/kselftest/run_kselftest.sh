#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Run installed suites: the options and the output of the kernel's script of this name,
# so that what runs kselftest runs these. Exit: 0 nothing failed, 1 something did.
BASE_DIR=$(realpath "$(dirname "$0")")
cd "$BASE_DIR" || exit 1

# In a network namespace of its own, for --netns.
if [ "${1:-}" = --alone ]; then
	shift
	cd "$OLDPWD" || exit 1
	exec unshare -n sh -c 'ip link set lo up && exec "$@"' sh "$@"
fi

usage()
{
	cat <<EOF
Usage: $0 [OPTIONS]
  -s | --summary		Print the results alone, the rest to output.log (not with -p)
  -p | --per-test-log		Print the results alone, the rest to /tmp/<test> (not with -s)
  -t | --test COLLECTION:TEST	Run TEST of COLLECTION
  -c | --collection COLLECTION	Run all tests of COLLECTION
  -S | --skip COLLECTION:TEST	Leave TEST of COLLECTION out
  -l | --list			List the collection:test entries
  -d | --dry-run		Say what would run
  -n | --netns			Run each test in a network namespace
  -o | --override-timeout S	Seconds that each test may take
  -h | --help			Show this
EOF
	exit "$1"
}

available=$(cat kselftest-list.txt) || exit 1
chosen='' collections='' left_out='' dry=''
while [ $# -gt 0 ]; do
	case $1,$# in
	--test,1|--collection,1|--skip,1|--override-timeout,1|-[tcSo],1)
		echo "$1 wants an argument" >&2; exit 1 ;;
	esac
	case $1 in
	-s|--summary)			logfile=$BASE_DIR/output.log; : >"$logfile" ;;
	-p|--per-test-log|--per_test_log)	per_test_logging=1 ;;
	-t|--test)			chosen="$chosen $2"; shift ;;
	-c|--collection)		collections="$collections $2"; shift ;;
	-S|--skip)			left_out="$left_out $2"; shift ;;
	-l|--list)			echo "$available"; exit 0 ;;
	-d|--dry-run)			dry=1 ;;
	-n|--netns)			RUN_IN_NETNS=1 ;;
	-o|--override-timeout)		kselftest_override_timeout=$2; shift ;;
	-h|--help)			usage 0 ;;
	*)				usage 1 ;;
	esac
	shift
done

for collection in $collections; do
	found=$(echo "$available" | grep "^$collection:") ||
		{ echo "No such collection '$collection'" >&2; exit 1; }
	chosen="$chosen $found"
done
for test in $chosen $left_out; do
	echo "$available" | grep -qxF "$test" || { echo "No such test '$test'" >&2; exit 1; }
done
for test in $left_out; do
	available=$(echo "$available" | grep -vxF "$test")
	chosen=$(echo $chosen | tr ' ' '\n' | grep -vxF "$test")
done
[ -z "$collections$chosen" ] || available=$(echo $chosen | tr ' ' '\n')

export BASE_DIR logfile per_test_logging RUN_IN_NETNS kselftest_override_timeout
. ./kselftest/runner.sh
bad=0
for collection in $(echo "$available" | cut -d: -f1 | sort -u); do
	tests=$(echo "$available" | grep "^$collection:" | cut -d: -f2)
	if [ -n "$dry" ]; then
		echo "cd $collection"
		echo "run_many" $tests
		continue
	fi
	[ ! -w /dev/kmsg ] || echo "kselftest: Running tests in $collection" >/dev/kmsg
	(cd "$collection" && run_many $tests) || bad=1
done
exit $bad
