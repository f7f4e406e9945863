/* The addresses of a host's name, and those at which one may listen. A name may be a list: the
 * addresses that a host with several interfaces offers, "10.0.0.1,10.1.0.1", of which any may
 * be reachable. */
#ifndef RPI_NET_ADDRESSES_H
#define RPI_NET_ADDRESSES_H

#include "base/status.h"

#include <netdb.h>
#include <stdbool.h>
#include <stddef.h>

enum { RPI_HOST_BYTES = 256, RPI_ADDRESSES_MAX = 32 };

typedef struct rpi_addresses {
    struct addrinfo *first; /* a list, as getaddrinfo() makes it, over the parts below */
    struct addrinfo *parts[RPI_ADDRESSES_MAX];
    struct addrinfo entries[RPI_ADDRESSES_MAX];
    int part_count, count;
} rpi_addresses;

/* "[fd00::1]", as in URLs, becomes "fd00::1"; other texts stay. In place. */
void rpi_host_unwrap(char *host);
/* RP_INVALID: an IPv6 address that is valid on one link only (fe80::1) without its interface,
 * as fe80::1%eth0; a URL, a port, blanks and brackets are not part of a host. Names and other
 * addresses are fine. */
rp_status rpi_host_check(const char *host);

/* All addresses of all names; `flags` are AI_*. RP_IO names the first that resolves to nothing,
 * if all do. Do not copy. */
rp_status rpi_addresses_find(const char *host, int port, int flags, rpi_addresses *out);
/* The numeric addresses of all names, as a list again; a name that resolves to nothing is left
 * out, and `host` itself stays if all do or `text` has no room. May wait for a name server. */
void rpi_host_to_numbers(const char *host, char *text, size_t bytes);
/* Rotate the list so that it begins with the n-th address, modulo their number. */
void rpi_addresses_turn(rpi_addresses *addresses, unsigned n);
void rpi_addresses_free(rpi_addresses *addresses);

/* An address of the loopback interface; so is NULL, which listeners take for it. */
bool rpi_is_loopback(const char *host);

/* REDPOLL_PORTS, "20000-20100": the ports for listeners that were given none; 0 and 0 if it is
 * not set. RP_INVALID. */
rp_status rpi_ports_find(int *out_first, int *out_last);
rp_status rpi_ports_check(const char *text);

#endif
