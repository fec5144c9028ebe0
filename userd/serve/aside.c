// SPDX-License-Identifier: GPL-2.0
/*
 * A queue of jobs, each with the tasks that wait for it; these share its result. The
 * threads start with the first job, after privileges are dropped, and run as long as
 * the process.
 */
#include "serve/aside.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <unistd.h>

#include "files/files.h"
#include "serve/pages.h"
#include "http/content_coding.h"
#include "os/mail.h"
#include "os/privilege.h"

#define THREADS	 2
#define PRIORITY 10

/* A request for a job's result. */
struct tbg_aside_task {
	struct tbg_mail mail;		/* first: on_mail() casts */
	struct tbg_aside *a;
	struct tbg_mailbox *mailbox;
	void (*fn)(void *reader, void *arg);
	void *arg;
	struct job *job;		/* NULL: done */
	struct tbg_made *made;		/* NULL: not yet */
	LIST_ENTRY(tbg_aside_task) link;	/* in the list of the job's tasks */
};

struct job {
	TAILQ_ENTRY(job) link;
	struct tbg_made *made;
	LIST_HEAD(, tbg_aside_task) tasks;
	bool working;
};

struct tbg_aside {
	pthread_mutex_t lock;
	pthread_cond_t work;
	bool running;
	TAILQ_HEAD(, job) jobs;		/* oldest first */
};

void tbg_want_free(struct tbg_want *w)
{
	if (w->kind != TBG_WANT_NOTHING && w->fd >= 0)
		close(w->fd);
	tbg_root_ways_free(&w->ways);
	free(w->name);
	free(w->title);
	*w = (struct tbg_want){ .fd = -1 };
}

/* Called with a->lock held. */
static void made_put(struct tbg_made *m)
{
	if (!m || --m->refs)
		return;
	tbg_want_free(&m->want);
	free(m->text);
	free(m);
}

static bool want_same(const struct tbg_want *a, const struct tbg_want *b)
{
	if (a->kind != b->kind)
		return false;
	if (a->kind == TBG_WANT_CODING)
		return a->encoding == b->encoding && a->room == b->room &&
		       tbg_version_same(&a->st, &b->st);
	return a->st.st_dev == b->st.st_dev && a->st.st_ino == b->st.st_ino &&
	       !strcmp(a->name, b->name) && !strcmp(a->title, b->title);
}

/* Called in a thread, without the lock. */

static void coding_make(struct tbg_made *m)
{
	size_t size = m->want.st.st_size, room = m->want.room;
	char *plain = malloc(size + room + 1), *coded = plain + size;
	int n = plain ? tbg_version_read(m->want.fd, &m->want.st, plain) : -ENOMEM;

	if (!n)
		n = tbg_encode(m->want.encoding, plain, size, coded, room);
	m->text = n < 0 ? NULL : malloc(n + 1);
	if (m->text)
		memcpy(m->text, coded, n);
	m->len = n;
	m->err = n < 0 ? n : m->text ? 0 : -ENOMEM;
	free(plain);
}

static void make(struct tbg_made *m)
{
	if (m->want.kind == TBG_WANT_CODING)
		coding_make(m);
	else
		m->err = tbg_pages_listing_make(m->want.fd, &m->want.ways, m->want.name,
						m->want.title, &m->text, &m->len);
}

static struct job *job_next(struct tbg_aside *a)
{
	struct job *j;

	TAILQ_FOREACH(j, &a->jobs, link)
		if (!j->working)
			break;
	return j;
}

static void job_done(struct tbg_aside *a, struct job *j)
{
	struct tbg_aside_task *t;

	TAILQ_REMOVE(&a->jobs, j, link);
	while ((t = LIST_FIRST(&j->tasks))) {
		LIST_REMOVE(t, link);
		t->job = NULL;
		t->made = j->made;
		t->made->refs++;
		tbg_mail_post(t->mailbox, &t->mail);
	}
	made_put(j->made);
	free(j);
}

static void *thread_run(void *arg)
{
	struct tbg_aside *a = arg;
	struct job *j;

	tbg_privilege_none();
	setpriority(PRIO_PROCESS, gettid(), PRIORITY);
	pthread_mutex_lock(&a->lock);
	for (;;) {
		j = job_next(a);
		if (!j) {
			pthread_cond_wait(&a->work, &a->lock);
			continue;
		}
		j->working = true;
		pthread_mutex_unlock(&a->lock);
		make(j->made);
		pthread_mutex_lock(&a->lock);
		job_done(a, j);
	}
	return NULL;
}

/* Functions for callers */

/* Called with a->lock held. Succeeds if at least one thread runs. */
static bool threads_start(struct tbg_aside *a)
{
	sigset_t all, old;
	pthread_t thread;

	if (a->running)
		return true;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	for (int i = 0; i < THREADS; i++)
		if (!pthread_create(&thread, NULL, thread_run, a)) {
			pthread_setname_np(thread, "tbg-aside");
			a->running = true;
		}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return a->running;
}

static struct job *job_new(struct tbg_aside *a, struct tbg_want *want)
{
	struct job *j = calloc(1, sizeof(*j));

	if (!j)
		return NULL;
	j->made = calloc(1, sizeof(*j->made));
	if (!j->made) {
		free(j);
		return NULL;
	}
	j->made->refs = 1;
	j->made->want = *want;
	*want = (struct tbg_want){ .fd = -1 };
	TAILQ_INSERT_TAIL(&a->jobs, j, link);
	return j;
}

static void on_mail(void *reader, struct tbg_mail *mail)
{
	struct tbg_aside_task *t = (void *)mail;

	t->fn(reader, t->arg);
}

struct tbg_aside_task *tbg_aside_begin(struct tbg_aside *a, struct tbg_want *want,
				       struct tbg_mailbox *mailbox,
				       void (*made)(void *reader, void *arg), void *arg)
{
	struct tbg_aside_task *t = calloc(1, sizeof(*t));
	struct job *j;

	if (!t)
		return NULL;
	*t = (struct tbg_aside_task){ .mail.fn = on_mail, .a = a, .mailbox = mailbox,
				      .fn = made, .arg = arg };
	pthread_mutex_lock(&a->lock);
	TAILQ_FOREACH(j, &a->jobs, link)
		if (!j->working && want_same(&j->made->want, want))
			break;
	if (!j && threads_start(a))
		j = job_new(a, want);
	if (j) {
		t->job = j;
		LIST_INSERT_HEAD(&j->tasks, t, link);
		pthread_cond_signal(&a->work);
	}
	pthread_mutex_unlock(&a->lock);
	if (j) {
		tbg_want_free(want);
		return t;
	}
	free(t);
	return NULL;
}

/* A job without tasks is not started. */
static void task_unlink(struct tbg_aside_task *t)
{
	LIST_REMOVE(t, link);
	if (!LIST_EMPTY(&t->job->tasks) || t->job->working)
		return;
	TAILQ_REMOVE(&t->a->jobs, t->job, link);
	made_put(t->job->made);
	free(t->job);
}

void tbg_aside_leave(struct tbg_aside_task *t)
{
	pthread_mutex_lock(&t->a->lock);
	if (t->job)
		task_unlink(t);
	made_put(t->made);
	pthread_mutex_unlock(&t->a->lock);
	tbg_mail_unpost(t->mailbox, &t->mail);
	free(t);
}

const struct tbg_made *tbg_aside_made(const struct tbg_aside_task *t)
{
	return t->made;
}

int tbg_aside_open(struct tbg_aside **ret)
{
	struct tbg_aside *a = calloc(1, sizeof(*a));

	if (!a)
		return -ENOMEM;
	TAILQ_INIT(&a->jobs);
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->work, NULL);
	*ret = a;
	return 0;
}
