// SPDX-License-Identifier: GPL-2.0
/*
 * Transfers (userd/proxy), phase by phase. The client's connection and the connections
 * to servers are fakes: data sent to either is kept as text, and the test decides what
 * each sends, and when.
 */
#include "fake_connections.h"

KTAP_TEST(t_request_goes_through_its_phases_one_after_the_other)
{
	struct tbg_transfer *x;

	begin();
	x = ask(GET);
	KTAP_CHECK(x->phase == TBG_TRANSFER_CONNECT && x->delivery == TBG_DELIVERY_NONE);
	connected(0);
	KTAP_CHECK(x->phase == TBG_TRANSFER_ASK && strstr(it.asked, "GET /a HTTP/1.1\r\n"));
	taken();
	answers("HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nTransfer-Encoding: chunked\r\n\r\n");
	KTAP_CHECK(x->phase == TBG_TRANSFER_RECEIVE);
	KTAP_CHECK(x->delivery == TBG_DELIVERY_SENDING && client_has(0, "200 OK"));
	answers("5\r\nhello\r\n");
	KTAP_CHECK(client_has(0, "\r\n\r\n5\r\nhello\r\n") && !it.status[0]);
	answers("0\r\n\r\n");
	KTAP_CHECK(it.status[0] == 200 && client_has(0, "hello\r\n0\r\n\r\n"));
	KTAP_CHECK(it.kept == 1 && !it.dropped);
	end();
}

KTAP_TEST(t_sending_of_a_request_has_phases_beside_those)
{
	struct tbg_transfer *x;

	begin();
	x = ask("POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
	KTAP_EQ(x->sending, TBG_SENDING_HEAD);
	connected(0);
	KTAP_EQ(x->sending, TBG_SENDING_BODY);
	taken();
	strcpy(it.input, "5\r\nhello\r\n");
	x->answerer.ops->input(&x->answerer);
	taken();
	KTAP_CHECK(x->sending == TBG_SENDING_BODY && strstr(it.asked, "hello"));
	strcpy(it.input, "0\r\n\r\n");
	x->answerer.ops->input(&x->answerer);
	KTAP_EQ(x->sending, TBG_SENDING_LAST);
	taken();
	KTAP_EQ(x->sending, TBG_SENDING_SENT);
	answers("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
	KTAP_CHECK(it.status[0] == 200 && it.kept == 1);
	end();
}

KTAP_TEST(t_connection_whose_server_takes_no_more_is_not_kept)
{
	struct tbg_transfer *x;

	begin();
	x = ask("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n");
	connected(0);
	taken();
	strcpy(it.input, "hello");
	x->answerer.ops->input(&x->answerer);
	it.up->send.busy = false;
	tbg_fetch_sent(x, -EPIPE);
	KTAP_EQ(x->sending, TBG_SENDING_CUT);
	answers("HTTP/1.1 413 No\r\nContent-Length: 0\r\n\r\n");
	KTAP_CHECK(it.status[0] == 413 && !it.kept && it.dropped == 1);
	end();
}

KTAP_TEST(t_each_server_is_sent_the_request_from_its_head_on)
{
	struct tbg_transfer *x;

	begin();
	x = ask(GET);
	for (unsigned int nr = 1; nr <= 2; nr++) {
		connected(0);
		KTAP_CHECK(x->sending == TBG_SENDING_LAST && strstr(it.asked, "GET /a HTTP/1.1\r\n"));
		taken();
		KTAP_CHECK(x->sending == TBG_SENDING_SENT && it.up_nr == nr);
		answers("");
	}
	end();
}

KTAP_TEST(t_next_server_is_asked_where_one_refuses)
{
	struct tbg_transfer *x;

	begin();
	x = ask(GET);
	connected(-ECONNREFUSED);
	KTAP_CHECK(x->phase == TBG_TRANSFER_CONNECT && it.up_nr == 2 && it.nr[0] != it.nr[1]);
	connected(-ECONNREFUSED);
	KTAP_CHECK(it.up_nr == 2 && it.status[0] == 502 && it.dropped == 2);
	end();
}

KTAP_TEST(t_idempotent_request_is_sent_again_and_no_other)
{
	begin();
	ask(GET);
	connected(0);
	taken();
	answers("");
	KTAP_CHECK(it.up_nr == 2 && !it.status[0]);
	end();
	begin();
	ask("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
	connected(0);
	taken();
	answers("");
	KTAP_CHECK(it.up_nr == 1 && it.status[0] == 502);
	end();
}

KTAP_TEST(t_body_is_received_whole_where_configured)
{
	struct tbg_transfer *x;

	begin();
	it.location.body_buffer = 4096;
	x = ask("POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
	KTAP_CHECK(x->phase == TBG_TRANSFER_BODY && !it.up_nr);
	strcpy(it.input, "5\r\nhello\r\n");
	x->answerer.ops->input(&x->answerer);
	KTAP_CHECK(x->phase == TBG_TRANSFER_BODY && x->answerer.ops->waits_client(&x->answerer));
	strcpy(it.input, "0\r\n\r\n");
	x->answerer.ops->input(&x->answerer);
	KTAP_CHECK(x->phase == TBG_TRANSFER_CONNECT);
	connected(0);
	taken();
	KTAP_CHECK(strstr(it.asked, "Content-Length: 5\r\n"));
	KTAP_CHECK(!strcmp(strstr(it.asked, "\r\n\r\n"), "\r\n\r\nhello"));
	end();
}

KTAP_TEST(t_malformed_body_is_answered_and_no_server_asked)
{
	struct tbg_transfer *x;

	begin();
	it.location.body_buffer = 4096;
	x = ask("POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
	strcpy(it.input, "x\r\n");
	x->answerer.ops->input(&x->answerer);
	round_end();
	KTAP_CHECK(it.status[0] == 400 && !it.up_nr && client_has(0, "Connection: close\r\n"));
	end();
}

KTAP_TEST(t_client_that_stops_within_its_body_is_answered_408)
{
	struct tbg_transfer *x;

	begin();
	it.location.body_buffer = 4096;
	x = ask("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n");
	KTAP_CHECK(x->answerer.ops->late(&x->answerer));
	round_end();
	KTAP_CHECK(it.status[0] == 408 && !it.up_nr);
	end();
}

KTAP_TEST(t_second_request_waits_for_the_fetch_of_the_first)
{
	struct tbg_transfer *x;

	begin();
	ask_by(0, GET);
	x = ask_by(1, GET);
	KTAP_CHECK(x->phase == TBG_TRANSFER_WAIT && it.up_nr == 1);
	connected(0);
	taken();
	answers("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello");
	round_end();
	KTAP_CHECK(it.status[0] == 200 && it.status[1] == 200 && it.up_nr == 1);
	KTAP_CHECK(client_has(0, "hello") && client_has(1, "hello"));
	end();
}

KTAP_TEST(t_stored_response_answers_without_a_server)
{
	begin();
	ask(GET);
	connected(0);
	taken();
	answers("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello");
	KTAP_CHECK(it.status[0] == 200 && it.up_nr == 1);
	ask_by(1, GET);
	round_end();
	KTAP_CHECK(it.status[1] == 200 && it.up_nr == 1 && client_has(1, "Age: 0\r\n"));
	end();
}

KTAP_TEST(t_fetch_ends_with_its_client_unless_others_wait)
{
	struct tbg_transfer *x;

	begin();
	ask(GET);
	connected(0);
	tbg_conn_kill(&it.w, &it.c[0]);
	KTAP_CHECK(it.dropped == 1 && LIST_EMPTY(&it.w.transfers));
	end();
	begin();
	x = ask_by(0, GET);
	ask_by(1, GET);
	connected(0);
	tbg_conn_kill(&it.w, &it.c[0]);
	KTAP_CHECK(!it.dropped && x->serves == TBG_SERVES_OTHERS);
	taken();
	answers("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello");
	round_end();
	KTAP_CHECK(it.status[1] == 200 && client_has(1, "hello") && !it.sent_len[0]);
	end();
}

KTAP_TEST(t_answer_is_taken_back_while_not_a_byte_is_sent)
{
	struct tbg_transfer *x;

	begin();
	x = ask("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
	connected(0);
	taken();
	answers("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
	KTAP_CHECK(x->delivery == TBG_DELIVERY_MADE && !it.sent_len[0]);
	answers("");
	KTAP_CHECK(it.status[0] == 502 && !client_has(0, "200 OK") && !it.killed[0]);
	end();
}

KTAP_TEST(t_answer_that_has_begun_is_broken_off)
{
	begin();
	ask("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
	connected(0);
	taken();
	answers("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nhalf");
	KTAP_CHECK(client_has(0, "200 OK"));
	answers("");
	KTAP_CHECK(it.killed[0] && !it.status[0]);
	end();
}

KTAP_TEST(t_server_is_held_back_while_the_client_takes_nothing)
{
	static char piece[32 << 10];
	struct tbg_transfer *x;
	unsigned int nr = 0;

	memset(piece, 'a', sizeof(piece) - 1);
	begin();
	x = ask("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
	connected(0);
	taken();
	it.room = 10;
	answers("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n");
	while (it.up->recv.busy && nr++ < 100) {
		piece[it.into_len < sizeof(piece) ? it.into_len : sizeof(piece) - 1] = 0;
		answers(piece);
		memset(piece, 'a', sizeof(piece) - 1);
	}
	KTAP_CHECK(nr < 100 && tbg_deliver_blocked(x) &&
		   x->phase == TBG_TRANSFER_PAUSE && it.sent_len[0] == 10);
	client_reads(x);
	KTAP_CHECK(it.up->recv.busy && x->phase == TBG_TRANSFER_RECEIVE && it.sent_len[0] > 500000);
	end();
}

KTAP_TEST(t_silent_server_is_given_up_by_phase)
{
	struct tbg_transfer *x;

	begin();
	x = ask("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
	it.w.now_ms += 1001;
	tbg_transfers_check(&it.w);
	KTAP_CHECK(x->phase == TBG_TRANSFER_CONNECT && it.up_nr == 2);	/* the other server */
	connected(0);
	taken();
	it.w.now_ms += 1001;
	tbg_transfers_check(&it.w);
	KTAP_CHECK(x->phase == TBG_TRANSFER_ASK);
	it.w.now_ms += 1000;
	tbg_transfers_check(&it.w);
	round_end();
	KTAP_CHECK(it.status[0] == 504 && it.up_nr == 2);
	end();
}

KTAP_MAIN()
