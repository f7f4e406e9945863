/* A store for several threads of a process. A store itself takes one call at a time, so calls
 * take turns, and a long wait is divided into many short ones. */
#ifndef RPI_NET_STORE_SHARED_H
#define RPI_NET_STORE_SHARED_H

#include "redpoll/store.h"

/* inner: borrowed until rp_store_close(), which leaves it open. */
rp_status rpi_store_share(const rp_store *inner, rp_store *out_shared);

#endif
