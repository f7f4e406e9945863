/* The catalogue of transports: a new kind is a file, a row here and a word in CMakeLists.txt.
 */
#include "net/link/transport_kinds.h"

#include "base/suggest.h"

#include <string.h>

static const rpi_transport *const transports[] = {
    &rpi_transport_inproc,
    &rpi_transport_shm,
    &rpi_transport_tcp,
    &rpi_transport_shaped,
};

enum { COUNT = sizeof transports / sizeof transports[0] };

const rpi_transport *rpi_transport_at(int index) {
    return index >= 0 && index < COUNT ? transports[index] : NULL;
}

static const char *name_at(const void *context, int index) {
    (void)context;
    const rpi_transport *transport = rpi_transport_at(index);
    return transport ? transport->name : NULL;
}

rp_status rpi_transport_choose(const char *name, const rpi_transport **out_transport) {
    *out_transport = NULL;
    if (!name || strcmp(name, "auto") == 0) return RP_OK;
    RP_TRY(rpi_transport_find(name, out_transport));
    if (*out_transport != &rpi_transport_shaped) return RP_OK;
    return RP_FAIL(INVALID,
                   "transport '%s' wraps another; a link's rate or latency asks for it", name);
}

rp_status rpi_transport_find(const char *name, const rpi_transport **out_transport) {
    for (int i = 0; i < COUNT; i++)
        if (strcmp(transports[i]->name, name) == 0) {
            *out_transport = transports[i];
            return RP_OK;
        }
    char hint[64];
    return RP_FAIL(NOT_FOUND, "unknown transport '%s'%s; `redpoll info` lists them", name,
                   rpi_suggest_text(name, name_at, NULL, hint, sizeof hint));
}
