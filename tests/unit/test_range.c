// SPDX-License-Identifier: GPL-2.0
/*
 * Ranges (userd/http/range.c): the evaluation of a Range field, and that a body of
 * several parts does not depend on how it is read.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ktap.h"
#include "http/range.h"

static const struct {
	const char *text;
	uint64_t size;
	unsigned int status, nr;
	uint64_t first, len;	/* of the first range */
} table[] = {
	{ "bytes=0-0", 10, 206, 1, 0, 1 },
	{ "bytes=0-9", 10, 206, 1, 0, 10 },
	{ "bytes=0-10", 10, 206, 1, 0, 10 },
	{ "bytes=9-", 10, 206, 1, 9, 1 },
	{ "bytes=3-5", 10, 206, 1, 3, 3 },
	{ "BYTES=3-5", 10, 206, 1, 3, 3 },
	{ "bytes=-1", 10, 206, 1, 9, 1 },
	{ "bytes=-10", 10, 206, 1, 0, 10 },
	{ "bytes=-11", 10, 206, 1, 0, 10 },
	{ "bytes=5-99999999999999999999999999", 10, 206, 1, 5, 5 },
	{ "bytes=-99999999999999999999999999", 10, 206, 1, 0, 10 },
	{ "bytes=0-0,2-2 ,\t4-4", 10, 206, 3, 0, 1 },
	{ "bytes=,, 2-2,", 10, 206, 1, 2, 1 },
	{ "bytes=20-30,2-2,-0", 10, 206, 1, 2, 1 },
	{ "bytes=0-4,3-6", 10, 206, 2, 0, 5 },
	{ "bytes=5-9,0-4", 10, 206, 2, 5, 5 },
	{ "bytes=9223372036854775806-", INT64_MAX, 206, 1, INT64_MAX - 1, 1 },
	/* more bytes than the representation has */
	{ "bytes=0-,0-", 10, 200, 0, 0, 0 },
	{ "bytes=0-5,4-9", 10, 200, 0, 0, 0 },
	{ "bytes=0-9223372036854775806,0-9223372036854775806,0-9223372036854775806",
	  INT64_MAX, 200, 0, 0, 0 },
	/* another unit */
	{ "", 10, 200, 0, 0, 0 },
	{ "bytes", 10, 200, 0, 0, 0 },
	{ "bytes 0-1", 10, 200, 0, 0, 0 },
	{ "byte=0-1", 10, 200, 0, 0, 0 },
	{ "lines=0-1", 10, 200, 0, 0, 0 },
	/* unsatisfiable */
	{ "bytes=10-", 10, 416, 0, 0, 0 },
	{ "bytes=10-20", 10, 416, 0, 0, 0 },
	{ "bytes=-0", 10, 416, 0, 0, 0 },
	{ "bytes=99999999999999999999999999-", 10, 416, 0, 0, 0 },
	{ "bytes=0-", 0, 416, 0, 0, 0 },
	{ "bytes=-5", 0, 200, 0, 0, 0 },
	{ "bytes=-0", 0, 416, 0, 0, 0 },
	/* malformed */
	{ "bytes=", 10, 416, 0, 0, 0 },
	{ "bytes=,", 10, 416, 0, 0, 0 },
	{ "bytes=-", 10, 416, 0, 0, 0 },
	{ "bytes=5", 10, 416, 0, 0, 0 },
	{ "bytes=5-4", 10, 416, 0, 0, 0 },
	{ "bytes=a-b", 10, 416, 0, 0, 0 },
	{ "bytes=0x0-1", 10, 416, 0, 0, 0 },
	{ "bytes=0 -1", 10, 416, 0, 0, 0 },
	{ "bytes=0- 1", 10, 416, 0, 0, 0 },
	{ "bytes=--1", 10, 416, 0, 0, 0 },
	{ "bytes=0-1-2", 10, 416, 0, 0, 0 },
	{ "bytes=0-1;2-3", 10, 416, 0, 0, 0 },
	{ "bytes=0-1,2", 10, 416, 0, 0, 0 },
	{ "bytes=+1-2", 10, 416, 0, 0, 0 },
	{ "bytes=1.5-2", 10, 416, 0, 0, 0 },
};

KTAP_TEST(t_each_field_has_its_ranges)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		size_t len = strlen(table[i].text);
		char *exact = malloc(len ? len : 1);	/* no NUL after it */
		struct tbg_ranges r = { 0 };
		unsigned int status;

		memcpy(exact, table[i].text, len);
		status = tbg_ranges_open(&r, exact, len, table[i].size);
		if (status != table[i].status ||
		    (status == 206 && (r.nr != table[i].nr ||
				       r.one.first != table[i].first ||
				       r.one.len != table[i].len)))
			ktap_fail("%s of %llu: %u, %u ranges, %llu+%llu", table[i].text,
				  (unsigned long long)table[i].size, status, r.nr,
				  (unsigned long long)r.one.first,
				  (unsigned long long)r.one.len);
		free(exact);
	}
}

static struct tbg_parts *parts(const char *text, uint64_t size)
{
	struct tbg_ranges r;

	if (tbg_ranges_open(&r, text, strlen(text), size) != 206)
		return NULL;
	return tbg_parts_new(&r, "text/plain", 10, "\"tag\"", 5);
}

static const char three[] =
	"--B\r\nContent-Type: text/plain\r\nContent-Range: bytes 1-2/10\r\n\r\nbc"
	"\r\n--B\r\nContent-Type: text/plain\r\nContent-Range: bytes 9-9/10\r\n\r\nj"
	"\r\n--B\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-2/10\r\n\r\nabc"
	"\r\n--B--\r\n";

KTAP_TEST(t_parts_are_as_the_rfc_has_them)
{
	struct tbg_parts *p = parts("bytes=1-2, 9-20, 50-60, 0-2", 10);
	char got[4096], want[4096], *b = want;
	struct tbg_range piece;
	ssize_t n;

	KTAP_CHECK(p);
	for (const char *a = three; *a; a++)
		if (*a == 'B')
			b = stpcpy(b, p->boundary);
		else
			*b++ = *a;
	p->memory = (const uint8_t *)"abcdefghij";
	n = tbg_parts_read(p, got, sizeof(got), &piece);
	KTAP_EQ(n, b - want);
	KTAP_EQ(p->len, n);
	KTAP_CHECK(p->ended && !piece.len && !memcmp(got, want, n));
	tbg_parts_free(p);
}

/* Reads all of a body, `room` bytes at a time; pieces of a file are added here. */
static size_t read_all(struct tbg_parts *p, char *ret, size_t room)
{
	struct tbg_range piece;
	size_t at = 0;

	while (!p->ended) {
		char *b = malloc(room);
		ssize_t n = tbg_parts_read(p, b, room, &piece);

		if (n < 0 || (!n && !piece.len)) {
			free(b);
			return 0;
		}
		memcpy(ret + at, b, n);
		at += n;
		if (piece.len && pread(p->fd, ret + at, piece.len, piece.first) > 0)
			at += piece.len;
		free(b);
	}
	return at;
}

KTAP_TEST(t_memory_and_file_in_any_pieces_are_the_same)
{
	static const char text[] = "bytes=0-9, 100-69999, 70000-70000, 20-40000, -3";
	size_t size = 200000, len;
	uint8_t *content = malloc(size);
	int fd = memfd_create("content", MFD_CLOEXEC);
	char *want, *got;
	struct tbg_parts *p;

	for (size_t i = 0; i < size; i++)
		content[i] = i * 7 + (i >> 8);
	KTAP_CHECK(write(fd, content, size) == (ssize_t)size);
	p = parts(text, size);
	len = p->len;
	want = malloc(len);
	got = malloc(len);
	p->memory = content;
	KTAP_EQ(read_all(p, want, 1 << 20), len);
	tbg_parts_free(p);
	for (size_t room = TBG_PARTS_ROOM; room < 70000; room = room * 3 / 2 + 1) {
		for (int file = 0; file < 2; file++) {
			p = parts(text, size);
			p->memory = file ? NULL : content;
			p->fd = fd;
			memset(got, 0, len);
			KTAP_EQ(read_all(p, got, room), len);
			KTAP_CHECK(!memcmp(got, want, len));
			tbg_parts_free(p);
		}
	}
	free(want);
	free(got);
	free(content);
	close(fd);
}

KTAP_TEST(t_file_that_shrinks_is_an_error)
{
	struct tbg_parts *p = parts("bytes=0-9,20-29", 100);
	int fd = memfd_create("short", MFD_CLOEXEC);
	struct tbg_range piece;
	char b[4096];

	KTAP_CHECK(write(fd, "0123456789", 10) == 10);
	p->fd = fd;
	KTAP_EQ(tbg_parts_read(p, b, sizeof(b), &piece), -EIO);
	tbg_parts_free(p);
	close(fd);
}

static int released;

static void release(void *owner)
{
	released += *(int *)owner;
}

KTAP_TEST(t_owner_is_released_once)
{
	struct tbg_parts *p = parts("bytes=0-9,20-29", 100);
	int owner = 1;

	p->owner = &owner;
	p->release = release;
	tbg_parts_free(p);
	tbg_parts_free(NULL);
	KTAP_EQ(released, 1);
}

/* It stores only the field, however many parts that has. */
KTAP_TEST(t_thousands_of_parts)
{
	static char text[1 << 17];
	size_t at = sprintf(text, "bytes="), parts_nr = 0, got = 0;
	struct tbg_range piece;
	struct tbg_parts *p;
	uint8_t *content = calloc(1, 1 << 16);
	char b[TBG_PARTS_ROOM];

	for (int i = 0; i < 10000; i++)
		at += sprintf(text + at, "%d-%d,", 2 * i, 2 * i);
	p = parts(text, 1 << 16);
	KTAP_CHECK(p);
	KTAP_EQ(p->ranges.nr, 10000);
	p->memory = content;
	while (!p->ended) {
		ssize_t n = tbg_parts_read(p, b, sizeof(b), &piece);

		KTAP_CHECK(n > 0);
		got += n;
		parts_nr++;
	}
	KTAP_EQ(got, p->len);
	tbg_parts_free(p);
	free(content);
}

KTAP_MAIN()
