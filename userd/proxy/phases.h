/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The phases of a transfer. Four sequences run in parallel: how the answer is found
 * (transfer), how the request arrives from the client (upload), how it is sent to a
 * server (sending), and how the answer is sent to the client (delivery).
 *
 * Each list names the phases that may follow; any other change is a programming error,
 * caught by assert(). Documentation/request-life.rst is drawn from these lists
 * (tools/draw-phases).
 */
#ifndef TBG_USERD_PROXY_PHASES_H
#define TBG_USERD_PROXY_PHASES_H

#include <stdint.h>

/* X(name, text, phases that may follow) */
#define TBG_TRANSFER_PHASE_LIST(X) \
	X(BEGIN,   "begins",                              TO(BODY) | TO(WAIT) | TO(CONNECT) | TO(DONE)) \
	X(BODY,    "receives the request's body",         TO(WAIT) | TO(CONNECT) | TO(DONE)) \
	X(WAIT,    "waits for another request's fetch",   TO(CONNECT) | TO(DONE)) \
	X(CONNECT, "waits for a connection to a server",  TO(ASK) | TO(DONE)) \
	X(ASK,     "waits for the head of a response",    TO(CONNECT) | TO(HEAD) | TO(DONE)) \
	X(HEAD,    "receives the head of a response",     TO(CONNECT) | TO(ASK) | TO(RECEIVE) | TO(DONE)) \
	X(RECEIVE, "receives the response",               TO(STORE) | TO(PAUSE) | TO(DONE)) \
	X(STORE,   "receives the response and stores it", TO(RECEIVE) | TO(DONE)) \
	X(PAUSE,   "waits for the client to take the response", TO(RECEIVE) | TO(DONE)) \
	X(DONE,    "has nothing to wait for",             0)

/* The request, as it arrives from the client. */
#define TBG_UPLOAD_PHASE_LIST(X) \
	X(HEAD,    "its head is being read",              TO(BODY) | TO(OFFER) | TO(END)) \
	X(BODY,    "more of its body arrives",            TO(END)) \
	X(OFFER,   "it offers another protocol",          TO(TUNNEL) | TO(END)) \
	X(TUNNEL,  "the bytes of a tunnel come",          TO(END)) \
	X(END,     "no more of it arrives",               0)

/* The request, as it is sent to the current server. The next server begins with HEAD again. */
#define TBG_SENDING_PHASE_LIST(X) \
	X(HEAD,    "its head is to be sent",              TO(BODY) | TO(LAST)) \
	X(BODY,    "its body is sent as it arrives",      TO(LAST) | TO(CUT) | TO(FAILED) | TO(HEAD)) \
	X(LAST,    "its last bytes are being sent",       TO(SENT) | TO(CUT) | TO(HEAD)) \
	X(SENT,    "all of it is sent",                   TO(HEAD)) \
	X(CUT,     "the server takes no more of it",      TO(HEAD)) \
	X(FAILED,  "it cannot be sent",                   0)

#define TBG_DELIVERY_PHASE_LIST(X) \
	X(NONE,    "no answer yet",                       TO(MADE)) \
	X(MADE,    "an answer, not a byte of it sent",    TO(NONE) | TO(SENDING)) \
	X(SENDING, "an answer on its way",                TO(ANSWERED)) \
	X(ANSWERED, "answered",                           0)

enum tbg_transfer_phase {
#define X(name, text, next) TBG_TRANSFER_##name,
	TBG_TRANSFER_PHASE_LIST(X)
#undef X
};

enum tbg_upload_phase {
#define X(name, text, next) TBG_UPLOAD_##name,
	TBG_UPLOAD_PHASE_LIST(X)
#undef X
};

enum tbg_sending_phase {
#define X(name, text, next) TBG_SENDING_##name,
	TBG_SENDING_PHASE_LIST(X)
#undef X
};

enum tbg_delivery_phase {
#define X(name, text, next) TBG_DELIVERY_##name,
	TBG_DELIVERY_PHASE_LIST(X)
#undef X
};

struct tbg_transfer;

/* Enter the next phase; assert that it may follow. */
void tbg_transfer_enter(struct tbg_transfer *x, enum tbg_transfer_phase next);
void tbg_upload_enter(struct tbg_transfer *x, enum tbg_upload_phase next);
void tbg_sending_enter(struct tbg_transfer *x, enum tbg_sending_phase next);
void tbg_delivery_enter(struct tbg_transfer *x, enum tbg_delivery_phase next);

/* "?": there is no such phase. */
const char *tbg_transfer_phase_text(uint32_t phase);
const char *tbg_upload_phase_text(enum tbg_upload_phase phase);
const char *tbg_sending_phase_text(enum tbg_sending_phase phase);
const char *tbg_delivery_phase_text(enum tbg_delivery_phase phase);

#endif
