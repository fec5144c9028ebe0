/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Messages from any thread to the thread that reads a mailbox. The sender's object
 * contains the message, so posting allocates no memory.
 */
#ifndef TBG_USERD_OS_MAIL_H
#define TBG_USERD_OS_MAIL_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/queue.h>

struct tbg_mail {
	TAILQ_ENTRY(tbg_mail) link;
	void (*fn)(void *reader, struct tbg_mail *mail);
	bool posted;
};

struct tbg_mailbox {
	pthread_mutex_t lock;
	TAILQ_HEAD(, tbg_mail) mail;
	void *reader;			/* argument for fn */
	int wake_fd;			/* eventfd: 1 for each message */
	bool ended;			/* no message is read any more */
};

void tbg_mailbox_init(struct tbg_mailbox *b, void *reader, int wake_fd);

/*
 * Any thread: lets mail->fn run in the reader's thread, once per post. Returns false if
 * the reader has ended: then it never runs.
 */
bool tbg_mail_post(struct tbg_mailbox *b, struct tbg_mail *mail);

/* Called by the reader's thread: cancels a message that has not been handled yet. */
void tbg_mail_unpost(struct tbg_mailbox *b, struct tbg_mail *mail);
void tbg_mailbox_read(struct tbg_mailbox *b);
/* Handles the messages posted so far; later posts fail. */
void tbg_mailbox_end(struct tbg_mailbox *b);

#endif
