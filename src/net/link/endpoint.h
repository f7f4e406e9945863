/* Checks that every kind of transport makes, with the same messages. */
#ifndef RPI_NET_ENDPOINT_H
#define RPI_NET_ENDPOINT_H

#include "net/link/transport.h"

/* RP_INVALID: a rank outside its world, or frames too short for a header. */
rp_status rpi_endpoint_check(const rpi_endpoint_options *options);
/* RP_INVALID: not another rank of the endpoint's world. */
rp_status rpi_peer_check(const rpi_endpoint *endpoint, int peer);

#endif
