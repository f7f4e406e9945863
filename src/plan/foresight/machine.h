/* The hosts that a training runs on: their devices, and the links inside them and between. */
#ifndef RPI_PLAN_MACHINE_H
#define RPI_PLAN_MACHINE_H

#include "plan/foresight/device_table.h"

typedef struct rpi_machine {
    rpi_plan_device device;
    int64_t ranks_per_host;
    double link_bytes_s, link_latency_s; /* of a host, which its ranks share */
    double local_bytes_s, local_latency_s;
    /* Bytes of an encoded gradient's element between hosts; 0: as it is. */
    double codec_bytes;
} rpi_machine;

#endif
