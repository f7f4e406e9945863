/* Which thread makes progress, and how it sleeps.
 *
 * Progress has one owner, under the lock. A waiter acquires it when it is free, iterates until
 * its own request is done and hands it on; other waiters sleep on the condition meanwhile. The
 * progress thread (progress_thread.c) owns progress only while no caller waits: a waiter asks
 * for it and gets it after at most one iteration. No wake-up is lost: `asleep` is set before
 * the last look at the inbox and at `yield_requested`, and both are set before `asleep` is
 * read.
 *
 * Waiters and the progress thread sleep on conditions of their own, so the posting, moving and
 * completing of a blocking operation never wakes the thread. */
#include "comm/run/progress_loop.h"
#include "comm/core/communicator.h"
#include "comm/core/progress_owner.h"
#include "comm/device/device.h"
#include "comm/run/executor.h"
#include "comm/run/receive.h"

#include "base/clock.h"
#include "base/event.h"
#include "base/fpenv.h"
#include "base/status.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>

/* How long a waiter polls before it sleeps. It yields between looks, so that another rank with
 * work on the same core can run: waking a sleeper costs more than many such turns. The progress
 * thread never polls, because it runs beside the caller's computation. */
#define SPIN_NS           INT64_C(50000)
/* A program that has kept the core for so long after a yield computes, and does not wait as we
 * do. Beside it a sleeper runs sooner than a thread that yields. So the next waits sleep at
 * once: two, and twice as many each time in a row, up to 256. */
#define OVERSUBSCRIBED_NS INT64_C(1000000)
enum { OVERSUBSCRIBED_MOST = 8 };
/* How often to check whether a GPU has finished failed work, since its call may never come. */
#define ENDING_NS INT64_C(20000000)
/* If ranks are oversubscribed (context.h) no thread polls: the ranks for which it waits run
 * first, and together they take longer than a wake-up. */

/* ---- sleeping ---- */

typedef struct sleeper {
    struct pollfd fds[8];
    int count;
    int64_t wake_at_ns;
    bool ready;
} sleeper;

static void watch(sleeper *s, int fd) {
    s->fds[s->count++] = (struct pollfd){.fd = fd, .events = POLLIN};
}

static void arm(rpi_context *context, sleeper *s) {
    watch(s, context->wake_fd);
    if (!context->mesh) return;
    watch(s, rpi_control_fd(context->control));
    for (int i = 0; context->mesh->endpoints[i]; i++) {
        rpi_endpoint *endpoint = context->mesh->endpoints[i];
        int fd = -1;
        int64_t wake_at_ns = RPI_NEVER_NS;
        s->ready |= endpoint->transport->arm(endpoint, &fd, &wake_at_ns);
        if (fd >= 0) watch(s, fd);
        if (wake_at_ns < s->wake_at_ns) s->wake_at_ns = wake_at_ns;
    }
}

static void disarm(rpi_context *context) {
    if (!context->mesh) return;
    for (int i = 0; context->mesh->endpoints[i]; i++)
        context->mesh->endpoints[i]->transport->disarm(context->mesh->endpoints[i]);
}

static void poll_until(sleeper *s) {
    struct timespec span = {0}, *limit = NULL;
    if (s->wake_at_ns != RPI_NEVER_NS) {
        int64_t left = s->wake_at_ns - rpi_now_ns();
        if (left < 0) left = 0;
        span =
            (struct timespec){.tv_sec = left / RPI_SECOND_NS, .tv_nsec = left % RPI_SECOND_NS};
        limit = &span;
    }
    (void)ppoll(s->fds, (nfds_t)s->count, limit,
                NULL); /* EINTR: look again, then sleep again */
}

/* For operations in flight: when to look again if nothing has come. */
static int64_t next_deadline_ns(const rpi_context *context) {
    int64_t next_ns = RPI_NEVER_NS;
    for (const rp_comm *comm = context->active; comm; comm = comm->next_active) {
        int64_t own_ns = rpi_deadline_next_ns(comm);
        if (rpi_comm_has_failed(comm)) own_ns = comm->decision_ns;
        if (comm->ending) own_ns = rpi_now_ns() + ENDING_NS;
        if (own_ns < next_ns) next_ns = own_ns;
    }
    return next_ns;
}

/* Whether an iteration must handle a failure. It need not while a GPU still works for the
 * communicator, because that rings when it is done. Links may also break while the others are
 * examined, also in check_deadlines(). */
static bool has_failed(const rpi_context *context) {
    if (context->breaks != context->breaks_seen) return true;
    for (const rp_comm *comm = context->active; comm; comm = comm->next_active)
        if (atomic_load(&comm->health) == RPI_COMM_DECIDED && !comm->ending) return true;
    return false;
}

/* While no thread made progress nothing could move, and that was no lack of progress. Nor is
 * the time for which the process was stopped since then, or since something moved in any
 * communicator. */
static void forgive_absence(rpi_context *context, int64_t since_ns) {
    int64_t now = rpi_now_ns();
    context->owned_ns = now;
    for (const rp_comm *comm = context->active; comm; comm = comm->next_active)
        if (comm->progress_ns > since_ns) since_ns = comm->progress_ns;
    if (now - since_ns <= RPI_SECOND_NS) return;
    for (rp_comm *comm = context->active; comm; comm = comm->next_active)
        rpi_deadline_forgive(comm, since_ns, now);
}

static void sleep_until_ready(rpi_context *context, bool for_nobody, int64_t deadline_ns) {
    atomic_store(&context->asleep, true); /* first: a caller that changes a timeout looks at it
                                           * next */
    sleeper s = {.wake_at_ns = next_deadline_ns(context)};
    if (deadline_ns < s.wake_at_ns) s.wake_at_ns = deadline_ns;
    arm(context, &s);
    rpi_devices_arm(context);
    bool called = atomic_load(&context->posted) || has_failed(context) ||
                  atomic_load(&context->acquirers) > 0 ||
                  (for_nobody && atomic_load(&context->yield_requested) > 0);
    if (!s.ready && !called) {
        poll_until(&s);
        forgive_absence(context, s.wake_at_ns); /* as after a stop of the whole process */
    }
    atomic_store(&context->asleep, false);
    disarm(context);
    rpi_event_clear(context->wake_fd);
}

/* ---- progress ---- */

/* Bytes that moved are progress, too, even if no frame is complete yet. If only one
 * communicator waits for frames they belong to it, unless they are of its windows. is_still: no
 * frame was completed since. */
static void note_bytes(rpi_context *context, bool is_still) {
    uint64_t moved = 0;
    for (int i = 0; context->mesh && context->mesh->endpoints[i]; i++)
        moved += context->mesh->endpoints[i]->bytes_moved;
    rp_comm *only = context->active;
    forgive_absence(context, context->owned_ns);
    if (moved != context->moved && is_still) context->trickled_ns = context->owned_ns;
    if (moved != context->moved && only && !only->next_active && !only->windows)
        rpi_comm_progressed(only, context->owned_ns);
    context->moved = moved;
}

static bool has_queue(const rpi_context *context) {
    for (const rp_comm *comm = context->active; comm; comm = comm->next_active)
        if (comm->queue) return true;
    return false;
}

static bool progress_is_over(const rpi_context *context, const atomic_bool *until,
                             int64_t deadline_ns) {
    if (atomic_load(&context->acquirers) > 0) return true;
    if (!until)
        return atomic_load(&context->yield_requested) > 0 ||
               (!has_queue(context) && !atomic_load(&context->posted) &&
                atomic_load(&context->windows) == 0);
    if (atomic_load(until)) return true;
    return deadline_ns != RPI_NEVER_NS && rpi_now_ns() >= deadline_ns;
}

static bool shall_poll(rpi_context *context, bool for_nobody) {
    if (for_nobody || context->oversubscribed) return false;
    if (context->oversubscribed_waits == 0) return true;
    context->oversubscribed_waits--;
    return false;
}

static void yield(rpi_context *context, int64_t now) {
    sched_yield();
    if (rpi_now_ns() - now < OVERSUBSCRIBED_NS) return;
    if (context->oversubscribed_count < OVERSUBSCRIBED_MOST) context->oversubscribed_count++;
    context->oversubscribed_waits = 1 << context->oversubscribed_count;
}

/* True: a failure was heard of. */
static bool check_control(rpi_context *context) {
    bool failed = false;
    if (context->control)
        rpi_control_clear_fd(context->control); /* first: frames that come now are seen */
    for (rp_comm *comm = context->active; comm; comm = comm->next_active)
        if (!comm->ending) failed |= rpi_comm_check_control(comm);
    return failed;
}

static void check_deadlines(rpi_context *context) {
    for (rp_comm *comm = context->active; comm; comm = comm->next_active)
        rpi_deadline_check(comm);
}

/* A thread that is always busy, or leaves before it would sleep, checks when it ends. */
static void check_operations(rpi_context *context) {
    for (rp_comm *comm = context->active; comm; comm = comm->next_active)
        rpi_deadline_check_operations(comm, context->owned_ns);
}

/* until NULL: the progress thread, until there is no work or another thread wants to own
 * progress. */
static void make_progress(rpi_context *context, const atomic_bool *until, int64_t deadline_ns) {
    int64_t idle_since = 0, spin_ns = shall_poll(context, !until) ? SPIN_NS : 0;
    bool is_still = false; /* since bytes were last counted */
    forgive_absence(context, context->owned_ns);
    while (!progress_is_over(context, until, deadline_ns)) {
        if (rpi_progress_iterate(context)) {
            idle_since = 0;
            is_still = false;
            continue;
        }
        if (progress_is_over(context, until, deadline_ns)) break;
        int64_t now = rpi_now_ns();
        if (!idle_since) idle_since = now;
        if (now - idle_since < spin_ns) {
            yield(context, now);
            continue;
        }
        if (check_control(context) || rpi_unexpected_queue(context)) continue;
        note_bytes(context, is_still);
        is_still = true;
        check_deadlines(context);
        if (!has_failed(context)) sleep_until_ready(context, !until, deadline_ns);
    }
    if (spin_ns > 0 && context->oversubscribed_waits == 0) context->oversubscribed_count = 0;
    note_bytes(context, false);
    check_operations(context);
}

void rpi_progress_unattended(rpi_context *context) {
    (void)rpi_progress_take_locked(context, RPI_OWNER_THREAD);
    pthread_mutex_unlock(&context->lock);
    make_progress(context, NULL, RPI_NEVER_NS);
    pthread_mutex_lock(&context->lock);
    rpi_progress_release_locked(context);
}

/* What make_progress() does before it sleeps. A thread that only polls never sleeps, and a
 * frame that cannot be taken must not block those for which it waits. */
static void look_further(rp_comm *comm) {
    if (rpi_now_ns() - comm->progress_ns < SPIN_NS || !rpi_unexpected_queue(comm->context))
        check_deadlines(comm->context);
}

/* A polling thread leaves the core to a thread that can move something: the current progress
 * owner, or on a host with more ranks than cores another rank. */
void rpi_progress_once(rp_comm *comm) {
    RPI_FPENV_SCOPE;
    rpi_context *context = comm->context;
    pthread_mutex_lock(&context->lock);
    bool mine = rpi_progress_take_locked(context, RPI_OWNER_LOOK);
    pthread_mutex_unlock(&context->lock);
    if (!mine) {
        sched_yield();
        return;
    }
    forgive_absence(context, context->owned_ns);
    (void)check_control(context);
    (void)rpi_comm_check_control(comm); /* it may have had no work so far */
    bool has_moved = rpi_progress_iterate(context),
         yields = context->oversubscribed && !has_moved;
    if (!has_moved) look_further(comm);
    note_bytes(context, false);
    check_operations(context);
    rpi_progress_release(context);
    if (yields) sched_yield();
}

/* The content of our heartbeats; called under the lock. */
static void note_wait(rp_comm *comm, rp_request *request, int64_t deadline_ns) {
    comm->waited = request;
    if (!comm->group) return;
    if (deadline_ns == RPI_NEVER_NS)
        rpi_control_note_wait(comm->group, request->sequence);
    else /* it ends by itself, and then the caller may do something else */
        rpi_control_note(comm->group, request->sequence);
}

static void note_end_of_wait(rp_comm *comm, const rp_request *request) {
    if (comm->waited == request) comm->waited = NULL;
    if (comm->waiters == 0 && comm->group) rpi_control_note(comm->group, 0);
}

/* Under the lock. */
static void sleep_for_change(rpi_context *context, int64_t deadline_ns) {
    if (deadline_ns == RPI_NEVER_NS) {
        pthread_cond_wait(&context->changed, &context->lock);
        return;
    }
    struct timespec at = {.tv_sec = deadline_ns / RPI_SECOND_NS,
                          .tv_nsec = deadline_ns % RPI_SECOND_NS};
    pthread_cond_timedwait(&context->changed, &context->lock, &at);
}

/* Under the lock, which it releases meanwhile; the caller has asked to own progress, and does.
 */
static void progress_for(rpi_context *context, const atomic_bool *until, int64_t deadline_ns) {
    atomic_fetch_sub(&context->yield_requested, 1);
    pthread_mutex_unlock(&context->lock);
    make_progress(context, until, deadline_ns);
    pthread_mutex_lock(&context->lock);
    atomic_fetch_add(&context->yield_requested, 1);
    rpi_progress_release_locked(context);
}

/* What is waited for is a flag of the request's. */
static bool wait_until(rp_request *request, const atomic_bool *until, int64_t deadline_ns) {
    RPI_FPENV_SCOPE;
    rp_comm *comm = request->comm;
    rpi_context *context = comm->context;
    if (atomic_load(until)) return true;
    int64_t start = rpi_now_ns();
    pthread_mutex_lock(&context->lock);
    if (comm->waiters++ == 0) note_wait(comm, request, deadline_ns);
    atomic_fetch_add(&context->yield_requested, 1);
    while (!atomic_load(until) && rpi_now_ns() < deadline_ns) {
        if (atomic_load(&context->acquirers) == 0 &&
            rpi_progress_take_locked(context, RPI_OWNER_WAITER)) {
            progress_for(context, until, deadline_ns);
            continue;
        }
        rpi_progress_wake(context);
        sleep_for_change(context, deadline_ns);
    }
    atomic_fetch_sub(&context->yield_requested, 1);
    comm->waiters--;
    note_end_of_wait(comm, request);
    comm->stats.wait_s += rpi_seconds(rpi_now_ns() - start);
    rpi_progress_thread_notify(context);
    bool done = atomic_load(until);
    pthread_mutex_unlock(&context->lock);
    return done;
}

bool rpi_wait_until(rp_request *request, int64_t deadline_ns) {
    return wait_until(request, &request->done, deadline_ns);
}

bool rpi_wait_until_enqueued(rp_request *request, int64_t deadline_ns) {
    return wait_until(request, &request->enqueued, deadline_ns);
}
