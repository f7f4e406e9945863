/* A world of views at the store of the launcher that started this process. */
#include "net/world/join.h"
#include "net/world/view_world.h"

#include "base/fpenv.h"

#define JOIN_S 60.0

/* A store that a rank serves ends with that rank. */
static rp_status check_store_kind(const rpi_world_info *info) {
    switch (info->store) {
    case RPI_STORE_CLIENT:
    case RPI_STORE_TORCH: return RP_OK;
    case RPI_STORE_RANK_0:
        return RP_FAIL(UNSUPPORTED,
                       "under %s rank 0 would serve the store, and a world of views outlives "
                       "rank 0: start a process that calls rp_store_serve(), and give its "
                       "address to rp_store_connect() and rp_world_open()",
                       info->found_by);
    case RPI_STORE_NONE: break;
    }
    return RP_FAIL(UNSUPPORTED,
                   "no launcher with a store has started this process: use `redpoll run`, or "
                   "rp_store_connect() and rp_world_open()");
}

rp_status rp_world_join(const rp_world_options *options, double timeout_s,
                        rp_world **out_world) {
    RPI_FPENV_SCOPE;
    rpi_world_info info;
    rpi_join *join = NULL;
    if (!out_world) return RP_FAIL(INVALID, "there is nowhere to put the world");
    if (!(timeout_s >= 0))
        return RP_FAIL(INVALID, "timeout_s is %g; a number of seconds is needed, or 0 for 60",
                       timeout_s);
    RP_TRY(rpi_world_info_find_own(&info));
    RP_TRY(check_store_kind(&info));
    RP_TRY(rpi_join_open(&info, timeout_s > 0 ? timeout_s : JOIN_S, &join));
    rp_status status = rp_world_open(&join->store, options, out_world);
    if (status != RP_OK)
        rpi_join_close(join);
    else
        (*out_world)->join = join;
    return status;
}
