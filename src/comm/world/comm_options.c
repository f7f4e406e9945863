/* The options of a communicator, checked in the same way in every world. */
#include "comm/core/communicator.h"
#include "comm/world/create.h"

#include "base/sized_options.h"
#include "base/status.h"
#include "net/link/transport_kinds.h"
#include "net/shaped/link_shape.h"
#include "net/socket/interfaces.h"
#include "net/socket/stream.h"
#include "net/store/bootstrap.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNKS_IN_FLIGHT_MAX = 4096, HOST_NAME_MOST = 63 };

static rp_status check_seconds(const char *name, double seconds) {
    if (seconds >= 0) return RP_OK;
    return RP_FAIL(INVALID, "%s is %g; a number of seconds is needed, or 0 for the default",
                   name, seconds);
}

/* In a larger world the control connection listens there. */
static rp_status check_bind_host(const char *host) {
    int fd = -1, port = 0;
    RP_TRY(rpi_stream_listen(host, 0, &fd, &port));
    close(fd);
    return RP_OK;
}

rp_status rpi_comm_options_read(const rp_comm_options *given, rp_comm_options *out_own) {
    static const rpi_sized sized = {.name = "rp_comm_options",
                                    .initializer = "RP_COMM_OPTIONS",
                                    .least = RPI_SIZE_UP_TO(rp_comm_options, tls),
                                    .known = sizeof(rp_comm_options)};
    return rpi_sized_read(&sized, given, out_own);
}

rp_status rpi_comm_options_check(const rp_comm_options *options, int world) {
    const rpi_transport *transport = NULL;
    rpi_link_shape shape;
    RP_TRY(check_seconds("connect_timeout_s", options->connect_timeout_s));
    RP_TRY(check_seconds("timeout_s", options->timeout_s));
    RP_TRY(check_seconds("warn_after_s", options->warn_after_s));
    if (options->strict_timeout < -1 || options->strict_timeout > 1)
        return RP_FAIL(INVALID, "strict_timeout is %d; -1, 0 and 1 are allowed",
                       options->strict_timeout);
    RP_TRY(rpi_transport_choose(options->transport, &transport));
    if (options->link) RP_TRY(rpi_link_shape_parse(options->link, &shape));
    if (options->chunks_in_flight > CHUNKS_IN_FLIGHT_MAX)
        return RP_FAIL(INVALID,
                       "chunks_in_flight is %u; 1 to %d are allowed, or 0 for a choice",
                       options->chunks_in_flight, CHUNKS_IN_FLIGHT_MAX);
    RP_TRY(rpi_bootstrap_check_name(options->name ? options->name : RPI_COMM_NAME));
    if (options->tls != 0 && options->tls != 1)
        return RP_FAIL(INVALID, "tls is %d; 0 and 1 are allowed", options->tls);
    if ((unsigned)options->priority > RP_PRIORITY_URGENT)
        return RP_FAIL(INVALID, "priority is %d, which is no rp_priority: 0 to %d are allowed",
                       (int)options->priority, RP_PRIORITY_URGENT);
    if ((unsigned)options->memory > RP_MEMORY_CUDA)
        return RP_FAIL(INVALID, "memory is %d, which is no kind of memory",
                       (int)options->memory);
    if (options->host && strlen(options->host) > HOST_NAME_MOST)
        return RP_FAIL(INVALID, "host is '%.20s...', %zu bytes long; up to %d are allowed",
                       options->host, strlen(options->host), HOST_NAME_MOST);
    if (options->host && (!options->host[0] || strchr(options->host, '\n')))
        return RP_FAIL(INVALID, "host is empty, or has a line break in it; NULL for none");
    return options->bind_host && world == 1 ? check_bind_host(options->bind_host) : RP_OK;
}

rp_status rp_bind_addresses(const char *facing, char *addresses, size_t bytes) {
    if (!addresses || !bytes) return RP_FAIL(INVALID, "there is nowhere to put addresses");
    return rpi_interfaces_text(getenv("REDPOLL_SOCKET_IFNAME"), facing ? facing : "", addresses,
                               bytes);
}
