/* The library's own threads. They take no signals, which belong to the program. */
#ifndef RPI_NET_SIGNAL_MASKED_THREAD_H
#define RPI_NET_SIGNAL_MASKED_THREAD_H

#include "base/status.h"

#include <pthread.h>

/* As pthread_create, joinable, with every signal blocked. RP_IO names `what`. */
rp_status rpi_signal_masked_thread(const char *what, void *(*run)(void *), void *context,
                                   pthread_t *out_thread);

#endif
