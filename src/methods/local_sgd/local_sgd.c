#include "methods/local_sgd/local_sgd_object.h"

#include "base/fpenv.h"
#include "base/memory.h"
#include "base/status.h"
#include "codec/codec.h"
#include "methods/vector_memory.h"

#include <limits.h>
#include <math.h>
#include <string.h>

/* ---- creating ---- */

static bool is_exact(const rp_segment *s) {
    return rp_codec_is_exact(&s->codec, s->dtype);
}

static rp_status check_tensor(const rpi_outer_rule *rule, const rp_segment *s, size_t i) {
    char text[64];
    if (s->dtype != RP_F32 && s->dtype != RP_F64)
        return RP_FAIL(UNSUPPORTED, "local SGD: tensor %zu is %s; f32 and f64 are taken", i,
                       rp_dtype_name(s->dtype));
    if (s->count > RPI_ELEMENTS_MAX || (s->count && !s->data))
        return RP_FAIL(INVALID, "local SGD: tensor %zu has %zu elements at %p", i, s->count,
                       s->data);
    if (!rp_codec_supports(&s->codec, s->dtype))
        return RP_FAIL(UNSUPPORTED, "local SGD: %s does not take %s, as tensor %zu is",
                       rp_codec_text(&s->codec, text, sizeof text), rp_dtype_name(s->dtype), i);
    if (s->residual) RP_TRY(rpi_codec_check_feedback(&s->codec, s->dtype));
    if (rule->exchange == RPI_OUTER_GATHER && !is_exact(s) && !s->residual)
        return RP_FAIL(INVALID,
                       "local SGD: %s keeps in residuals what is not sent, and tensor %zu has "
                       "none",
                       rule->name, i);
    if (rule->exchange == RPI_OUTER_GATHER &&
        rp_codec_encoded_bytes(&s->codec, s->dtype, s->count) > UINT32_MAX)
        return RP_FAIL(INVALID, "local SGD: tensor %zu is above 4 GiB when encoded; cut it", i);
    return RP_OK;
}

static rp_status check_tensors(const rpi_outer_rule *rule, const rp_segment *tensors,
                               size_t count) {
    if (!tensors || !count) return RP_FAIL(INVALID, "local SGD needs tensors");
    for (size_t i = 0; i < count; i++) RP_TRY(check_tensor(rule, &tensors[i], i));
    return RP_OK;
}

/* The next place at which an element of this dtype may lie. */
static size_t align(size_t bytes, rp_dtype dtype) {
    size_t size = rp_dtype_bytes(dtype);
    return (bytes + size - 1) / size * size;
}

typedef struct sizes {
    size_t all, flight, encoded; /* bytes: of all tensors, of the largest fragment */
} sizes;

static rp_status lay_out(rp_local_sgd *l, const rp_segment *segments, size_t *flights,
                         sizes *out) {
    sizes largest = {0};
    const uint32_t *fragment_of = l->options.fragment_of;
    for (size_t i = 0; i < l->tensor_count; i++) {
        rpi_local_tensor *t = &l->tensors[i];
        t->segment = segments[i];
        t->segment.data = NULL;
        t->fragment = fragment_of ? fragment_of[i] : (uint32_t)(i % l->options.fragments);
        t->first = align(largest.all, t->segment.dtype);
        t->flight_first = align(flights[t->fragment], t->segment.dtype);
        t->encoded = l->encoded_bytes[t->fragment];
        largest.all = t->first + rpi_local_bytes(t);
        flights[t->fragment] = t->flight_first + rpi_local_bytes(t);
        l->encoded_bytes[t->fragment] += rpi_local_encoding_bytes(t);
        if (flights[t->fragment] > largest.flight) largest.flight = flights[t->fragment];
        if (l->encoded_bytes[t->fragment] > largest.encoded)
            largest.encoded = l->encoded_bytes[t->fragment];
    }
    *out = largest;
    return RP_OK;
}

static bool keeps_anchor(const rp_local_sgd *l) {
    if (!l->rule->averages) return true;
    for (size_t i = 0; i < l->tensor_count; i++)
        if (!is_exact(&l->tensors[i].segment)) return true;
    return false;
}

static rp_status allocate(rp_local_sgd *l, const sizes *bytes) {
    bool pairs = l->rule->exchange == RPI_OUTER_PAIR;
    size_t world = (size_t)rp_comm_world(l->comm);
    if (keeps_anchor(l)) RP_TRY(rpi_alloc(bytes->all, "the agreed parameters", &l->anchor));
    if (l->rule->has_momentum) RP_TRY(rpi_alloc(bytes->all, "outer momentum", &l->momentum));
    RP_TRY(rpi_vector_alloc(l->comm, bytes->flight, "pseudo-gradients", &l->flight));
    if (pairs) RP_TRY(rpi_alloc(bytes->flight, "a partner's parameters", &l->flight_anchor));
    if (l->rule->exchange == RPI_OUTER_GATHER)
        RP_TRY(rpi_vector_alloc(l->comm, bytes->encoded * (world + 1), "encodings",
                                &l->encodings));
    RP_TRY(rpi_alloc_array(world, sizeof *l->order, "partners", &l->order));
    RP_TRY(rpi_alloc_array(2 * l->tensor_count, sizeof *l->segments, "segments", &l->segments));
    return rpi_local_watch_open(l);
}

static rp_status prepare(rp_local_sgd *l, const rp_segment *segments) {
    size_t *flights = NULL, fragments = (size_t)l->options.fragments;
    sizes bytes = {0};
    RP_TRY(rpi_alloc_array(l->tensor_count, sizeof *l->tensors, "tensors", &l->tensors));
    RP_TRY(rpi_alloc_array(fragments, sizeof(size_t), "fragments", &l->encoded_bytes));
    RP_TRY(rpi_alloc_array(fragments, sizeof(size_t), "fragments", &flights));
    rp_status status = lay_out(l, segments, flights, &bytes);
    rpi_free(flights);
    RP_TRY(status);
    if (l->options.algorithm) RP_TRY(rpi_strdup(l->options.algorithm, &l->algorithm));
    l->options.algorithm = NULL; /* it is the caller's memory, as fragment_of is */
    l->options.fragment_of = NULL;
    l->options.outer = l->rule->name;
    return allocate(l, &bytes);
}

static void set_anchor(rp_local_sgd *l, size_t i, const void *x) {
    const rpi_local_tensor *t = &l->tensors[i];
    if (l->anchor && t->segment.count) memcpy(l->anchor + t->first, x, rpi_local_bytes(t));
}

rp_status rp_local_sgd_create(rp_comm *comm, const rp_segment *tensors, size_t count,
                              const rp_local_sgd_options *options, rp_local_sgd **local) {
    RPI_FPENV_SCOPE;
    rp_local_sgd *l = NULL;
    rp_local_sgd_options own;
    const rpi_outer_rule *rule = NULL;
    if (!comm || !local) return RP_FAIL(INVALID, "local SGD needs a communicator and a place");
    RP_TRY(rpi_local_options_read(options, count, &own));
    RP_TRY(rpi_outer_rule_find(own.outer ? own.outer : "average", &rule));
    RP_TRY(check_tensors(rule, tensors, count));
    RP_TRY(rpi_alloc(sizeof *l, "local SGD", &l));
    l->comm = comm;
    l->options = own;
    l->rule = rule;
    l->tensor_count = count;
    l->in_flight = -1;
    rp_status status = prepare(l, tensors);
    for (size_t i = 0; i < count && status == RP_OK; i++) set_anchor(l, i, tensors[i].data);
    if (status == RP_OK)
        *local = l;
    else
        rp_local_sgd_destroy(l);
    return status;
}

void rp_local_sgd_destroy(rp_local_sgd *l) {
    if (!l) return;
    if (l->request) (void)rp_request_wait(&l->request);
    rpi_free(l->algorithm);
    rpi_free(l->tensors);
    rpi_free(l->anchor);
    rpi_free(l->momentum);
    rpi_vector_free(l->flight);
    rpi_free(l->flight_anchor);
    rpi_free(l->segments);
    rpi_vector_free(l->encodings);
    rpi_free(l->encoded_bytes);
    rpi_free(l->order);
    rpi_free(l->samples);
    rpi_free(l);
}

/* ---- a step ---- */

/* The number of the window of the latest step; it says which fragment is exchanged. */
static uint64_t window_of(const rp_local_sgd *l) {
    return (l->step - 1) / rpi_local_window(l);
}

/* Writes what is to be sent into `flight`. */
static void take_snapshot(rp_local_sgd *l, void *const *data) {
    for (size_t i = 0; i < l->tensor_count; i++) {
        const rpi_local_tensor *t = &l->tensors[i];
        char *sent = l->flight + t->flight_first;
        if ((int)t->fragment != l->in_flight || !t->segment.count) continue;
        if (!l->anchor) {
            memcpy(sent, data[i], rpi_local_bytes(t));
            continue;
        }
        const char *anchor = l->anchor + t->first;
        rpi_outer_difference(t->segment.dtype, t->segment.count, anchor, data[i], sent);
        if (l->flight_anchor)
            memcpy(l->flight_anchor + t->flight_first, anchor, rpi_local_bytes(t));
    }
}

static void update(rp_local_sgd *l, const rpi_outer_rates *rates, void *const *data) {
    for (size_t i = 0; i < l->tensor_count; i++) {
        const rpi_local_tensor *t = &l->tensors[i];
        char *agreed = l->flight + t->flight_first;
        if ((int)t->fragment != l->in_flight || !t->segment.count) continue;
        if (l->anchor) {
            rpi_outer_vectors vectors = {.anchor = l->anchor + t->first, .gradient = agreed};
            if (l->momentum) vectors.momentum = l->momentum + t->first;
            if (l->flight_anchor) vectors.pair_anchor = l->flight_anchor + t->flight_first;
            rpi_outer_update(l->rule, rates, t->segment.dtype, t->segment.count, &vectors);
            agreed = l->anchor + t->first;
        }
        rpi_outer_mix(t->segment.dtype, l->options.mixing, t->segment.count, agreed, data[i]);
    }
}

static rp_status start(rp_local_sgd *l, void *const *data, rp_local_sgd_report *report) {
    l->in_flight = report->started = (int)(window_of(l) % l->options.fragments);
    take_snapshot(l, data);
    return rpi_local_post(l, window_of(l));
}

static rp_status finish(rp_local_sgd *l, void *const *data, double learning_rate,
                        rp_local_sgd_report *report) {
    const rp_local_sgd_options *o = &l->options;
    rpi_outer_rates rates = {.outer = o->outer_rate,
                             .momentum = o->outer_momentum,
                             .consensus = o->consensus_rate,
                             .inner = learning_rate,
                             .nesterov = o->nesterov != 0};
    if (l->rule->needs_inner_rate && !(learning_rate > 0 && isfinite(learning_rate)))
        return RP_FAIL(INVALID,
                       "local SGD: %s divides by the inner learning rate, which is %g in the "
                       "step of an exchange",
                       l->rule->name, learning_rate);
    RP_TRY(rpi_local_collect(l, window_of(l), &report->wait_s));
    rpi_local_watch(l, report);
    update(l, &rates, data);
    report->finished = l->in_flight;
    l->in_flight = -1;
    return RP_OK;
}

static rp_status check_usable(const rp_local_sgd *l) {
    if (!l->has_failed) return RP_OK;
    return RP_FAIL(STATE, "local SGD: an exchange has failed; destroy the object");
}

static rp_status check_data(const rp_local_sgd *l, void *const *data) {
    if (!l) return RP_FAIL(INVALID, "local is NULL");
    if (!data) return RP_FAIL(INVALID, "local SGD needs the data of its tensors");
    for (size_t i = 0; i < l->tensor_count; i++)
        if (!data[i] && l->tensors[i].segment.count)
            return RP_FAIL(INVALID, "local SGD: tensor %zu has no data", i);
    return check_usable(l);
}

static rp_status step(rp_local_sgd *l, void *const *data, double learning_rate,
                      rp_local_sgd_report *report) {
    uint64_t window = rpi_local_window(l), in_window = l->step++ % window + 1;
    if (in_window == window - l->options.delay) RP_TRY(start(l, data, report));
    if (in_window == window) return finish(l, data, learning_rate, report);
    if (l->request)
        (void)rp_request_test(
            l->request); /* makes progress; a failure is returned by the wait for it */
    return RP_OK;
}

rp_status rp_local_sgd_step(rp_local_sgd *l, void *const *data, double learning_rate,
                            rp_local_sgd_report *report) {
    RPI_FPENV_SCOPE;
    rp_local_sgd_report done = {
        .started = -1, .finished = -1, .gradient_norm = NAN, .autocorrelation = NAN};
    RP_TRY(check_data(l, data));
    rp_status status = step(l, data, learning_rate, &done);
    l->has_failed = status != RP_OK;
    if (status == RP_OK && report) *report = done;
    return status;
}

/* ---- checkpoints ---- */

rp_status rp_local_sgd_settle(rp_local_sgd *l) {
    RPI_FPENV_SCOPE;
    double wait_s = 0;
    if (!l) return RP_FAIL(INVALID, "local is NULL");
    RP_TRY(check_usable(l));
    rp_status status = l->request ? rpi_local_collect(l, window_of(l), &wait_s) : RP_OK;
    if (status != RP_OK) l->has_failed = true;
    return status;
}

static bool is_null(const rp_local_sgd *l) {
    if (!l) (void)RP_FAIL(INVALID, "local is NULL");
    return !l;
}

uint64_t rp_local_sgd_steps(const rp_local_sgd *l) {
    return is_null(l) ? 0 : l->step;
}

int rp_local_sgd_in_flight(const rp_local_sgd *l) {
    return is_null(l) ? -1 : l->in_flight;
}

/* A vector that an object has: of all tensors, or of those in flight. */
typedef struct vector {
    const char *name;
    char *data;
    bool flies;
} vector;

enum { VECTORS = 4 };

static int list_vectors(const rp_local_sgd *l, vector out[VECTORS]) {
    const vector all[VECTORS] = {
        {"anchor", l->anchor, false},
        {"momentum", l->momentum, false},
        {"in_flight", l->options.delay ? l->flight : NULL, true},
        {"in_flight_anchor", l->options.delay ? l->flight_anchor : NULL, true}};
    int count = 0;
    for (int i = 0; i < VECTORS; i++)
        if (all[i].data) out[count++] = all[i];
    return count;
}

int rp_local_sgd_state_count(const rp_local_sgd *l) {
    vector vectors[VECTORS];
    return is_null(l) ? 0 : list_vectors(l, vectors);
}

const char *rp_local_sgd_state_name(const rp_local_sgd *l, int index) {
    vector vectors[VECTORS];
    if (is_null(l)) return NULL;
    return index >= 0 && index < list_vectors(l, vectors) ? vectors[index].name : NULL;
}

void *rp_local_sgd_state(rp_local_sgd *l, int index, size_t tensor) {
    vector vectors[VECTORS];
    if (is_null(l)) return NULL;
    int count = list_vectors(l, vectors);
    if (index < 0 || index >= count || tensor >= l->tensor_count) {
        (void)RP_FAIL(INVALID, "local SGD: vector %d of tensor %zu; there are %d and %zu",
                      index, tensor, count, l->tensor_count);
        return NULL;
    }
    const rpi_local_tensor *t = &l->tensors[tensor];
    if (!vectors[index].flies) return vectors[index].data + t->first;
    return (int)t->fragment == l->in_flight ? vectors[index].data + t->flight_first : NULL;
}

/* Sets the counters as after `step` steps, with the exchange that is then in flight. */
static void set_clock(rp_local_sgd *l, uint64_t step) {
    uint64_t window = rpi_local_window(l), in_window = step % window;
    l->step = step;
    bool flies = l->options.delay && in_window >= window - l->options.delay;
    l->in_flight = flies ? (int)(step / window % l->options.fragments) : -1;
}

rp_status rp_local_sgd_resume(rp_local_sgd *l, uint64_t step) {
    RP_TRY(rp_local_sgd_settle(l));
    set_clock(l, step);
    return RP_OK;
}

/* All ranks have the same x, so what an exchange in flight would bring is known, too. */
rp_status rp_local_sgd_restart(rp_local_sgd *l, void *const *data, uint64_t step) {
    RPI_FPENV_SCOPE;
    RP_TRY(check_data(l, data));
    RP_TRY(rp_local_sgd_settle(l));
    set_clock(l, step);
    for (size_t i = 0; i < l->tensor_count; i++) {
        const rpi_local_tensor *t = &l->tensors[i];
        set_anchor(l, i, data[i]);
        if (l->momentum) memset(l->momentum + t->first, 0, rpi_local_bytes(t));
    }
    if (l->in_flight >= 0) take_snapshot(l, data);
    return RP_OK;
}
