/* What a host's name stands for, and where one may listen. A name may be a list: the addresses
 * that a host of several interfaces offers, "10.0.0.1,10.1.0.1", of which any may be the one
 * that leads there. */
#ifndef RPI_NET_ADDRESSES_H
#define RPI_NET_ADDRESSES_H

#include "base/status.h"

#include <netdb.h>
#include <stdbool.h>

enum { RPI_HOST_BYTES = 256, RPI_ADDRESSES_MAX = 32 };

typedef struct rpi_addresses {
    struct addrinfo *first; /* a list, as getaddrinfo() makes it, over the parts below */
    struct addrinfo *parts[RPI_ADDRESSES_MAX];
    struct addrinfo entries[RPI_ADDRESSES_MAX];
    int part_count, count;
} rpi_addresses;

/* "[fd00::1]", as in URLs, becomes "fd00::1"; other texts stay. In place. */
void rpi_host_unwrap(char *host);
/* RP_INVALID: an address of IPv6 that holds on one link only (fe80::1) needs its interface, as
 * fe80::1%eth0; a URL, a port behind it, blanks and brackets are no part of a host. Names and
 * other addresses are fine. */
rp_status rpi_host_check(const char *host);

/* All addresses of all names; `flags` are AI_*. RP_IO names the first that means nothing, when
 * all do. Do not copy. */
rp_status rpi_addresses_find(const char *host, int port, int flags, rpi_addresses *out);
/* Let them begin with the n-th, modulo how many there are; those before it come last. */
void rpi_addresses_turn(rpi_addresses *addresses, unsigned n);
void rpi_addresses_free(rpi_addresses *addresses);

/* An address of the loopback interface; so is NULL, which listeners take for it. */
bool rpi_is_loopback(const char *host);

/* REDPOLL_PORTS, "20000-20100": the ports that listeners take which were given none; 0 and 0
 * when it is not set. RP_INVALID. */
rp_status rpi_ports_find(int *out_first, int *out_last);
rp_status rpi_ports_check(const char *text);

#endif
