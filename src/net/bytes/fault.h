/* Why a link failed, kept so that it fails the same way again. */
#ifndef RPI_NET_FAULT_H
#define RPI_NET_FAULT_H

#include "base/status.h"

#include <stdbool.h>

typedef struct rpi_fault {
    rp_status status; /* RP_OK: none */
    bool told;        /* the caller has seen it: no news any more */
    char text[200];
} rpi_fault;

/* Keep a status and this thread's recorded message; only the first counts. Returns it. */
rp_status rpi_fault_keep(rpi_fault *fault, rp_status status);
/* Fail with what was kept; RP_OK when nothing was. */
rp_status rpi_fault_raise(rpi_fault *fault);

#endif
