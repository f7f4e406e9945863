/* The hosts of a training: their devices, and the links inside and between them. */
#ifndef RPI_PLAN_MACHINE_H
#define RPI_PLAN_MACHINE_H

#include "plan/foresight/device_table.h"
#include "plan/foresight/measured_rates.h"

typedef struct rpi_machine {
    rpi_plan_device device;
    int64_t ranks_per_host;
    double link_bytes_s, link_latency_s; /* a host's, which its ranks share */
    double local_bytes_s, local_latency_s;
    /* Bytes of an element of a gradient that is encoded between hosts; 0: not encoded. */
    double codec_bytes;
    /* Seconds to encode and decode one; 0: the time of its bytes at the memory's rate. */
    double codec_s;
    /* Bytes of an element of an activation that is encoded between ranks of a replica; 0: not
     * encoded. */
    double activation_bytes;
    /* Measured rates by size, which replace those of the device's facts; NULL: not measured. A
     * measured device is the cores of its host, which do not compute while they send. */
    const rpi_measured_rates *rates;
} rpi_machine;

#endif
