/* A communicator is ended by one rank, for a reason of its own: at once here, and soon on the
 * others. */
#include "comm/core/communicator.h"
#include "comm/run/executor.h"
#include "comm/world/create.h"

#include "base/clock.h"

static bool is_in_flight(rp_comm *comm) {
    pthread_mutex_lock(&comm->fabric->lock);
    bool is = comm->in_flight > 0;
    pthread_mutex_unlock(&comm->fabric->lock);
    return is;
}

void rpi_comm_end_requests(rp_comm *comm) {
    rpi_fabric_activate(comm);
    for (;;) {
        rpi_fabric_pass(comm->fabric); /* completes everything with that failure */
        if (!is_in_flight(comm)) return;
        rpi_fabric_activate(comm);
        rpi_sleep_until_ns(rpi_now_ns() + RPI_SECOND_NS / 2000); /* a GPU is still at it */
    }
}
