/* The progress thread: makes progress while callers compute.
 *
 * Most operations are waited for soon after they were posted, and waking a thread for each
 * would only hinder the waiter: two wake-ups and a change of the owner cost more than a short
 * transfer. So posting wakes it only from its sleep. When awake it checks every LOOK_NS and
 * acquires progress if something has been in flight for this long and no thread has made
 * progress; after some checks without work it sleeps again. Frames that can be sent when an
 * operation is posted are sent by the posting thread.
 *
 * If there are windows it owns progress whenever no other thread wants it, because neighbours
 * may write into them at any time. It sleeps as the owner until something comes. */
#include "comm/core/communicator.h"
#include "comm/core/progress_owner.h"
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

#define LOOK_NS        INT64_C(100000)
#define TIMER_SLACK_NS 1000UL
enum { LOOKS = 10, NICE = -10 };

static bool is_left_alone(const rpi_context *context) {
    int64_t since = context->busy_since_ns;
    if (context->owned_ns > since) since = context->owned_ns;
    return rpi_now_ns() - since >= LOOK_NS;
}

/* Under the lock. */
static void sleep_for_work(rpi_context *context) {
    context->thread_sleeps = true;
    while (!context->stop && !rpi_progress_has_work(context))
        pthread_cond_wait(&context->work, &context->lock);
    context->thread_sleeps = false;
}

/* Under the lock. */
static void sleep_a_while(rpi_context *context) {
    int64_t at_ns = rpi_now_ns() + LOOK_NS;
    struct timespec at = {.tv_sec = at_ns / RPI_SECOND_NS, .tv_nsec = at_ns % RPI_SECOND_NS};
    pthread_cond_timedwait(&context->work, &context->lock, &at);
}

/* Under the lock. */
static void look_after(rpi_context *context) {
    int looks = 0;
    while (!context->stop && looks < LOOKS) {
        if (rpi_progress_has_work(context) && is_left_alone(context))
            rpi_progress_unattended(context);
        looks = context->has_new_work ? 0 : looks + 1;
        context->has_new_work = false;
        sleep_a_while(context);
    }
}

static void *progress_main(void *argument) {
    rpi_context *context = argument;
    rpi_fpenv_default();
    /* Beside busy compute threads it must not wait for its turn; without the right to a higher
     * priority it runs as it is. */
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
    (void)prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
    pthread_mutex_lock(&context->lock);
    while (!context->stop) {
        sleep_for_work(context);
        sleep_a_while(context);
        look_after(context);
    }
    pthread_mutex_unlock(&context->lock);
    return NULL;
}

rp_status rpi_progress_thread_start(rpi_context *context) {
    int error = 0;
    pthread_mutex_lock(&context->lock); /* others may make communicators, or post, at this
                                         * moment */
    if (!context->has_thread)
        error = pthread_create(&context->thread, NULL, progress_main, context);
    if (!error) context->has_thread = true;
    pthread_mutex_unlock(&context->lock);
    if (error)
        return RP_FAIL(IO, "cannot start the progress thread: %s%s", strerror(error),
                       rpi_lacking_threads(error));
    return RP_OK;
}

void rpi_progress_thread_stop(rpi_context *context) {
    if (!context->has_thread) return;
    pthread_mutex_lock(&context->lock);
    context->stop = true;
    atomic_fetch_add(&context->yield_requested, 1);
    rpi_progress_wake(context);
    pthread_cond_signal(&context->work);
    pthread_mutex_unlock(&context->lock);
    pthread_join(context->thread, NULL);
    atomic_fetch_sub(&context->yield_requested, 1);
    context->has_thread = false;
}
