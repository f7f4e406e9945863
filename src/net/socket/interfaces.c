#include "net/socket/interfaces.h"

#include "base/append.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

bool rpi_interface_matches(const char *filter, const char *name) {
    if (!filter || !*filter) return true;
    bool excludes = *filter == '^';
    filter += excludes;
    bool whole = *filter == '=';
    filter += whole;
    for (const char *word = filter; *word;) {
        size_t length = strcspn(word, ",");
        if (length && strncmp(word, name, length) == 0 && (!whole || !name[length]))
            return !excludes;
        word += length + (word[length] == ',');
    }
    return excludes;
}

bool rpi_interface_is_inside(const char *name) {
    static const char *const kinds[] = {"docker", "virbr", "podman", "cni0",
                                        "lxcbr",  "lxdbr", "vboxnet"};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strncmp(name, kinds[i], strlen(kinds[i])) == 0) return true;
    /* Docker's other networks: br- and twelve digits of their number */
    return strncmp(name, "br-", 3) == 0 && strspn(name + 3, "0123456789abcdef") == 12 &&
           !name[15];
}

/* Does the filter name interfaces, or only exclude some? */
static bool names_some(const char *filter) {
    return filter && *filter && *filter != '^';
}

static bool has_address(const struct ifaddrs *at, int family) {
    if (!at->ifa_addr || at->ifa_addr->sa_family != family || !(at->ifa_flags & IFF_UP))
        return false;
    if (family == AF_INET) return true;
    const struct sockaddr_in6 *address = (const void *)at->ifa_addr;
    return !IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr);
}

/* One pass over the interfaces: those of a family that are bridges, or those that are not. */
static void collect(const struct ifaddrs *all, const char *filter, int family, bool bridges,
                    rpi_interface *list, int *count) {
    socklen_t bytes =
        family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    for (const struct ifaddrs *at = all; at && *count < RPI_INTERFACES_MAX; at = at->ifa_next) {
        if (!has_address(at, family) || !rpi_interface_matches(filter, at->ifa_name)) continue;
        if ((at->ifa_flags & IFF_LOOPBACK) && !names_some(filter)) continue;
        if (rpi_interface_is_inside(at->ifa_name) != bridges) continue;
        rpi_interface *next = &list[*count];
        snprintf(next->name, sizeof next->name, "%s", at->ifa_name);
        if (getnameinfo(at->ifa_addr, bytes, next->address, sizeof next->address, NULL, 0,
                        NI_NUMERICHOST) == 0)
            ++*count;
    }
}

/* Is the name one of a list "lo, eth0"? */
static bool is_listed(const char *names, const char *name) {
    size_t length = strlen(name);
    for (const char *at = names; (at = strstr(at, name)) != NULL; at += length)
        if ((at == names || at[-1] == ' ') && (!at[length] || at[length] == ',')) return true;
    return false;
}

static rp_status nothing_left(const struct ifaddrs *all, const char *filter) {
    char names[400] = "";
    for (const struct ifaddrs *at = all; at; at = at->ifa_next)
        if (has_address(at, AF_INET) || has_address(at, AF_INET6))
            if (!is_listed(names, at->ifa_name))
                rpi_append(names, sizeof names, "%s%s", *names ? ", " : "", at->ifa_name);
    return RP_FAIL(INVALID,
                   "REDPOLL_SOCKET_IFNAME is '%s', which no interface with an address "
                   "matches; there are: %s",
                   filter, names);
}

rp_status rpi_interfaces_list(const char *filter, rpi_interface list[RPI_INTERFACES_MAX],
                              int *out_count) {
    struct ifaddrs *all = NULL;
    rp_status status = RP_OK;
    int count = 0;
    if (getifaddrs(&all) != 0) return RP_FAIL_ERRNO(IO, "cannot list this host's interfaces");
    for (int bridges = 0; bridges < 2; bridges++) {
        collect(all, filter, AF_INET, bridges, list, &count);
        collect(all, filter, AF_INET6, bridges, list, &count);
    }
    if (count == 0 && filter && *filter) status = nothing_left(all, filter);
    freeifaddrs(all);
    *out_count = count;
    return status;
}

rp_status rpi_interfaces_text(const char *filter, const char *facing, char *text,
                              size_t bytes) {
    rpi_interface list[RPI_INTERFACES_MAX];
    int count = 0;
    RP_TRY(rpi_interfaces_list(filter, list, &count));
    text[0] = '\0';
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < count; i++) {
            bool faces = strcmp(list[i].address, facing) == 0;
            if (faces != (pass == 0)) continue;
            if (strlen(text) + strlen(list[i].address) + 2 > bytes) return RP_OK;
            rpi_append(text, bytes, "%s%s", *text ? "," : "", list[i].address);
        }
    return RP_OK;
}

/* IPv4 connections have such addresses at IPv6 listeners. */
static const char *skip_mapping(const char *address) {
    return strncasecmp(address, "::ffff:", 7) == 0 ? address + 7 : address;
}

static bool address_text(const struct sockaddr *at, size_t bytes, char text[RPI_HOST_BYTES]) {
    char shown[RPI_HOST_BYTES];
    if (getnameinfo(at, (socklen_t)bytes, shown, sizeof shown, NULL, 0, NI_NUMERICHOST) != 0)
        return false;
    snprintf(text, RPI_HOST_BYTES, "%s", skip_mapping(shown));
    return true;
}

static bool has_this(const struct ifaddrs *at, const char *address) {
    char own[RPI_HOST_BYTES];
    int family = at->ifa_addr ? at->ifa_addr->sa_family : AF_UNSPEC;
    if (family != AF_INET && family != AF_INET6) return false;
    size_t bytes = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    return address_text(at->ifa_addr, bytes, own) && strcmp(own, address) == 0;
}

void rpi_interface_at(const struct sockaddr *at, size_t bytes, rpi_interface *out_interface) {
    struct ifaddrs *all = NULL;
    *out_interface = (rpi_interface){.name = ""};
    if (!address_text(at, bytes, out_interface->address) || getifaddrs(&all) != 0) return;
    for (const struct ifaddrs *one = all; one && !out_interface->name[0]; one = one->ifa_next)
        if (has_this(one, out_interface->address))
            snprintf(out_interface->name, sizeof out_interface->name, "%s", one->ifa_name);
    freeifaddrs(all);
}

void rpi_append_way(int fd, char *text, size_t bytes) {
    struct sockaddr_storage address;
    struct sockaddr *at = (struct sockaddr *)&address;
    socklen_t here = sizeof address, there = sizeof address;
    rpi_interface end;
    if (getsockname(fd, at, &here) != 0) return;
    rpi_interface_at(at, here, &end);
    rpi_append(text, bytes, "%s%s%s", end.name, end.name[0] ? " " : "", end.address);
    if (getpeername(fd, at, &there) != 0) return;
    rpi_interface_at(at, there, &end);
    rpi_append(text, bytes, " - %s", end.address);
}
