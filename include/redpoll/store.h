/** The store contract: a small shared dictionary through which ranks find each other.
 *
 * Communicators are created from a store and never from an address, so that PyTorch's store or
 * an MPI world can be one. Redpoll's own kinds are made by rp_store_serve() and friends below.
 */
#ifndef REDPOLL_STORE_H
#define REDPOLL_STORE_H

#include "redpoll/status.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What a store must do. Keys are NUL-terminated, values any bytes up to 64 KiB. All functions
 *  may be called from any thread, one call at a time for each rp_store. Required: all but
 * close, get_page and compare_set. */
typedef struct rp_store_ops {
    /** Set a key, replacing what was there. */
    rp_status (*set)(void *context, const char *key, const void *value, size_t bytes);
    /** Wait for a key and copy its value; *bytes is its full size, and at most `capacity` bytes
     *  are copied. RP_TIMEOUT when it is not set within timeout_s. */
    rp_status (*get)(void *context, const char *key, double timeout_s, void *value,
                     size_t capacity, size_t *bytes);
    /** Atomically add to a number (0 when absent); *result is the new value. */
    rp_status (*add)(void *context, const char *key, int64_t amount, int64_t *result);
    /** Remove a key; fine when absent. */
    rp_status (*remove)(void *context, const char *key);
    /** Free the store; NULL: the caller keeps the context. */
    void (*close)(void *context);
    /** Many keys by one request, so that P ranks do not ask P times each. Wait until `prefix`
     *  followed by each of the numbers first to first + count - 1 is set ("world/info/" and 3:
     *  "world/info/3"), and copy their values to `values`, one directly behind the other, and
     *  the size of each to sizes[] (room for `count`). *got: how many, from `first` on; fewer
     *  than `count` where timeout_s is over or where no more fit, and the caller asks again
     *  for the rest. RP_TIMEOUT: not even the first is set. capacity: 64 KiB at least. NULL:
     *  the store has nothing better than one get() after the other, which is done then. */
    rp_status (*get_page)(void *context, const char *prefix, int first, int count,
                          double timeout_s, void *values, size_t capacity, size_t *sizes,
                          int *got);
    /** Atomically: where the key holds exactly `expected` (expected_bytes 0: where it is absent
     *  or empty), set it to `desired`. value: what the key holds afterwards, `desired` or what
     *  another has set, at most `capacity` bytes of it; *bytes: its full size, 0 where it is
     *  absent. RP_OK in both cases: compare what has come with what was desired, which says
     *  whose it is if it is different for every caller. A wait for the key may end only at its
     *  own deadline, or at once. NULL: the store cannot, and worlds of views (redpoll/view.h)
     *  cannot use it; nothing else needs it. */
    rp_status (*compare_set)(void *context, const char *key, const void *expected,
                             size_t expected_bytes, const void *desired, size_t desired_bytes,
                             void *value, size_t capacity, size_t *bytes);
} rp_store_ops;

typedef struct rp_store {
    const rp_store_ops *ops;
    void *context;
} rp_store;

typedef struct rp_store_server rp_store_server;

/** Serve a TCP store at host:port from a thread of its own (which sleeps but for requests).
 *  host: NULL for the loopback address; port 0: any free one, read back into *bound_port.
 *  RP_IO when the port is taken (the message says by naming it). Destroy with
 *  rp_store_server_stop(), which closes every client's connection. */
RP_API rp_status rp_store_serve(const char *host, int port, rp_store_server **server,
                                int *bound_port);
RP_API void rp_store_server_stop(rp_store_server *server);

/** Connect to a TCP store, trying until timeout_s. RP_TIMEOUT names host and port, also
 *  where something listens that does not answer; RP_CORRUPT: it answers as no store does. */
RP_API rp_status rp_store_connect(const char *host, int port, double timeout_s,
                                  rp_store *store);

/** A store in this process's memory, for ranks that are threads: open it once, hand copies of
 *  the rp_store to every thread (its ops lock), close it once. */
RP_API rp_status rp_store_open_local(rp_store *store);

/** store->ops->close, where there is one; NULL and zeros are fine. */
RP_API void rp_store_close(rp_store *store);

#ifdef __cplusplus
}
#endif
#endif
