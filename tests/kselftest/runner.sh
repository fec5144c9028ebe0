#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Runs programs of one suite as kselftest does. Sourced by run_kselftest.sh, which sets
# BASE_DIR and changes into the suite's folder; the kernel's own runner may stand here
# instead. A program that is missing, fails or takes too long is `not ok`.
SKIP_CODE=4
TIMEOUT_CODE=124

run_program()	# SUITE PROGRAM NUMBER
{
	what="selftests: $1: $2"
	limit=45
	if [ -r settings ]; then
		limit=$(sed -n 's/^timeout=\([0-9]*\)$/\1/p' settings)
	fi
	limit=${kselftest_override_timeout:-$limit}
	echo "# timeout set to $limit"
	echo "# $what"
	if [ -w /dev/kmsg ]; then
		echo "kselftest: running $1/$2" >/dev/kmsg
	fi
	if [ ! -x "$2" ]; then
		echo "# $2 is missing, or cannot be executed"
		echo "not ok $3 $what"
		return 1
	fi
	code_file=$(mktemp)
	{
		timeout --foreground -k 5 "$limit" ${RUN_IN_NETNS:+"$BASE_DIR/run_kselftest.sh" --alone} \
			"./$2" 2>&1
		echo $? >"$code_file"
	} | sed -u 's/^/# /'
	code=$(cat "$code_file")
	rm -f "$code_file"
	if [ -w /dev/kmsg ]; then
		echo "kselftest: ended $1/$2" >/dev/kmsg
	fi
	case $code in
	0)		echo "ok $3 $what" ;;
	"$SKIP_CODE")	echo "ok $3 $what # SKIP" ;;
	"$TIMEOUT_CODE")	echo "not ok $3 $what # TIMEOUT $limit seconds"; return 1 ;;
	*)		echo "not ok $3 $what # exit=$code"; return 1 ;;
	esac
}

run_many()	# PROGRAM…
{
	echo "TAP version 13"
	echo "1..$#"
	number=0
	bad=0
	for program; do
		number=$((number + 1))
		if [ -n "${per_test_logging:-}" ]; then
			run_program "${PWD#"$BASE_DIR"/}" "$program" "$number" \
				>"/tmp/${program##*/}" || bad=1
			grep -E '^(ok|not ok) ' "/tmp/${program##*/}"
		elif [ -n "${logfile:-}" ]; then
			run_program "${PWD#"$BASE_DIR"/}" "$program" "$number" \
				>"$logfile.part" || bad=1
			cat "$logfile.part" >>"$logfile"
			grep -E '^(ok|not ok) ' "$logfile.part"
			rm "$logfile.part"
		else
			run_program "${PWD#"$BASE_DIR"/}" "$program" "$number" || bad=1
		fi
	done
	return $bad
}
