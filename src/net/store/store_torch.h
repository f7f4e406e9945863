/* A client of PyTorch's TCPStore, such as the one a torchrun agent serves at MASTER_PORT. */
#ifndef RPI_NET_STORE_TORCH_H
#define RPI_NET_STORE_TORCH_H

#include "redpoll/store.h"

/* Connect, trying until timeout_s; `prefix` keeps our keys apart from the agent's. Uses the
 * protocol of PyTorch 2.2 and later. A number that was added to is read back as decimal text.
 * Waits repeat the request, every 20 ms at the longest. */
rp_status rpi_store_connect_torch(const char *host, int port, const char *prefix,
                                  double timeout_s, rp_store *out_store);

#endif
