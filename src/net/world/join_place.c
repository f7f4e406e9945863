/* The public reading of the launchers' variables. */
#include "redpoll/place.h"

#include "net/world/join.h"

#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(((rp_place *)0)->host) == RPI_HOST_BYTES, "a host fits");

static rp_status find_info(const char *(*get)(const void *context, const char *name),
                           const void *context, int64_t launcher, rpi_world_info *out_info) {
    if (!get) return rpi_world_info_find_own_master(out_info);
    return rpi_world_info_find_master(
        &(rpi_environment){.get = get, .context = context, .launcher = launcher}, out_info);
}

rp_status rp_place_find(const char *(*get)(const void *context, const char *name),
                        const void *context, int64_t launcher, rp_place *place) {
    rpi_world_info info;
    if (!place) return RP_FAIL(INVALID, "there is nowhere to write the place: it is NULL");
    RP_TRY(find_info(get, context, launcher, &info));
    *place = (rp_place){
        .rank = info.rank,
        .world = info.world,
        .local_rank = info.local_rank,
        .local_world = info.local_world,
        .one_host = info.one_host,
        .port = info.port,
    };
    memcpy(place->found_by, info.found_by, sizeof info.found_by);
    if (info.port) memcpy(place->host, info.host, sizeof info.host);
    if (info.port_is_derived) memcpy(place->job, info.job, sizeof info.job);
    return RP_OK;
}
