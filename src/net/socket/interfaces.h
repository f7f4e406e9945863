/* The addresses of this host that others can reach, and which of them REDPOLL_SOCKET_IFNAME
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

/* "eth,ib": names that begin so; "=eth0,ib0": just these; "^docker" and "^=docker0": all
 * others. NULL: any. */
bool rpi_interface_matches(const char *filter, const char *name);

/* Of containers and virtual machines of this host, as docker0: nobody else reaches them. */
bool rpi_interface_is_inside(const char *name);

/* Addresses of interfaces that are up and match, at most RPI_INTERFACES_MAX: IPv4 first, then
 * IPv6, none that is only for its own link. No loopback, and docker's bridges (which have the
 * same address on every host) last, unless the filter names them. RP_INVALID: the filter
 * leaves nothing, and the message lists what there is; without a filter a host may have none.
 */
rp_status rpi_interfaces_list(const char *filter, rpi_interface list[RPI_INTERFACES_MAX],
                              int *out_count);

/* "10.0.0.1,10.1.0.1": of rpi_interfaces_list(), the one that is `facing` first ("": none is);
 * what does not fit is left out. */
rp_status rpi_interfaces_text(const char *filter, const char *facing, char *text, size_t bytes);

/* The address of an end of a connection, and which interface of this host has it: "" when none
 * does. Addresses of IPv4 that an IPv6 socket sees are shown as what they are. */
struct sockaddr;
void rpi_interface_at(const struct sockaddr *at, size_t bytes, rpi_interface *out_interface);
/* Append the ends of a connection, "eth0 10.0.0.1 - 10.0.0.2": this side's first. */
void rpi_append_way(int fd, char *text, size_t bytes);

#endif
