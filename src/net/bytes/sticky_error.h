/* The error by which a link failed, kept so that later calls fail with it, too. */
#ifndef RPI_NET_STICKY_ERROR_H
#define RPI_NET_STICKY_ERROR_H

#include "base/status.h"

#include <stdbool.h>

typedef struct rpi_sticky_error {
    rp_status status; /* RP_OK: none */
    bool told; /* the caller has seen it, and the link is not ready because of it again */
    char text[200];
} rpi_sticky_error;

/* Keep a status and this thread's recorded message; only the first one is kept. Returns it. */
rp_status rpi_sticky_error_keep(rpi_sticky_error *sticky, rp_status status);
/* Fail with the kept status; RP_OK if there is none. */
rp_status rpi_sticky_error_raise(rpi_sticky_error *sticky);

#endif
