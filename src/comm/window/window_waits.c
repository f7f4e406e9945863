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

rp_status rpi_window_wait_over(rp_status status) {
    waited_before_s = 0;
    return status;
}

/* Under the context's lock: the first rank of which something is missing. */
static int first_missing(const rpi_window_wait *w) {
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
static rp_status fail_late(const rpi_window_wait *w, int missing, double waited_s) {
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

static rp_status fail_gone(const rpi_window_wait *w, int rank) {
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
static rp_status look(const rpi_window_wait *w, int *out_missing) {
    *out_missing = first_missing(w);
    if (*out_missing < 0) return RP_OK;
    return w->window->gone[*out_missing] ? RP_PEER : RP_PENDING;
}

rp_status rpi_window_wait_for(const rpi_window_wait *w, double timeout_s) {
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

static bool lacks_part(const rpi_window_wait *w, int rank) {
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

static rpi_window_wait for_operation(rp_window_operation *operation) {
    return (rpi_window_wait){.window = operation->window,
                             .operation = operation,
                             .what = operation->gets ? "no answer to a get"
                                                     : "a push was not taken",
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
    rpi_window_wait w = for_operation(operation);
    if (status == RP_PENDING) status = rpi_window_wait_for(&w, timeout_s);
    /* The communicator itself may have failed by a timeout. */
    if (status != RP_TIMEOUT || rpi_window_check(w.window) != RP_OK)
        rp_window_operation_free(in_out_operation);
    return rpi_window_wait_over(status);
}

rp_status rp_window_test(rp_window_operation *operation) {
    RPI_FPENV_SCOPE;
    if (!operation) return RP_FAIL(INVALID, "there is no operation to test");
    rpi_window_wait w = for_operation(operation);
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
    rpi_window_wait w = for_operation(all);
    rp_status status = rpi_window_wait_for(&w, timeout_s);
    rpi_free(all);
    return rpi_window_wait_over(status);
}
