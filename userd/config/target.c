// SPDX-License-Identifier: GPL-2.0
/*
 * Shared by the functions that parse values: growing lists, and checks of
 * names, paths and fields. Called by the other files of this folder; prints
 * nothing.
 */
#include "config/target.h"

#include <string.h>

#define NAME_BYTES	"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._"

void *tbg_list_grow(struct tbg_target *t, const void *list, unsigned int nr, size_t size)
{
	void *ret = tbg_sites_alloc(t->sites, (nr + 1) * size);

	return ret && nr ? memcpy(ret, list, nr * size) : ret;
}

bool tbg_text_list_add(struct tbg_target *t, const char ***list,
		       unsigned int *nr, const char *v)
{
	const char **more = tbg_list_grow(t, *list, *nr, sizeof(*more));

	if (!more)
		return false;
	more[*nr] = tbg_sites_text(t->sites, v);
	*list = more;
	return more[(*nr)++];
}

bool tbg_name_valid(const char *v)
{
	return *v && strlen(v) < 64 &&
	       strspn(v, NAME_BYTES) == strlen(v);
}

bool tbg_host_valid(const char *v)
{
	char name[TBG_PATH_MAX];
	size_t len;

	if (*v == '*' && *++v != '.')
		return false;
	len = strlen(v);
	if (*v == '[')
		return len > 2 && v[len - 1] == ']' &&
		       strspn(v + 1, "0123456789abcdefABCDEF:.") == len - 2;
	return tbg_host_name(v, len, name) &&
	       strspn(v, NAME_BYTES) == len;
}

bool tbg_file_name(const char *v)
{
	return *v && !strchr(v, '/') && strcmp(v, ".") && strcmp(v, "..");
}

bool tbg_path_plain(const char *path)
{
	return !strstr(path, "//") && !strstr(path, "/./") && !strstr(path, "/../");
}

bool tbg_field_value(const char *v)
{
	size_t len = strlen(v);

	if (!len || *v == ' ' || v[len - 1] == ' ')
		return false;
	for (; *v; v++)
		if (*v < ' ' || *v > '~')
			return false;
	return true;
}
