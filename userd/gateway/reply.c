// SPDX-License-Identifier: GPL-2.0
/*
 * Answers of modules. Until the first callback returns, head and body are
 * buffered: an answer that is complete by then gets a length, and an answer
 * interrupted by a crash has not begun.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "module.h"

/* Fields about framing, or those that another function sets. */
static bool field_ours(const char *name)
{
	return tbg_name_in(tbg_name_of((struct tbg_slice){ name, strlen(name) }),
			   tbg_names_with(TBG_FRAMING) | TBG_NAME_BIT(STATUS));
}

static int too_late(const struct tbg_request *r)
{
	return r->head_given || r->ended ? -EBUSY : 0;
}

int tbg_response_status(struct tbg_request *r, unsigned int status)
{
	if (status < 200 || status > 599)
		return -EINVAL;
	if (!too_late(r))
		r->status = status;
	return too_late(r);
}

int tbg_response_field(struct tbg_request *r, const char *name, const char *value)
{
	if (!tbg_token_valid(name, strlen(name)) || field_ours(name) ||
	    !tbg_value_valid(value, strlen(value)))
		return -EINVAL;
	if (!too_late(r))
		tbg_lines_add(&r->fields, "%s: %s\r\n", name, value);
	return too_late(r) ?: r->fields.failed ? -ENOMEM : 0;
}

int tbg_response_cache(struct tbg_request *r, unsigned int seconds)
{
	char text[32];

	snprintf(text, sizeof(text), "max-age=%u", seconds);
	return tbg_response_field(r, "Cache-Control", text);
}

/* Tags of one answer are on one line, separated by spaces. */
int tbg_response_tag(struct tbg_request *r, const char *tag)
{
	if (!*tag || strpbrk(tag, " \t,") || !tbg_value_valid(tag, strlen(tag)))
		return -EINVAL;
	if (!too_late(r))
		tbg_lines_add(&r->tags, "%s%s", r->tags.len ? " " : "", tag);
	return too_late(r) ?: r->tags.failed ? -ENOMEM : 0;
}

ssize_t tbg_response_send(struct tbg_request *r, const void *b, size_t len)
{
	size_t room = r->head_given ? tbg_gateway_request_room(r->v) :
		      r->early.len < TBG_GATEWAY_REQUEST_OUT ?
		      TBG_GATEWAY_REQUEST_OUT - r->early.len : 0;
	size_t n = len < room ? len : room;

	if (r->ended)
		return -EPIPE;
	if (n && r->head_given)
		r->failed |= !tbg_gateway_request_send(r->v, b, n);
	else if (n)
		tbg_lines_put(&r->early, b, n);
	r->wants_room |= n < len;
	tbg_request_mark(r);
	return n;
}

void tbg_response_end(struct tbg_request *r)
{
	r->ended = true;
	tbg_request_mark(r);
}

/* For a Location without a status the daemon chooses the status. */
static void status_give(struct tbg_request *r, struct tbg_lines *head)
{
	struct tbg_slice v;

	if (r->status || !tbg_field_find(r->fields.text, r->fields.len, "Location", &v))
		tbg_lines_add(head, "Status: %u\r\n", r->status ?: 200);
}

static void head_give(struct tbg_request *r)
{
	struct tbg_lines head = { 0 };

	status_give(r, &head);
	tbg_lines_put(&head, r->fields.text, r->fields.len);
	if (r->tags.len) {
		tbg_lines_add(&head, "Surrogate-Key: ");
		tbg_lines_put(&head, r->tags.text, r->tags.len);
		tbg_lines_add(&head, "\r\n");
	}
	if (r->ended && r->status != 204 && r->status != 304)
		tbg_lines_add(&head, "Content-Length: %zu\r\n", r->early.len);
	tbg_lines_add(&head, "\r\n");
	tbg_lines_put(&head, r->early.text, r->early.len);
	r->failed |= head.failed || r->fields.failed || r->tags.failed ||
		     r->early.failed;
	if (!r->failed)
		r->failed = !tbg_gateway_request_send(r->v, head.text, head.len);
	r->head_given = true;
	tbg_lines_free(&head);
	tbg_lines_free(&r->early);
	r->early = (struct tbg_lines){ 0 };
}

void tbg_reply_settle(struct tbg_request *r)
{
	if (!r->head_given && (r->ended || r->early.len))
		head_give(r);
	if (r->failed)
		tbg_gateway_request_fail(r->v, 502);
	else if (r->ended)
		tbg_gateway_request_end(r->v);
	else
		tbg_gateway_request_flush(r->v);
}
