/* A wait for a key of a store, during which the caller checks whether it can still be set. */
#ifndef RPI_NET_STORE_WAIT_H
#define RPI_NET_STORE_WAIT_H

#include "net/bytes/look.h"
#include "redpoll/store.h"

/* As store->ops->get(), or the status of the check. */
rp_status rpi_store_wait(const rp_store *store, const char *key, int64_t deadline_ns,
                         rpi_look *look, void *value, size_t capacity, size_t *out_bytes);

#endif
