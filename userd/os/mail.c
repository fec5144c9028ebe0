// SPDX-License-Identifier: GPL-2.0
/*
 * A list with a lock, and a descriptor that wakes its reader. Workers and the threads
 * that answer them call it. No function runs with the lock held.
 */
#include "os/mail.h"

#include <stdint.h>
#include <unistd.h>

void tbg_mailbox_init(struct tbg_mailbox *b, void *reader, int wake_fd)
{
	pthread_mutex_init(&b->lock, NULL);
	TAILQ_INIT(&b->mail);
	b->reader = reader;
	b->wake_fd = wake_fd;
}

bool tbg_mail_post(struct tbg_mailbox *b, struct tbg_mail *mail)
{
	uint64_t one = 1;

	pthread_mutex_lock(&b->lock);
	if (b->ended) {
		pthread_mutex_unlock(&b->lock);
		return false;
	}
	TAILQ_INSERT_TAIL(&b->mail, mail, link);
	mail->posted = true;
	pthread_mutex_unlock(&b->lock);
	if (write(b->wake_fd, &one, sizeof(one)) < 0)
		return true;	/* the counter is full, so the reader is awake */
	return true;
}

/* Called with the lock held. */
static void mail_take(struct tbg_mailbox *b, struct tbg_mail *mail)
{
	TAILQ_REMOVE(&b->mail, mail, link);
	mail->posted = false;
}

void tbg_mail_unpost(struct tbg_mailbox *b, struct tbg_mail *mail)
{
	pthread_mutex_lock(&b->lock);
	if (mail->posted)
		mail_take(b, mail);
	pthread_mutex_unlock(&b->lock);
}

void tbg_mailbox_read(struct tbg_mailbox *b)
{
	struct tbg_mail *mail;

	do {
		pthread_mutex_lock(&b->lock);
		mail = TAILQ_FIRST(&b->mail);
		if (mail)
			mail_take(b, mail);
		pthread_mutex_unlock(&b->lock);
		if (mail)
			mail->fn(b->reader, mail);
	} while (mail);
}

void tbg_mailbox_end(struct tbg_mailbox *b)
{
	pthread_mutex_lock(&b->lock);
	b->ended = true;
	pthread_mutex_unlock(&b->lock);
	tbg_mailbox_read(b);
}
