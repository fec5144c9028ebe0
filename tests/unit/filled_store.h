/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A store of responses for tests. Mail to workers is only counted. Include it once per
 * test.
 */
#ifndef TBG_TESTS_UNIT_FILLED_STORE_H
#define TBG_TESTS_UNIT_FILLED_STORE_H

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cache/objects.h"
#include "http/header.h"
#include "ktap.h"
#include "os/refcount.h"
#include "store/responses.h"

static const uint64_t key[2] = { 1, 2 };
static unsigned int mails;
static uint64_t now_ns;

bool tbg_mail_post(struct tbg_mailbox *b, struct tbg_mail *mail)
{
	mail->posted = true;
	mails++;
	return true;
}

void tbg_mail_unpost(struct tbg_mailbox *b, struct tbg_mail *mail)
{
	mails -= mail->posted;
	mail->posted = false;
}

/* There is no index map: the cache's own table shows what is published. */
int bpf_map_update_elem(int fd, const void *k, const void *value, __u64 flags)
{
	return -EBADF;
}

int bpf_map_delete_elem(int fd, const void *k)
{
	return -EBADF;
}

static struct tbg_store *open_store(uint64_t budget)
{
	struct tbg_store *s;

	mails = 0;
	return tbg_store_open(&s, budget, key) ? NULL : s;
}

static struct tbg_uri uri_of(const char *text)
{
	const char *slash = strchr(text, '/');

	return (struct tbg_uri){ .text = text, .len = strlen(text), .path_off = slash - text };
}

/* Valid until the next call. */
static const struct tbg_fields *fields_of(const char *text)
{
	static struct tbg_fields f;

	if (tbg_fields_read(&f, text, strlen(text)) < 0)
		abort();
	return &f;
}

static bool put_for(struct tbg_store *s, const char *uri, const char *head,
		    const char *req, const char *body, uint64_t seq,
		    const struct tbg_stored *old)
{
	struct tbg_uri u = uri_of(uri);
	struct tbg_byte_chain *p = tbg_byte_chain_new();
	struct tbg_response_directives t;

	tbg_byte_chain_add(p, body, strlen(body));
	tbg_response_directives_read(&t, 200, fields_of(head), 1000, 0, 0);
	return tbg_store_put(s, &u, tbg_stored_new(&t, "OK", head, strlen(head), req,
						   strlen(req), p), seq, old);
}

static bool put(struct tbg_store *s, const char *uri, const char *head,
		const char *req, const char *body, uint64_t seq)
{
	return put_for(s, uri, head, req, body, seq, NULL);
}

/* Returns whether the first byte of the response found is `want`; 0: none is found. */
__attribute__((unused))
static bool finds(struct tbg_store *s, const char *uri, const char *req, char want)
{
	struct tbg_uri u = uri_of(uri);
	bool others, right;
	struct tbg_stored *one = tbg_store_find(s, &u, req, strlen(req), &others);

	right = one ? TAILQ_FIRST(&one->body->pieces)->data[0] == want : !want;
	tbg_stored_put(one);
	return right;
}

static enum tbg_turn enter(struct tbg_store *s, const char *uri, const char *req,
			   struct tbg_waiter *w, struct tbg_pending_fetch **f)
{
	struct tbg_uri u = uri_of(uri);

	return tbg_store_enter(s, &u, req, strlen(req), TBG_JOIN, w, now_ns, f);
}

#endif
