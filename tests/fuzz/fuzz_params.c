// SPDX-License-Identifier: GPL-2.0
/*
 * Requests to a FastCGI server: whatever the daemon's parser accepts becomes name-value
 * pairs that are read back unchanged; each name is a valid variable and occurs once;
 * records preserve them.
 */
#include <stdlib.h>
#include <string.h>

#include "fastcgi/parameters.h"
#include "http/request.h"
#include "fastcgi/record.h"

#define HEAD_MAX 65536

static char path[TBG_TARGET_MAX + 1];

static bool variable(struct tbg_slice name)
{
	for (size_t i = 0; i < name.len; i++)
		if (!(name.text[i] >= 'A' && name.text[i] <= 'Z') &&
		    !(name.text[i] >= '0' && name.text[i] <= '9') && name.text[i] != '_')
			return false;
	return name.len && !tbg_slice_is(name, "HTTP_PROXY");
}

static void pairs_check(const struct tbg_lines *l)
{
	struct tbg_slice names[256], v;
	size_t at = 0, nr = 0;
	enum tbg_parsed p;
	uint8_t *b = malloc(l->len);	/* exact size: ASan detects an overrun */

	memcpy(b, l->text, l->len);
	while ((p = tbg_pair_next(b, l->len, &at, &names[nr], &v)) == TBG_PARSED_DONE) {
		if (!variable(names[nr]))
			abort();
		for (size_t i = 0; i < nr; i++)
			if (tbg_slice_same(names[i], names[nr]))
				abort();
		nr += nr < 255;
	}
	if (p != TBG_PARSED_MORE || l->failed)
		abort();
	free(b);
}

static void records_check(const struct tbg_lines *l)
{
	struct tbg_fcgi_record_reader rd = { 0 };
	struct tbg_lines records = { 0 }, back = { 0 };
	struct tbg_fcgi_record r;
	size_t at = 0, used;

	tbg_fcgi_record_put(&records, TBG_FCGI_RECORD_PARAMS, 9, l->text, l->len);
	while (at < records.len) {
		if (tbg_fcgi_record_next(&rd, (uint8_t *)records.text + at, records.len - at,
				    &used, &r) != TBG_PARSED_DONE ||
		    r.type != TBG_FCGI_RECORD_PARAMS || r.id != 9)
			abort();
		tbg_lines_put(&back, r.data, r.len);
		at += used;
	}
	if (back.len != l->len || memcmp(back.text, l->text, l->len) ||
	    !tbg_fcgi_record_between(&rd))
		abort();
	tbg_lines_free(&records);
	tbg_lines_free(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static const struct tbg_endpoints endpoints = { "::1", "192.0.2.1", 1, 2 };
	static const struct tbg_script scripts[] = {
		{ .root = "/srv", .split = ".php", .index = "index.php" },
		{ .root = "", .file = "/x/y.php" },
	};
	const char *b = (const char *)data, *line, *lf, *space;
	struct tbg_message m = { 0 };
	static struct tbg_fields fields;
	struct tbg_lines l = { 0 };
	struct tbg_forward f;

	if (tbg_message_parse(&m, data, len, HEAD_MAX, path) != TBG_PARSED_DONE ||
	    m.method == TBG_METHOD_CONNECT)
		return 0;
	line = b + m.head_off;
	lf = memchr(line, '\n', m.len - m.head_off);
	space = memchr(line, ' ', m.len - m.head_off);
	if (tbg_fields_read(&fields, lf + 1, b + m.len - lf - 1) < 0)
		abort();
	f = (struct tbg_forward){
		.method = { line, space - line },
		.target = { b + m.target.off, m.target.len },
		.host = { b + m.host.off, m.host.off ? m.host.len : 0 },
		.fields = &fields,
		.has_length = m.has_length, .length = m.content_length, .minor = m.minor,
	};
	for (int i = 0; i < 2; i++) {
		tbg_fcgi_params_put(&l, &(struct tbg_fcgi_params){
			.request = &f, .script = &scripts[i],
			.root = scripts[i].root, .endpoints = &endpoints,
			.path = { path, m.path_len } });
		pairs_check(&l);
		records_check(&l);
		tbg_lines_free(&l);
	}
	return 0;
}
