/* The TCP store with a given secret; the public calls (redpoll/store.h) use that of this
 * process's environment. */
#ifndef RPI_NET_STORE_TCP_H
#define RPI_NET_STORE_TCP_H

#include "net/trust/secret.h"
#include "redpoll/store.h"

/* `secret` is copied; an unset one makes an open store. */
rp_status rpi_store_serve(const char *host, int port, const rpi_secret *secret,
                          rp_store_server **out_server, int *out_port);
/* RP_MISMATCH: one side has a secret and the other none, or another. */
rp_status rpi_store_connect(const char *host, int port, double timeout_s,
                            const rpi_secret *secret, rp_store *out_store);

#endif
