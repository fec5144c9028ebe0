// SPDX-License-Identifier: GPL-2.0
/*
 * The command `deny`: denies {"addresses": [...]}, optionally {"for": TIME}, or with
 * {"remove": true} removes them from the list; if one address is invalid, changes
 * nothing. Without addresses, shows the list. Called by the control thread.
 */
#include "control/deny.h"

#include <errno.h>
#include <string.h>

#include "abi/ban.h"
#include "control/commands.h"
#include "os/clock.h"
#include "os/units.h"
#include "tiers/bans.h"

#define SHOWN_MAX	1000		/* per list in one answer */
#define SECOND_NS	1000000000ull

/* The state of a listing. */
struct list {
	json_t *array;
	uint64_t now_ns;
};

static void list_add(void *arg, const struct tbg_ban_shown *one)
{
	struct list *l = arg;
	json_t *left = json_null();

	if (json_array_size(l->array) == SHOWN_MAX)
		return;
	if (one->until_ns)
		left = json_integer(one->until_ns > l->now_ns ?
				    (one->until_ns - l->now_ns + SECOND_NS - 1) / SECOND_NS : 0);
	json_array_append_new(l->array, json_pack("{s:s, s:b, s:b, s:o}", "address", one->text,
						  "deny", one->deny, "configured", one->filed,
						  "left_s", left));
}

static json_t *list_answer(struct tbg_bans *b)
{
	struct list l = { json_array(), tbg_mono_ns() };
	unsigned int nr = tbg_bans_each(b, list_add, &l);

	return json_pack("{s:b, s:i, s:o}", "ok", 1, "entries", (int)nr, "clients", l.array);
}

static const char *error_text(int err)
{
	switch (err) {
	case -ENOENT:
		return "not denied";
	case -EPERM:
		return "it is set in the configuration; change it there and reload";
	case -ENOSPC:
		return "there are as many as can be";
	default:
		return strerror(-err);
	}
}

/* Checks all addresses before the first change. Returns NULL or an error. */
static json_t *look(const json_t *addresses)
{
	struct tbg_prefix p;
	const json_t *one;
	size_t i;

	json_array_foreach(addresses, i, one) {
		const char *text = json_string_value(one);

		if (!text || !tbg_value_clients(text, &p))
			return tbg_command_error("%.100s: expected an address or a prefix such as 192.0.2.1, 10.0.0.0/8 or 2001:db8::/32, with no bit set after the prefix",
						 text ?: "");
		if (tbg_prefix_is_around_v4(&p))
			return tbg_command_error("%.100s: it contains ::ffff:0:0/96, which are the IPv4 addresses: give all, or a longer prefix such as 2000::/3",
						 text);
	}
	return NULL;
}

json_t *tbg_deny_answer(struct tbg_bans *b, const json_t *req)
{
	const json_t *addresses = json_object_get(req, "addresses"), *one;
	const char *time = json_string_value(json_object_get(req, "for"));
	bool remove = json_is_true(json_object_get(req, "remove"));
	uint64_t seconds = 0, until_ns;
	struct tbg_prefix p;
	json_t *wrong;
	int nr = 0, err;
	size_t i;

	if (!addresses)
		return list_answer(b);
	if (time && (!tbg_value_seconds(time, &seconds) || !seconds))
		return tbg_command_error("%.100s: expected a time such as 90s, 10m, 12h or 30d", time);
	wrong = look(addresses);
	if (wrong)
		return wrong;
	until_ns = seconds ? tbg_mono_ns() + seconds * SECOND_NS : 0;
	json_array_foreach(addresses, i, one) {
		const char *text = json_string_value(one);

		tbg_value_clients(text, &p);
		err = remove ? tbg_bans_remove(b, &p) : tbg_bans_add(b, &p, until_ns);
		if (err)
			return tbg_command_error("%.100s: %s", text, error_text(err));
		nr++;
	}
	return json_pack("{s:b, s:i}", "ok", 1, remove ? "removed" : "denied", nr);
}
