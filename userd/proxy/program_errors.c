// SPDX-License-Identifier: GPL-2.0
/*
 * Writes the error output of programs to the daemon's log, line by line. It is
 * untrusted text: it must not fill the disk, nor contain control sequences for
 * terminals.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "upstream/pool_command.h"
#include "os/clock.h"
#include "os/message.h"
#include "proxy/program_errors.h"
#include "proxy/transfer.h"

#define ERROR_LINE	800		/* bytes; longer lines are split */
#define ERRORS_MAX	(64u << 10)	/* bytes per request */
#define ERROR_LINES_PER_S 1000

/*
 * Returns the length of the UTF-8 character (RFC 3629) at p; 0: invalid, or a control
 * character (C0 or C1).
 */
static size_t printable(const uint8_t *p, size_t len)
{
	size_t n = *p < 0xc2 ? 1 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : 4;

	if (n == 1)
		return *p >= ' ' && *p < 0x7f;
	if (n > len || *p > 0xf4 || (*p == 0xc2 && p[1] < 0xa0) ||
	    (*p == 0xe0 && p[1] < 0xa0) || (*p == 0xf0 && p[1] < 0x90))
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	return n;
}

/* Replaces control characters, so that a terminal shows the line safely. */
void tbg_program_log(const struct tbg_transfer *x, const char *b, size_t len)
{
	const struct tbg_pool_command *o = x->upstream->command;
	const char *kind = !o ? "upstream" : o->kind == TBG_POOL_CGI ? "cgi" : "module";
	char line[ERROR_LINE];

	while (len && (b[len - 1] == '\r' || b[len - 1] == ' '))
		len--;
	memcpy(line, b, len);
	for (size_t i = 0, n; i < len; i += n ?: 1) {
		n = printable((const uint8_t *)line + i, len - i);
		if (!n)
			line[i] = '?';
	}
	if (len)
		tbg_warn("%s %s: %.*s", kind, o ? o->path : x->upstream->name, (int)len, line);
}

/*
 * Limits the lines per second of all workers: a program in a loop must not fill the
 * disk. The next logged line reports how many were left out.
 */
static bool rate_takes(const struct tbg_transfer *x)
{
	/* second in the upper half, number of lines in the lower */
	static _Atomic uint64_t window;
	static atomic_uint lost;
	uint64_t now = x->w->now_ns / TBG_NS_PER_S << 32, seen = atomic_load(&window);
	unsigned int nr;

	if (seen >> 32 != now >> 32)
		atomic_compare_exchange_strong(&window, &seen, now);
	if ((uint32_t)atomic_fetch_add(&window, 1) >= ERROR_LINES_PER_S) {
		atomic_fetch_add(&lost, 1);
		return false;
	}
	nr = atomic_exchange(&lost, 0);
	if (nr)
		tbg_warn("error output of programs: %u lines left out: no more than %d a second are reported",
			   nr, ERROR_LINES_PER_S);
	return true;
}

static void error_log(struct tbg_transfer *x, const char *b, size_t len)
{
	x->errors_len += len;
	if (x->errors_len > ERRORS_MAX)
		x->errors_cut += len;
	else if (rate_takes(x))
		tbg_program_log(x, b, len);
}

static void cut_log(struct tbg_transfer *x)
{
	char text[96];
	int n;

	if (!x->errors_cut)
		return;
	n = snprintf(text, sizeof(text), "%llu bytes more of error output are left out of this request's",
		     (unsigned long long)x->errors_cut);
	x->errors_cut = 0;
	tbg_program_log(x, text, n);
}

void tbg_program_errors(struct tbg_transfer *x, bool all)
{
	struct tbg_lines *l = &x->answer.errors;
	size_t at = 0;

	while (at < l->len) {
		size_t rest = l->len - at;
		size_t max = rest < ERROR_LINE ? rest : ERROR_LINE;
		const char *lf = memchr(l->text + at, '\n', max);

		if (!lf && rest < ERROR_LINE && !all)
			break;
		if (lf)
			max = lf - l->text - at;
		error_log(x, l->text + at, max);
		at += max + !!lf;
	}
	if (all)
		cut_log(x);
	if (at)
		memmove(l->text, l->text + at, l->len - at);
	l->len -= at;
}
