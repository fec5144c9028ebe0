/* SPDX-License-Identifier: GPL-2.0 */
/*
 * KTAP for test programs written in C, included by each file of one that has tests:
 *
 *	KTAP_TEST(t_empty_line) { KTAP_CHECK(parse("") == 0); }
 *	KTAP_TEST(t_needs_root) { if (geteuid()) KTAP_SKIP("not root"); }
 *	KTAP_MAIN()
 *
 * Tests run in the order they are written, and files in the order they are linked; one
 * result line each, and one file has KTAP_MAIN(). The exit code is 0 (passed), 1 (failed)
 * or 4 (all skipped). KTAP_CHECK and KTAP_SKIP
 * leave the test function, so they belong in it and not in what it calls.
 * stdout carries KTAP only: explain with ktap_note(), which never fails a test.
 */
#ifndef TBG_TESTS_LIB_KTAP_H
#define TBG_TESTS_LIB_KTAP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* One of the program, whatever number of files define it. */
#define KTAP_SHARED __attribute__((weak))

#define KTAP_TESTS_MAX 512
#define KTAP_PASS 0
#define KTAP_FAIL 1
#define KTAP_SKIPPED 4

/* Of the address sanitizer, where a suite has it: a frame that is left is gone. */
const char *__asan_default_options(void);
KTAP_SHARED const char *__asan_default_options(void)
{
	return "detect_stack_use_after_return=1";
}

struct ktap_test {
	const char *name;
	void (*fn)(void);
};

KTAP_SHARED struct ktap_test ktap_tests[KTAP_TESTS_MAX];
KTAP_SHARED unsigned int ktap_test_nr;
KTAP_SHARED bool ktap_failed;
KTAP_SHARED const char *ktap_skip_reason;

__attribute__((unused)) static void ktap_register(const char *name, void (*fn)(void))
{
	if (ktap_test_nr < KTAP_TESTS_MAX)
		ktap_tests[ktap_test_nr] = (struct ktap_test){ name, fn };
	ktap_test_nr++;
}

/* A line of explanation, shown with the result line that follows it. */
__attribute__((unused, format(printf, 1, 2)))
static void ktap_note(const char *fmt, ...)
{
	char text[2048];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	for (char *save = NULL, *line = strtok_r(text, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save))
		printf("# %s\n", line);
	fflush(stdout);
}

/* Constructors run in the order of their definition within one file. */
#define KTAP_TEST(fn_)							\
	static void fn_(void);						\
	__attribute__((constructor)) static void ktap_register_##fn_(void) \
	{								\
		ktap_register(#fn_, fn_);				\
	}								\
	static void fn_(void)

/* Fail the running test without leaving it: for helpers and loops. */
#define ktap_fail(...)							\
	do {								\
		ktap_failed = true;					\
		ktap_note(__VA_ARGS__);					\
	} while (0)

#define KTAP_CHECK(cond_)						\
	do {								\
		if (!(cond_)) {						\
			ktap_fail("%s:%d: %s", __FILE__, __LINE__, #cond_); \
			return;						\
		}							\
	} while (0)

#define KTAP_EQ(a_, b_)							\
	do {								\
		long long ktap_a = (long long)(a_);			\
		long long ktap_b = (long long)(b_);			\
		if (ktap_a != ktap_b) {					\
			ktap_fail("%s:%d: %s is %lld, %s is %lld",	\
				  __FILE__, __LINE__, #a_, ktap_a, #b_, ktap_b); \
			return;						\
		}							\
	} while (0)

#define KTAP_SKIP(reason_)						\
	do {								\
		ktap_skip_reason = (reason_);				\
		return;							\
	} while (0)

/* argv: names of the tests to run; none means all. */
__attribute__((unused)) static int ktap_run(int argc, char **argv)
{
	unsigned int failed = 0, skipped = 0, nr = 0;
	bool chosen[KTAP_TESTS_MAX] = { false };

	if (ktap_test_nr > KTAP_TESTS_MAX) {
		printf("Bail out! more than %d tests in one program\n", KTAP_TESTS_MAX);
		return KTAP_FAIL;
	}
	for (unsigned int i = 0; i < ktap_test_nr; i++) {
		chosen[i] = argc < 2;
		for (int a = 1; a < argc; a++)
			chosen[i] |= !strcmp(argv[a], ktap_tests[i].name);
		nr += chosen[i];
	}
	for (int a = 1; a < argc; a++) {
		unsigned int i = 0;

		while (i < ktap_test_nr && strcmp(argv[a], ktap_tests[i].name))
			i++;
		if (i == ktap_test_nr) {
			printf("Bail out! no such test: %s\n", argv[a]);
			return KTAP_FAIL;
		}
	}
	printf("TAP version 13\n1..%u\n", nr);
	nr = 0;
	for (unsigned int i = 0; i < ktap_test_nr; i++) {
		if (!chosen[i])
			continue;
		ktap_failed = false;
		ktap_skip_reason = NULL;
		fflush(stdout);
		ktap_tests[i].fn();
		printf("%sok %u %s", ktap_failed ? "not " : "", ++nr, ktap_tests[i].name);
		if (!ktap_failed && ktap_skip_reason)
			printf(" # SKIP %s", ktap_skip_reason);
		printf("\n");
		failed += ktap_failed;
		skipped += !ktap_failed && ktap_skip_reason;
	}
	fflush(stdout);
	if (failed || !nr)
		return KTAP_FAIL;
	return skipped == nr ? KTAP_SKIPPED : KTAP_PASS;
}

#define KTAP_MAIN()							\
	int main(int argc, char **argv)					\
	{								\
		return ktap_run(argc, argv);				\
	}

#endif
