// SPDX-License-Identifier: GPL-2.0
/* Experiments with io_uring, one for each feature that kernel/requirements names. */
#include "probe_uring.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <liburing.h>

#define WAIT_S		2	/* for a completion that arrives at once, or never */

static int ring_open(struct io_uring *ring, unsigned int flags)
{
	struct io_uring_params p = { .flags = flags };

	return io_uring_queue_init_params(8, ring, &p);
}

/* Submits and waits for one completion; its flags, or negative errno. */
static int ring_one(struct io_uring *ring)
{
	struct __kernel_timespec limit = { .tv_sec = WAIT_S };
	struct io_uring_cqe *cqe;
	int ret = io_uring_submit(ring);

	if (ret >= 0)
		ret = io_uring_wait_cqe_timeout(ring, &cqe, &limit);
	if (ret < 0)
		return ret;
	ret = cqe->res < 0 ? cqe->res : (int)cqe->flags;
	if (cqe->res >= 0 && !(cqe->flags & IORING_CQE_F_BUFFER) &&
	    cqe->flags & IORING_CQE_F_MORE)
		close(cqe->res);	/* accepted */
	io_uring_cqe_seen(ring, cqe);
	return ret;
}

static int uring_setup(struct io_uring *ring)
{
	return 0;
}

/* On a socket with a name that others cannot know. */
static int uring_accept(struct io_uring *ring)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	socklen_t len = sizeof(addr);
	int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int ret;

	if (server < 0 || client < 0 ||
	    bind(server, (struct sockaddr *)&addr, sizeof(sa_family_t)) ||
	    listen(server, 1) ||
	    getsockname(server, (struct sockaddr *)&addr, &len) ||
	    connect(client, (struct sockaddr *)&addr, len)) {
		ret = -errno;
		goto out;
	}
	io_uring_prep_multishot_accept(io_uring_get_sqe(ring), server, NULL,
				       NULL, SOCK_CLOEXEC);
	ret = ring_one(ring);
	if (ret >= 0)
		ret = ret & IORING_CQE_F_MORE ? 0 : -ENOSYS;
out:
	close(server);
	close(client);
	return ret;
}

static int buf_ring_open(struct io_uring *ring, void **ret)
{
	struct io_uring_buf_reg reg = { .ring_entries = 8, .bgid = 1 };
	int err;

	/* 8 entries in the first page, one buffer in the second */
	if (posix_memalign(ret, 4096, 8192))
		return -ENOMEM;
	memset(*ret, 0, 8192);
	reg.ring_addr = (uintptr_t)*ret;
	err = io_uring_register_buf_ring(ring, &reg, 0);
	if (err < 0) {
		free(*ret);
		*ret = NULL;
		return err;
	}
	io_uring_buf_ring_add(*ret, (char *)*ret + 4096, 4096, 0, 7, 0);
	io_uring_buf_ring_advance(*ret, 1);
	return 0;
}

static int uring_buf_ring(struct io_uring *ring)
{
	void *mem = NULL;
	int err = buf_ring_open(ring, &mem);

	if (!err)
		io_uring_unregister_buf_ring(ring, 1);
	free(mem);
	return err;
}

static int uring_recv(struct io_uring *ring)
{
	int pair[2], ret;
	void *mem = NULL;
	struct io_uring_sqe *sqe;

	ret = buf_ring_open(ring, &mem);
	if (ret)
		return ret;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) {
		ret = -errno;
		goto out;
	}
	if (write(pair[0], "x", 1) != 1)
		ret = -errno;
	sqe = io_uring_get_sqe(ring);
	io_uring_prep_recv_multishot(sqe, pair[1], NULL, 0, 0);
	sqe->flags |= IOSQE_BUFFER_SELECT;
	sqe->buf_group = 1;
	ret = ret ?: ring_one(ring);
	if (ret >= 0)
		ret = ret & IORING_CQE_F_MORE ? 0 : -ENOSYS;
	close(pair[0]);
	close(pair[1]);
	/* let the request end before its buffers go */
	ring_one(ring);
out:
	io_uring_unregister_buf_ring(ring, 1);
	free(mem);
	return ret;
}

int tbg_uring_try(const char *name)
{
	static const struct {
		const char *name;
		unsigned int flags;
		int (*run)(struct io_uring *ring);
	} features[] = {
		{ "setup",		0, uring_setup },
		{ "multishot_accept",	0, uring_accept },
		{ "multishot_recv",	0, uring_recv },
		{ "buf_ring",		0, uring_buf_ring },
		{ "single_issuer",	IORING_SETUP_SINGLE_ISSUER, uring_setup },
		{ "defer_taskrun",	IORING_SETUP_SINGLE_ISSUER |
					IORING_SETUP_DEFER_TASKRUN, uring_setup },
	};
	struct io_uring ring;
	int err = -EINVAL;

	for (size_t i = 0; i < sizeof(features) / sizeof(*features); i++) {
		if (strcmp(features[i].name, name))
			continue;
		err = ring_open(&ring, features[i].flags);
		if (err)
			break;
		err = features[i].run(&ring);
		io_uring_queue_exit(&ring);
	}
	return err;
}
