/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Reads and shows the daemon's answers, for all commands. Text from the daemon must never
 * be assumed to be printable.
 */
#ifndef TBG_TOOLS_SHOW_H
#define TBG_TOOLS_SHOW_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <jansson.h>

/* With control characters of C0 and C1 written as \xXX; at most max columns. */
static inline void text_put(FILE *f, const char *text, unsigned int max)
{
	const unsigned char *p = (const unsigned char *)text;
	unsigned int column = 0;

	for (; *p; p++) {
		bool c1 = p[0] == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0;

		if ((*p & 0xc0) != 0x80 && max && ++column > max) {
			putc('>', f);
			return;
		}
		if (*p < 0x20 || *p == 0x7f || c1) {
			fprintf(f, "\\x%02X", c1 ? *++p : *p);
			column += 3;
		} else {
			putc(*p, f);
		}
	}
}

static inline void print_safe(const char *text, unsigned int max)
{
	text_put(stdout, text, max);
}

/* Columns of the terminal; 0: not one, print in full. */
static inline unsigned int width(void)
{
	struct winsize w;

	if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &w))
		return 0;
	return w.ws_col;
}

static inline const char *text_of(const json_t *o, const char *key)
{
	return json_string_value(json_object_get(o, key)) ?: "";
}

/* < 0: there is none. */
static inline double value_of(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	return json_is_number(v) ? json_number_value(v) : -1;
}

/* " (gzip)" for an object that is a compressed variant. */
static inline void encoding_put(FILE *f, const json_t *o)
{
	const char *encoding = text_of(o, "encoding");

	if (!*encoding || !strcmp(encoding, "identity"))
		return;
	fputs(" (", f);
	text_put(f, encoding, 0);
	putc(')', f);
}

static inline long long number_of(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

/* The number of rows of a list beyond those that it shows. */
static inline void rest_put(const json_t *a, const json_t *list)
{
	long long rest = number_of(a, "total") - (long long)json_array_size(list);

	if (rest > 0)
		printf("and %lld more\n", rest);
}

/* The listeners that wire leaves to the daemon, with the reason, a line each. */
static inline void left_put(const json_t *a, const char *before)
{
	const json_t *one;
	size_t i;

	json_array_foreach(json_object_get(a, "listeners_left"), i, one) {
		printf("%snot on ", before);
		print_safe(text_of(one, "listener"), 0);
		fputs(": ", stdout);
		print_safe(text_of(one, "why"), 0);
		putchar('\n');
	}
}

static inline bool true_of(const json_t *o, const char *key)
{
	return json_is_true(json_object_get(o, key));
}

/* From the answer of `stats`; NULL: no such tier. */
static inline json_t *tier_of(const json_t *stats, const char *name)
{
	return json_object_get(json_object_get(stats, "tiers"), name);
}

#define NUMBER_ROOM 32

/* A buffer for a number as text, valid for three more calls. */
static inline char *number_room(void)
{
	static char text[4][NUMBER_ROOM];
	static unsigned int turn;

	return text[turn++ % 4];
}

/* 1536 → "1.5 KiB"; in number_room(). */
static inline const char *bytes_text(long long n)
{
	static const char *const units[] = {
		"B", "KiB", "MiB", "GiB", "TiB", "PiB",
	};
	char *ret = number_room();
	double v = n;
	int unit = 0;

	while (v >= 1024 && unit < 5)
		v /= 1024, unit++;
	snprintf(ret, NUMBER_ROOM, unit && v < 100 ? "%.1f %s" : "%.0f %s",
		 v, units[unit]);
	return ret;
}

#endif
