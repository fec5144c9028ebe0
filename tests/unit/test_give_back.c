// SPDX-License-Identifier: GPL-2.0
/*
 * When a connection is given back to wire (userd/tiers/tcb.c), and how often a refusal
 * by wire costs a system call. The programs and maps of BPF are fakes.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bpf/bpf.h>

#include "abi/tcb.h"
#include "ktap.h"
#include "os/repair.h"
#include "tiers/segment.h"
#include "tiers/tcb.h"

static struct {
	bool knows, takes;		/* wire has the answer; it takes the connection */
	int unacked;			/* bytes that the client has not acknowledged */
	unsigned int repaired;		/* how often the socket was put into repair mode */
	bool lost;			/* wire does not have it any more */
	uint32_t ifindex;		/* where wire has found it, if not 0 */
	uint32_t ran_on;		/* where the request was given */
	struct tbg_tcb put;		/* what the daemon has put into the map, */
	bool there;			/* if it is still there */
	unsigned int asked, given;	/* calls of the program */
	const struct tbg_tcb *handed;	/* the only connection in the map, or NULL */
	unsigned int due;		/* connections that BPF has put on its list */
	unsigned int again;		/* calls of the program, to repeat */
} it;

int bpf_prog_test_run_opts(int fd, struct bpf_test_run_opts *opts)
{
	const struct __sk_buff *ctx = opts->ctx_in;

	if (ctx->cb[0] == TBG_PUSH_ASK) {
		it.asked++;
		opts->retval = it.knows;
	} else if (ctx->cb[0] == TBG_PUSH_SEEK) {
		opts->retval = !it.lost;
		if (it.ifindex)
			it.put.ifindex = it.ifindex;
	} else if (ctx->cb[0] == TBG_PUSH_GIVE) {
		it.given++;
		it.ran_on = ctx->ifindex;
		opts->retval = it.takes;
	} else if (ctx->cb[0] == TBG_PUSH_AGAIN) {
		it.again++;
		opts->retval = 1;
	}
	return 0;
}

/* Without a connection all maps are empty: it is forgotten, and nothing is unsent. */
int bpf_map_lookup_elem(int fd, const void *key, void *value)
{
	if (!it.handed && !it.there)
		return -ENOENT;
	memcpy(value, it.handed ? it.handed : &it.put, sizeof(it.put));
	return 0;
}

int bpf_map_update_elem(int fd, const void *key, const void *value, __u64 flags)
{
	memcpy(&it.put, value, sizeof(it.put));
	it.there = true;
	return 0;
}

int bpf_map_delete_elem(int fd, const void *key)
{
	it.there = false;
	return 0;
}

int bpf_map_get_next_key(int fd, const void *key, void *next)
{
	return -ENOENT;
}

int bpf_map_lookup_batch(int fd, void *in, void *out, void *keys, void *values, __u32 *count,
			 const struct bpf_map_batch_opts *opts)
{
	*count = 0;
	return -ENOENT;
}

int bpf_map_lookup_and_delete_batch(int fd, void *in, void *out, void *keys, void *values,
				    __u32 *count, const struct bpf_map_batch_opts *opts)
{
	struct tbg_tcb_key *key = keys;

	for (unsigned int i = 0; i < it.due; i++)
		key[i] = (struct tbg_tcb_key){ .flow.remote_port = i };
	*count = it.due;
	return -ENOENT;
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list args;

	va_start(args, request);
	*va_arg(args, int *) = it.unacked;
	va_end(args);
	return 0;
}

enum tbg_repaired tbg_repair_set(int fd, bool on)
{
	it.repaired += on;
	return TBG_REPAIR_DONE;
}

void tbg_segment_make(struct tbg_segment *ret, const struct tbg_tcb_key *key,
		      const struct tbg_tcb *tcb, const uint8_t *b, uint32_t len)
{
	ret->len = len;
}

/* Sends at most nr requests until the connection is given back. Returns their number. */
static unsigned int requests(struct tbg_taken *k, unsigned int nr, unsigned int answers)
{
	static const struct tbg_tcbs none;

	for (unsigned int i = 1; i <= nr; i++)
		if (tbg_tcb_give(&none, k, -1, 0, (const uint8_t *)"GET", 3, answers))
			return i;
	return 0;
}

static void begin(bool knows, bool takes)
{
	memset(&it, 0, sizeof(it));
	it.knows = knows;
	it.takes = takes;
}

KTAP_TEST(t_given_at_the_nth_request_in_a_row)
{
	struct tbg_taken k = {};

	begin(true, true);
	KTAP_CHECK(requests(&k, 10, 3) == 3);
	KTAP_CHECK(it.asked == 3);
	KTAP_CHECK(it.given == 1);
}

/* The kernel would mark bytes as sent that it has not sent. */
KTAP_TEST(t_no_repair_mode_before_all_is_acknowledged)
{
	struct tbg_taken k = {};

	begin(true, true);
	it.unacked = 1;
	KTAP_CHECK(requests(&k, 10, 1) == 0);
	KTAP_CHECK(!it.repaired);
	it.unacked = 0;
	KTAP_CHECK(requests(&k, 10, 1) > 0);
	KTAP_CHECK(it.repaired == 1);
}

KTAP_TEST(t_one_miss_in_front_makes_no_difference)
{
	struct tbg_taken k = {};

	begin(false, true);
	KTAP_CHECK(requests(&k, 1, 3) == 0);
	it.knows = true;
	KTAP_CHECK(requests(&k, 10, 3) == 3);
}

KTAP_TEST(t_a_connection_of_misses_is_asked_rarely)
{
	struct tbg_taken k = {};

	begin(false, true);
	requests(&k, 25600, 3);
	KTAP_CHECK(it.asked > 90 && it.asked < 120);
	KTAP_CHECK(it.given == 0);
	/* and yet it is given back once all its requests are hits */
	it.knows = true;
	KTAP_CHECK(requests(&k, 258, 3) > 0);
}

KTAP_TEST(t_replies_that_are_too_long_are_given_rarely)
{
	struct tbg_taken k = {};

	begin(true, false);
	requests(&k, 25900, 3);
	KTAP_CHECK(it.given > 90 && it.given < 120);
	KTAP_CHECK(it.asked < 4 * it.given);
}

KTAP_TEST(t_given_where_its_client_is_by_now)
{
	struct tbg_taken k = { .tcb.ifindex = 2 };

	begin(true, true);
	it.ifindex = 3;
	KTAP_CHECK(requests(&k, 1, 1) == 1);
	KTAP_CHECK(it.ran_on == 3);
	begin(true, true);
	it.lost = true;
	KTAP_CHECK(requests(&k, 10, 1) == 0);
	KTAP_CHECK(!it.given && !it.there);
}

/* Hands the connection of *k over after `stay` answers of wire, and takes it. */
static void hand_over(struct tbg_taken *k, unsigned int stay)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(9),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	static const struct tbg_tcbs none;
	struct tbg_tcb tcb = k->tcb;

	/* as a give-back leaves them to wire */
	tcb.given_at = tcb.answers;
	tcb.answers += stay;
	tcb.state = TBG_TCB_HANDED;
	it.handed = &tcb;
	KTAP_CHECK(!connect(fd, (void *)&to, sizeof(to)));
	KTAP_CHECK(!tbg_tcb_take(&none, fd, k));
	it.handed = NULL;
	close(fd);
}

KTAP_TEST(t_give_backs_that_do_not_pay_need_more_requests)
{
	struct tbg_taken k = {};

	begin(true, true);
	for (int i = 0; i < 4; i++) {
		hand_over(&k, 1);
		KTAP_CHECK(requests(&k, 100, 1) == 1);
	}
	k = (struct tbg_taken){};
	/* its first hand-over, which follows no give-back, is no sign */
	hand_over(&k, 0);
	KTAP_CHECK(requests(&k, 100, 3) == 3);
	k.tcb.answers = 4;
	for (unsigned int n = 6; n <= 96; n *= 2) {
		hand_over(&k, 1);
		KTAP_CHECK(requests(&k, 200, 3) == n);
	}
	hand_over(&k, 11);
	KTAP_CHECK(requests(&k, 200, 3) == 96);
	/* 12 answers pay */
	hand_over(&k, 12);
	KTAP_CHECK(requests(&k, 200, 3) == 48);
	for (int i = 0; i < 6; i++)
		hand_over(&k, 30);
	KTAP_CHECK(requests(&k, 200, 3) == 3);
}

KTAP_TEST(t_a_busy_connection_is_looked_at_once)
{
	static struct tbg_tcbs t;
	const struct tbg_tcb owing = { .snd_nxt = 1000, .acked = 500, .last.len = 1000 };

	begin(false, false);
	it.handed = &owing;
	KTAP_CHECK(!tbg_tcbs_open(&t, -1, -1, -1, -1));
	/* three replies of each while nothing is overdue */
	it.due = 200;
	for (int i = 0; i < 3; i++)
		tbg_tcbs_again(&t, 1000000);
	KTAP_CHECK(!it.again);
	KTAP_CHECK(t.due_nr == 200);
	it.due = 0;
	tbg_tcbs_again(&t, TBG_DUE_MS * 1000000ull);
	KTAP_CHECK(it.again == 200);
	tbg_tcbs_close(&t);
}

KTAP_MAIN()
