/* Links that are connected when they are first needed, by whichever side needs it first.
 *
 * A thread of the endpoint's own accepts callers and calls peers, so that a connection is made
 * while the rank computes, too, and nothing else waits for it. What is made is handed to
 * whoever makes progress: rpi_connector_connected().
 *
 *     of a peer:   NONE ---- request() ----> CALLING ---- it answers ----------------> UP
 *                   |                      |   |
 *                   |                      |   '-- it has ended, or refuses -----> FAILED
 *                   |                      '------ it calls, and that counts ---> CALLED
 *                   '------ it calls ---> CALLED -- its connection stands --------> UP
 *                                           '--- no memory for it: NONE, or FAILED
 *
 * Where two ranks call each other at once the call of the higher one counts: the lower takes it
 * and drops its own, which the higher turns away. So neither waits for the other to give in. As
 * long as the higher has not said its hello its call cannot be the link: it takes the other's.
 * A peer that hangs up before it has answered had too many callers, and one that cannot be
 * reached now may be later: both are called again, as long as the connector is there. How long
 * an operation waits for that is its own timeout's matter; only a peer that listens no more has
 * failed. UP and FAILED are for good.
 *
 * Of a link that is several connections the first, stream 0, goes that way, and then whoever
 * called makes the others, before the link is UP:
 *
 *     CALLING -- stream 0 stands --> ADDING (calls the others) -- all stand --> UP
 *     CALLED (is called by them) -------------------------------- all stand --> UP
 *
 * When one of them fails the link has. */
#ifndef RPI_NET_CONNECTOR_H
#define RPI_NET_CONNECTOR_H

#include "net/link/call.h"

typedef struct rpi_connector rpi_connector;

/* Takes over the listening descriptor, also if it fails. `context` is passed to the kind, in
 * the connector's thread. */
rp_status rpi_connector_open(const rpi_hello *self, int listener, const rpi_call_kind *kind,
                             void *context, rpi_connector **out_connector);
/* Does not wait. NULL is fine. */
void rpi_connector_close(rpi_connector *connector);
/* In a child made by fork(): closes its copies of the descriptors (transport.h). */
void rpi_connector_close_after_fork(rpi_connector *connector);
/* A link to this peer is needed; may be repeated. The address is borrowed until close(). */
rp_status rpi_connector_request(rpi_connector *connector, int peer, const char *address);
/* The next connection that is made, or has failed (see its status); NULL: none. The caller
 * frees it, and takes what it keeps out of it before. Cheap if there is none. */
rpi_call *rpi_connector_connected(rpi_connector *connector);
/* Readable if connected() would return one. */
int rpi_connector_fd(const rpi_connector *connector);

#endif
