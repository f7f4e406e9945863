/* The progress thread: drives while callers compute.
 *
 * Most operations are waited for soon after they were posted, and then a thread that was woken
 * for each would only be in the waiter's way: two wake-ups and a change of hands cost more than
 * a short transfer. So posting wakes it only from its sleep. Awake, it looks by itself every
 * GRACE_NS and takes the drive when something has been in flight for so long and nobody has
 * driven; after some looks at nothing it sleeps again. What can be sent when an operation is
 * posted, its poster has sent. */
#include "comm/communicator.h"

#include "base/clock.h"
#include "base/fpenv.h"
#include "base/status.h"

#include <errno.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define GRACE_NS       INT64_C(100000)
#define TIMER_SLACK_NS 1000UL
enum { LOOKS = 10, NICE = -10 };

static bool has_work(const rp_comm *comm) {
    return !comm->driving && comm->in_flight > 0 && atomic_load(&comm->wanted) == 0;
}

static bool is_left_alone(const rp_comm *comm) {
    int64_t since = comm->busy_since_ns;
    if (comm->driven_ns > since) since = comm->driven_ns;
    return rpi_now_ns() - since >= GRACE_NS;
}

void rpi_progress_thread_offer(rp_comm *comm) {
    if (!comm->has_thread || !has_work(comm)) return;
    comm->offered = true;
    if (comm->thread_sleeps) pthread_cond_signal(&comm->work);
}

/* Under the lock. */
static void sleep_for_work(rp_comm *comm) {
    comm->thread_sleeps = true;
    while (!comm->stop && !has_work(comm)) pthread_cond_wait(&comm->work, &comm->lock);
    comm->thread_sleeps = false;
}

/* Under the lock. */
static void sleep_a_while(rp_comm *comm) {
    int64_t at_ns = rpi_now_ns() + GRACE_NS;
    struct timespec at = {.tv_sec = at_ns / RPI_SECOND_NS, .tv_nsec = at_ns % RPI_SECOND_NS};
    pthread_cond_timedwait(&comm->work, &comm->lock, &at);
}

/* Under the lock. */
static void look_after(rp_comm *comm) {
    int looks = 0;
    while (!comm->stop && looks < LOOKS) {
        if (has_work(comm) && is_left_alone(comm)) rpi_drive_for_nobody(comm);
        looks = comm->offered ? 0 : looks + 1;
        comm->offered = false;
        sleep_a_while(comm);
    }
}

static void *progress_main(void *context) {
    rp_comm *comm = context;
    rpi_fpenv_default();
    /* Beside busy compute threads it must not wait for its turn; without the right to ask for
     * that it runs as it is. */
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
    (void)prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
    pthread_mutex_lock(&comm->lock);
    while (!comm->stop) {
        sleep_for_work(comm);
        sleep_a_while(comm);
        look_after(comm);
    }
    pthread_mutex_unlock(&comm->lock);
    return NULL;
}

rp_status rpi_progress_thread_start(rp_comm *comm) {
    int error = pthread_create(&comm->thread, NULL, progress_main, comm);
    if (error) {
        errno = error;
        return RP_FAIL_ERRNO(IO, "cannot start the progress thread of '%s'", comm->name);
    }
    comm->has_thread = true;
    return RP_OK;
}

void rpi_progress_thread_stop(rp_comm *comm) {
    if (!comm->has_thread) return;
    pthread_mutex_lock(&comm->lock);
    comm->stop = true;
    atomic_fetch_add(&comm->wanted, 1);
    rpi_drive_wake(comm);
    pthread_cond_signal(&comm->work);
    pthread_mutex_unlock(&comm->lock);
    pthread_join(comm->thread, NULL);
    atomic_fetch_sub(&comm->wanted, 1);
    comm->has_thread = false;
}
