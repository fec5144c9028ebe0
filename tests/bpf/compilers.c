// SPDX-License-Identifier: GPL-2.0
/*
 * The verifier takes what each of Debian's compilers makes of the BPF programs, not
 * only what the default one does. The objects are built by COMPILERS (tests/compilers).
 */
#include "ktap.h"

#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <stdarg.h>

/* What was built: asm puts each object's file into this program. */
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

static char said[512];			/* the last of what libbpf said */

static int keep(enum libbpf_print_level level, const char *format, va_list args)
{
	/* the verifier's log is in one message, its reason on the last lines */
	static char text[1 << 20];
	size_t len;

	if (level != LIBBPF_WARN)
		return 0;
	len = vsnprintf(text, sizeof(text), format, args);
	if (len >= sizeof(text))
		len = sizeof(text) - 1;
	if (len >= sizeof(said))
		memcpy(said, text + len - (sizeof(said) - 1), sizeof(said));
	else if (!strstr(said, "processed"))
		memcpy(said, text, len + 1);
	return 0;
}

static void load(const struct object *o)
{
	LIBBPF_OPTS(bpf_object_open_opts, opts, .object_name = o->name);
	struct bpf_object *bpf = bpf_object__open_mem(o->begin, o->end - o->begin, &opts);

	*said = 0;
	if (!bpf || bpf_object__load(bpf))
		ktap_fail("%s, %s: %s", o->by, o->name, said);
	bpf_object__close(bpf);
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

#define COMPILERS_TEST(name)						\
	KTAP_TEST(t_##name##_loads)					\
	{								\
		if (!load_all(#name))					\
			KTAP_SKIP("no compiler of COMPILERS is installed"); \
	}

COMPILERS_TEST(translate)
COMPILERS_TEST(xdp)
COMPILERS_TEST(sock)
COMPILERS_TEST(selftest)

#define DIRECT_TEST(name)							\
	KTAP_TEST(t_##name##_direct_loads)				\
	{								\
		if (!kernel_has("bpf_rdonly_cast"))			\
			KTAP_SKIP("before Linux 6.2: no loads");	\
		if (!load_all(#name "_direct"))				\
			KTAP_SKIP("no compiler of COMPILERS is installed"); \
	}

DIRECT_TEST(translate)
DIRECT_TEST(sock)
DIRECT_TEST(selftest)

KTAP_TEST(t_wire_loads)
{
	if (!kernel_has("bpf_sk_assign_tcp_reqsk"))
		KTAP_SKIP("before Linux 6.9: no late sockets");
	if (!load_all("wire"))
		KTAP_SKIP("no compiler of COMPILERS is installed");
}

KTAP_MAIN()
