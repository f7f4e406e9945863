/* In a child that fork() made: a store's copies of descriptors are closed (forget.h). */
#ifndef RPI_NET_STORE_FORGET_H
#define RPI_NET_STORE_FORGET_H

#include "net/bytes/forget.h"
#include "redpoll/store.h"

/* Stores of other kinds than the named one, and zeros, are passed over. */
void rpi_store_forget_tcp(const rp_store *store);
void rpi_store_forget_torch(const rp_store *store);
void rpi_store_server_forget(rp_store_server *server); /* NULL is fine */

#endif
