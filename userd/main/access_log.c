// SPDX-License-Identifier: GPL-2.0
/*
 * What the daemon's log is given beside the request itself: what only the sites of
 * now can tell of it. Called for each line that asks for that, by workers for their
 * answers and by the control thread for those of the kernel tiers.
 */
#include <string.h>

#include "log/access.h"
#include "main/server.h"
#include "site/told.h"

void tbg_server_tell(const struct tbg_sites *sites, struct tbg_log_record *r)
{
	static _Thread_local struct tbg_told told;
	char peer[INET6_ADDRSTRLEN];

	tbg_told_read(&told, sites, r->req, r->req_len, tbg_log_peer(r, peer));
	if (*told.client)
		r->client = told.client;
	if (r->request_id)
		return;
	r->request_id = told.id;
	r->request_id_len = strlen(told.id);
}

static void kernel_tell(void *arg, struct tbg_log_record *r)
{
	const struct tbg_server *s = arg;

	tbg_server_tell(s->sites, r);
}

void tbg_server_log_set(struct tbg_server *s, struct tbg_log *log)
{
	tbg_log_teller(log, kernel_tell, s);
	s->log = log;
}
