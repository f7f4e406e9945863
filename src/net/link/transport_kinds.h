/* The kinds that the catalogue lists, each defined in a file of its own. */
#ifndef RPI_NET_TRANSPORT_KINDS_H
#define RPI_NET_TRANSPORT_KINDS_H

#include "net/link/transport.h"

extern const rpi_transport rpi_transport_inproc;
extern const rpi_transport rpi_transport_shm;
extern const rpi_transport rpi_transport_tcp;
extern const rpi_transport rpi_transport_shaped;

#endif
