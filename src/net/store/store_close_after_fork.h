/* In a child that fork() made: a store's copies of descriptors are closed (close_after_fork.h).
 */
#ifndef RPI_NET_STORE_CLOSE_AFTER_FORK_H
#define RPI_NET_STORE_CLOSE_AFTER_FORK_H

#include "net/bytes/close_after_fork.h"
#include "redpoll/store.h"

/* Stores of other kinds than the named one, and zeros, are passed over. */
void rpi_store_close_after_fork_tcp(const rp_store *store);
void rpi_store_close_after_fork_torch(const rp_store *store);
void rpi_store_server_close_after_fork(rp_store_server *server); /* NULL is fine */

#endif
