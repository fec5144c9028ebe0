// SPDX-License-Identifier: GPL-2.0
/* The text that `toboggan top` shows for a round. Called by top.c; does not ask the daemon. */
#include "top_page.h"

#include <langinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run_time.h"
#include "show.h"

#define TEXT_ROWS	10	/* of each list, where there is no screen */
#define TEXT_HISTORY	48
#define COST_ROOM	160

struct page {
	FILE *f;
	unsigned int columns;
};

/* "-", "0.3", "1234"; in number_room(). */
static const char *rate_text(const json_t *o, const char *key)
{
	char *ret = number_room();
	double v = value_of(o, key);

	if (v < 0)
		return "-";
	snprintf(ret, NUMBER_ROOM, v < 10 && v > 0 ? "%.1f" : "%.0f", v);
	return ret;
}

static const char *percent_text(const json_t *o, const char *key)
{
	char *ret = number_room();
	double v = value_of(o, key);

	if (v < 0)
		return "-";
	snprintf(ret, NUMBER_ROOM, "%.1f %%", 100 * v);
	return ret;
}

static const char *bytes_rate_text(const json_t *o)
{
	double v = value_of(o, "bytes_per_s");

	return v < 0 ? "-" : bytes_text(v);
}

static void page_head(const struct page *p, const json_t *m)
{
	json_t *s = json_object_get(m, "status"), *listener, *memory;
	long long up_min = value_of(s, "uptime_s") / 60;
	size_t i;

	memory = json_object_get(s, "memory");
	fprintf(p->f, "%ctoboggan %s, pid %lld, up %lld h %02lld min%s:", HEADING,
		text_of(s, "version"), number_of(s, "pid"), up_min / 60, up_min % 60,
		true_of(s, "draining") ? ", draining" : "");
	json_array_foreach(json_object_get(s, "listeners"), i, listener)
		fprintf(p->f, " %s", json_string_value(listener));
	fprintf(p->f, "\n%cconnections %lld, flows %lld, objects %lld (%lld in the kernel), memory %s of %s\n",
		PLAIN, number_of(s, "connections"), number_of(s, "flows"),
		number_of(s, "objects"), number_of(s, "objects_in_kernel"),
		bytes_text(number_of(memory, "used")),
		bytes_text(number_of(memory, "budget")));
}

static void page_tier(const struct page *p, const char *name, const json_t *tier)
{
	fprintf(p->f, "%c%-6s %12s %12s %9s", PLAIN, name,
		rate_text(tier, "requests_per_s"), bytes_rate_text(tier),
		percent_text(tier, "share"));
	if (!true_of(tier, "on")) {
		fputs("  off: ", p->f);
		text_put(p->f, text_of(tier, "why"), 0);
	}
	putc('\n', p->f);
}

static void page_tiers(const struct page *p, const json_t *m)
{
	json_t *cpu = json_object_get(m, "cpu"), *tier;
	const char *name;

	fprintf(p->f, "%c\n%c%-6s %12s %12s %9s\n", PLAIN, HEADING, "tier",
		"requests/s", "bytes/s", "share");
	json_object_foreach(json_object_get(m, "tiers"), name, tier)
		page_tier(p, name, tier);
	fprintf(p->f, "%c%-6s %12s %12s\n", PLAIN, "all",
		rate_text(m, "requests_per_s"), bytes_rate_text(m));
	fprintf(p->f, "%chit ratio %s now, %s since the start; CPU of the daemon %s, idle in all %s\n",
		PLAIN, percent_text(m, "hit_ratio"), percent_text(m, "hit_ratio_ever"),
		percent_text(cpu, "daemon"), percent_text(cpu, "idle"));
}

/* Whether there is anything to show. */
static bool cost_text(const json_t *m, char ret[COST_ROOM])
{
	const json_t *o = json_object_get(m, "wire_cost");
	struct tbg_wire_cost c = { value_of(o, "hit_ns"), value_of(o, "pass_ns"),
				   value_of(o, "user_ns"), value_of(o, "pays_from") };

	return tbg_wire_cost_text(&c, ret, COST_ROOM);
}

static void page_cost(const struct page *p, const json_t *m)
{
	char text[COST_ROOM];

	if (cost_text(m, text))
		fprintf(p->f, "%c%s\n", PLAIN, text);
}

static const char *bar_text(int level)	/* 0 to 8 */
{
	static const char *const blocks[] = { " ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
	static const char *const ascii[] = { " ", "_", ".", ":", "-", "=", "+", "*", "#" };

	return (strcmp(nl_langinfo(CODESET), "UTF-8") ? ascii : blocks)[level];
}

static void page_history(const struct page *p, const json_t *m)
{
	json_t *all = json_object_get(m, "requests_per_s_history");
	size_t nr = json_array_size(all), room = TEXT_HISTORY;
	double most = 0;

	if (p->columns)
		room = p->columns > 50 ? p->columns - 34 : 16;
	room = room < nr ? room : nr;
	for (size_t i = nr - room; i < nr; i++) {
		double v = json_number_value(json_array_get(all, i));

		most = v > most ? v : most;
	}
	fprintf(p->f, "%crequests/s |", PLAIN);
	for (size_t i = nr - room; i < nr; i++) {
		double v = json_number_value(json_array_get(all, i));

		/* values above zero are visible */
		fputs(bar_text(v > 0 ? 1 + (int)(7 * (v / most)) : 0), p->f);	/* of 8 */
	}
	fprintf(p->f, "| most %.0f\n", most);
}

static void page_objects(const struct page *p, const json_t *m, unsigned int rows)
{
	json_t *list = json_object_get(m, "objects"), *o;
	size_t i;

	fprintf(p->f, "%c\n%c%10s %12s %10s %-5s %s\n", PLAIN, HEADING, "hits/s",
		"hits", "size", "tier", "top objects");
	json_array_foreach(list, i, o) {
		if (i == rows)
			break;
		fprintf(p->f, "%c%10s %12lld %10s %-5s ", PLAIN,
			rate_text(o, "hits_per_s"), number_of(o, "hits"),
			bytes_text(number_of(o, "size")), text_of(o, "tier"));
		text_put(p->f, text_of(o, "site"), 0);
		text_put(p->f, text_of(o, "path"), 0);
		encoding_put(p->f, o);
		putc('\n', p->f);
	}
}

static void page_passes(const struct page *p, const json_t *m, unsigned int rows)
{
	json_t *list = json_object_get(m, "passes"), *why;
	size_t i;

	fprintf(p->f, "%c\n%c%10s %12s %s\n", PLAIN, HEADING, "/s", "times",
		"passed up because");
	json_array_foreach(list, i, why) {
		if (i == rows)
			break;
		fprintf(p->f, "%c%10s %12lld %-13s ", PLAIN, rate_text(why, "per_s"),
			number_of(why, "count"), text_of(why, "name"));
		text_put(p->f, text_of(why, "text"), 0);
		putc('\n', p->f);
	}
}

/* Lines of a page besides the rows of its lists: see page_text(). */
static unsigned int lines_fixed(const json_t *m)
{
	char text[COST_ROOM];

	return 11 + json_object_size(json_object_get(m, "tiers")) + cost_text(m, text);
}

char *tbg_top_page(const json_t *model, unsigned int columns, unsigned int rows)
{
	unsigned int objects = TEXT_ROWS, passes = TEXT_ROWS, fixed = lines_fixed(model);
	struct page p = { .columns = columns };
	char *ret = NULL;
	size_t len;

	p.f = open_memstream(&ret, &len);
	if (!p.f)
		return NULL;
	if (rows) {	/* rows that the reasons do not need are for objects */
		unsigned int left = rows > fixed ? rows - fixed : 0;
		unsigned int whys = json_array_size(json_object_get(model, "passes"));

		passes = whys < left / 2 ? whys : left / 2;
		objects = left - passes;
	}
	page_head(&p, model);
	page_tiers(&p, model);
	page_cost(&p, model);
	page_history(&p, model);
	page_objects(&p, model, objects);
	page_passes(&p, model, passes);
	fclose(p.f);
	return ret;
}
