// SPDX-License-Identifier: GPL-2.0
/*
 * confine PROFILE COMMAND...: runs a command below a seccomp profile of the form that
 * container runtimes read (OCI), as they apply it to a container without capabilities
 * beyond the usual. A rule that it does not understand is an error: the command must never run
 * without one of the profile's rules.
 */
#include <errno.h>
#include <jansson.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *path;

static void die(const char *what, const char *more)
{
	fprintf(stderr, "confine: %s: %s%s\n", path, what, more ?: "");
	exit(1);
}

static uint32_t action_of(const json_t *from, const char *key, const char *errno_key)
{
	const char *text = json_string_value(json_object_get(from, key)) ?: "";
	const json_t *err = json_object_get(from, errno_key);

	if (!strcmp(text, "SCMP_ACT_ALLOW"))
		return SCMP_ACT_ALLOW;
	if (!strcmp(text, "SCMP_ACT_ERRNO"))
		return SCMP_ACT_ERRNO(err ? json_integer_value(err) : EPERM);
	die("no such action: ", text);
	return 0;
}

static enum scmp_compare compare_of(const char *text)
{
	static const struct { const char *name; enum scmp_compare op; } all[] = {
		{ "SCMP_CMP_EQ", SCMP_CMP_EQ }, { "SCMP_CMP_NE", SCMP_CMP_NE },
		{ "SCMP_CMP_LT", SCMP_CMP_LT }, { "SCMP_CMP_GT", SCMP_CMP_GT },
		{ "SCMP_CMP_MASKED_EQ", SCMP_CMP_MASKED_EQ },
	};

	for (size_t i = 0; text && i < sizeof(all) / sizeof(*all); i++)
		if (!strcmp(text, all[i].name))
			return all[i].op;
	die("no such comparison: ", text);
	return 0;
}

/* For MASKED_EQ, value is the mask, and valueTwo what the masked argument must be. */
static void rule_add(scmp_filter_ctx filter, const json_t *rule, uint32_t action, int nr)
{
	const json_t *args = json_object_get(rule, "args");
	struct scmp_arg_cmp cmp[6];
	size_t n = json_array_size(args);

	if (n > 6)
		die("more than six arguments", NULL);
	for (size_t i = 0; i < n; i++) {
		const json_t *arg = json_array_get(args, i);

		cmp[i].arg = json_integer_value(json_object_get(arg, "index"));
		cmp[i].op = compare_of(json_string_value(json_object_get(arg, "op")));
		cmp[i].datum_a = json_integer_value(json_object_get(arg, "value"));
		cmp[i].datum_b = json_integer_value(json_object_get(arg, "valueTwo"));
	}
	if (seccomp_rule_add_array(filter, action, nr, n, cmp))
		die("a rule cannot be added", NULL);
}

static void rules_add(scmp_filter_ctx filter, const json_t *rule, uint32_t usual)
{
	uint32_t action = action_of(rule, "action", "errnoRet");
	const json_t *names = json_object_get(rule, "names"), *name;
	size_t i;

	if (json_object_get(rule, "includes") || json_object_get(rule, "excludes"))
		die("rules of some containers alone are not understood", NULL);
	if (!json_array_size(names))
		die("a rule without names", NULL);
	if (action == usual)		/* libseccomp takes none that says nothing new */
		return;
	json_array_foreach(names, i, name) {
		int nr = seccomp_syscall_resolve_name(json_string_value(name) ?: "");

		if (nr >= 0)		/* as runtimes do: there are others on other machines */
			rule_add(filter, rule, action, nr);
	}
}

int main(int argc, char **argv)
{
	scmp_filter_ctx filter;
	json_t *profile, *rule;
	json_error_t error;
	uint32_t usual;
	size_t i;

	if (argc < 3) {
		fprintf(stderr, "confine: expected a profile, and a command\n");
		return 2;
	}
	path = argv[1];
	profile = json_load_file(path, 0, &error);
	if (!profile)
		die(error.text, NULL);
	usual = action_of(profile, "defaultAction", "defaultErrnoRet");
	filter = seccomp_init(usual);
	if (!filter)
		die("out of memory", NULL);
	json_array_foreach(json_object_get(profile, "syscalls"), i, rule)
		rules_add(filter, rule, usual);
	if (seccomp_load(filter))
		die("the kernel takes no filter", NULL);
	execvp(argv[2], argv + 2);
	perror(argv[2]);
	return 1;
}
