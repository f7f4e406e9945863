#include "train/losses.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdio.h>

rp_status rpi_losses_open(rpi_losses *losses, const rpi_strategy *strategy,
                          const char *strategy_options, int ranks) {
    if (ranks == 1 || !strategy->survives || !strategy->survives(strategy_options))
        return RP_OK;
    size_t world = (size_t)ranks;
    RP_TRY(rpi_alloc_array(world, sizeof *losses->members, "ranks", &losses->members));
    RP_TRY(rpi_alloc_array(world, sizeof *losses->lost, "ranks", &losses->lost));
    RP_TRY(rpi_alloc_array(world, sizeof(rp_comm *), "communicators", &losses->made));
    RP_TRY(rpi_alloc_array(world, sizeof *losses->first_ranks, "ranks", &losses->first_ranks));
    for (int rank = 0; rank < ranks; rank++)
        losses->members[rank] = losses->first_ranks[rank] = rank;
    losses->count = losses->first_count = ranks;
    /* Ranks with roles meet through their servers. */
    losses->goes_on = strategy->rejoin != NULL;
    return RP_OK;
}

void rpi_losses_close(rpi_losses *losses) {
    while (losses->made_count > 0) rp_comm_destroy(losses->made[--losses->made_count]);
    rp_comm_destroy(losses->grown);
    rpi_free(losses->made);
    rpi_free(losses->first_ranks);
    rpi_free(losses->members);
    rpi_free(losses->lost);
}

rp_status rpi_losses_survive(rpi_losses *losses, rp_status status) {
    if (status != RP_PEER || !losses->goes_on) return status;
    if (!losses->is_pending)
        snprintf(losses->why, sizeof losses->why, "%.500s", rp_last_error()->message);
    losses->is_pending = true;
    return RP_OK;
}
