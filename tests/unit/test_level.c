// SPDX-License-Identifier: GPL-2.0
/*
 * Compares kernel versions with fix levels (kernel/level.h), in the formats of uname
 * and Debian.
 */
#include "../../kernel/level.h"
#include "ktap.h"

static const char levels[] = "6.1.187,6.12.105,7.2.0";

static const struct {
	const char *version;
	enum tbg_level want;
	const char *text;	/* used in messages; NULL: all of it */
} table[] = {
	{ "6.1.186", TBG_LEVEL_OPEN, NULL },
	{ "6.1.187", TBG_LEVEL_FIXED, NULL },
	{ "6.1.187-rc1", TBG_LEVEL_OPEN, NULL },
	{ "6.1.188-rc1", TBG_LEVEL_FIXED, NULL },
	{ "6.12.105+deb13-amd64", TBG_LEVEL_FIXED, "6.12.105" },
	{ "6.12.95-1~bpo12+1", TBG_LEVEL_OPEN, "6.12.95" },
	{ "6.18.44", TBG_LEVEL_UNLISTED, NULL },
	{ "5.10.0", TBG_LEVEL_UNLISTED, NULL },
	{ "7.1.0-rc7", TBG_LEVEL_UNLISTED, NULL },
	{ "7.2.0-rc3", TBG_LEVEL_OPEN, NULL },
	{ "7.2~rc3-1~exp1", TBG_LEVEL_OPEN, "7.2~rc3" },
	{ "7.2.0-0.rc3.20260701git.fc45.x86_64", TBG_LEVEL_OPEN, "7.2.0-0.rc3" },
	{ "6.1.0-0.deb11.13-amd64", TBG_LEVEL_OPEN, "6.1.0" },
	{ "7.2.0", TBG_LEVEL_FIXED, NULL },
	{ "7.2-1", TBG_LEVEL_FIXED, "7.2" },
	{ "7.3.0-rc1", TBG_LEVEL_FIXED, NULL },
};

KTAP_TEST(t_level_of_a_version)
{
	struct tbg_version v;

	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		const char *text = table[i].text ? table[i].text :
				   table[i].version;

		KTAP_CHECK(tbg_version_parse(table[i].version, &v));
		if (strcmp(v.text, text))
			ktap_fail("%s: `%s`, wanted `%s`", table[i].version,
				  v.text, text);
		if (tbg_level_of(levels, &v) != table[i].want)
			ktap_fail("%s: %d, wanted %d", table[i].version,
				  tbg_level_of(levels, &v), table[i].want);
	}
	KTAP_CHECK(!tbg_version_parse("linux", &v));
	KTAP_EQ(tbg_level_of("none", &v), TBG_LEVEL_UNKNOWN);
}

KTAP_MAIN()
