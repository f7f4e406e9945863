/* Who owns progress: acquired, released, and the owner woken. progress_loop.c is what
 * its holder does. */
#include "comm/core/progress_owner.h"
#include "comm/core/communicator.h"

#include "base/event.h"
#include "base/status.h"

void rpi_progress_wake(rpi_context *context) {
    if (atomic_load(&context->asleep)) rpi_event_set(context->wake_fd);
}

bool rpi_progress_has_work(const rpi_context *context) {
    bool serves = context->in_flight > 0 || atomic_load(&context->windows) > 0;
    return serves && !context->is_owned && atomic_load(&context->yield_wanted) == 0;
}

void rpi_progress_thread_notify(rpi_context *context) {
    if (!context->has_thread || !rpi_progress_has_work(context)) return;
    context->has_new_work = true;
    if (context->thread_sleeps) pthread_cond_signal(&context->work);
}

void rpi_progress_release_locked(rpi_context *context) {
    context->is_owned = false;
    pthread_cond_broadcast(&context->changed);
    rpi_progress_thread_notify(context);
}

void rpi_progress_acquire(rpi_context *context) {
    pthread_mutex_lock(&context->lock);
    atomic_fetch_add(&context->yield_wanted, 1);
    atomic_fetch_add(&context->acquirers, 1);
    while (context->is_owned) {
        rpi_progress_wake(context);
        pthread_cond_wait(&context->changed, &context->lock);
    }
    context->is_owned = true;
    atomic_fetch_sub(&context->acquirers, 1);
    atomic_fetch_sub(&context->yield_wanted, 1);
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
    atomic_fetch_add(&comm->context->yield_wanted, 1);
}

void rp_comm_leave(rp_comm *comm) {
    if (!comm) {
        (void)RP_FAIL(INVALID, "comm is NULL");
        return;
    }
    atomic_fetch_sub(&comm->context->yield_wanted, 1);
    if (!comm->context->has_thread) return;
    pthread_mutex_lock(&comm->context->lock);
    rpi_progress_thread_notify(comm->context);
    pthread_mutex_unlock(&comm->context->lock);
}
