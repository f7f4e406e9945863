/* When nothing moves: a server says who waits for what, and all fail.
 *
 * A server owes answers to some workers, and expects pushes of others; which of its links is
 * late only its books know. And whoever waits may wait for a rank that waits for a third. So
 * each rank says in its heartbeats, in the group of the caller's communicator, that it waits,
 * and a worker whose answer it waits for. A server that has had no news for the timeout of that
 * communicator fails all, though everybody is alive, where
 *
 *     a worker waits for its answer, and it has given that   a message between them is lost
 *     all that have not ended wait, servers too, and         nobody is left who could move
 *     their links have been still for a while
 *
 * A rank that computes, saves or merges says so by its beats, and is left in peace, however
 * long that takes; one that is stopped is the matter of its link (deadline.c). Nobody is left
 * behind for a standstill: whoever is alive has done nothing wrong, and what it owes would stay
 * missing. */
#include "methods/parameter_server/parameter_server_object.h"

#include "base/append.h"
#include "base/clock.h"
#include "base/log.h"
#include "comm/core/watch.h"

#include <stdio.h>
#include <string.h>

/* A rank that has found the lost message fails first; those that only suffer from it wait this
 * long. */
#define COURTESY_NS (5 * RPI_SECOND_NS)
enum { NOBODY = -1 };

static int64_t timeout_ns(const rp_parameter_server *s) {
    double seconds = rpi_comm_timeout_s(s->comm);
    return seconds < 1e9 ? (int64_t)(seconds * 1e9) : RPI_NEVER_NS / 4;
}

static int64_t warn_ns(const rp_parameter_server *s) {
    double seconds = rpi_comm_warn_after_s(s->comm);
    return seconds > 0 && seconds < 1e9 ? (int64_t)(seconds * 1e9) : RPI_NEVER_NS / 4;
}

/* ---- what beats say ---- */

/* Under the lock. */
static void say(const rp_parameter_server *s) {
    const rpi_push_waits *w = &s->waits;
    bool waits = (s->worker < 0 || w->answer >= 0) && (s->server < 0 || w->idle);
    rpi_comm_set_status(s->comm,
                        &(rpi_comm_status){.waits = waits, .from = w->answer, .step = w->step});
}

void rpi_push_await(rp_parameter_server *s, int server) {
    pthread_mutex_lock(&s->handover.lock);
    s->waits.answer = server;
    s->waits.step = s->number; /* written by this thread alone, which makes the pushes */
    say(s);
    pthread_mutex_unlock(&s->handover.lock);
}

void rpi_push_idle(rp_parameter_server *s, bool idle) {
    pthread_mutex_lock(&s->handover.lock);
    if (s->waits.idle != idle) {
        s->waits.idle = idle;
        say(s);
    }
    pthread_mutex_unlock(&s->handover.lock);
}

/* What a rank says of itself. */
typedef struct sight {
    bool waits;
    int answer;       /* the server that its worker waits for; NOBODY */
    int64_t heard_ns; /* when it said so */
} sight;

static sight look_at_own(rp_parameter_server *s) {
    pthread_mutex_lock(&s->handover.lock);
    int answer = s->waits.answer;
    pthread_mutex_unlock(&s->handover.lock);
    return (sight){s->worker < 0 || answer >= 0, answer, rpi_now_ns()};
}

static sight look_at(rp_parameter_server *s, int rank) {
    rpi_comm_status word;
    if (rank == s->rank) return look_at_own(s);
    rpi_comm_get_status(s->comm, rank, &word);
    return (sight){word.waits, word.from, word.heard_ns};
}

/* ---- how long nothing has moved ---- */

static bool is_there(const rp_parameter_server *s, int worker) {
    return !s->at.links[worker].has_ended && !s->at.ledger.workers[worker].is_lost;
}

/* Bytes that move count as a sign of life though their message is not whole yet. */
static int64_t later(int64_t news_ns, const rp_comm *comm) {
    int64_t moved_ns = comm ? rpi_comm_moved_ns(comm) : 0;
    return moved_ns > news_ns ? moved_ns : news_ns;
}

static int64_t link_news_ns(const rp_parameter_server *s, int worker) {
    const rpi_push_downlink *link = &s->at.links[worker];
    return later(link->news_ns, link->comm);
}

static int64_t news_ns(const rp_parameter_server *s) {
    int64_t last = s->at.news_ns;
    for (int w = 0; w < s->workers; w++)
        if (is_there(s, w)) last = later(last, s->at.links[w].comm);
    for (int i = 0; s->at.orders.comms && i < s->server_count; i++)
        last = later(last, s->at.orders.comms[i]);
    return last;
}

double rpi_push_look_s(const rp_parameter_server *s) {
    double most = rpi_seconds(timeout_ns(s)) / 8;
    return most < 1 ? most : 1;
}

void rpi_push_watch_links(rp_parameter_server *s) {
    for (int w = 0; w < s->workers && s->at.links; w++)
        if (s->at.links[w].comm) rpi_comm_watch(s->at.links[w].comm);
}

/* ---- who waits for what ---- */

static bool owes(const rp_parameter_server *s, int worker) {
    rpi_worker_state state = s->at.ledger.workers[worker].state;
    return state == RPI_WORKER_EXPECTED || state == RPI_WORKER_COMPUTING;
}

static void add_worker(rp_parameter_server *s, int worker, char *text, size_t bytes) {
    const rpi_ledger_worker *one = &s->at.ledger.workers[worker];
    int rank = rpi_push_worker_rank(s, worker), name = rpi_push_name(s, rank);
    unsigned long long number = one->received;
    sight seen = look_at(s, rank);
    switch (one->state) {
    case RPI_WORKER_EXPECTED:
        rpi_append(text, bytes, "rank %d's word behind its push %llu is missing", name, number);
        break;
    case RPI_WORKER_COMPUTING:
        rpi_append(text, bytes, "push %llu of rank %d is missing", number + 1, name);
        break;
    case RPI_WORKER_PENDING:
        rpi_append(text, bytes, "push %llu of rank %d is not merged yet", number, name);
        break;
    case RPI_WORKER_WAITING:
        rpi_append(text, bytes, "rank %d is held back behind its push %llu", name, number);
        break;
    case RPI_WORKER_AWAY: break;
    }
    if (!owes(s, worker)) return;
    if (seen.answer >= 0)
        rpi_append(text, bytes, " (it waits for rank %d)", rpi_push_name(s, seen.answer));
    else
        rpi_append(text, bytes, seen.waits ? " (it waits)" : " (it is alive and computes)");
}

static void add_all(rp_parameter_server *s, char *text, size_t bytes) {
    enum { ROOM = 80 }; /* of one */
    const char *between = "";
    if (rpi_push_follows(s) && !s->at.orders.is_over) {
        rpi_append(text, bytes, "%s of rank %d",
                   s->at.orders.has_order ? "pushes of an order" : "an order",
                   rpi_push_name(s, 0));
        rpi_append(text, bytes, s->at.orders.has_order ? " have not all come" : " is missing");
        between = ", ";
    }
    for (int w = 0; w < s->workers && strlen(text) + ROOM < bytes; w++) {
        if (!is_there(s, w)) continue;
        rpi_append(text, bytes, "%s", between);
        add_worker(s, w, text, bytes);
        between = ", ";
    }
}

static uint64_t step_now(const rp_parameter_server *s) {
    const rpi_push_server *at = &s->at;
    if (s->options.staleness == 0)
        return at->first_step + (at->ledger.version - at->first_version) + 1;
    return at->first_step + at->pushed / (uint64_t)s->shares + 1;
}

static rp_status fail(rp_parameter_server *s, int64_t idle_ns, const char *why) {
    return RP_FAIL(
        TIMEOUT,
        "rank %d, which serves parameters, timed out: no progress for %.1f s in step %llu: %s",
        rpi_push_name(s, s->rank), rpi_seconds(idle_ns), (unsigned long long)step_now(s), why);
}

/* ---- is that the end? ---- */

/* What the ranks say counts only if they said it well after the last thing moved: beats take a
 * moment. */
static bool is_settled(const sight *seen, int64_t since_ns, int64_t limit_ns) {
    return seen->waits && seen->heard_ns > since_ns + limit_ns / 2;
}

/* Finds a worker that waits for an answer which this server has given: the message is lost. */
static rp_status find_lost_message(rp_parameter_server *s, int64_t limit_ns) {
    for (int w = 0; w < s->workers; w++) {
        int rank = rpi_push_worker_rank(s, w);
        int64_t since_ns = link_news_ns(s, w), idle_ns = rpi_now_ns() - since_ns;
        if (!is_there(s, w) || !owes(s, w) || idle_ns < limit_ns) continue;
        sight seen = look_at(s, rank);
        if (!is_settled(&seen, since_ns, limit_ns) || seen.answer != s->rank) continue;
        char why[200] = "";
        rpi_append(
            why, sizeof why,
            "rank %d waits for this rank's answer to its push %llu, and this rank for what "
            "comes behind that: a message between them is lost",
            rpi_push_name(s, rank), (unsigned long long)s->at.ledger.workers[w].received);
        return fail(s, idle_ns, why);
    }
    return RP_OK;
}

/* Does this rank take part, and is it not waiting? */
static bool may_move(rp_parameter_server *s, int rank, int64_t since_ns, int64_t limit_ns) {
    int worker = rank - s->options.servers;
    bool serves = rank < s->server_count;
    if (rank == s->rank && s->worker < 0) return false;
    if (!serves && !is_there(s, worker)) return false;
    sight seen = look_at(s, rank);
    return !is_settled(&seen, since_ns, limit_ns);
}

static bool all_wait(rp_parameter_server *s, int64_t since_ns, int64_t limit_ns) {
    for (int rank = 0; rank < s->world; rank++)
        if (may_move(s, rank, since_ns, limit_ns)) return false;
    return true;
}

static void warn(rp_parameter_server *s, int64_t since_ns, int64_t idle_ns) {
    char text[400] = "";
    if (s->server > 0 || idle_ns < warn_ns(s) || s->at.warned_ns >= since_ns) return;
    s->at.warned_ns = rpi_now_ns();
    add_all(s, text, sizeof text);
    rpi_log(RP_LOG_WARNING,
            "rank %d, which serves parameters: no progress for %.1f s in step %llu: %s",
            rpi_push_name(s, s->rank), rpi_seconds(idle_ns), (unsigned long long)step_now(s),
            text);
}

/* A time in which this process did not run, or merged, does not count as one in which nothing
 * came (as in progress_loop.c). */
static void forgive_absence(rp_parameter_server *s, int64_t now_ns) {
    rpi_push_server *at = &s->at;
    double away_s = rpi_seconds(now_ns - at->looked_ns);
    at->looked_ns = now_ns;
    if (away_s <= rpi_push_look_s(s) + 1) return;
    at->news_ns = now_ns;
    for (int w = 0; w < s->workers; w++) at->links[w].news_ns = now_ns;
}

rp_status rpi_push_watch(rp_parameter_server *s) {
    int64_t now_ns = rpi_now_ns();
    if (!rpi_comm_has_beats(s->comm) ||
        rpi_seconds(now_ns - s->at.looked_ns) < rpi_push_look_s(s) / 2)
        return RP_OK;
    forgive_absence(s, now_ns);
    int64_t since_ns = news_ns(s), idle_ns = now_ns - since_ns, limit_ns = timeout_ns(s);
    char text[240] = "all ranks wait: ";
    rpi_push_idle(s, idle_ns >= limit_ns / 4);
    warn(s, since_ns, idle_ns);
    RP_TRY(find_lost_message(s, limit_ns));
    if (s->at.grace_ns && rpi_now_ns() < s->at.grace_ns) return RP_OK;
    int64_t courtesy_ns = limit_ns / 4 < COURTESY_NS ? limit_ns / 4 : COURTESY_NS;
    if (idle_ns < limit_ns + courtesy_ns || !all_wait(s, since_ns, limit_ns)) return RP_OK;
    add_all(s, text, sizeof text);
    return fail(s, idle_ns, text);
}
