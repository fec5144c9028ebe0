// SPDX-License-Identifier: GPL-2.0
/*
 * Pools of the gateway for CGI programs or a module: their limits, and the
 * upstream that stands for each in the rest of the daemon. Called while a
 * location is made; starts nothing, which is done by gateway/supervise.c.
 */
#include "config/build.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/units.h"

#define GRACE_MS	5000	/* for the pool to report that a program's time is over */

/* An absolute path of an existing file, with links resolved. */
static bool real_path(struct tbg_target *t, const char *v, mode_t type,
		      char ret[TBG_POOL_COMMAND_PATH])
{
	char *path = *v == '/' ? realpath(v, NULL) : NULL;
	struct stat st;
	bool ok = path && !stat(path, &st);

	if (*v == '/' && !ok)
		t->why = strerror(errno);
	ok = ok && (st.st_mode & S_IFMT) == type && strlen(path) < TBG_POOL_COMMAND_PATH;
	if (ok)
		strcpy(ret, path);
	free(path);
	return ok;
}

/*
 * Checks it by its ELF header, without running it. A file that we may not read is
 * accepted: the user that loads it may.
 */
static bool is_shared_object(struct tbg_target *t, const char *path)
{
	Elf64_Ehdr head = { 0 };
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	bool ret = fd < 0 || (read(fd, &head, sizeof(head)) == sizeof(head) &&
			      !memcmp(head.e_ident, ELFMAG, SELFMAG) && head.e_type == ET_DYN);

	if (!ret)
		t->why = "no shared object";
	if (fd >= 0)
		close(fd);
	return ret;
}

bool tbg_cgi_set(struct tbg_target *t, const char *v)
{
	t->location->handler = TBG_HANDLER_UPSTREAM;
	return real_path(t, v, S_IFDIR, t->cgi->path);
}

bool tbg_cgi_cpu_set(struct tbg_target *t, const char *v)
{
	unsigned int ms = 0;

	if (strcmp(v, "0") && !tbg_value_ms(v, &ms))
		return false;
	t->cgi->cpu_s = (ms + 999) / 1000;
	return true;
}

bool tbg_cgi_user_set(struct tbg_target *t, const char *v)
{
	const struct passwd *pw = getpwnam(v);

	if (!pw || !pw->pw_uid)
		return false;
	t->cgi->uid = pw->pw_uid;
	t->cgi->gid = pw->pw_gid;
	return true;
}

bool tbg_cgi_chroot_set(struct tbg_target *t, const char *v)
{
	return real_path(t, v, S_IFDIR, t->cgi->chroot);
}

/* The shared object, then its arguments. */
bool tbg_module_set(struct tbg_target *t, const char *v)
{
	struct tbg_pool_command *o = t->module;
	size_t size = strlen(v) + 1;

	t->location->handler = TBG_HANDLER_UPSTREAM;
	if (t->begins) {	/* tbg_pool_make() checks the file */
		o->args_len = 0;
		snprintf(o->path, sizeof(o->path), "%s", v);
		return size <= sizeof(o->path);
	}
	if (size > sizeof(o->args) - o->args_len)
		return false;
	memcpy(o->args + o->args_len, v, size);
	o->args_len += size;
	return true;
}

int tbg_pools_default(struct tbg_target *t)
{
	*t->cgi = *t->module = (struct tbg_pool_command){ .uid = -1, .gid = -1 };
	return tbg_settings_default(t, TBG_OBJECT_CGI) ?:
	       tbg_settings_default(t, TBG_OBJECT_MODULE);
}

/* All settings of a pool as text: pools with the same text are one. */
static char *pool_name(const struct tbg_pool_command *o)
{
	struct stat st;
	char *name = NULL;
	size_t len;
	FILE *f = open_memstream(&name, &len);

	if (!f)
		return NULL;
	fprintf(f, "%s %s below %s: time %u cpu %u memory %llu output %llu at once %u processes %u requests %u user %d.%d chroot %s",
		o->kind == TBG_POOL_CGI ? "cgi" : "module", o->path, o->prefix,
		o->time_ms, o->cpu_s, (unsigned long long)o->memory,
		(unsigned long long)o->output, o->at_once, o->processes,
		o->requests, o->uid, o->gid, o->chroot);
	for (unsigned int i = 0; i < o->args_len; i += strlen(o->args + i) + 1)
		fprintf(f, " \"%s\"", o->args + i);
	/*
	 * a replaced file makes a new pool, so that all workers and answers are of one
	 * version
	 */
	if (o->kind == TBG_POOL_MODULE && !stat(o->path, &st))
		fprintf(f, " file %llu of %lld.%09ld", (unsigned long long)st.st_ino,
			(long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
	fclose(f);
	return name;
}

static int pool_new(struct tbg_build *m, struct tbg_target *t, const struct tbg_pool_command *o,
		    const char *name)
{
	struct tbg_upstream_settings settings;
	struct tbg_upstream *u;
	struct tbg_backend b;
	int err;

	t->upstream = &settings;
	err = tbg_upstream_settings_make(m, t);
	err = err ?: tbg_backend_own(&b, o->path);
	if (err)
		return err;
	settings.protocol = TBG_PROTOCOL_FASTCGI;
	settings.health_path = NULL;
	if (o->kind == TBG_POOL_CGI && settings.first_byte_ms < o->time_ms + GRACE_MS)
		settings.first_byte_ms = o->time_ms + GRACE_MS;
	u = tbg_upstream_new(name, name, &settings);
	if (u)
		u->command = malloc(sizeof(*o));
	if (!u || !u->command || !tbg_upstream_add(u, &b)) {
		tbg_upstream_put(u);
		return -ENOMEM;
	}
	*u->command = *o;
	return tbg_upstream_keep(m, u);
}

int tbg_pool_make(struct tbg_build *m, struct tbg_target *t, enum tbg_pool_kind kind,
		  unsigned int line)
{
	struct tbg_pool_command *o = kind == TBG_POOL_CGI ? t->cgi : t->module;
	struct tbg_location *l = t->location;
	size_t len = strlen(o->chroot);
	char *name, path[TBG_POOL_COMMAND_PATH];
	int err = 0;

	t->why = "";
	if (len && (strncmp(o->path, o->chroot, len) ||
		    (o->path[len] && o->path[len] != '/' && len > 1)))
		return tbg_build_wrong(m, line, "cgi \"%.100s\": not below %.100s; expected a folder in cgi-chroot",
					o->path, o->chroot);
	if (kind == TBG_POOL_MODULE &&
	    (!real_path(t, o->path, S_IFREG, path) || !is_shared_object(t, path)))
		return tbg_build_wrong(m, line, "module \"%.100s\": %s%sexpected the absolute path of a shared object",
					o->path, t->why, *t->why ? "; " : "");
	if (kind == TBG_POOL_MODULE)
		strcpy(o->path, path);
	if (strlen(l->match) >= sizeof(o->prefix))
		return tbg_build_wrong(m, line, "%.100s: too long", l->title);
	o->kind = kind;
	strcpy(o->prefix, l->kind == TBG_MATCH_PREFIX ? l->match : "/");
	name = pool_name(o);
	if (!name)
		return -ENOMEM;
	if (!tbg_sites_upstream_find(m->sites, name))
		err = pool_new(m, t, o, name);
	l->handler = TBG_HANDLER_UPSTREAM;
	l->upstream = tbg_sites_upstream_find(m->sites, name);
	free(name);
	return err;
}
