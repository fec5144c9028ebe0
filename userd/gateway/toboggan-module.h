/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A module of Toboggan: a shared object that answers requests. It is loaded by
 * worker processes apart from the daemon, named by a location of the
 * configuration ("module"), and described in toboggan-module(3).
 *
 *	static void hello(struct tbg_request *r, void *state)
 *	{
 *		tbg_response_field(r, "Content-Type", "text/plain");
 *		tbg_response_send(r, "hello\n", 6);
 *		tbg_response_end(r);
 *	}
 *	const struct tbg_module tbg_module = { TBG_MODULE_ABI, .request = hello };
 *
 * A worker has one thread: callbacks come one at a time and must not wait. One
 * that takes longer than module-time is killed with its worker.
 */
#ifndef TBG_USERD_GATEWAY_TOBOGGAN_MODULE_H
#define TBG_USERD_GATEWAY_TOBOGGAN_MODULE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Version of all that is here: the upper 16 bits change when old modules cannot
 * be loaded any more, the lower ones when functions or members are added after
 * the existing ones.
 */
#define TBG_MODULE_ABI 0x00010000u

struct tbg_request;

/* Why a postponed request goes on. */
enum tbg_resume {
	TBG_RESUME_READY,	/* the descriptor is; *or what poll() calls an error* */
	TBG_RESUME_TIME,	/* the time is over */
	TBG_RESUME_CALLED,	/* tbg_request_resume() */
};

/* What a fetch has brought. All of it is gone when the callback returns. */
struct tbg_fetched {
	int error;		/* 0, or negative errno: nothing below is set */
	unsigned int status;
	const char *fields;	/* "Name: value\r\n" lines */
	size_t fields_len;
	const void *body;
	size_t body_len;
};

/*
 * What a module exports under the name tbg_module. state is what open() left
 * in *ret_state. Members that are NULL do nothing; request() must be there.
 */
struct tbg_module {
	uint32_t abi;		/* TBG_MODULE_ABI */

	/*
	 * Once in each worker, before any request; argv: the words after the
	 * module's name in the configuration. Not 0, or the worker's end: it cannot
	 * serve, and is started again later.
	 */
	int (*open)(int argc, char **argv, void **ret_state);
	void (*close)(void *state);

	/* A request has come; its body may not have. */
	void (*request)(struct tbg_request *r, void *state);
	/* tbg_request_read() has returned -EAGAIN, and would not any more. */
	void (*readable)(struct tbg_request *r, void *state);
	/* tbg_response_send() has taken less than all, and would take more. */
	void (*writable)(struct tbg_request *r, void *state);
	/* What it was postponed for has happened. */
	void (*resume)(struct tbg_request *r, void *state, enum tbg_resume why);
	void (*fetched)(struct tbg_request *r, void *state,
			const struct tbg_fetched *f);
	/*
	 * The request is over: answered, or its client is gone, or its time.
	 * The last call for it, to free what the module has kept.
	 */
	void (*end)(struct tbg_request *r, void *state);
};

__attribute__((visibility("default"))) extern const struct tbg_module tbg_module;

/* --- the request ---------------------------------------------------------- */

/*
 * Strings are NUL-terminated and live until end(). NULL: there is none.
 */
const char *tbg_request_method(const struct tbg_request *r);
const char *tbg_request_target(const struct tbg_request *r);	/* as it was sent */
const char *tbg_request_path(const struct tbg_request *r);	/* decoded, dots resolved */
const char *tbg_request_query(const struct tbg_request *r);	/* after '?', "" for none */
const char *tbg_request_host(const struct tbg_request *r);
const char *tbg_request_remote(const struct tbg_request *r);	/* address of the client */

/* A field by its name in any case; of several, joined by ", ". */
const char *tbg_request_field(const struct tbg_request *r, const char *name);
/* A meta-variable of RFC 3875: SERVER_PROTOCOL, SERVER_PORT... */
const char *tbg_request_variable(const struct tbg_request *r, const char *name);
const char *tbg_request_cookie(struct tbg_request *r, const char *name);
/* A parameter of the query, decoded. */
const char *tbg_request_parameter(struct tbg_request *r, const char *name);
/* The same for any form (application/x-www-form-urlencoded), such as a body. */
const char *tbg_form_parameter(struct tbg_request *r, const char *form, size_t len,
			       const char *name);

/* What the module keeps with the request. */
void tbg_request_set(struct tbg_request *r, void *own);
void *tbg_request_get(const struct tbg_request *r);

/* Bytes of the body that were announced; -1: not known, or none. */
int64_t tbg_request_length(const struct tbg_request *r);
/*
 * More of the body: bytes, 0 at its end, -EAGAIN: not here yet, readable() will
 * be called. A body that is not read is thrown away.
 */
ssize_t tbg_request_read(struct tbg_request *r, void *to, size_t size);

/* --- the answer ----------------------------------------------------------- */

/*
 * Before the first callback that has sent some of the body returns; without, it is
 * a 200. Negative errno: -EINVAL for what must not stand there (among them the fields
 * that frame the message), -EBUSY: too late.
 */
int tbg_response_status(struct tbg_request *r, unsigned int status);
int tbg_response_field(struct tbg_request *r, const char *name, const char *value);
/*
 * The answer may be cached, and is fresh for this many seconds: for requests of
 * the same target, and the same values of the fields that a Vary field names. A
 * tag is a name by which `toboggan purge --tag` withdraws it.
 */
int tbg_response_cache(struct tbg_request *r, unsigned int seconds);
int tbg_response_tag(struct tbg_request *r, const char *tag);

/*
 * Bytes of the body that were taken, copied; less than len: writable() will be
 * called when there is room again. -EPIPE: it has ended. They go out when the
 * callback returns.
 */
ssize_t tbg_response_send(struct tbg_request *r, const void *b, size_t len);
/* The answer is complete. end() is called, now or soon. */
void tbg_response_end(struct tbg_request *r);

/* --- postpone and continue ------------------------------------------------ */

/*
 * A callback that returns without having ended the answer postpones it. It goes
 * on when one of these happens, or with the next of the other callbacks. Each
 * holds once; a second call replaces the first.
 */
int tbg_request_wait_ms(struct tbg_request *r, unsigned int ms);
/* events: POLLIN, POLLOUT. The descriptor stays the module's. */
int tbg_request_wait_fd(struct tbg_request *r, int fd, short events);
/* From another request's callback, in the same worker. */
void tbg_request_resume(struct tbg_request *r);

/* --- other objects -------------------------------------------------------- */

/* Only what is cached, as files of the server are, asked for before or not; else 504. */
#define TBG_FETCH_CACHED 1u

/*
 * GET of a target of the same server, from its cache if it is there; host NULL:
 * the request's. One at a time for a request (-EBUSY); -ELOOP: this one is the
 * fourth of a chain of modules that fetch from each other. fetched() is called
 * later, never from here. Bodies up to 16 MiB.
 */
int tbg_request_fetch(struct tbg_request *r, const char *target,
		      const char *host, unsigned int flags);

/* --- the log -------------------------------------------------------------- */

/* A line in the daemon's log; r may be NULL in open() and close(). */
__attribute__((format(printf, 2, 3)))
void tbg_module_log(struct tbg_request *r, const char *format, ...);

#ifdef __cplusplus
}
#endif

#endif
