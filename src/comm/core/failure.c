/* The first failure of the world: found here or heard of, it fails everything in flight.
 *
 *      WELL --- rpi_comm_fail() ---> FAILED: nothing moves; what is in flight waits for
 *        |                             |  the decision, RPI_CONTROL_DECISION_S at most
 *        | another rank's is heard,    v
 *        | or rpi_comm_fail_here()   DECIDED: `failure` is known, everything completes with it;
 *        '---------------------------> it stays the first, whatever else is heard
 *
 * Who finds a failure waits for nobody: he may own progress, and have been called by what
 * does not block. */
#include "base/c_locale.h"
#include "comm/core/communicator.h"
#include "comm/core/progress_owner.h"
#include "comm/core/request.h"

#include "base/clock.h"
#include "base/fpenv.h"
#include "base/states.h"
#include "base/status.h"

#include <stdarg.h>
#include <string.h>

static const rpi_states next[] = {
    [RPI_COMM_WELL] = RPI_STATE(RPI_COMM_FAILED) | RPI_STATE(RPI_COMM_DECIDED),
    [RPI_COMM_FAILED] = RPI_STATE(RPI_COMM_DECIDED),
    [RPI_COMM_DECIDED] = RPI_STATE(RPI_COMM_DECIDED), /* two threads may learn of it at once */
};

static void record(rp_comm *comm, const rpi_failure *failure) {
    pthread_mutex_lock(&comm->context->lock);
    if (comm->failure.status == RP_OK) comm->failure = *failure;
    RPI_ENTER(next, comm->health, RPI_COMM_DECIDED);
    pthread_cond_broadcast(&comm->context->changed);
    pthread_mutex_unlock(&comm->context->lock);
}

/* "tp0: ...": for a communicator that is made from another. */
static void name_comm(const rp_comm *comm, rpi_failure *failure) {
    char text[sizeof failure->text];
    if (!comm->is_made) return;
    snprintf(text, sizeof text, "%.60s: %.330s", comm->name, failure->text);
    memcpy(failure->text, text, sizeof text);
}

/* True: this is the first failure found here. */
static bool keep_report(rp_comm *comm, const rpi_failure *failure) {
    pthread_mutex_lock(&comm->context->lock);
    bool is_first = comm->report.status == RP_OK && comm->failure.status == RP_OK;
    if (is_first) {
        comm->report = *failure;
        name_comm(comm, &comm->report);
        comm->decision_ns = rpi_deadline_ns(RPI_CONTROL_DECISION_S);
        RPI_ENTER(next, comm->health, RPI_COMM_FAILED);
    }
    pthread_mutex_unlock(&comm->context->lock);
    return is_first;
}

bool rpi_comm_is_decided(rp_comm *comm) {
    rpi_failure first;
    if (atomic_load(&comm->health) == RPI_COMM_DECIDED) return true;
    bool is_heard = comm->group && rpi_control_failed(comm->group, &first);
    if (!is_heard && !rpi_comm_has_failed(comm)) return false;
    pthread_mutex_lock(&comm->context->lock);
    rpi_failure report = comm->report;
    bool is_late = report.status != RP_OK && rpi_now_ns() >= comm->decision_ns;
    pthread_mutex_unlock(&comm->context->lock);
    /* A death alone names no operation; our report of it does. */
    bool is_same = report.status != RP_OK && is_heard && first.finder < 0;
    if (!is_heard || (is_same && first.rank == report.rank)) first = report;
    if (is_heard || is_late) record(comm, &first);
    return is_heard || is_late;
}

/* The decision may be an earlier failure of another rank, of which ours is a consequence. */
void rpi_comm_fail(rp_comm *comm, const rpi_failure *failure) {
    if (rpi_comm_has_failed(comm) || !keep_report(comm, failure)) return;
    if (!comm->group)
        record(comm, &comm->report);
    else
        rpi_control_publish(comm->group, &comm->report);
}

void rpi_comm_await_decision(rp_comm *comm) {
    rpi_failure first;
    if (!rpi_comm_has_failed(comm) || rpi_comm_is_decided(comm)) return;
    (void)rpi_control_wait_failed(comm->group, comm->decision_ns, &first);
    (void)rpi_comm_is_decided(comm);
}

void rpi_comm_fail_here(rp_comm *comm, const rpi_failure *failure) {
    if (rpi_comm_has_failed(comm)) return;
    if (comm->group) rpi_control_publish(comm->group, failure);
    record(comm, failure);
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
    rpi_failure failure = {.status = status < 0 ? status : RP_INTERNAL,
                           .rank = comm->rank,
                           .finder = comm->rank,
                           .ends_groups = status != RP_CANCELLED};
    snprintf(failure.text, sizeof failure.text, "%s gave up: %s",
             rpi_rank_name(comm, comm->rank).text,
             message ? message : rp_status_text(failure.status));
    rpi_comm_fail(comm, &failure);
    rpi_comm_await_decision(comm);
    rpi_progress_wake(comm->context);
}

rpi_failure rpi_comm_failure(const rp_comm *comm) {
    pthread_mutex_t *lock = &comm->context->lock;
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
    return rpi_comm_is_decided(comm);
}
