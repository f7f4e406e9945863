#include "cli/said_once.h"

#include "base/status.h"
#include "cli/run.h"

#include <string.h>

static const char key[] = "redpoll/said/first";

static bool has_store(rpi_world *world, const rp_store **out_store) {
    return rpi_launched() && world->ranks > 1 && rpi_world_store(world, out_store) == RP_OK;
}

void rpi_tell_what_was_said(rpi_world *world, const char *line) {
    const rp_store *store = NULL;
    if (has_store(world, &store))
        (void)store->ops->set(store->context, key, line, strlen(line));
}

bool rpi_said_by_first(rpi_world *world, const char *line) {
    const double patience_s = 5;
    const rp_store *store = NULL;
    char first[RPI_ERROR_BYTES] = "";
    size_t bytes = 0;
    if (!has_store(world, &store)) return false;
    rp_status status =
        store->ops->get(store->context, key, patience_s, first, sizeof first - 1, &bytes);
    return status == RP_OK && strcmp(first, line) == 0;
}
