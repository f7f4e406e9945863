/* One rank ends a communicator for a reason of its own: at once here, and soon on the others.
 */
#include "comm/core/communicator.h"
#include "comm/core/progress_owner.h"
#include "comm/run/executor.h"
#include "comm/world/create.h"

#include "base/clock.h"
#include "base/fpenv.h"
#include "base/status.h"

#include <stdio.h>

static bool is_in_flight(rp_comm *comm) {
    pthread_mutex_lock(&comm->context->lock);
    bool is = comm->in_flight > 0;
    pthread_mutex_unlock(&comm->context->lock);
    return is;
}

void rpi_comm_end_requests(rp_comm *comm) {
    rpi_context_activate(comm);
    for (;;) {
        rpi_progress_iterate(comm->context); /* completes everything with that failure */
        if (!is_in_flight(comm)) return;
        rpi_context_activate(comm);
        rpi_sleep_until_ns(rpi_now_ns() + RPI_SECOND_NS / 2000); /* a GPU is still at it */
    }
}

rp_status rp_comm_revoke(rp_comm *comm) {
    RPI_FPENV_SCOPE;
    if (!comm) return RP_FAIL(INVALID, "comm is NULL");
    rpi_failure failure = {.status = RP_CANCELLED, .rank = comm->rank, .finder = comm->rank};
    snprintf(failure.text, sizeof failure.text, "rank %d revoked communicator '%s'", comm->rank,
             comm->name);
    comm->is_revoked = true;
    rpi_comm_fail_here(comm, &failure);
    rpi_progress_acquire(comm->context);
    rpi_comm_end_requests(comm);
    rpi_progress_release(comm->context);
    return RP_OK;
}
