// SPDX-License-Identifier: GPL-2.0
/*
 * The verifier accepts the BPF programs of each of Debian's compilers, not only those
 * of the default one. COMPILERS (tests/compilers) names the objects that were built.
 */
#include "ktap.h"

#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <stdarg.h>
#include <stdlib.h>

/* The objects that were built; asm includes the file of each in this program. */
#define OBJECT(nr, by, name, path)					\
	asm(".pushsection .rodata\n.balign 8\n"				\
	    "object_" #nr ":\n.incbin \"" path "\"\nobject_" #nr "_end:\n" \
	    ".popsection");						\
	extern const char object_##nr[], object_##nr##_end[];
#include "compiled.inc"
#undef OBJECT

static const struct object {
	const char *by, *name, *begin, *end;
} objects[] = {
#define OBJECT(nr, by, name, path) { by, name, object_##nr, object_##nr##_end },
#include "compiled.inc"
#undef OBJECT
	{ 0 },
};

static char message[512];			/* the last message of libbpf */

static int keep(enum libbpf_print_level level, const char *format, va_list args)
{
	/* the verifier's log is in one message, with the reason on its last lines */
	static char text[1 << 20];
	size_t len;

	if (level != LIBBPF_WARN)
		return 0;
	len = vsnprintf(text, sizeof(text), format, args);
	if (len >= sizeof(text))
		len = sizeof(text) - 1;
	if (len >= sizeof(message))
		memcpy(message, text + len - (sizeof(message) - 1), sizeof(message));
	else if (!strstr(message, "processed"))
		memcpy(message, text, len + 1);
	return 0;
}

static void load(const struct object *o)
{
	LIBBPF_OPTS(bpf_object_open_opts, opts, .object_name = o->name);
	struct bpf_object *bpf = bpf_object__open_mem(o->begin, o->end - o->begin, &opts);

	*message = 0;
	if (!bpf || bpf_object__load(bpf))
		ktap_fail("%s, %s: %s", o->by, o->name, message);
	bpf_object__close(bpf);
}

static const char *const kernels[] = { "vm/6.1", "vm/6.12", "vm/newest" };
#define KERNELS (sizeof(kernels) / sizeof(*kernels))

/* Returns whether this kernel has to load the object. */
static bool our_turn(unsigned int nr)
{
	const char *where = getenv("TBG_WHERE");
	bool several = false;

	for (const struct object *o = objects; o->by; o++)
		several |= strcmp(o->by, objects->by);
	for (unsigned int i = 0; !several && where && i < KERNELS; i++)
		if (!strcmp(where, kernels[i]))
			return (nr + TURN) % KERNELS == i;
	return true;
}

static unsigned int load_all(const char *name)
{
	unsigned int loaded = 0;

	libbpf_set_print(keep);
	for (const struct object *o = objects; o->by; o++)
		if (!strcmp(o->name, name)) {
			ktap_note("%s", o->by);
			load(o);
			loaded++;
		}
	return loaded;
}

static bool kernel_has(const char *function)
{
	struct btf *btf = btf__load_vmlinux_btf();
	int id = btf__find_by_name_kind(btf, function, BTF_KIND_FUNC);

	btf__free(btf);
	return id > 0;
}

#define LOADS(name, nr)							\
	do {								\
		if (!our_turn(nr))					\
			KTAP_SKIP("another test kernel loads it");	\
		if (!load_all(#name))					\
			KTAP_SKIP("no compiler of COMPILERS is installed"); \
	} while (0)
#define NEED(function, without)						\
	do {								\
		if (!kernel_has(function))				\
			KTAP_SKIP(without);				\
	} while (0)
#define NEED_CAST() NEED("bpf_rdonly_cast", "before Linux 6.2: no loads")

KTAP_TEST(t_translate_loads)
{
	LOADS(translate, 0);
}

KTAP_TEST(t_translate_xdp_loads)
{
	LOADS(translate_xdp, 1);
}

KTAP_TEST(t_sock_loads)
{
	LOADS(sock, 2);
}

KTAP_TEST(t_selftest_loads)
{
	LOADS(selftest, 0);
}

KTAP_TEST(t_translate_direct_loads)
{
	NEED_CAST();
	LOADS(translate_direct, 1);
}

KTAP_TEST(t_sock_direct_loads)
{
	NEED_CAST();
	LOADS(sock_direct, 0);
}

KTAP_TEST(t_selftest_direct_loads)
{
	NEED_CAST();
	LOADS(selftest_direct, 0);
}

KTAP_TEST(t_wire_loads)
{
	NEED("bpf_sk_assign_tcp_reqsk", "before Linux 6.9: no late sockets");
	LOADS(wire, 2);
}

KTAP_TEST(t_wire_xdp_loads)
{
	NEED("bpf_sk_assign_tcp_reqsk", "before Linux 6.9: no late sockets");
	LOADS(wire_xdp, 1);
}

KTAP_MAIN()
