/* The first failure of the world: found here or heard of, it fails everything in flight. */
#include "base/c_locale.h"
#include "comm/core/communicator.h"
#include "comm/core/progress_token.h"

#include "base/clock.h"
#include "base/fpenv.h"
#include "base/status.h"

#include <stdarg.h>
#include <string.h>

static void record(rp_comm *comm, const rpi_failure *failure) {
    pthread_mutex_lock(&comm->fabric->lock);
    if (comm->failure.status == RP_OK) comm->failure = *failure;
    pthread_cond_broadcast(&comm->fabric->changed);
    pthread_mutex_unlock(&comm->fabric->lock);
    atomic_store(&comm->failed, true);
}

void rpi_comm_fail(rp_comm *comm, const rpi_failure *failure) {
    if (atomic_load(&comm->failed)) return;
    rpi_failure first = *failure;
    if (comm->group) {
        /* The verdict may be another rank's earlier failure, of which ours is a consequence. */
        rpi_control_publish(comm->group, failure);
        if (!rpi_control_wait_failed(comm->group, rpi_deadline_ns(RPI_CONTROL_VERDICT_S),
                                     &first))
            first = *failure;
        /* A bare death has no operation; our account of it has. */
        if (first.finder < 0 && first.rank == failure->rank) first = *failure;
    }
    record(comm, &first);
}

void rpi_comm_fail_text(rp_comm *comm, rp_status status, int rank, const char *format, ...) {
    rpi_failure failure = {.status = status, .rank = rank, .finder = comm->rank};
    va_list arguments;
    va_start(arguments, format);
    rpi_vprint(failure.text, sizeof failure.text, format, arguments);
    va_end(arguments);
    rpi_comm_fail(comm, &failure);
}

void rp_comm_abort(rp_comm *comm, rp_status status, const char *message) {
    RPI_FPENV_SCOPE;
    if (!comm) {
        (void)RP_FAIL(INVALID, "comm is NULL");
        return;
    }
    rpi_failure failure = {
        .status = status < 0 ? status : RP_INTERNAL, .rank = comm->rank, .finder = comm->rank};
    snprintf(failure.text, sizeof failure.text, "rank %d gave up: %s", comm->rank,
             message ? message : rp_status_text(failure.status));
    rpi_comm_fail(comm, &failure);
    rpi_drive_wake(comm->fabric);
}

rpi_failure rpi_comm_failure(const rp_comm *comm) {
    pthread_mutex_t *lock = &comm->fabric->lock;
    pthread_mutex_lock(lock);
    rpi_failure failure = comm->failure;
    pthread_mutex_unlock(lock);
    if (failure.status == RP_OK && comm->group) (void)rpi_control_failed(comm->group, &failure);
    return failure;
}

rp_status rp_comm_status(const rp_comm *comm) {
    if (!comm) return RP_FAIL(INVALID, "comm is NULL");
    rpi_failure failure = rpi_comm_failure(comm);
    if (failure.status == RP_OK) return RP_OK;
    return rpi_fail(failure.status, __FILE__, __LINE__, "%s", failure.text);
}

bool rpi_comm_check_control(rp_comm *comm) {
    rpi_failure failure;
    if (atomic_load(&comm->failed)) return true;
    if (!comm->group || !rpi_control_failed(comm->group, &failure)) return false;
    record(comm, &failure);
    return true;
}
