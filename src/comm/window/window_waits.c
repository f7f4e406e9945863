/* Windows: waits for other ranks. Every wait has a deadline, and its error names the ranks. */
#include "base/c_locale.h"
#include "comm/window/window_calls.h"

#include "base/clock.h"
#include "base/fpenv.h"
#include "base/memory.h"
#include "base/status.h"

/* How often a waiter checks whether a rank has died, since none of its own frames may show it.
 */
#define LOOK_NS (RPI_SECOND_NS / 20)

/* The time that earlier slices of this thread's next wait have taken. */
static _Thread_local double waited_before_s;

void rp_window_waited(double waited_s) {
    waited_before_s = waited_s > 0 ? waited_s : 0;
}

/* The wait to which it belonged is over. */
static rp_status over(rp_status status) {
    waited_before_s = 0;
    return status;
}

/* What is waited for: the ranks of which something is missing. */
typedef struct waiting {
    rp_window *window;
    const char *what;                                       /* in messages: "put ..." */
    bool (*lacks)(const struct waiting *waiting, int rank); /* under the context's lock */
    rp_window_operation *operation;
    const int *ranks; /* of mutexes */
    size_t count;
    bool own;
} waiting;

/* Under the context's lock: the first rank of which something is missing. */
static int first_missing(const waiting *w) {
    for (int rank = 0; rank < w->window->comm->world; rank++)
        if (w->lacks(w, rank)) return rank;
    return -1;
}

/* "rank 2 (no heartbeat for 4.1 s)" */
static void rank_text(const rp_comm *comm, int rank, char *text, size_t bytes) {
    rpi_control_beat beat = {0};
    if (comm->group) rpi_control_beat_of(comm->group, rank, &beat);
    int64_t silence = beat.silent_ns;
    if (beat.heard_ns && silence > comm->silence_ns / 2)
        rpi_print(text, bytes, "rank %d (no heartbeat for %.1f s: stopped or cut off)", rank,
                  rpi_seconds(silence));
    else
        snprintf(text, bytes, "rank %d", rank);
}

/* missing: a rank that was missing at the deadline; it may have come since. */
static rp_status fail_late(const waiting *w, int missing, double waited_s) {
    rp_comm *comm = w->window->comm;
    char names[400] = "";
    size_t used = 0;
    for (int rank = 0; rank < comm->world; rank++) {
        char one[96];
        pthread_mutex_lock(&comm->context->lock);
        bool lacks = rank == missing || w->lacks(w, rank);
        pthread_mutex_unlock(&comm->context->lock);
        if (!lacks || used >= sizeof names) continue;
        rank_text(comm, rank, one, sizeof one);
        used +=
            (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", one);
    }
    return RP_FAIL(TIMEOUT, "window '%s': timed out: %s for %.1f s: %s", w->window->name,
                   w->what, waited_s, names);
}

static rp_status fail_gone(const waiting *w, int rank) {
    return RP_FAIL(
        PEER,
        "window '%s': %s: connection closed by peer: rank %d has left, or its link has failed",
        w->window->name, w->what, rank);
}

static void sleep_until(rpi_context *context, int64_t deadline_ns) {
    int64_t at_ns = rpi_now_ns() + LOOK_NS;
    if (deadline_ns < at_ns) at_ns = deadline_ns;
    struct timespec at = {.tv_sec = at_ns / RPI_SECOND_NS, .tv_nsec = at_ns % RPI_SECOND_NS};
    pthread_cond_timedwait(&context->changed, &context->lock, &at);
}

/* Under the context's lock, which it releases meanwhile. RP_PENDING: continue. */
static rp_status look(const waiting *w, int *out_missing) {
    *out_missing = first_missing(w);
    if (*out_missing < 0) return RP_OK;
    return w->window->gone[*out_missing] ? RP_PEER : RP_PENDING;
}

static rp_status wait_for(const waiting *w, double timeout_s) {
    rp_comm *comm = w->window->comm;
    rpi_context *context = comm->context;
    if (!(timeout_s > 0)) timeout_s = atomic_load(&comm->timeout_s);
    int64_t deadline_ns = rpi_deadline_ns(timeout_s), looked_ns = rpi_now_ns();
    rp_status status;
    int missing = -1;
    pthread_mutex_lock(&context->lock);
    while ((status = look(w, &missing)) == RP_PENDING && rpi_now_ns() < deadline_ns) {
        sleep_until(context, deadline_ns);
        if (rpi_now_ns() - looked_ns < LOOK_NS) continue;
        pthread_mutex_unlock(&context->lock);
        rp_status failure = rpi_window_check(w->window);
        if (failure != RP_OK) return failure;
        rpi_window_call(w->window); /* a link that has failed is noticed in an iteration */
        looked_ns = rpi_now_ns();
        pthread_mutex_lock(&context->lock);
    }
    pthread_mutex_unlock(&context->lock);
    if (status == RP_PENDING) return fail_late(w, missing, waited_before_s + timeout_s);
    return status == RP_PEER ? fail_gone(w, missing) : RP_OK;
}

/* ---- operations ---- */

static bool lacks_part(const waiting *w, int rank) {
    const rp_window_operation *operation = w->operation;
    const rp_window *window = w->window;
    for (size_t i = 0; i < operation->count; i++) {
        const rpi_window_part *part = &operation->parts[i];
        if (operation->gets && window->ins[part->edge].rank == rank)
            return window->ins[part->edge].got < part->number;
        if (!operation->gets && window->outs[part->edge].rank == rank)
            return window->outs[part->edge].done < part->number;
    }
    return false;
}

static waiting for_operation(rp_window_operation *operation) {
    return (waiting){.window = operation->window,
                     .operation = operation,
                     .what = operation->gets ? "no answer to a get" : "a push was not taken",
                     .lacks = lacks_part};
}

void rp_window_operation_free(rp_window_operation **in_out_operation) {
    rp_window_operation *operation = in_out_operation ? *in_out_operation : NULL;
    if (!operation) return;
    rp_comm *comm = operation->window->comm;
    if (comm) pthread_mutex_lock(&comm->context->lock);
    *operation->at = operation->next;
    if (operation->next) operation->next->at = operation->at;
    if (comm) pthread_mutex_unlock(&comm->context->lock);
    rpi_free(operation);
    *in_out_operation = NULL;
}

rp_status rp_window_wait(rp_window_operation **in_out_operation, double timeout_s) {
    RPI_FPENV_SCOPE;
    rp_window_operation *operation = in_out_operation ? *in_out_operation : NULL;
    if (!operation) return RP_FAIL(INVALID, "there is no operation to wait for");
    rp_status status = rp_window_test(operation);
    waiting w = for_operation(operation);
    if (status == RP_PENDING) status = wait_for(&w, timeout_s);
    /* The communicator itself may have failed by a timeout. */
    if (status != RP_TIMEOUT || rpi_window_check(w.window) != RP_OK)
        rp_window_operation_free(in_out_operation);
    return over(status);
}

rp_status rp_window_test(rp_window_operation *operation) {
    RPI_FPENV_SCOPE;
    if (!operation) return RP_FAIL(INVALID, "there is no operation to test");
    waiting w = for_operation(operation);
    if (!w.window->comm) return rpi_window_check(w.window);
    rpi_context *context = w.window->comm->context;
    int missing = -1;
    pthread_mutex_lock(&context->lock);
    rp_status status = look(&w, &missing);
    pthread_mutex_unlock(&context->lock);
    if (status == RP_PEER) return fail_gone(&w, missing);
    if (status == RP_PENDING) RP_TRY(rpi_window_check(w.window));
    return status;
}

/* Everything that was posted when the wait began. */
rp_status rp_window_flush(rp_window *window, double timeout_s) {
    RPI_FPENV_SCOPE;
    RP_TRY(rpi_window_check(window));
    rp_window_operation *all = NULL;
    size_t count = (size_t)window->out_count;
    RP_TRY(rpi_alloc(sizeof *all + count * sizeof all->parts[0], "a flush", &all));
    all->window = window;
    rpi_window_lock_values(window);
    for (size_t i = 0; i < count; i++)
        all->parts[all->count++] = (rpi_window_part){(int)i, window->outs[i].posted};
    rpi_window_unlock_values(window);
    waiting w = for_operation(all);
    rp_status status = wait_for(&w, timeout_s);
    rpi_free(all);
    return over(status);
}

/* ---- mutexes ---- */

static bool is_among(const waiting *w, int rank) {
    for (size_t i = 0; i < w->count; i++)
        if (w->ranks[i] == rank) return true;
    return false;
}

static bool lacks_mutex(const waiting *w, int rank) {
    const rp_window *window = w->window;
    if (!is_among(w, rank)) return false;
    return w->own ? window->cells[rank].holder != RPI_CELL_OWNER
                  : window->claims[rank].state != RPI_CLAIM_HELD;
}

/* Under the context's lock. RP_STATE: this rank has it. */
static rp_status begin_lock(rp_window *window, int rank, bool own) {
    rpi_window_cell *cell = &window->cells[rank];
    rpi_window_claim *claim = &window->claims[rank];
    if (own ? cell->holder == RPI_CELL_OWNER || cell->owner_waits
            : claim->state != RPI_CLAIM_NONE && !claim->abandoned)
        return RP_STATE;
    if (own && cell->holder == RPI_CELL_FREE)
        cell->holder = RPI_CELL_OWNER;
    else if (own)
        cell->owner_waits = true;
    if (own) return RP_OK;
    if (claim->state == RPI_CLAIM_NONE) claim->state = RPI_CLAIM_WANTED;
    claim->abandoned = false;
    atomic_store(&window->control_due, true);
    return RP_OK;
}

/* Under the context's lock: held, waited for, or neither. */
static bool end_lock(rp_window *window, int rank, bool own) {
    rpi_window_cell *cell = &window->cells[rank];
    rpi_window_claim *claim = &window->claims[rank];
    bool held = own ? cell->holder == RPI_CELL_OWNER : claim->state == RPI_CLAIM_HELD;
    if (own && held) {
        cell->holder = cell->peer_waits ? RPI_CELL_PEER : RPI_CELL_FREE;
        cell->told_due |= cell->peer_waits;
        cell->peer_waits = false;
    } else if (own) {
        cell->owner_waits = false;
    } else if (held) {
        claim->state = RPI_CLAIM_NONE;
        claim->unlock_due = true;
    } else if (claim->state != RPI_CLAIM_NONE) {
        claim->abandoned = true;
    }
    atomic_store(&window->control_due, true);
    return held;
}

static bool end_locks(rp_window *window, const int *ranks, size_t count, bool own) {
    bool held = true;
    pthread_mutex_lock(&window->comm->context->lock);
    for (size_t i = 0; i < count; i++) held &= end_lock(window, ranks[i], own);
    pthread_mutex_unlock(&window->comm->context->lock);
    rpi_window_call(window);
    return held;
}

static rp_status lock_one(rp_window *window, int rank, bool own, double timeout_s) {
    waiting w = {.window = window,
                 .what = own ? "its own mutex was not released" : "a mutex was not given",
                 .lacks = lacks_mutex,
                 .ranks = &rank,
                 .count = 1,
                 .own = own};
    pthread_mutex_lock(&window->comm->context->lock);
    rp_status status = begin_lock(window, rank, own);
    pthread_mutex_unlock(&window->comm->context->lock);
    if (status != RP_OK)
        return RP_FAIL(STATE, "window '%s': rank %d holds its mutex %s rank %d already",
                       window->name, window->comm->rank, own ? "for" : "at", rank);
    if (!own) rpi_window_call(window);
    status = wait_for(&w, timeout_s);
    if (status == RP_OK && own) { /* work that the progress owner began before ends first */
        rpi_window_lock_values(window);
        rpi_window_unlock_values(window);
    }
    if (status == RP_OK) return RP_OK;
    rpi_kept_error reason;
    rpi_error_keep(&reason);
    (void)end_locks(window, &rank, 1, own);
    rpi_error_put_back(&reason);
    return status;
}

/* One after the other in the order of ranks, as on all ranks, so that no ranks wait in a
 * circle. */
static rp_status lock_all(rp_window *window, const int *ranks, size_t count, bool own,
                          double timeout_s) {
    for (size_t i = 0; i < count; i++) {
        rp_status status = lock_one(window, ranks[i], own, timeout_s);
        if (status == RP_OK) continue;
        rpi_kept_error reason;
        rpi_error_keep(&reason);
        (void)end_locks(window, ranks, i, own);
        rpi_error_put_back(&reason);
        return status;
    }
    return RP_OK;
}

/* Rising, without duplicates; ranks NULL: the destinations, or the sources. */
static rp_status sort_ranks(const rp_window *window, const int *ranks, size_t count,
                            bool sources, int **out_ranks, size_t *out_count) {
    int world = window->comm->world;
    bool *named = NULL;
    RP_TRY(rpi_alloc_array((size_t)world, sizeof *named, "ranks", &named));
    for (size_t i = 0; ranks && i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= world || ranks[i] == window->comm->rank) {
            rpi_free(named);
            return RP_FAIL(INVALID, "window '%s': rank %d has no mutex with rank %d",
                           window->name, window->comm->rank, ranks[i]);
        }
        named[ranks[i]] = true;
    }
    for (int i = 0; !ranks && sources && i < window->in_count; i++)
        named[window->ins[i].rank] = true;
    for (int i = 0; !ranks && !sources && i < window->out_count; i++)
        named[window->outs[i].rank] = true;
    rp_status status = rpi_alloc_array((size_t)world, sizeof **out_ranks, "ranks", out_ranks);
    *out_count = 0;
    for (int rank = 0; status == RP_OK && rank < world; rank++)
        if (named[rank]) (*out_ranks)[(*out_count)++] = rank;
    rpi_free(named);
    return status;
}

rp_status rp_window_lock(rp_window *window, const int *ranks, size_t count, int own,
                         double timeout_s) {
    RPI_FPENV_SCOPE;
    int *sorted = NULL;
    size_t number = 0;
    RP_TRY(rpi_window_check(window));
    RP_TRY(sort_ranks(window, ranks, count, false, &sorted, &number));
    rp_status status = lock_all(window, sorted, number, own != 0, timeout_s);
    rpi_free(sorted);
    return over(status);
}

rp_status rp_window_unlock(rp_window *window, const int *ranks, size_t count, int own) {
    RPI_FPENV_SCOPE;
    int *sorted = NULL;
    size_t number = 0;
    RP_TRY(rpi_window_check(window));
    RP_TRY(sort_ranks(window, ranks, count, false, &sorted, &number));
    bool held = end_locks(window, sorted, number, own != 0);
    rpi_free(sorted);
    if (held) return RP_OK;
    return RP_FAIL(STATE, "window '%s': a mutex was released that rank %d did not hold",
                   window->name, window->comm->rank);
}

rp_status rpi_window_own_mutexes(rp_window *window, double timeout_s) {
    int *sources = NULL;
    size_t count = 0;
    RP_TRY(sort_ranks(window, NULL, 0, true, &sources, &count));
    rp_status status = lock_all(window, sources, count, true, timeout_s);
    rpi_free(sources);
    return status;
}

void rpi_window_release_own_mutexes(rp_window *window) {
    pthread_mutex_lock(&window->comm->context->lock);
    for (int i = 0; i < window->in_count; i++)
        (void)end_lock(window, window->ins[i].rank, true);
    pthread_mutex_unlock(&window->comm->context->lock);
    rpi_window_call(window);
}

void rpi_window_release_all(rp_window *window) {
    pthread_mutex_lock(&window->comm->context->lock);
    for (int rank = 0; rank < window->comm->world; rank++) {
        (void)end_lock(window, rank, true);
        (void)end_lock(window, rank, false);
    }
    pthread_mutex_unlock(&window->comm->context->lock);
    rpi_window_call(window);
}
