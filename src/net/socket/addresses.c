#include "net/socket/addresses.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static void add_part(rpi_addresses *addresses, struct addrinfo *part) {
    addresses->parts[addresses->part_count++] = part;
    for (; part && addresses->count < RPI_ADDRESSES_MAX; part = part->ai_next) {
        struct addrinfo *entry = &addresses->entries[addresses->count++];
        *entry = *part;
        entry->ai_next = NULL;
        if (entry != addresses->entries) entry[-1].ai_next = entry;
    }
    addresses->first = addresses->entries;
}

void rpi_host_unwrap(char *host) {
    size_t length = strlen(host);
    if (length < 2 || host[0] != '[' || host[length - 1] != ']') return;
    memmove(host, host + 1, length - 2);
    host[length - 2] = '\0';
}

/* The colon of "host:port" and "[::1]:port"; NULL: there is no port. */
static const char *port_of(const char *host) {
    const char *colon = strrchr(host, ':');
    bool is_one = colon && (strchr(host, ':') == colon || (colon > host && colon[-1] == ']'));
    return is_one ? colon : NULL;
}

/* What users write instead of a host. */
static rp_status check_form(const char *host) {
    const char *scheme = strstr(host, "://"), *port = port_of(host);
    if (scheme)
        return RP_FAIL(INVALID, "'%s' is a URL, and a host is wanted: '%.*s'", host,
                       (int)strcspn(scheme + 3, ":/"), scheme + 3);
    if (port)
        return RP_FAIL(INVALID, "'%s' has a port, and a host alone is wanted: '%.*s'", host,
                       (int)(port - host), host);
    if (strpbrk(host, " \t\r\n"))
        return RP_FAIL(INVALID, "'%s' is no host's name: it has a blank in it", host);
    if (strpbrk(host, "[]"))
        return RP_FAIL(INVALID, "'%s' is no host's name: it has a bracket in it", host);
    return RP_OK;
}

rp_status rpi_host_check(const char *host) {
    struct in6_addr address;
    RP_TRY(check_form(host));
    if (inet_pton(AF_INET6, host, &address) != 1 || !IN6_IS_ADDR_LINKLOCAL(&address))
        return RP_OK; /* inet_pton() refuses one with its zone */
    return RP_FAIL(
        INVALID,
        "'%s' is an address that holds on one link only: say of which interface, as "
        "%s%%eth0 (`ip -6 address` lists them), or take another address of that host",
        host, host);
}

static rp_status resolve(const char *host, int port, int flags, struct addrinfo **out_list) {
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    int error = getaddrinfo(host, service, &hints, out_list);
    if (error)
        return RP_FAIL(IO, "cannot find host '%s': %s", host,
                       error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error));
    return RP_OK;
}

rp_status rpi_addresses_find(const char *host, int port, int flags, rpi_addresses *out) {
    *out = (rpi_addresses){.count = 0};
    if (port < 0 || port > 65535)
        return RP_FAIL(INVALID, "port %d is not a port; 0 to 65535 are allowed", port);
    rp_status status = RP_OK;
    for (const char *at = host ? host : "127.0.0.1"; *at && out->count < RPI_ADDRESSES_MAX;) {
        char name[RPI_HOST_BYTES];
        size_t length = strcspn(at, ",");
        struct addrinfo *part = NULL;
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        rpi_host_unwrap(name);
        rp_status one = rpi_host_check(name);
        if (one == RP_OK) one = resolve(name, port, flags, &part);
        if (one == RP_OK)
            add_part(out, part);
        else
            status = one;
        at += length + (at[length] == ',');
    }
    if (out->count > 0) return RP_OK;
    return status == RP_OK ? RP_FAIL(INVALID, "'%s' is no host", host) : status;
}

/* False: there is no room for all. */
static bool put_numbers(const rpi_addresses *addresses, char *text, size_t bytes) {
    size_t used = 0;
    for (const struct addrinfo *at = addresses->first; at; at = at->ai_next) {
        char one[NI_MAXHOST];
        if (getnameinfo(at->ai_addr, at->ai_addrlen, one, sizeof one, NULL, 0,
                        NI_NUMERICHOST) != 0)
            return false;
        int length = snprintf(text + used, bytes - used, "%s%s", used ? "," : "", one);
        if (length < 0 || (size_t)length >= bytes - used) return false;
        used += (size_t)length;
    }
    return true;
}

void rpi_host_to_numbers(const char *host, char *text, size_t bytes) {
    rpi_addresses addresses;
    bool found = rpi_addresses_find(host, 0, 0, &addresses) == RP_OK;
    if (!found || !put_numbers(&addresses, text, bytes))
        snprintf(text, bytes, "%s", host ? host : "127.0.0.1");
    rpi_addresses_free(&addresses);
}

void rpi_addresses_turn(rpi_addresses *addresses, unsigned n) {
    int count = addresses->count, first = (int)(n % (unsigned)count);
    for (int i = 0; i < count; i++)
        addresses->entries[i].ai_next = &addresses->entries[(i + 1) % count];
    addresses->first = &addresses->entries[first];
    addresses->entries[(first + count - 1) % count].ai_next = NULL;
}

void rpi_addresses_free(rpi_addresses *addresses) {
    for (int i = 0; i < addresses->part_count; i++) freeaddrinfo(addresses->parts[i]);
    addresses->part_count = addresses->count = 0;
}

bool rpi_is_loopback(const char *host) {
    if (host && strchr(host, ',')) return false; /* listeners take all interfaces then */
    return !host || strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 ||
           strcmp(host, "localhost") == 0;
}

/* ---- ports ---- */

static rp_status parse_ports(const char *text, int *out_first, int *out_last) {
    char *end = NULL;
    long first = strtol(text, &end, 10), last = first;
    bool good = isdigit((unsigned char)*text);
    if (good && *end == '-') {
        good = isdigit((unsigned char)end[1]);
        last = strtol(end + 1, &end, 10);
    }
    if (!good || *end || first < 1 || last > 65535 || last < first)
        return RP_FAIL(INVALID, "'%s' is no range of ports; FIRST-LAST, 1 to 65535", text);
    *out_first = (int)first;
    *out_last = (int)last;
    return RP_OK;
}

rp_status rpi_ports_check(const char *text) {
    int first, last;
    return parse_ports(text, &first, &last);
}

rp_status rpi_ports_find(int *out_first, int *out_last) {
    const char *text = getenv("REDPOLL_PORTS");
    *out_first = *out_last = 0;
    if (!text || !*text) return RP_OK;
    rp_status status = parse_ports(text, out_first, out_last);
    return status == RP_OK ? RP_OK : rpi_fail_context(status, "REDPOLL_PORTS: ");
}
