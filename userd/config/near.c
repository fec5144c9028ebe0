// SPDX-License-Identifier: GPL-2.0
/*
 * The distance between two words: letters that are missing, added, replaced or
 * swapped with their neighbour (Damerau's distance, each letter once), in any case.
 * For messages only. Avoids accidental suggestions: short words are near only if
 * they differ in one letter.
 */
#include "config/near.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#define NAME_MAX_LEN 32

static unsigned int least(unsigned int a, unsigned int b)
{
	return a < b ? a : b;
}

static bool same(char a, char b)
{
	return tolower((unsigned char)a) == tolower((unsigned char)b);
}

static unsigned int distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
	unsigned int row[NAME_MAX_LEN + 1][NAME_MAX_LEN + 1];

	for (size_t i = 0; i <= a_len; i++)
		row[i][0] = i;
	for (size_t j = 0; j <= b_len; j++)
		row[0][j] = j;
	for (size_t i = 1; i <= a_len; i++) {
		for (size_t j = 1; j <= b_len; j++) {
			row[i][j] = least(least(row[i - 1][j], row[i][j - 1]) + 1,
					  row[i - 1][j - 1] + !same(a[i - 1], b[j - 1]));
			if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]))
				row[i][j] = least(row[i][j], row[i - 2][j - 2] + 1);
		}
	}
	return row[a_len][b_len];
}

void tbg_near_try(struct tbg_near *n, const char *name)
{
	size_t len = strlen(name);
	unsigned int most = n->len < 2 ? 0 : n->len < 6 ? 1 : n->len < 8 ? 2 : 3, d;

	if (n->len > NAME_MAX_LEN || len > NAME_MAX_LEN)
		return;
	d = distance(n->word, n->len, name, len);
	if (d > most || (n->name && d >= n->distance))
		return;
	n->name = name;
	n->distance = d;
}
