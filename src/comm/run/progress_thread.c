/* The progress thread: drives while callers compute.
 *
 * Most operations are waited for soon after they were posted, and then a thread that was woken
 * for each would only be in the waiter's way: two wake-ups and a change of hands cost more than
 * a short transfer. So posting wakes it only from its sleep. Awake, it looks by itself every
 * GRACE_NS and takes the drive when something has been in flight for so long and nobody has
 * driven; after some looks at nothing it sleeps again. What can be sent when an operation is
 * posted, its poster has sent.
 *
 * Where there are windows the drive is its own whenever nobody else wants it: neighbours write
 * into them at any time. It sleeps in it until something comes. */
#include "comm/core/communicator.h"
#include "comm/core/progress_token.h"
#include "comm/run/progress_loop.h"

#include "base/clock.h"
#include "base/fpenv.h"
#include "base/lacking.h"
#include "base/status.h"

#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define GRACE_NS       INT64_C(100000)
#define TIMER_SLACK_NS 1000UL
enum { LOOKS = 10, NICE = -10 };

static bool is_left_alone(const rpi_fabric *fabric) {
    int64_t since = fabric->busy_since_ns;
    if (fabric->driven_ns > since) since = fabric->driven_ns;
    return rpi_now_ns() - since >= GRACE_NS;
}

/* Under the lock. */
static void sleep_for_work(rpi_fabric *fabric) {
    fabric->thread_sleeps = true;
    while (!fabric->stop && !rpi_fabric_has_work(fabric))
        pthread_cond_wait(&fabric->work, &fabric->lock);
    fabric->thread_sleeps = false;
}

/* Under the lock. */
static void sleep_a_while(rpi_fabric *fabric) {
    int64_t at_ns = rpi_now_ns() + GRACE_NS;
    struct timespec at = {.tv_sec = at_ns / RPI_SECOND_NS, .tv_nsec = at_ns % RPI_SECOND_NS};
    pthread_cond_timedwait(&fabric->work, &fabric->lock, &at);
}

/* Under the lock. */
static void look_after(rpi_fabric *fabric) {
    int looks = 0;
    while (!fabric->stop && looks < LOOKS) {
        if (rpi_fabric_has_work(fabric) && is_left_alone(fabric)) rpi_drive_for_nobody(fabric);
        looks = fabric->offered ? 0 : looks + 1;
        fabric->offered = false;
        sleep_a_while(fabric);
    }
}

static void *progress_main(void *context) {
    rpi_fabric *fabric = context;
    rpi_fpenv_default();
    /* Beside busy compute threads it must not wait for its turn; without the right to ask for
     * that it runs as it is. */
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
    (void)prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
    pthread_mutex_lock(&fabric->lock);
    while (!fabric->stop) {
        sleep_for_work(fabric);
        sleep_a_while(fabric);
        look_after(fabric);
    }
    pthread_mutex_unlock(&fabric->lock);
    return NULL;
}

rp_status rpi_progress_thread_start(rpi_fabric *fabric) {
    int error = 0;
    pthread_mutex_lock(&fabric->lock); /* others may make communicators, or post, just now */
    if (!fabric->has_thread)
        error = pthread_create(&fabric->thread, NULL, progress_main, fabric);
    if (!error) fabric->has_thread = true;
    pthread_mutex_unlock(&fabric->lock);
    if (error)
        return RP_FAIL(IO, "cannot start the progress thread: %s%s", strerror(error),
                       rpi_lacking_threads(error));
    return RP_OK;
}

void rpi_progress_thread_stop(rpi_fabric *fabric) {
    if (!fabric->has_thread) return;
    pthread_mutex_lock(&fabric->lock);
    fabric->stop = true;
    atomic_fetch_add(&fabric->wanted, 1);
    rpi_drive_wake(fabric);
    pthread_cond_signal(&fabric->work);
    pthread_mutex_unlock(&fabric->lock);
    pthread_join(fabric->thread, NULL);
    atomic_fetch_sub(&fabric->wanted, 1);
    fabric->has_thread = false;
}
