/* A store that several threads of a process use at a time, where a store itself takes one call
 * at a time: calls come in turn, and a long wait is many short ones. */
#ifndef RPI_NET_STORE_SHARED_H
#define RPI_NET_STORE_SHARED_H

#include "redpoll/store.h"

/* inner: borrowed until rp_store_close(), which leaves it open. */
rp_status rpi_store_share(const rp_store *inner, rp_store *out_shared);

#endif
