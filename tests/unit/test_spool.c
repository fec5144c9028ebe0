// SPDX-License-Identifier: GPL-2.0
/*
 * userd/store/spool.c: the content is preserved, wherever memory ends and the file
 * begins.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ktap.h"
#include "store/spool.h"

/* Returns a byte that depends on its offset. */
static uint8_t at(uint64_t off)
{
	return off * 31 + (off >> 8);
}

static bool fill(struct tbg_spool *s, uint64_t len, size_t step)
{
	uint8_t b[10000];

	while (s->len < len) {
		size_t n = len - s->len < step ? len - s->len : step;

		for (size_t i = 0; i < n; i++)
			b[i] = at(s->len + i);
		if (tbg_spool_add(s, b, n))
			return false;
	}
	return true;
}

static bool holds(const struct tbg_spool *s, size_t step)
{
	uint8_t b[10000];
	uint64_t off = 0;
	ssize_t n;

	while ((n = tbg_spool_read(s, off, b, step)) > 0) {
		for (ssize_t i = 0; i < n; i++)
			if (b[i] != at(off + i))
				return false;
		off += n;
	}
	return !n && off == s->len;
}

KTAP_TEST(t_every_division_between_memory_and_file)
{
	static const size_t memory[] = { 0, 1, 4095, 4096, 4097, 30000, 1 << 20 };
	static const size_t steps[] = { 1, 777, 10000 };

	for (size_t i = 0; i < sizeof(memory) / sizeof(*memory); i++)
		for (size_t j = 0; j < sizeof(steps) / sizeof(*steps); j++) {
			struct tbg_spool *s = tbg_spool_new(memory[i], "/tmp");

			KTAP_EQ(tbg_spool_read(s, 0, (uint8_t[1]){ 0 }, 1), 0);
			KTAP_CHECK(fill(s, 30000, steps[j]));
			KTAP_EQ(s->fd >= 0, memory[i] < 30000);
			KTAP_CHECK(s->memory_len <= memory[i]);
			for (size_t k = 0; k < sizeof(steps) / sizeof(*steps); k++)
				KTAP_CHECK(holds(s, steps[k]));
			tbg_spool_free(s);
		}
}

KTAP_TEST(t_files_have_no_name)
{
	char folder[] = "/tmp/tbg-spool-XXXXXX";
	struct tbg_spool *s;

	KTAP_CHECK(mkdtemp(folder));
	s = tbg_spool_new(0, folder);
	KTAP_CHECK(fill(s, 10, 10));
	KTAP_EQ(rmdir(folder), 0);	/* it was empty */
	KTAP_CHECK(holds(s, 10));
	tbg_spool_free(s);
}

KTAP_TEST(t_folder_that_is_not_there)
{
	struct tbg_spool *s = tbg_spool_new(4, "/nonexistent");

	KTAP_EQ(tbg_spool_add(s, (const uint8_t *)"abcd", 4), 0);
	KTAP_EQ(tbg_spool_add(s, (const uint8_t *)"e", 1), -ENOENT);
	tbg_spool_free(s);
	tbg_spool_free(NULL);
}

KTAP_MAIN()
