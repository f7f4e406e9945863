/* The hosts that a training runs on: their devices, and the links inside them and between. */
#ifndef RPI_PLAN_MACHINE_H
#define RPI_PLAN_MACHINE_H

#include "plan/foresight/device_table.h"
#include "plan/foresight/measured_rates.h"

typedef struct rpi_machine {
    rpi_plan_device device;
    int64_t ranks_per_host;
    double link_bytes_s, link_latency_s; /* of a host, which its ranks share */
    double local_bytes_s, local_latency_s;
    /* Bytes of an encoded gradient's element between hosts; 0: as it is. */
    double codec_bytes;
    /* Seconds to encode and decode one; 0: as long as its bytes take at the memory's rate. */
    double codec_s;
    /* Bytes of an encoded activation's element between ranks of a replica; 0: as it is. */
    double activation_bytes;
    /* By size, in place of what follows from the device's facts; NULL: nothing was measured. A
     * device that was is the cores of its host: what they send keeps them from computing. */
    const rpi_measured_rates *rates;
} rpi_machine;

#endif
