/* Windows: the mutexes of edges, which a rank holds for its own slots or at other ranks. */
#include "comm/window/window_calls.h"

#include "base/fpenv.h"
#include "base/memory.h"
#include "base/status.h"

static bool is_among(const rpi_window_wait *w, int rank) {
    for (size_t i = 0; i < w->count; i++)
        if (w->ranks[i] == rank) return true;
    return false;
}

static bool lacks_mutex(const rpi_window_wait *w, int rank) {
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
    rpi_window_wait w = {.window = window,
                         .what =
                             own ? "its own mutex was not released" : "a mutex was not given",
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
    status = rpi_window_wait_for(&w, timeout_s);
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
    return rpi_window_wait_over(status);
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
