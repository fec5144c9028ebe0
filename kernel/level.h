/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The running kernel's version against the fix levels that a line of
 * requirements lists. For the daemon and for `toboggan probe`, which must report
 * a kernel alike.
 */
#ifndef TBG_KERNEL_LEVEL_H
#define TBG_KERNEL_LEVEL_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

struct tbg_version {
	unsigned int major, minor, patch;
	bool candidate;		/* -rc: before that patch */
	char text[32];		/* as it was written, to there */
};

enum tbg_level {
	TBG_LEVEL_FIXED,	/* at its series' level, or newer than all series */
	TBG_LEVEL_OPEN,		/* below it */
	TBG_LEVEL_UNLISTED,	/* a series whose level nobody has written down */
	TBG_LEVEL_UNKNOWN,	/* uname or the list has no version */
};

/* Candidates: 7.2.0-rc3, Debian's 7.2~rc3, Fedora's 7.2.0-0.rc3. */
static inline bool tbg_version_parse(const char *text, struct tbg_version *ret)
{
	const char *end = text + strspn(text, "0123456789.");
	const char *mark = end + strspn(end, "-~0.");
	struct tbg_version v = { .candidate = !strncmp(mark, "rc", 2) };

	if (sscanf(text, "%u.%u.%u", &v.major, &v.minor, &v.patch) < 2)
		return false;
	if (v.candidate)
		end = mark + 2 + strspn(mark + 2, "0123456789");
	snprintf(v.text, sizeof(v.text), "%.*s", (int)(end - text), text);
	*ret = v;
	return true;
}

/* Debian has the upstream version in uname -v alone. */
static inline bool tbg_version_running(struct tbg_version *ret)
{
	struct utsname u;
	const char *debian;

	if (uname(&u))
		return false;
	debian = strstr(u.version, "Debian ");
	return (debian && tbg_version_parse(debian + 7, ret)) ||
	       tbg_version_parse(u.release, ret);
}

/* list: X.Y.Z of each series, comma between. */
static inline enum tbg_level tbg_level_of(const char *list,
					  const struct tbg_version *v)
{
	struct tbg_version level;
	bool newer = true;

	for (const char *p = list; p; p = strchr(p, ',')) {
		p += *p == ',';
		if (!tbg_version_parse(p, &level))
			return TBG_LEVEL_UNKNOWN;
		if (v->major == level.major && v->minor == level.minor)
			return v->patch >= level.patch + v->candidate ?
			       TBG_LEVEL_FIXED : TBG_LEVEL_OPEN;
		newer &= v->major > level.major ||
			 (v->major == level.major && v->minor > level.minor);
	}
	return newer ? TBG_LEVEL_FIXED : TBG_LEVEL_UNLISTED;
}

static inline enum tbg_level tbg_level_running(const char *list,
					       struct tbg_version *ret)
{
	return tbg_version_running(ret) ? tbg_level_of(list, ret) :
					  TBG_LEVEL_UNKNOWN;
}

#endif
