/* Who drives, and how it sleeps.
 *
 * The drive is a token under the lock. A waiter takes it when it is free, runs passes until its
 * own request is done and hands it on; other waiters sleep on the condition meanwhile. The
 * progress thread (progress_thread.c) holds the drive only while nobody waits: a waiter asks
 * for it and gets it after at most one pass. No wake-up is lost: `asleep` is set before the
 * last look at the inbox and at `wanted`, and both are set before `asleep` is read.
 *
 * Waiters and the progress thread sleep on conditions of their own: what a blocking operation
 * posts, drives and completes itself never wakes the thread. */
#include "comm/communicator.h"

#include "base/clock.h"
#include "base/fpenv.h"
#include "base/status.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* How long a waiter polls before it sleeps. It yields between looks, so that a rank with work
 * on the same core has the core: waking a sleeper costs more than many such turns. The progress
 * thread never polls: it runs beside the caller's computation. */
#define SPIN_NS    INT64_C(50000)
/* Whoever kept the core for so long after a yield computes, and does not wait as we do: beside
 * that a sleeper comes to its turn sooner than one who yields. So the next waits sleep at once:
 * two, and twice as many each time in a row, up to 256. */
#define CROWDED_NS INT64_C(1000000)
enum { CROWDS_MAX = 8 };

void rpi_drive_wake(rp_comm *comm) {
    if (!atomic_load(&comm->asleep)) return;
    uint64_t one = 1;
    /* Fails only when the counter is full, and then the driver wakes anyway. */
    if (write(comm->wake_fd, &one, sizeof one) < 0) return;
}

static void drain_wake(rp_comm *comm) {
    uint64_t count;
    if (read(comm->wake_fd, &count, sizeof count) < 0) return;
}

/* ---- sleeping ---- */

typedef struct sleeper {
    struct pollfd fds[8];
    int count;
    int64_t wake_at_ns;
    bool news;
} sleeper;

static void watch(sleeper *s, int fd) {
    s->fds[s->count++] = (struct pollfd){.fd = fd, .events = POLLIN};
}

static void arm(rp_comm *comm, sleeper *s) {
    watch(s, comm->wake_fd);
    if (!comm->mesh) return;
    watch(s, rpi_control_fd(comm->control));
    for (int i = 0; comm->mesh->endpoints[i]; i++) {
        rpi_endpoint *endpoint = comm->mesh->endpoints[i];
        int fd = -1;
        int64_t wake_at_ns = RPI_NEVER_NS;
        s->news |= endpoint->transport->arm(endpoint, &fd, &wake_at_ns);
        if (fd >= 0) watch(s, fd);
        if (wake_at_ns < s->wake_at_ns) s->wake_at_ns = wake_at_ns;
    }
}

static void disarm(rp_comm *comm) {
    if (!comm->mesh) return;
    for (int i = 0; comm->mesh->endpoints[i]; i++)
        comm->mesh->endpoints[i]->transport->disarm(comm->mesh->endpoints[i]);
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

static void sleep_for_news(rp_comm *comm, bool for_nobody, int64_t deadline_ns) {
    atomic_store(&comm->asleep, true); /* first: who changes the timeout looks at it next */
    sleeper s = {.wake_at_ns = rpi_deadline_next_ns(comm)};
    if (deadline_ns < s.wake_at_ns) s.wake_at_ns = deadline_ns;
    arm(comm, &s);
    bool called = atomic_load(&comm->posted) || atomic_load(&comm->failed) ||
                  (for_nobody && atomic_load(&comm->wanted) > 0);
    if (!s.news && !called) poll_until(&s);
    atomic_store(&comm->asleep, false);
    disarm(comm);
    drain_wake(comm);
}

/* ---- driving ---- */

/* Bytes that moved are progress too, though no frame is complete yet. */
static void account(rp_comm *comm) {
    uint64_t sent = 0, received = 0;
    for (int rank = 0; rank < comm->world; rank++) {
        const rpi_link *link = comm->peers[rank].link;
        if (link) sent += link->bytes_sent;
        if (link) received += link->bytes_received;
    }
    if (sent + received != comm->moved) comm->progress_ns = rpi_now_ns();
    comm->driven_ns = rpi_now_ns();
    comm->moved = sent + received;
    atomic_store(&comm->sent, sent);
    atomic_store(&comm->received, received);
}

/* While nobody drove, nothing could move: that was no lack of progress. */
static void forgive_absence(rp_comm *comm) {
    int64_t now = rpi_now_ns();
    if (now - comm->driven_ns > RPI_SECOND_NS) comm->progress_ns = now;
}

static bool drive_is_over(const rp_comm *comm, const rp_request *request, int64_t deadline_ns) {
    if (!request)
        return atomic_load(&comm->wanted) > 0 || (!comm->queue && !atomic_load(&comm->posted));
    if (atomic_load(&request->done)) return true;
    return deadline_ns != RPI_NEVER_NS && rpi_now_ns() >= deadline_ns;
}

static bool shall_poll(rp_comm *comm, const rp_request *request) {
    if (!request) return false;
    if (comm->crowded_waits == 0) return true;
    comm->crowded_waits--;
    return false;
}

static void yield(rp_comm *comm, int64_t now) {
    sched_yield();
    if (rpi_now_ns() - now < CROWDED_NS) return;
    if (comm->crowds < CROWDS_MAX) comm->crowds++;
    comm->crowded_waits = 1 << comm->crowds;
}

/* request NULL: the progress thread, until there is nothing to do or somebody else wants to. */
static void drive(rp_comm *comm, const rp_request *request, int64_t deadline_ns) {
    int64_t idle_since = 0, spin_ns = shall_poll(comm, request) ? SPIN_NS : 0;
    forgive_absence(comm);
    while (!drive_is_over(comm, request, deadline_ns)) {
        if (rpi_comm_pass(comm)) {
            idle_since = 0;
            continue;
        }
        if (drive_is_over(comm, request, deadline_ns)) break;
        int64_t now = rpi_now_ns();
        if (!idle_since) idle_since = now;
        if (now - idle_since < spin_ns) {
            yield(comm, now);
            continue;
        }
        if (rpi_comm_check_control(comm) || rpi_set_aside(comm)) continue;
        account(comm);
        rpi_deadline_check(comm);
        if (!atomic_load(&comm->failed)) sleep_for_news(comm, !request, deadline_ns);
    }
    if (spin_ns > 0 && comm->crowded_waits == 0) comm->crowds = 0;
    account(comm);
}

/* Under the lock. */
static void give_drive(rp_comm *comm) {
    comm->driving = false;
    pthread_cond_broadcast(&comm->changed);
    rpi_progress_thread_offer(comm);
}

bool rpi_drive_take(rp_comm *comm) {
    pthread_mutex_lock(&comm->lock);
    atomic_fetch_add(&comm->wanted, 1);
    while (comm->driving) {
        rpi_drive_wake(comm);
        pthread_cond_wait(&comm->changed, &comm->lock);
    }
    comm->driving = true;
    atomic_fetch_sub(&comm->wanted, 1);
    pthread_mutex_unlock(&comm->lock);
    return true;
}

void rpi_drive_give(rp_comm *comm) {
    pthread_mutex_lock(&comm->lock);
    give_drive(comm);
    pthread_mutex_unlock(&comm->lock);
}

void rpi_drive_for_nobody(rp_comm *comm) {
    comm->driving = true;
    pthread_mutex_unlock(&comm->lock);
    drive(comm, NULL, RPI_NEVER_NS);
    pthread_mutex_lock(&comm->lock);
    give_drive(comm);
}

/* What drive() does before it sleeps: whoever only looks, again and again, never sleeps, and a
 * frame that cannot be taken must not stay in front of those that he waits for. */
static void look_further(rp_comm *comm) {
    if (rpi_now_ns() - comm->progress_ns < SPIN_NS || !rpi_set_aside(comm))
        rpi_deadline_check(comm);
}

void rpi_drive_once(rp_comm *comm) {
    RPI_FPENV_SCOPE;
    pthread_mutex_lock(&comm->lock);
    bool mine = !comm->driving;
    if (mine) comm->driving = true;
    pthread_mutex_unlock(&comm->lock);
    if (!mine) return;
    forgive_absence(comm);
    rpi_comm_check_control(comm);
    if (!rpi_comm_pass(comm)) look_further(comm);
    account(comm);
    rpi_drive_give(comm);
}

/* What our heartbeats say; called under the lock. */
static void note_waiting(rp_comm *comm, const rp_request *request) {
    if (!comm->control) return;
    rpi_control_note(comm->group, request ? request->sequence : 0);
}

/* Under the lock. */
static void sleep_for_change(rp_comm *comm, int64_t deadline_ns) {
    if (deadline_ns == RPI_NEVER_NS) {
        pthread_cond_wait(&comm->changed, &comm->lock);
        return;
    }
    struct timespec at = {.tv_sec = deadline_ns / RPI_SECOND_NS,
                          .tv_nsec = deadline_ns % RPI_SECOND_NS};
    pthread_cond_timedwait(&comm->changed, &comm->lock, &at);
}

/* Under the lock, which it releases meanwhile; the caller counts as wanting the drive. */
static void drive_for(rp_request *request, int64_t deadline_ns) {
    rp_comm *comm = request->comm;
    comm->driving = true;
    atomic_fetch_sub(&comm->wanted, 1);
    pthread_mutex_unlock(&comm->lock);
    drive(comm, request, deadline_ns);
    pthread_mutex_lock(&comm->lock);
    atomic_fetch_add(&comm->wanted, 1);
    give_drive(comm);
}

bool rpi_wait_until(rp_request *request, int64_t deadline_ns) {
    RPI_FPENV_SCOPE;
    rp_comm *comm = request->comm;
    if (atomic_load(&request->done)) return true;
    int64_t start = rpi_now_ns();
    pthread_mutex_lock(&comm->lock);
    if (comm->waiters++ == 0) note_waiting(comm, request);
    atomic_fetch_add(&comm->wanted, 1);
    while (!atomic_load(&request->done) && rpi_now_ns() < deadline_ns) {
        if (!comm->driving) {
            drive_for(request, deadline_ns);
            continue;
        }
        rpi_drive_wake(comm);
        sleep_for_change(comm, deadline_ns);
    }
    atomic_fetch_sub(&comm->wanted, 1);
    if (--comm->waiters == 0) note_waiting(comm, NULL);
    comm->stats.wait_s += rpi_seconds(rpi_now_ns() - start);
    rpi_progress_thread_offer(comm);
    bool done = atomic_load(&request->done);
    pthread_mutex_unlock(&comm->lock);
    return done;
}

void rp_comm_attend(rp_comm *comm) {
    if (!comm) {
        (void)RP_FAIL(INVALID, "comm is NULL");
        return;
    }
    atomic_fetch_add(&comm->wanted, 1);
}

void rp_comm_leave(rp_comm *comm) {
    if (!comm) {
        (void)RP_FAIL(INVALID, "comm is NULL");
        return;
    }
    atomic_fetch_sub(&comm->wanted, 1);
    if (!comm->has_thread) return;
    pthread_mutex_lock(&comm->lock);
    rpi_progress_thread_offer(comm);
    pthread_mutex_unlock(&comm->lock);
}

rp_status rpi_blocking_end(rp_comm *comm, rp_status posted, rp_request **request) {
    rp_status status = posted == RP_OK ? rp_request_wait(request) : posted;
    if (comm) rp_comm_leave(comm); /* without one it has not been posted */
    return status;
}
