/* Who owns progress: taken, released, and the owner woken. progress_loop.c is what it does.
 *
 *                 .-- a waiter, while nobody acquires ------> WAITER --.
 *                 |-- rpi_progress_once() ------------------> LOOK   --|
 *        NONE ----|                                                    |----> NONE
 *                 |-- the thread, while nobody waits -------> THREAD --|
 *                 '-- rpi_progress_acquire() ---------------> GUEST  --'
 *
 * It is handed over through NONE alone, under the lock: who wants it says so
 * (`yield_requested`, `acquirers`) and wakes the owner, which may be asleep in poll() as a
 * WAITER or as the THREAD.
 */
#include "comm/core/progress_owner.h"
#include "comm/core/communicator.h"

#include "base/event.h"
#include "base/states.h"
#include "base/status.h"

static const rpi_states next[] = {
    [RPI_OWNER_NONE] = RPI_STATE(RPI_OWNER_WAITER) | RPI_STATE(RPI_OWNER_LOOK) |
                       RPI_STATE(RPI_OWNER_THREAD) | RPI_STATE(RPI_OWNER_GUEST),
    [RPI_OWNER_WAITER] = RPI_STATE(RPI_OWNER_NONE),
    [RPI_OWNER_LOOK] = RPI_STATE(RPI_OWNER_NONE),
    [RPI_OWNER_THREAD] = RPI_STATE(RPI_OWNER_NONE),
    [RPI_OWNER_GUEST] = RPI_STATE(RPI_OWNER_NONE),
};

void rpi_progress_wake(rpi_context *context) {
    if (atomic_load(&context->asleep)) rpi_event_set(context->wake_fd);
}

bool rpi_progress_has_work(const rpi_context *context) {
    bool serves = context->in_flight > 0 || atomic_load(&context->windows) > 0;
    return serves && context->owner == RPI_OWNER_NONE &&
           atomic_load(&context->yield_requested) == 0;
}

void rpi_progress_thread_notify(rpi_context *context) {
    if (!context->has_thread || !rpi_progress_has_work(context)) return;
    context->has_new_work = true;
    if (context->thread_sleeps) pthread_cond_signal(&context->work);
}

bool rpi_progress_take_locked(rpi_context *context, rpi_progress_owner owner) {
    if (context->owner != RPI_OWNER_NONE) return false;
    RPI_ENTER(next, context->owner, owner);
    return true;
}

void rpi_progress_release_locked(rpi_context *context) {
    RPI_ENTER(next, context->owner, RPI_OWNER_NONE);
    pthread_cond_broadcast(&context->changed);
    rpi_progress_thread_notify(context);
}

void rpi_progress_acquire(rpi_context *context) {
    pthread_mutex_lock(&context->lock);
    atomic_fetch_add(&context->yield_requested, 1);
    atomic_fetch_add(&context->acquirers, 1);
    while (!rpi_progress_take_locked(context, RPI_OWNER_GUEST)) {
        rpi_progress_wake(context);
        pthread_cond_wait(&context->changed, &context->lock);
    }
    atomic_fetch_sub(&context->acquirers, 1);
    atomic_fetch_sub(&context->yield_requested, 1);
    pthread_mutex_unlock(&context->lock);
}

void rpi_progress_release(rpi_context *context) {
    pthread_mutex_lock(&context->lock);
    rpi_progress_release_locked(context);
    pthread_mutex_unlock(&context->lock);
}

void rp_comm_attend(rp_comm *comm) {
    if (!comm) {
        (void)RP_FAIL(INVALID, "comm is NULL");
        return;
    }
    atomic_fetch_add(&comm->context->yield_requested, 1);
}

void rp_comm_leave(rp_comm *comm) {
    if (!comm) {
        (void)RP_FAIL(INVALID, "comm is NULL");
        return;
    }
    atomic_fetch_sub(&comm->context->yield_requested, 1);
    if (!comm->context->has_thread) return;
    pthread_mutex_lock(&comm->context->lock);
    rpi_progress_thread_notify(comm->context);
    pthread_mutex_unlock(&comm->context->lock);
}
