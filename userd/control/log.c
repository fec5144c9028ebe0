// SPDX-License-Identifier: GPL-2.0
/*
 * The command `log`: {"host": ..., "tier": ..., "status": ..., "slow": ..., "path":
 * ...}, each optional. Answers {"ok": true}, then a line for each request that passes
 * these filters, until the client disconnects; {"lost": N} if lines were dropped. Runs
 * in a stream's thread.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "control/commands.h"
#include "control/stream.h"
#include "log/live.h"

#define TURN_MS	100		/* maximum time that a line is held back to collect others */

/* Returns NULL, or an answer that names the invalid filter. */
static json_t *filter_read(const json_t *req, struct tbg_live_filter *ret)
{
	static const char *const names[] = { "host", "tier", "status", "slow", "path" };

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		const json_t *value = json_object_get(req, names[i]);
		const char *text = json_string_value(value), *accepts;

		if (!value)
			continue;
		accepts = tbg_live_filter_set(ret, names[i], text ?: "");
		if (accepts)
			return tbg_command_error("%s \"%.100s\": expected %s", names[i],
						 text ?: "", accepts);
	}
	return NULL;
}

/* Waits. The client sends nothing more, so any event means that it disconnects. */
static bool client_left(const struct tbg_stream *st)
{
	struct pollfd p = { .fd = st->fd, .events = POLLRDHUP };

	return poll(&p, 1, TURN_MS) > 0;
}

static int lines_send(struct tbg_stream *st, struct tbg_watcher *w)
{
	uint64_t lost;
	size_t len;
	char *lines = tbg_live_take(w, &len, &lost);
	int err = len ? tbg_stream_send(st, lines, len) : 0;

	free(lines);
	if (!err && lost)
		err = tbg_stream_line(st, json_pack("{s:I}", "lost", (json_int_t)lost));
	return err;
}

int tbg_log_run(struct tbg_stream *st)
{
	struct tbg_live_filter filter = { 0 };
	json_t *wrong = filter_read(st->req, &filter);
	struct tbg_watcher *w;
	int err;

	if (wrong)
		return tbg_stream_line(st, wrong);
	w = tbg_live_begin(&filter);
	if (!w)
		return tbg_stream_line(st, tbg_command_error("%d watch already; try again when one has ended",
							     TBG_LIVE_MAX));
	err = tbg_stream_line(st, json_pack("{s:b}", "ok", 1));
	while (!err && !client_left(st))
		err = lines_send(st, w);
	tbg_live_end(w);
	return err ?: -EPIPE;
}
