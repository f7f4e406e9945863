#include "cli/said_once.h"

#include "base/status.h"
#include "cli/run.h"

#include <string.h>

bool rpi_said_by_first(rpi_world *world, const char *line) {
    static const char key[] = "redpoll/said/first";
    const double patience_s = 5;
    const rp_store *store = NULL;
    char first[RPI_ERROR_BYTES] = "";
    size_t bytes = 0;
    if (!rpi_launched() || world->ranks < 2 || rpi_world_store(world, &store) != RP_OK)
        return false;
    if (world->rank == 0) {
        (void)store->ops->set(store->context, key, line, strlen(line));
        return false;
    }
    rp_status status =
        store->ops->get(store->context, key, patience_s, first, sizeof first - 1, &bytes);
    return status == RP_OK && strcmp(first, line) == 0;
}
