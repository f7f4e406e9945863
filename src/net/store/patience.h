/* How long the client of a store waits for an answer, beyond what its question may take: the
 * process that serves the store may be stopped, or cut off. */
#ifndef RPI_NET_PATIENCE_H
#define RPI_NET_PATIENCE_H

#include "redpoll/store.h"

/* That of a client which had `timeout_s` to connect: as long, within limits. */
double rpi_store_patience(double timeout_s);
/* From now on. Stores of other kinds than the named one, and zeros, are passed over. */
void rpi_store_set_patience_tcp(const rp_store *store, double patience_s);
void rpi_store_set_patience_torch(const rp_store *store, double patience_s);

#endif
