// SPDX-License-Identifier: GPL-2.0
/*
 * The requests of the load in the kernel, which are made once, and their shares. Called by
 * loop.c before the kernel side is loaded.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loop_internal.h"

struct loop_request *requests;
struct expected *expected;
unsigned int request_nr;

void request_add(const char *path, long size, uint32_t crc, bool crc_known)
{
	struct loop_request *r;
	char status[8];
	int len;

	if (request_nr == LOOP_REQUESTS)
		die("--list: more than %d requests", LOOP_REQUESTS);
	if (!(request_nr & (request_nr + 1)) || !requests) {
		unsigned int room = 2 * (request_nr + 1);

		requests = realloc(requests, room * sizeof(*requests));
		expected = realloc(expected, room * sizeof(*expected));
		if (!requests || !expected)
			die("no memory for the list");
	}
	r = &requests[request_nr];
	memset(r, 0, sizeof(*r));
	len = snprintf((char *)r->bytes, LOOP_HEAD_MAX, "GET %s HTTP/1.%d\r\nHost: %s\r\n%s\r\n",
		       path, opt.minor, authority, opt.headers);
	if (len >= LOOP_HEAD_MAX)
		die("a request of %d bytes: more than %d do not fit into a segment", len,
		    LOOP_HEAD_MAX - 1);
	r->len = len;
	r->sum = sum_of(0, r->bytes, len);
	r->body_len = opt.status == 304 ? 0 : size;
	snprintf(status, sizeof(status), " %03d", opt.status);
	memcpy(&r->status, status, 4);
	r->odds = UINT32_MAX;
	r->alias = request_nr;
	expected[request_nr].crc = crc;
	expected[request_nr].crc_known = crc_known && opt.status != 304;
	request_nr++;
}

/* Walker's alias method: one draw picks a column, another one of its two. */
static void share_out(const double *weights)
{
	double total = 0, *part = calloc(request_nr, sizeof(*part));
	unsigned int *small = calloc(request_nr, sizeof(*small));
	unsigned int *large = calloc(request_nr, sizeof(*large)), s = 0, l = 0, i;

	if (!part || !small || !large)
		die("no memory for the list");
	for (i = 0; i < request_nr; i++)
		total += weights[i];
	for (i = 0; i < request_nr; i++) {
		part[i] = weights[i] * request_nr / total;
		if (part[i] < 1)
			small[s++] = i;
		else
			large[l++] = i;
	}
	while (s && l) {
		unsigned int low = small[--s], high = large[l - 1];

		requests[low].odds = part[low] * UINT32_MAX;
		requests[low].alias = high;
		part[high] -= 1 - part[low];
		if (part[high] < 1) {
			l--;
			small[s++] = high;
		}
	}
	free(part);
	free(small);
	free(large);
}

/* The next request, as the kernel side draws it. */
unsigned int request_draw(void)
{
	unsigned int i = (uint32_t)mrand48() % request_nr;

	return (uint32_t)mrand48() > requests[i].odds ? requests[i].alias : i;
}

void read_list(void)
{
	FILE *f = fopen(opt.list, "r");
	double *weights = NULL, weight;
	char *line = NULL, *path, *save, *word;
	size_t room = 0;

	if (!f)
		die("--list %s: %s", opt.list, strerror(errno));
	while (getline(&line, &room, f) > 0) {
		long size;
		uint32_t crc = 0;
		bool known = false;

		word = strtok_r(line, " \n", &save);
		if (!word)
			continue;
		weight = atof(word);
		path = strtok_r(NULL, " \n", &save);
		word = strtok_r(NULL, " \n", &save);
		if (!path || !word || weight < 0)
			die("--list %s: line %u: want `weight path size [CRC-32]`", opt.list,
			    request_nr + 1);
		size = atol(word);
		word = strtok_r(NULL, " \n", &save);
		if (word && !strcmp(word, "-"))
			word = NULL;
		if (word && strspn(word, "0123456789abcdef") == strlen(word)) {
			crc = strtoul(word, NULL, 16);
			known = true;
		} else if (word) {
			die("--list %s: line %u: `%s` is not a CRC-32", opt.list, request_nr + 1,
			    word);
		}
		if (strtok_r(NULL, " \n", &save))
			die("--list %s: line %u: only load supports cookies and bodies", opt.list,
			    request_nr + 1);
		weights = realloc(weights, (request_nr + 1) * sizeof(*weights));
		if (!weights)
			die("no memory for the list");
		weights[request_nr] = weight;
		request_add(path, size, crc, known);
	}
	fclose(f);
	free(line);
	if (!request_nr)
		die("--list %s: empty", opt.list);
	share_out(weights);
	free(weights);
}
