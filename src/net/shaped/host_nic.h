/* The network interface (NIC) of a named host (mesh.h). Its ranks are processes or threads of
 * one machine, and share the NIC, as on a real host, in shared memory. It ends with the last of
 * them, however they end. */
#ifndef RPI_NET_HOST_NIC_H
#define RPI_NET_HOST_NIC_H

#include "net/shaped/link_shape.h"

typedef struct rpi_host_nic rpi_host_nic;

/* The first rank of a host makes it and gives the others the address, by which they join; it
 * may close its descriptor when all have. RP_IO, RP_NOMEM. */
rp_status rpi_host_nic_make(const rpi_link_shape *shape, size_t frame_bytes,
                            rpi_host_nic **out_nic, char *address, size_t bytes);
/* RP_CORRUPT: not the address of a NIC. RP_IO: it cannot be reached. */
rp_status rpi_host_nic_join(const char *address, rpi_host_nic **out_nic);
void rpi_host_nic_shut(rpi_host_nic *nic);  /* nobody can join any more; NULL is fine */
void rpi_host_nic_close(rpi_host_nic *nic); /* NULL is fine */

/* Between these calls no other rank of the host sends or receives. Never waits long: if a rank
 * dies in between, the next one gets the NIC. */
rpi_nic *rpi_host_nic_lock(rpi_host_nic *nic);
void rpi_host_nic_unlock(rpi_host_nic *nic);

#endif
