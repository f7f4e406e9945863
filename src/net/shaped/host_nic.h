/* The network interface (NIC) of a named host (mesh.h): its ranks are processes or threads of
 * one machine, and share it as they would share a real one, in memory that they share. Nothing
 * of it survives the last of them, however they end. */
#ifndef RPI_NET_HOST_NIC_H
#define RPI_NET_HOST_NIC_H

#include "net/shaped/link_shape.h"

typedef struct rpi_host_nic rpi_host_nic;

/* The first rank of a host makes it and tells the others the address, who join; it may close
 * its descriptor when all have. RP_IO, RP_NOMEM. */
rp_status rpi_host_nic_make(const rpi_link_shape *shape, size_t frame_bytes,
                            rpi_host_nic **out_nic, char *address, size_t bytes);
/* RP_CORRUPT: that is no address of a NIC. RP_IO: it cannot be reached. */
rp_status rpi_host_nic_join(const char *address, rpi_host_nic **out_nic);
void rpi_host_nic_shut(rpi_host_nic *nic);  /* nobody can join any more; NULL is fine */
void rpi_host_nic_close(rpi_host_nic *nic); /* NULL is fine */

/* Between these no other rank of the host sends or receives. Never waits long: a rank that dies
 * in between leaves the NIC to the next. */
rpi_nic *rpi_host_nic_lock(rpi_host_nic *nic);
void rpi_host_nic_unlock(rpi_host_nic *nic);

#endif
