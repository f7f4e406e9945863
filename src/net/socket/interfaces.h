/* The addresses of this host that others can reach, and those that REDPOLL_SOCKET_IFNAME
 * allows, in NCCL's syntax. */
#ifndef RPI_NET_INTERFACES_H
#define RPI_NET_INTERFACES_H

#include "net/socket/addresses.h"

#include <net/if.h>

typedef struct rpi_interface {
    char name[IF_NAMESIZE];
    char address[RPI_HOST_BYTES]; /* as numbers */
} rpi_interface;

enum { RPI_INTERFACES_MAX = 16 };

/* "eth,ib": names that begin so; "=eth0,ib0": exactly these; "^docker" and "^=docker0": all
 * others. NULL: any. */
bool rpi_interface_matches(const char *filter, const char *name);

/* Of containers and virtual machines of this host, as docker0: no other host reaches them. */
bool rpi_interface_is_inside(const char *name);

/* Addresses of interfaces that are up and match, at most RPI_INTERFACES_MAX: IPv4 first, then
 * IPv6, none that is valid on its own link only. Without loopback; docker's bridges (which have
 * the same address on every host) come last, unless the filter names them. RP_INVALID: the
 * filter leaves nothing, and the message lists the interfaces; without a filter a host may have
 * none. */
rp_status rpi_interfaces_list(const char *filter, rpi_interface list[RPI_INTERFACES_MAX],
                              int *out_count);

/* "10.0.0.1,10.1.0.1": the addresses of rpi_interfaces_list(), beginning with the one that is
 * `facing` ("": none); those that do not fit are left out. */
rp_status rpi_interfaces_text(const char *filter, const char *facing, char *text, size_t bytes);

/* The address of one end of a connection, and the interface of this host that has it: "" if
 * none has. IPv4 addresses that an IPv6 socket shows are written as IPv4. */
struct sockaddr;
void rpi_interface_at(const struct sockaddr *at, size_t bytes, rpi_interface *out_interface);
/* Append the ends of a connection, "eth0 10.0.0.1 - 10.0.0.2": this side's first. */
void rpi_append_way(int fd, char *text, size_t bytes);

#endif
