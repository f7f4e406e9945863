#include "cli/doctor/host_facts.h"

#include "base/cpu.h"
#include "cli/hosts/agent.h"
#include "net/link/transport.h"
#include "net/socket/addresses.h"
#include "redpoll/version.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PORTS_TRIED = 1000 };

/* ---- saying ---- */

static int64_t memory_of(const char *name) {
    char line[128];
    long long kilobytes = 0;
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0)
            kilobytes = strtoll(line + strlen(name), NULL, 10);
    if (file) fclose(file);
    return kilobytes * 1024;
}

static int mtu_of(const char *interface) {
    struct ifreq request;
    memset(&request, 0, sizeof request);
    snprintf(request.ifr_name, sizeof request.ifr_name, "%.*s", IF_NAMESIZE - 1, interface);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return 0;
    int failed = ioctl(fd, SIOCGIFMTU, &request);
    close(fd);
    return failed ? 0 : request.ifr_mtu;
}

/* As its driver reports it; virtual ones report nothing, or -1. */
static int speed_of(const char *interface) {
    char path[96], text[32] = "";
    snprintf(path, sizeof path, "/sys/class/net/%.*s/speed", IF_NAMESIZE - 1, interface);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    if (!fgets(text, sizeof text, file)) text[0] = '\0';
    fclose(file);
    long speed = strtol(text, NULL, 10);
    return speed > 0 && speed < 10000000 ? (int)speed : 0;
}

static rp_status say_ports(rpi_agent_words *words) {
    int first = 0, last = 0, free_ports = 0;
    RP_TRY(rpi_ports_find(&first, &last));
    if (first == 0) return RP_OK;
    if (last - first >= PORTS_TRIED) last = first + PORTS_TRIED - 1;
    for (int port = first; port <= last; port++) free_ports += rpi_stream_port_is_free(port);
    rpi_agent_add_number(words, "ports", last - first + 1);
    rpi_agent_add_number(words, "free-ports", free_ports);
    return RP_OK;
}

rp_status rpi_host_facts_say(rpi_agent_words *words) {
    rpi_interface list[RPI_INTERFACES_MAX];
    rpi_peer_info self;
    double load = 0;
    int count = 0;
    RP_TRY(rpi_peer_info_self(&self));
    RP_TRY(rpi_agent_addresses(list, &count));
    RP_TRY(say_ports(words));
    rpi_agent_add(words, "machine", self.host);
    rpi_agent_add(words, "version", rp_version());
    rpi_agent_add(words, "isa", rpi_isa_name(rpi_cpu_isa()));
    rpi_agent_add_number(words, "cores", rpi_cpu_count());
    rpi_agent_add_number(words, "memory", memory_of("MemTotal:"));
    rpi_agent_add_number(words, "free-memory", memory_of("MemAvailable:"));
    if (getloadavg(&load, 1) == 1) rpi_agent_add_number(words, "load", (int64_t)(load * 100));
    for (int i = 0; i < count; i++) {
        rpi_agent_add(words, "interface", list[i].name);
        rpi_agent_add(words, "address", list[i].address);
        rpi_agent_add_number(words, "mtu", mtu_of(list[i].name));
        rpi_agent_add_number(words, "speed", speed_of(list[i].name));
    }
    return words->status;
}

/* ---- reading ---- */

static void read_interface(rpi_doctor_host *host, const char *name, const char *value) {
    if (strcmp(name, "interface") == 0) {
        if (host->interface_count == RPI_INTERFACES_MAX) return;
        rpi_doctor_interface *next = &host->interfaces[host->interface_count++];
        snprintf(next->is.name, sizeof next->is.name, "%s", value);
        return;
    }
    if (host->interface_count == 0) return;
    rpi_doctor_interface *last = &host->interfaces[host->interface_count - 1];
    if (strcmp(name, "address") == 0)
        snprintf(last->is.address, sizeof last->is.address, "%s", value);
    else if (strcmp(name, "mtu") == 0)
        last->mtu = (int)strtol(value, NULL, 10);
    else if (strcmp(name, "speed") == 0)
        last->speed_mbit = (int)strtol(value, NULL, 10);
}

void rpi_host_facts_read(const char *text, size_t bytes, rpi_doctor_host *host) {
    rpi_agent_frame frame = {.text = text, .bytes = bytes};
    const char *name = NULL, *value = NULL;
    snprintf(host->machine, sizeof host->machine, "%s", rpi_agent_value(&frame, "machine"));
    snprintf(host->version, sizeof host->version, "%s", rpi_agent_value(&frame, "version"));
    snprintf(host->isa, sizeof host->isa, "%s", rpi_agent_value(&frame, "isa"));
#define NUMBER(name) strtoll(rpi_agent_value(&frame, name), NULL, 10)
    host->cores = (int)NUMBER("cores");
    host->memory_bytes = NUMBER("memory");
    host->free_bytes = NUMBER("free-memory");
    host->load = (double)NUMBER("load") / 100;
    host->ports = (int)NUMBER("ports");
    host->free_ports = (int)NUMBER("free-ports");
#undef NUMBER
    for (size_t at = 0; rpi_agent_next_pair(text, bytes, &at, &name, &value);)
        read_interface(host, name, value);
}

/* ---- ends of connections ---- */

void rpi_doctor_end_find(int fd, rpi_doctor_end *out_end) {
    struct sockaddr_storage address;
    socklen_t bytes = sizeof address;
    rpi_interface end;
    *out_end = (rpi_doctor_end){.mtu = 0};
    if (getsockname(fd, (struct sockaddr *)&address, &bytes) != 0) return;
    rpi_interface_at((struct sockaddr *)&address, bytes, &end);
    snprintf(out_end->address, sizeof out_end->address, "%s", end.address);
    snprintf(out_end->interface, sizeof out_end->interface, "%s", end.name);
    out_end->mtu = mtu_of(out_end->interface);
}
