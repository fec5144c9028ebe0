// SPDX-License-Identifier: GPL-2.0
/*
 * userd/config/table.c: every row behaves as it declares, and typing errors get a
 * suggestion.
 */
#include <ctype.h>
#include <stdlib.h>

#include "ktap.h"
#include "config/near.h"
#include "config/table.h"
#include "config/target.h"
#include "control/control.h"
#include "os/root.h"
#include "http/content_coding.h"
#include "log/access.h"

/* Called for paths before a start: not tested here. */
int tbg_socket_file_check(const char *path)
{
	return 0;
}

int tbg_log_check(const char *path)
{
	return 0;
}

static struct tbg_options options;
static struct tbg_location location;
static struct tbg_upstream_settings settings;
static struct tbg_header_rules rules;
static struct tbg_pool_command cgi, module;

static struct tbg_target target(void)
{
	static struct tbg_roots *roots;
	struct tbg_target t = {
		.options = &options, .location = &location, .upstream = &settings,
		.header_rules = &rules, .cgi = &cgi, .module = &module, .begins = true, .why = "",
	};

	if (!roots && tbg_roots_open(&roots))
		ktap_fail("no roots");
	t.sites = tbg_sites_new(roots);
	return t;
}

static bool takes(const struct tbg_setting_row *row, const char *v)
{
	struct tbg_target t = target();
	bool ret = tbg_setting_put(row, &t, v);

	tbg_sites_close(t.sites, NULL, NULL);
	return ret;
}

KTAP_TEST(t_each_name_is_there_once)
{
	const struct tbg_setting_row *row;

	for (unsigned int i = 0; (row = tbg_setting_row(i)); i++) {
		KTAP_EQ(tbg_setting_find(row->name, strlen(row->name)), i);
		KTAP_CHECK(row->scopes && row->about && *row->about && *row->arg);
		KTAP_CHECK(*tbg_setting_accepts(row));
	}
	KTAP_EQ(tbg_setting_find("memor", 5), -1);
	KTAP_EQ(tbg_setting_find("memory-", 7), -1);
}

KTAP_TEST(t_settings_of_the_daemon_stand_at_the_top)
{
	const struct tbg_setting_row *row;

	for (unsigned int i = 0; (row = tbg_setting_row(i)); i++) {
		bool daemon = (row->flags & TBG_SETTING_DAEMON) == TBG_SETTING_DAEMON;

		KTAP_EQ(daemon, row->object == TBG_OBJECT_OPTIONS);
		/* hosts may have their own log and lists of clients */
		KTAP_CHECK(!daemon || (row->scopes & ~(TBG_SCOPE_HOST | TBG_SCOPE_LOCATION)) ==
			   TBG_SCOPE_TOP);
		KTAP_CHECK(daemon || !(row->flags & TBG_SETTING_LATER));
	}
}

KTAP_TEST(t_defaults_are_taken_as_any_value)
{
	struct tbg_target t = target();

	for (int object = TBG_OBJECT_OPTIONS; object <= TBG_OBJECT_SITE; object++)
		KTAP_EQ(tbg_settings_default(&t, object), 0);
	KTAP_EQ(options.idle_ms, 75000);
	KTAP_EQ(options.header_max, 16384);
	KTAP_EQ(options.give_back, 3);
	KTAP_EQ(options.body_total, 1ull << 30);
	KTAP_CHECK(options.tier_wire && !options.tier_sock && !options.translate &&
		   !options.sock_unlisted && !options.access_log);
	KTAP_EQ(settings.connect_ms, 5000);
	KTAP_EQ(settings.first_byte_ms, 60000);
	KTAP_EQ(location.body_max, 1 << 20);
	KTAP_EQ(location.index_nr, 1);
	KTAP_EQ(location.compress, TBG_ENCODINGS_ALL);
	KTAP_CHECK(location.precompressed && !location.cookies_pass && !location.odd_names &&
		   !location.autoindex);
	KTAP_EQ(cgi.time_ms, 30000);
	KTAP_EQ(cgi.cpu_s, 10);
	KTAP_EQ(cgi.memory, 512ull << 20);
	KTAP_EQ(module.at_once, 2);
	KTAP_EQ(module.requests, 0);
	tbg_sites_close(t.sites, NULL, NULL);
}

/* Returns the value in the unit of its type. */
static const char *written(const struct tbg_setting_row *row, uint64_t n)
{
	static char ret[32];

	snprintf(ret, sizeof(ret), "%llu%s", (unsigned long long)n,
		 row->type == TBG_SETTING_TIME ? "ms" : "");
	return ret;
}

KTAP_TEST(t_a_range_ends_at_the_bound_of_its_row)
{
	const struct tbg_setting_row *row;
	unsigned int ranges = 0;

	for (unsigned int i = 0; (row = tbg_setting_row(i)); i++) {
		if (row->type != TBG_SETTING_NUMBER && row->type != TBG_SETTING_SIZE &&
		    row->type != TBG_SETTING_TIME)
			continue;
		ranges++;
		KTAP_CHECK(takes(row, written(row, row->max)));
		KTAP_CHECK(takes(row, written(row, row->min ?: row->type == TBG_SETTING_TIME)));
		KTAP_CHECK(row->max == UINT64_MAX || !takes(row, written(row, row->max + 1)));
		KTAP_CHECK(!row->min || !takes(row, written(row, row->min - 1)));
		KTAP_CHECK(!takes(row, "") && !takes(row, "x") && !takes(row, "-1"));
	}
	KTAP_CHECK(ranges > 20);
}

KTAP_TEST(t_words_and_switches_take_no_others)
{
	const struct tbg_setting_row *row;

	for (unsigned int i = 0; (row = tbg_setting_row(i)); i++) {
		if (row->type == TBG_SETTING_SWITCH)
			KTAP_CHECK(takes(row, "on") && takes(row, "off") && !takes(row, "2"));
		if (row->type == TBG_SETTING_WORD)
			KTAP_CHECK(takes(row, row->preset) && !takes(row, "") &&
				   !takes(row, row->note) && !takes(row, "p"));
	}
	row = tbg_setting_row(tbg_setting_find("cookies", 7));
	KTAP_CHECK(takes(row, "pass") && location.cookies_pass);
	KTAP_CHECK(takes(row, "ignore") && !location.cookies_pass);
	row = tbg_setting_row(tbg_setting_find("late-sockets", 12));
	KTAP_CHECK(takes(row, "auto") && !options.translate);
	KTAP_CHECK(takes(row, "off") && options.translate);
}

/* Copying all values for each further one took 17 s for 200,000 addresses. */
KTAP_TEST(t_the_values_of_a_long_list_are_seldom_copied)
{
	unsigned int row = tbg_setting_find("deny", 4), nr = 20000, moves = 0;
	struct tbg_options o = { 0 };
	const char *why, *at = NULL;
	char v[32];

	for (unsigned int i = 0; i < nr; i++) {
		snprintf(v, sizeof(v), "10.0.%u.%u", i / 250, i % 250);
		KTAP_CHECK(tbg_option_set(&o, row, 0, v, !i, &why));
		moves += o.given[row] != at;
		at = o.given[row];
	}
	KTAP_CHECK(moves < 32);
	KTAP_CHECK(!strncmp(at, "10.0.0.0 10.0.0.1 10.0.0.2 ", 27));
	KTAP_CHECK(!strcmp(at + strlen(at) - 24, " 10.0.79.248 10.0.79.249"));
	KTAP_CHECK(tbg_option_set(&o, row, 0, "192.0.2.1", true, &why));
	KTAP_CHECK(!strcmp(o.given[row], "192.0.2.1"));
	KTAP_CHECK(!tbg_option_set(&o, row, 0, "nobody", false, &why));
	KTAP_CHECK(!strcmp(o.given[row], "192.0.2.1"));
	free(o.given[row]);
}

/* Returns the suggestion for a word; "": none. */
static const char *meant(const char *word)
{
	struct tbg_near near = { .word = word, .len = strlen(word) };
	const struct tbg_setting_row *row;

	for (unsigned int i = 0; (row = tbg_setting_row(i)); i++)
		tbg_near_try(&near, row->name);
	return near.name ?: "";
}

KTAP_TEST(t_a_typing_error_has_a_suggestion)
{
	KTAP_CHECK(!strcmp(meant("memroy"), "memory"));
	KTAP_CHECK(!strcmp(meant("lisen"), "listen"));
	KTAP_CHECK(!strcmp(meant("roots"), "root"));
	KTAP_CHECK(!strcmp(meant("body_max"), "body-max"));
	KTAP_CHECK(!strcmp(meant("conections-max"), "connections-max"));
	KTAP_CHECK(!strcmp(meant("time-header"), ""));
	KTAP_CHECK(!strcmp(meant("speed"), ""));
	KTAP_CHECK(!strcmp(meant("x"), ""));
	KTAP_CHECK(!strcmp(meant(""), ""));
	KTAP_CHECK(!strcmp(meant("a-name-that-is-longer-than-any-setting-has"), ""));
}

KTAP_TEST(t_one_wrong_letter_of_any_setting_is_near)
{
	const struct tbg_setting_row *row;

	for (unsigned int i = 0; (row = tbg_setting_row(i)); i++) {
		size_t len = strlen(row->name);
		char word[64];

		len -= !!isdigit((unsigned char)row->name[len - 1]);	/* client-prefix4 or 6 */
		for (size_t at = 0; at < len; at++) {
			strcpy(word, row->name);
			memmove(word + at, word + at + 1, strlen(word) - at);	/* left out */
			KTAP_CHECK(!strcmp(meant(word), row->name));
			strcpy(word, row->name);
			word[at] = toupper((unsigned char)word[at]);
			KTAP_CHECK(!strcmp(meant(word), row->name));
			if (at && word[at] != word[at - 1]) {		/* swapped */
				strcpy(word, row->name);
				word[at] = row->name[at - 1];
				word[at - 1] = row->name[at];
				KTAP_CHECK(!strcmp(meant(word), row->name));
			}
		}
	}
	KTAP_CHECK(!strcmp(meant("IDLE_TIMEOUT"), "idle-timeout"));
}

/* For t_settings.py, which makes tables of the man pages from these rows, one per line. */
KTAP_TEST(t_rows_are_printed_for_the_man_pages)
{
	FILE *f = fopen(getenv("TBG_ROWS") ?: "/dev/null", "w");
	const struct tbg_setting_row *row;
	char preset[256];

	KTAP_CHECK(f);
	for (unsigned int i = 0; (row = tbg_setting_row(i)); i++) {
		KTAP_CHECK(tbg_setting_print(row, preset, sizeof(preset)) < sizeof(preset));
		fprintf(f, "%s\t%u\t%u\t%s\t%s\n", row->name, row->scopes, row->flags,
			tbg_setting_accepts(row), preset);
	}
	fclose(f);
}

KTAP_MAIN()
