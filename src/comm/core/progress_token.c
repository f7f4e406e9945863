/* The token of whoever drives: taken, given back, and its holder woken. progress_loop.c is what
 * its holder does. */
#include "comm/core/progress_token.h"
#include "comm/core/communicator.h"

#include "base/event.h"
#include "base/status.h"

void rpi_drive_wake(rpi_fabric *fabric) {
    if (atomic_load(&fabric->asleep)) rpi_event_set(fabric->wake_fd);
}

bool rpi_fabric_has_work(const rpi_fabric *fabric) {
    bool serves = fabric->in_flight > 0 || atomic_load(&fabric->windows) > 0;
    return serves && !fabric->driving && atomic_load(&fabric->wanted) == 0;
}

void rpi_progress_thread_offer(rpi_fabric *fabric) {
    if (!fabric->has_thread || !rpi_fabric_has_work(fabric)) return;
    fabric->offered = true;
    if (fabric->thread_sleeps) pthread_cond_signal(&fabric->work);
}

void rpi_drive_hand_on(rpi_fabric *fabric) {
    fabric->driving = false;
    pthread_cond_broadcast(&fabric->changed);
    rpi_progress_thread_offer(fabric);
}

void rpi_drive_take(rpi_fabric *fabric) {
    pthread_mutex_lock(&fabric->lock);
    atomic_fetch_add(&fabric->wanted, 1);
    atomic_fetch_add(&fabric->takers, 1);
    while (fabric->driving) {
        rpi_drive_wake(fabric);
        pthread_cond_wait(&fabric->changed, &fabric->lock);
    }
    fabric->driving = true;
    atomic_fetch_sub(&fabric->takers, 1);
    atomic_fetch_sub(&fabric->wanted, 1);
    pthread_mutex_unlock(&fabric->lock);
}

void rpi_drive_give(rpi_fabric *fabric) {
    pthread_mutex_lock(&fabric->lock);
    rpi_drive_hand_on(fabric);
    pthread_mutex_unlock(&fabric->lock);
}

void rp_comm_attend(rp_comm *comm) {
    if (!comm) {
        (void)RP_FAIL(INVALID, "comm is NULL");
        return;
    }
    atomic_fetch_add(&comm->fabric->wanted, 1);
}

void rp_comm_leave(rp_comm *comm) {
    if (!comm) {
        (void)RP_FAIL(INVALID, "comm is NULL");
        return;
    }
    atomic_fetch_sub(&comm->fabric->wanted, 1);
    if (!comm->fabric->has_thread) return;
    pthread_mutex_lock(&comm->fabric->lock);
    rpi_progress_thread_offer(comm->fabric);
    pthread_mutex_unlock(&comm->fabric->lock);
}
