/* How long the client of a store waits for a reply, beyond the wait that it requests: the
 * process that serves the store may be stopped, or cut off. */
#ifndef RPI_NET_RESPONSE_TIMEOUT_H
#define RPI_NET_RESPONSE_TIMEOUT_H

#include "redpoll/store.h"

/* For a client that had `timeout_s` to connect: the same time, within limits. */
double rpi_store_response_timeout(double timeout_s);
/* From now on. Stores of other kinds than the named one, and zeros, are ignored. */
void rpi_store_set_response_timeout_tcp(const rp_store *store, double response_timeout_s);
void rpi_store_set_response_timeout_torch(const rp_store *store, double response_timeout_s);

#endif
