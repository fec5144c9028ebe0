/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Messages from any thread to the one that reads a mailbox. A message lives in its
 * sender's object, so that posting needs no memory and cannot fail for want of it.
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
	void *reader;			/* what fn is called with */
	int wake_fd;			/* eventfd: 1 for each message */
	bool ended;			/* nothing is read any more */
};

void tbg_mailbox_init(struct tbg_mailbox *b, void *reader, int wake_fd);

/*
 * Any thread: mail->fn runs in the reader's thread, once per post. False: it never
 * will, for the reader has ended.
 */
bool tbg_mail_post(struct tbg_mailbox *b, struct tbg_mail *mail);

/* The reader's thread: what has been posted and not run does not run any more. */
void tbg_mail_unpost(struct tbg_mailbox *b, struct tbg_mail *mail);
void tbg_mailbox_read(struct tbg_mailbox *b);
/* What was posted until now is still read; later posts fail. */
void tbg_mailbox_end(struct tbg_mailbox *b);

#endif
