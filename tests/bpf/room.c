// SPDX-License-Identifier: GPL-2.0
/*
 * Connections without a socket where the table has no place for one more: one that begins,
 * and one that has ended and would stay for the time of TIME_WAIT. Needs root. Attaches
 * nothing.
 */
#include "late.h"

#include <sys/socket.h>

#define HIT_CLOSE "GET /a HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"
#define ISN 5000

static int tcbs(void)
{
	return bpf_map__fd(bpf->maps.tbg_tcbs);
}

static struct tbg_tcb_room room(void)
{
	struct tbg_tcb_room ret = { 0 };
	uint32_t zero = 0;

	bpf_map_lookup_elem(bpf_map__fd(bpf->maps.tbg_tcb_rooms), &zero, &ret);
	return ret;
}

static void room_set(struct tbg_tcb_room to)
{
	uint32_t zero = 0;

	bpf_map_update_elem(bpf_map__fd(bpf->maps.tbg_tcb_rooms), &zero, &to, 0);
}

/* A segment of a client without options; what wire does with it. */
static int client_sends(struct frame *f, const struct peer *p, uint8_t flags, const char *data)
{
	segment(f, p, true, flags, p->seq, p->ack, "", 0, data, strlen(data));
	return ingress(f);
}

static bool is_there(const struct peer *p)
{
	struct tbg_tcb_key key = { .flow = key_of(p) };
	struct tbg_tcb t;

	return !bpf_map_lookup_elem(tcbs(), &key, &t);
}

/* --- connections that have ended ------------------------------------------ */

/*
 * Begins a connection, and sends a request with Connection: close on it. Returns whether wire's
 * answer has a FIN.
 */
static bool closed_by_wire(struct peer *p)
{
	struct tbg_tcb t = {
		.rcv_nxt = ISN, .snd_nxt = ISN, .acked = ISN, .ifindex = 1, .win = htons(500),
		.mss = 1440, .peer_mss = 1460, .flags = TBG_TCB_DF, .ttl = 64,
		.seen_ms = now_ms(), .born_ms = now_ms(),
	};
	struct tbg_tcb_key key;
	unsigned int len;
	struct frame f;

	*p = (struct peer){ .port = peer_port++, .window = 65535, .seq = ISN, .ack = ISN };
	key = (struct tbg_tcb_key){ .flow = key_of(p) };
	if (bpf_map_update_elem(tcbs(), &key, &t, 0) ||
	    client_sends(&f, p, TH_ACK | TH_PUSH, HIT_CLOSE) != REDIRECT)
		return false;
	data_of(&f, p, &len);
	p->seq += strlen(HIT_CLOSE);
	p->ack += len + 1;		/* its FIN, too */
	return tcp_of(&f, p)->fin;
}

/* However its last segment looks, which ends the connection on both sides. */
KTAP_TEST(t_closed_connections_beyond_their_limit_are_not_kept)
{
	static const char *const data[] = { "", "GET /none" };
	struct peer p;
	struct frame f;

	NEED_LATE();
	set_clock(784111777);
	publish("/a", 1, 7, 'a', 300);
	for (int i = 0; i < 2; i++) {
		for (int kept = 0; kept < 2; kept++) {
			room_set((struct tbg_tcb_room){ .closed = 5, .closed_most = 5 + kept });
			KTAP_CHECK(closed_by_wire(&p));
			KTAP_EQ(client_sends(&f, &p, TH_ACK | TH_FIN | TH_PUSH, data[i]), REDIRECT);
			KTAP_EQ(is_there(&p), kept);
			KTAP_EQ(room().closed, 5 + kept);
		}
		/* our FIN is not acknowledged: it has to be repeated */
		room_set((struct tbg_tcb_room){ .closed = 5, .closed_most = 5 });
		KTAP_CHECK(closed_by_wire(&p));
		p.ack--;
		KTAP_EQ(client_sends(&f, &p, TH_ACK | TH_FIN | TH_PUSH, data[i]), REDIRECT);
		KTAP_CHECK(is_there(&p));
	}
	room_set((struct tbg_tcb_room){ 0 });
}

/* --- connections that begin ----------------------------------------------- */

/* A socket that listens at the port of the peers, as one of the daemon's. */
static int listener(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(80) };
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	uint32_t nr = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (void *)&at, sizeof(at)) || listen(fd, 1) ||
	    bpf_map_update_elem(bpf_map__fd(bpf->maps.tbg_listeners), &fd, &nr, BPF_ANY))
		return -1;
	return fd;
}

/* What the kernel offers a client that sends no option but the MSS. */
static void offer_put(const struct peer *p)
{
	struct tbg_offer offer = { .window = 65535, .learned_ms = now_ms() };
	struct tbg_offer_key key = { .ifindex = 1, .port = htons(80) };
	struct tbg_flow_key ends = key_of(p);

	memcpy(key.local, ends.local, sizeof(key.local));
	bpf_map_update_elem(bpf_map__fd(bpf->maps.tbg_offers), &key, &offer, BPF_ANY);
}

/* Takes the places that are left. Returns whether there is none any more. */
static bool fill(void)
{
	struct peer other = { 0 };
	struct tbg_tcb t = { 0 };
	int err = 0;

	for (uint32_t i = 0; i <= SLOTS && !err; i++) {
		struct tbg_tcb_key key;

		other.port = 60000 - i;
		key = (struct tbg_tcb_key){ .flow = key_of(&other) };
		err = bpf_map_update_elem(tcbs(), &key, &t, BPF_NOEXIST);
	}
	return err == -E2BIG;
}

static void empty(void)
{
	struct tbg_tcb_key key;

	while (!bpf_map_get_next_key(tcbs(), NULL, &key))
		bpf_map_delete_elem(tcbs(), &key);
}

/*
 * The client has its SYN-ACK from wire: the kernel, which has seen no SYN, would reset it.
 * The next segment finds a place.
 */
KTAP_TEST(t_connection_without_a_place_is_dropped_and_counted)
{
	struct peer p = { .port = peer_port++, .window = 500, .seq = ISN };
	uint64_t full, dropped, born;
	struct frame f;
	int fd;

	NEED_LATE();
	fd = listener();
	KTAP_CHECK(fd >= 0);
	offer_put(&p);
	knob->births = TBG_BIRTHS_WIRE;
	segment(&f, &p, true, TH_SYN, ISN - 1, 0, "\x02\x04\x05\xb4", 4, "", 0);
	KTAP_EQ(ingress(&f), REDIRECT);
	p.ack = ntohl(tcp_of(&f, &p)->seq) + 1;

	empty();
	KTAP_CHECK(fill());
	full = counted(TBG_WHY_FULL);
	dropped = counted(TBG_WHY_DROPPED);
	born = counted(TBG_WHY_BORN);
	KTAP_EQ(client_sends(&f, &p, TH_ACK, ""), SHOT);
	KTAP_EQ(client_sends(&f, &p, TH_ACK | TH_PUSH, "GET /none HTTP/1.1\r\n"), SHOT);
	KTAP_EQ(counted(TBG_WHY_FULL), full + 2);
	KTAP_EQ(counted(TBG_WHY_DROPPED), dropped);
	KTAP_EQ(counted(TBG_WHY_BORN), born);

	empty();
	KTAP_EQ(client_sends(&f, &p, TH_ACK, ""), SHOT);
	KTAP_EQ(counted(TBG_WHY_BORN), born + 1);
	KTAP_CHECK(is_there(&p));
	empty();
	knob->births = 0;
	close(fd);
}
