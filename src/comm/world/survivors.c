/* A communicator of the ranks that are left after deaths. Each knows of the first death by the
 * failure of the old communicator, also if rank 0 is dead, through which failures are reported:
 * a rank that comes here tells all others on their links. It learns of further deaths when
 * those ranks do not come to the new one, which is then tried without them. */
#include "comm/core/communicator.h"
#include "comm/world/create.h"

#include "base/fpenv.h"
#include "base/memory.h"
#include "base/status.h"

typedef struct attempt {
    bool *lost; /* [parent->world] */
    int *ranks;
    int count;
} attempt;

/* Finds the rank whose death has ended the communicator. RP_STATE: no death has, or this rank
 * is the one that the others have lost; the message says so. */
static rp_status find_first(rp_comm *comm, attempt *a) {
    rpi_failure failure = rpi_comm_failure(comm);
    if (failure.status == RP_OK)
        return RP_FAIL(STATE, "'%s' has lost no rank: use it", comm->name);
    bool is_one = failure.rank >= 0 && failure.rank < comm->world;
    if (failure.status != RP_PEER || !is_one)
        return RP_FAIL(STATE, "'%s' has not failed by the loss of a rank, but: %.300s",
                       comm->name, failure.text);
    if (failure.rank == comm->rank)
        return RP_FAIL(STATE, "rank %d is the one that the others have lost: %.300s",
                       comm->rank, failure.text);
    a->lost[failure.rank] = true;
    return RP_OK;
}

static void list_rest(const rp_comm *comm, attempt *a) {
    a->count = 0;
    for (int rank = 0; rank < comm->world; rank++)
        if (!a->lost[rank]) a->ranks[a->count++] = rank;
}

static rp_status try_all(rp_comm *comm, const rp_comm_options *options, attempt *a,
                         rp_comm **out_survivors) {
    RP_TRY(find_first(comm, a));
    rpi_comm_send_death(comm);
    for (;;) {
        int lost = -1;
        list_rest(comm, a);
        rp_status status =
            rpi_group_try(comm, a->ranks, a->count, options, out_survivors, &lost);
        if (status == RP_OK || lost < 0 || lost == comm->rank) return status;
        a->lost[lost] = true;
    }
}

rp_status rp_comm_survivors(rp_comm *comm, const rp_comm_options *options, int *out_ranks,
                            rp_comm **out_survivors) {
    RPI_FPENV_SCOPE;
    if (!comm) return RP_FAIL(INVALID, "comm is NULL");
    if (!out_survivors) return RP_FAIL(INVALID, "there is nowhere to put the communicator");
    rp_comm_options own;
    RP_TRY(rpi_comm_options_read(options, &own));
    if (!(own.connect_timeout_s > 0)) own.connect_timeout_s = comm->timeout_s;
    attempt a = {.count = 0};
    size_t world = (size_t)comm->world;
    rp_status status = rpi_alloc_array(world, sizeof *a.lost, "ranks", &a.lost);
    if (status == RP_OK) status = rpi_alloc_array(world, sizeof *a.ranks, "ranks", &a.ranks);
    if (status == RP_OK) status = try_all(comm, &own, &a, out_survivors);
    for (int i = 0; status == RP_OK && out_ranks && i < a.count; i++) out_ranks[i] = a.ranks[i];
    rpi_free(a.lost);
    rpi_free(a.ranks);
    return status;
}
