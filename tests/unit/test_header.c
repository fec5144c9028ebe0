// SPDX-License-Identifier: GPL-2.0
/*
 * The lines of a head, classified by name (userd/http/header.c), and the bytes allowed
 * in values (userd/http/token.h).
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "core/request.h"
#include "http/header.h"
#include "upstream/pool_command.h"
#include "ktap.h"
#include "http/token.h"

static enum tbg_name name_of(const char *text)
{
	return tbg_name_of((struct tbg_slice){ text, strlen(text) });
}

KTAP_TEST(t_each_name_is_known_in_any_case)
{
	static const char *const names[] = {
#define X(name, text, flags) [TBG_NAME_##name] = text,
		TBG_NAME_LIST(X)
#undef X
	};

	for (unsigned int id = 1; id < TBG_NAME_NR; id++) {
		char text[64], *at;

		KTAP_EQ(name_of(strcpy(text, names[id])), id);
		for (at = text; *at; at++)
			*at = toupper(*at);
		KTAP_EQ(name_of(text), id);
		for (at = text; *at; at++)
			*at = tolower(*at);
		KTAP_EQ(name_of(text), id);
		*text ^= 0x40;
		KTAP_EQ(name_of(text), TBG_NAME_OTHER);
		*text ^= 0x40;
		strcat(text, "s");
		KTAP_EQ(name_of(text), TBG_NAME_OTHER);
	}
	KTAP_EQ(name_of(""), TBG_NAME_OTHER);
	KTAP_EQ(name_of("Warning"), TBG_NAME_OTHER);
}

/* Returns the class that bpf/core/request.h gives that name. */
static enum tbg_field wire_class(const char *text)
{
	char b[64] = { 0 };
	uint64_t w[3];

	for (size_t i = 0; text[i]; i++)
		b[i] = text[i] | 0x20;
	memcpy(w, b, sizeof(w));
	return tbg_field_class(w[0], strlen(text), w[1], w[2]);
}

KTAP_TEST(t_wire_knows_each_name_that_may_change_an_answer)
{
	static const struct {
		const char *text;
		unsigned int flags;
	} names[] = {
#define X(name, text, flags) { text, flags },
		TBG_NAME_LIST(X)
#undef X
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (names[i].flags & TBG_WIRE)
			KTAP_CHECK(wire_class(names[i].text) != TBG_FIELD_HARMLESS);
	KTAP_EQ(wire_class("Via"), TBG_FIELD_HARMLESS);
	KTAP_EQ(wire_class("User-Agent"), TBG_FIELD_HARMLESS);
}

KTAP_TEST(t_a_set_of_names_is_what_has_a_flag)
{
	KTAP_EQ(tbg_names_with(TBG_OF_ORIGIN),
		TBG_NAME_BIT(IF_MATCH) | TBG_NAME_BIT(IF_UNMODIFIED_SINCE));
	KTAP_EQ(tbg_names_with(TBG_CGI_ONCE | TBG_OF_ORIGIN) & ~tbg_names_with(TBG_OF_ORIGIN),
		TBG_NAME_BIT(STATUS) | TBG_NAME_BIT(CONTENT_TYPE) | TBG_NAME_BIT(LOCATION));
	KTAP_EQ(tbg_names_with(0), 0);
	KTAP_CHECK(!tbg_name_in(TBG_NAME_OTHER, tbg_names_with(~0u)));
}

KTAP_TEST(t_lines_are_told_apart)
{
	static const char head[] = "VIA: a, b\r\nX: y\nvia:\r\nDate : z \r\nTE: \"q, r\", s\r\n\r\nAge: 1\r\n";
	const struct tbg_field_line *one;
	struct tbg_fields f = { 0 };

	KTAP_EQ(tbg_fields_read(&f, head, strlen(head)), strstr(head, "\r\n\r\n") + 2 - head);
	KTAP_EQ(f.nr, 5);
	KTAP_EQ(f.has, TBG_NAME_BIT(OTHER) | TBG_NAME_BIT(VIA) | TBG_NAME_BIT(DATE) |
		       TBG_NAME_BIT(TE));
	one = tbg_fields_next(&f, NULL, TBG_NAME_VIA);
	KTAP_CHECK(one == f.all && tbg_slice_is(one->value, "a, b"));
	one = tbg_fields_next(&f, one, TBG_NAME_VIA);
	KTAP_CHECK(one == f.all + 2 && !one->value.len);
	KTAP_CHECK(!tbg_fields_next(&f, one, TBG_NAME_VIA));
	KTAP_CHECK(!tbg_fields_next(&f, NULL, TBG_NAME_AGE));
	one = tbg_fields_next(&f, NULL, TBG_NAME_DATE);
	KTAP_CHECK(tbg_slice_is(one->name, "date") && tbg_slice_is(one->value, "z"));
	KTAP_CHECK(tbg_fields_have(&f, TBG_NAME_VIA, TBG_SLICE("B")));
	KTAP_CHECK(!tbg_fields_have(&f, TBG_NAME_VIA, TBG_SLICE("c")));
	KTAP_CHECK(tbg_fields_have(&f, TBG_NAME_TE, TBG_SLICE("s")));
	KTAP_CHECK(!tbg_fields_have(&f, TBG_NAME_TE, TBG_SLICE("r\"")));
	/* the next head's, in the same memory */
	KTAP_EQ(tbg_fields_read(&f, "A: 1\r\nno line\r\nB: 2\r\n", 21), 6);
	KTAP_EQ(f.nr, 1);
	KTAP_EQ(f.has, TBG_NAME_BIT(OTHER));
	KTAP_EQ(tbg_fields_read(&f, "", 0), 0);
	KTAP_EQ(f.nr + f.has, 0);
	tbg_fields_free(&f);
}

KTAP_TEST(t_many_lines)
{
	struct tbg_fields f = { 0 };
	struct tbg_lines l = { 0 };

	for (int i = 0; i < 1000; i++)
		tbg_lines_text(&l, i % 2 ? "Age: 1\r\n" : "x: 1\r\n");
	KTAP_EQ(tbg_fields_read(&f, l.text, l.len), l.len);
	KTAP_EQ(f.nr, 1000);
	for (uint32_t i = 0; i < f.nr; i++)
		KTAP_EQ(f.all[i].id, i % 2 ? TBG_NAME_AGE : TBG_NAME_OTHER);
	tbg_fields_free(&f);
	tbg_lines_free(&l);
}

/* Each byte at each position of a buffer of exact size: ASan detects an overrun. */
KTAP_TEST(t_the_first_byte_that_is_of_no_value_is_found)
{
	for (size_t len = 0; len < 20; len++) {
		uint8_t *b = malloc(len ?: 1);

		for (size_t at = 0; at < len; at++)
			for (unsigned int c = 0; c < 256; c++) {
				memset(b, at % 2 ? 0x80 : '~', len);
				b[at] = c;
				KTAP_EQ(tbg_value_run(b, len), tbg_value_byte(c) ? len : at);
				if (at + 1 < len)
					b[at + 1] = '\n';
				KTAP_EQ(tbg_value_run(b, len),
					!tbg_value_byte(c) ? at : at + 1);
			}
		KTAP_EQ(tbg_value_run(b, 0), 0);
		free(b);
	}
}

KTAP_MAIN()
