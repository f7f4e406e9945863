/* Windows: the calls of their owner. Nothing here waits, except for the own mutexes in an
 * update. */
#include "comm/window/window_calls.h"

#include "base/fpenv.h"
#include "base/memory.h"
#include "base/sized_options.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

/* ---- arguments ---- */

static bool is_integer(const rp_window *window) {
    return window->dtype == RP_I32 || window->dtype == RP_I64;
}

static rp_status check_weight(const rp_window *window, double weight, const char *what) {
    if (!isfinite(weight))
        return RP_FAIL(INVALID, "window '%s': %s is %g", window->name, what, weight);
    if (is_integer(window) && (weight != trunc(weight) || fabs(weight) > 1e15))
        return RP_FAIL(INVALID,
                       "window '%s': %s is %g, and it has integers: whole numbers are allowed",
                       window->name, what, weight);
    return RP_OK;
}

/* Neighbours with weights, as places among sources or destinations. */
typedef struct edges {
    size_t count;
    struct {
        int edge;
        double weight;
    } list[];
} edges;

static int find_edge(const rp_window *window, bool ins, int rank) {
    return ins ? rpi_window_find_in(window, rank) : rpi_window_find_out(window, rank);
}

static rp_status add_edge(const rp_window *window, bool ins, const rp_neighbor *neighbor,
                          edges *to) {
    int edge = find_edge(window, ins, neighbor->rank);
    if (edge < 0)
        return RP_FAIL(INVALID, "window '%s': rank %d is no %s of rank %d", window->name,
                       neighbor->rank, ins ? "source" : "destination", window->comm->rank);
    for (size_t i = 0; i < to->count; i++)
        if (to->list[i].edge == edge)
            return RP_FAIL(INVALID, "window '%s': rank %d is named twice", window->name,
                           neighbor->rank);
    RP_TRY(check_weight(window, neighbor->weight, "a weight"));
    to->list[to->count].edge = edge;
    to->list[to->count++].weight = neighbor->weight;
    return RP_OK;
}

/* neighbors NULL: all, by 1. */
static rp_status find_edges(const rp_window *window, bool ins, const rp_neighbor *neighbors,
                            size_t count, edges **out_edges) {
    size_t all = (size_t)(ins ? window->in_count : window->out_count);
    edges *found = NULL;
    RP_TRY(rpi_alloc(sizeof *found + all * sizeof found->list[0], "neighbours", &found));
    rp_status status = RP_OK;
    for (size_t i = 0; i < (neighbors ? count : all) && status == RP_OK; i++) {
        int rank = neighbors ? neighbors[i].rank
                   : ins     ? window->ins[i].rank
                             : window->outs[i].rank;
        rp_neighbor one = {rank, neighbors ? neighbors[i].weight : 1};
        status = add_edge(window, ins, &one, found);
    }
    if (status != RP_OK)
        rpi_free(found);
    else
        *out_edges = found;
    return status;
}

static rp_status check_there(const rp_window *window, int rank) {
    pthread_mutex_t *lock = &window->comm->context->lock;
    pthread_mutex_lock(lock);
    rp_status gone = window->gone[rank];
    pthread_mutex_unlock(lock);
    if (!gone) return RP_OK;
    return RP_FAIL(PEER,
                   "window '%s': connection closed by peer: rank %d has left: it takes and "
                   "answers nothing more",
                   window->name, rank);
}

/* ---- operations ---- */

/* Nobody to send it to. */
static rp_status new_operation(rp_window *window, const edges *to, bool gets,
                               rp_window_operation **wanted, rp_window_operation **out) {
    *out = NULL;
    if (!wanted) return RP_OK;
    RP_TRY(rpi_alloc(sizeof **out + to->count * sizeof(rpi_window_part),
                     "an operation of a window", out));
    (*out)->window = window;
    (*out)->gets = gets;
    return RP_OK;
}

static void note_part(rp_window_operation *operation, int edge, uint64_t number) {
    if (!operation) return;
    operation->parts[operation->count++] = (rpi_window_part){edge, number};
}

static void enlist(rp_window_operation *operation, rp_window_operation **out) {
    if (!operation) return;
    rp_window *window = operation->window;
    pthread_mutex_t *lock = &window->comm->context->lock;
    pthread_mutex_lock(lock);
    operation->next = window->operations;
    operation->at = &window->operations;
    if (operation->next) operation->next->at = &operation->next;
    window->operations = operation;
    pthread_mutex_unlock(lock);
    *out = operation;
}

/* What the edges and the operation were made for is begun, or was refused. */
static rp_status end_call(rp_window *window, rp_status status, edges *named,
                          rp_window_operation *operation, rp_window_operation **out) {
    rpi_free(named);
    if (status != RP_OK) {
        rpi_free(operation);
        return status;
    }
    enlist(operation, out);
    rpi_window_call(window);
    return RP_OK;
}

/* ---- put and accumulate ---- */

/* Memory first: nothing of a push is done if some of its memory cannot be allocated. */
static rp_status reserve(rp_window *window, const edges *to) {
    for (size_t i = 0; i < to->count; i++) {
        rpi_window_out *out = &window->outs[to->list[i].edge];
        RP_TRY(check_there(window, out->rank));
        if (!out->pending.values)
            RP_TRY(rpi_alloc(window->count * window->element_bytes, "what is pushed",
                             &out->pending.values));
    }
    return RP_OK;
}

/* After the pending one, so that both are applied in order. */
static void merge(rp_window *window, rpi_window_out *out, const void *data, double weight,
                  bool replaces, bool mutex) {
    rpi_window_push *push = &out->pending;
    bool adds = !replaces && push->is_there;
    if (!push->is_there) push->lead = (rpi_window_lead){0};
    if (adds)
        rpi_window_add_scaled(data, window->dtype, weight, window->count, push->values);
    else
        rpi_window_scale(data, window->dtype, weight, window->count, push->values);
    if (replaces) push->lead.flags |= RPI_PUSH_REPLACES;
    if (replaces) push->lead.puts++;
    if (window->follows_p) {
        double p = weight * window->p;
        push->lead.flags |= RPI_PUSH_HAS_P;
        push->lead.p = replaces ? p : push->lead.p + p;
        if (replaces) push->lead.flags |= RPI_PUSH_REPLACES_P;
    }
    push->mutex = mutex || (push->is_there && push->mutex);
    push->is_there = true;
    push->last = ++out->posted;
    atomic_store(&out->is_dirty, true);
}

static void push_to(rp_window *window, void *data, const rp_window_send *send, bool replaces,
                    const edges *to, rp_window_operation *operation) {
    for (size_t i = 0; i < to->count; i++) {
        int edge = to->list[i].edge;
        merge(window, &window->outs[edge], data, to->list[i].weight, replaces,
              send->mutex != 0);
        note_part(operation, edge, window->outs[edge].posted);
    }
    if (!send->scales) return;
    rpi_window_scale(data, window->dtype, send->self_weight, window->count, data);
    if (window->follows_p) window->p *= send->self_weight;
}

/* NULL: to everybody. */
static rp_status read_send(const rp_window_send *given, rp_window_send *out_own) {
    static const rpi_sized sized = {.name = "rp_window_send",
                                    .initializer = "RP_WINDOW_SEND",
                                    .least = RPI_SIZE_UP_TO(rp_window_send, mutex),
                                    .known = sizeof(rp_window_send)};
    return rpi_sized_read(&sized, given, out_own);
}

static rp_status push(rp_window *window, void *data, size_t count, const rp_window_send *given,
                      bool replaces, rp_window_operation **out_operation) {
    edges *to = NULL;
    rp_window_operation *operation = NULL;
    rp_window_send own, *send = &own;
    RP_TRY(rpi_window_check(window));
    RP_TRY(read_send(given, send));
    if (count != window->count)
        return RP_FAIL(INVALID, "window '%s' has %zu elements; %zu were given", window->name,
                       window->count, count);
    RP_TRY(check_weight(window, send->scales ? send->self_weight : 1, "self_weight"));
    RP_TRY(find_edges(window, false, send->targets, send->count, &to));
    rp_status status = new_operation(window, to, false, out_operation, &operation);
    if (status == RP_OK) {
        rpi_window_lock_values(window);
        status = reserve(window, to);
        if (status == RP_OK)
            push_to(window, data ? data : window->data, send, replaces, to, operation);
        rpi_window_unlock_values(window);
    }
    return end_call(window, status, to, operation, out_operation);
}

rp_status rp_window_put(rp_window *window, void *data, size_t count, const rp_window_send *send,
                        rp_window_operation **operation) {
    RPI_FPENV_SCOPE;
    return push(window, data, count, send, true, operation);
}

rp_status rp_window_accumulate(rp_window *window, void *data, size_t count,
                               const rp_window_send *send, rp_window_operation **operation) {
    RPI_FPENV_SCOPE;
    return push(window, data, count, send, false, operation);
}

/* ---- get ---- */

static void want(rp_window *window, const edges *from, int mutex,
                 rp_window_operation *operation) {
    pthread_mutex_t *lock = &window->comm->context->lock;
    pthread_mutex_lock(lock);
    for (size_t i = 0; i < from->count; i++) {
        rpi_window_in *in = &window->ins[from->list[i].edge];
        in->weight = from->list[i].weight;
        in->wants_mutex |= mutex != 0;
        note_part(operation, from->list[i].edge, ++in->wanted);
    }
    pthread_mutex_unlock(lock);
    atomic_store(&window->gets_due, true);
}

rp_status rp_window_get(rp_window *window, const rp_neighbor *sources, size_t count, int mutex,
                        rp_window_operation **out_operation) {
    RPI_FPENV_SCOPE;
    edges *from = NULL;
    rp_window_operation *operation = NULL;
    RP_TRY(rpi_window_check(window));
    RP_TRY(find_edges(window, true, sources, count, &from));
    rp_status status = new_operation(window, from, true, out_operation, &operation);
    for (size_t i = 0; i < from->count && status == RP_OK; i++)
        status = check_there(window, window->ins[from->list[i].edge].rank);
    if (status == RP_OK) want(window, from, mutex, operation);
    return end_call(window, status, from, operation, out_operation);
}

/* ---- update ---- */

/* By rank, so that the order of a caller's list does not matter. */
static double weight_of(const edges *from, int edge, bool *out_is_there) {
    *out_is_there = false;
    for (size_t i = 0; i < from->count; i++)
        if (from->list[i].edge == edge) {
            *out_is_there = true;
            return from->list[i].weight;
        }
    return 0;
}

static void add_slot(rp_window *window, rpi_window_in *in, double weight,
                     const rp_window_mix *mix, void *x) {
    rpi_window_add_scaled(in->slot, window->dtype, weight, window->count, x);
    if (window->follows_p) window->p += weight * in->p;
    if (!mix->reset) return;
    memset(in->slot, 0, window->count * window->element_bytes);
    if (window->follows_p) in->p = 0;
}

static void update(rp_window *window, const rp_window_mix *mix, const edges *from, void *x) {
    double own = mix->mean ? 1 : mix->self_weight;
    rpi_window_scale(window->data, window->dtype, own, window->count, x);
    if (window->follows_p) window->p *= own;
    for (int i = 0; i < window->in_count; i++) {
        bool is_there = false;
        double weight = weight_of(from, i, &is_there);
        if (is_there) add_slot(window, &window->ins[i], mix->mean ? 1 : weight, mix, x);
        window->ins[i].version = 0;
    }
    if (!mix->mean) return;
    rpi_window_divide(x, window->dtype, window->in_count + 1, window->count);
    if (window->follows_p) window->p /= window->in_count + 1;
}

static rp_status read_mix(const rp_window_mix *given, rp_window_mix *out_own) {
    static const rpi_sized sized = {.name = "rp_window_mix",
                                    .initializer = "RP_WINDOW_MIX",
                                    .least = RPI_SIZE_UP_TO(rp_window_mix, timeout_s),
                                    .known = sizeof(rp_window_mix)};
    RP_TRY(rpi_sized_read(&sized, given, out_own));
    if (!given) out_own->mean = 1;
    return RP_OK;
}

rp_status rp_window_update(rp_window *window, const rp_window_mix *given, void *output) {
    RPI_FPENV_SCOPE;
    edges *from = NULL;
    rp_window_mix own, *mix = &own;
    RP_TRY(rpi_window_check(window));
    RP_TRY(read_mix(given, mix));
    RP_TRY(check_weight(window, mix->mean ? 1 : mix->self_weight, "self_weight"));
    RP_TRY(find_edges(window, true, mix->mean ? NULL : mix->sources, mix->count, &from));
    rp_status status = mix->mutex ? rpi_window_own_mutexes(window, mix->timeout_s) : RP_OK;
    if (status == RP_OK) {
        rpi_window_lock_values(window);
        update(window, mix, from, output ? output : window->data);
        rpi_window_unlock_values(window);
        if (mix->mutex) rpi_window_release_own_mutexes(window);
    }
    rpi_free(from);
    return status;
}

/* ---- looking ---- */

uint64_t rp_window_version(rp_window *window, int source) {
    if (!window) {
        (void)RP_FAIL(INVALID, "window is NULL");
        return 0;
    }
    int at = rpi_window_find_in(window, source);
    if (at < 0) return 0;
    rpi_window_lock_values(window);
    uint64_t version = window->ins[at].version;
    rpi_window_unlock_values(window);
    return version;
}

double rp_window_p(rp_window *window) {
    if (!window) {
        (void)RP_FAIL(INVALID, "window is NULL");
        return 0;
    }
    rpi_window_lock_values(window);
    double p = window->p;
    rpi_window_unlock_values(window);
    return p;
}

rp_status rp_window_follow_p(rp_window *window, int on) {
    if (!window) return RP_FAIL(INVALID, "window is NULL");
    rpi_window_lock_values(window);
    window->follows_p = on != 0;
    rpi_window_unlock_values(window);
    return RP_OK;
}

rp_status rp_window_read(rp_window *window, int source, void *output, double *p) {
    if (!window) return RP_FAIL(INVALID, "window is NULL");
    int at = rpi_window_find_in(window, source);
    if (at < 0)
        return RP_FAIL(INVALID, "window '%s': rank %d is no source", window->name, source);
    rpi_window_lock_values(window);
    if (output && window->count)
        memcpy(output, window->ins[at].slot, window->count * window->element_bytes);
    if (p) *p = window->ins[at].p;
    rpi_window_unlock_values(window);
    return RP_OK;
}
