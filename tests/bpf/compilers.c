// SPDX-License-Identifier: GPL-2.0
/*
 * The verifier accepts the BPF programs of each of Debian's compilers, not only those
 * of the default one, and needs a limited number of steps for each. COMPILERS
 * (tests/compilers) names the objects that were built.
 */
#include "ktap.h"

#include <bpf/bpf.h>
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

static bool btf_has(const struct btf *btf, const char *function)
{
	return btf && btf__find_by_name_kind(btf, function, BTF_KIND_FUNC) > 0;
}

/* Returns whether the kernel or its conntrack has the function, for a BPF program to call. */
static bool kernel_has(const char *function)
{
	struct btf *kernel = btf__load_vmlinux_btf();
	struct btf *conntrack = btf__load_module_btf("nf_conntrack", kernel);
	bool ret = btf_has(kernel, function) || btf_has(conntrack, function);

	btf__free(conntrack);
	btf__free(kernel);
	return ret;
}

/* Sets a constant of the object, as the daemon does; false: it has none of this name. */
static bool constant_set(const struct bpf_object *bpf, const char *name, __u32 value)
{
	const struct btf *btf = bpf_object__btf(bpf);
	int id = btf__find_by_name_kind(btf, ".rodata", BTF_KIND_DATASEC), i;
	struct bpf_map *map = bpf_object__find_map_by_name(bpf, ".rodata");
	const struct btf_type *constants;
	static char data[1 << 16];
	const void *was;
	size_t size;

	if (id < 0 || !map)
		return false;
	was = bpf_map__initial_value(map, &size);
	if (!was || size > sizeof(data))
		return false;
	memcpy(data, was, size);
	constants = btf__type_by_id(btf, id);
	for (i = 0; i < btf_vlen(constants); i++) {
		const struct btf_var_secinfo *at = btf_var_secinfos(constants) + i;
		const struct btf_type *t = btf__type_by_id(btf, at->type);

		if (strcmp(btf__name_by_offset(btf, t->name_off), name))
			continue;
		memcpy(data + at->offset, &value, sizeof(value));
		return !bpf_map__set_initial_value(map, data, size);
	}
	return false;
}

/* Instructions that the verifier may walk in a program; 200,000 take it a second here. */
#define WALK_MAX 250000

static void walked(const struct object *o, const struct bpf_program *prog)
{
	struct bpf_prog_info info = {};
	__u32 len = sizeof(info);

	KTAP_EQ(bpf_obj_get_info_by_fd(bpf_program__fd(prog), &info, &len), 0);
	if (info.verified_insns > WALK_MAX / 4)
		ktap_note("%s: %u instructions verified", bpf_program__name(prog),
			  info.verified_insns);
	if (info.verified_insns > WALK_MAX)
		ktap_fail("%s, %s: the verifier walks more than %d instructions", o->by,
			  bpf_program__name(prog), WALK_MAX);
}

static void load(const struct object *o)
{
	LIBBPF_OPTS(bpf_object_open_opts, opts, .object_name = o->name);
	struct bpf_object *bpf = bpf_object__open_mem(o->begin, o->end - o->begin, &opts);
	struct bpf_program *prog;
	bool conntrack;

	*message = 0;
	if (!bpf) {
		ktap_fail("%s, %s: %s", o->by, o->name, message);
		return;
	}
	/* while the constant is 0, the verifier skips the code about conntrack */
	conntrack = kernel_has("bpf_skb_ct_lookup") && constant_set(bpf, "tbg_conntrack", 1);
	if (bpf_object__load(bpf))
		ktap_fail("%s, %s: %s", o->by, o->name, message);
	else
		ktap_note("%s%s", o->by, conntrack ? ", with conntrack" : "");
	bpf_object__for_each_program(prog, bpf)
		if (bpf_program__fd(prog) >= 0)
			walked(o, prog);
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
			load(o);
			loaded++;
		}
	return loaded;
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
