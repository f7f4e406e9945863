/* Every rank updates parameters of its own. After every so many steps an outer optimizer
 * combines the distances that they went (redpoll/local_sgd.h), as a whole or in fragments of
 * layers, at once or during the next steps.
 *
 * A rank's gradient is that of its own samples, scaled so that the mean over ranks is that of
 * the global batch. Any inner optimizer can be used; its state is the rank's own.
 *
 * When a rank dies the others train by themselves until they have met. An interrupted exchange
 * may be complete on some of them and not on others, so that they go on from the mean of their
 * parameters and of their outer momentum. */
#include "train/strategies/strategy.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "train/strategies/bucket.h"
#include "train/strategies/gradients_seen.h"
#include "train/strategies/local_sgd_choice.h"

#include <math.h>
#include <string.h>

extern const rpi_strategy rpi_strategy_local_sgd;

static rp_status check(const rpi_strategy_request *request) {
    rpi_local_sgd_choice choice;
    RP_TRY(rpi_local_sgd_choose(&rpi_strategy_local_sgd, request->options, &choice));
    if (request->warmup_exact || request->chooses_bits)
        return RP_FAIL(INVALID, "local-sgd takes neither --warmup-exact nor --codec auto");
    if (strcmp(choice.options.outer, "sparseloco") != 0) return RP_OK;
    if (!request->lossy)
        return RP_FAIL(INVALID,
                       "local-sgd: sparseloco sends the largest entries of what a rank has "
                       "learnt; say which: --codec topk:k=32,bucket=4096,values=q2");
    if (!request->error_feedback)
        return RP_FAIL(INVALID, "local-sgd: sparseloco is error feedback; leave it on");
    return RP_OK;
}

/* ---- the strategy ---- */

typedef struct local_sgd {
    rpi_strategy_setup setup;
    rpi_gradients_seen seen; /* of the current step */
    rpi_local_sgd_choice choice;
    rp_local_sgd *local;
    rpi_buckets layout; /* its segments say how each parameter is sent */
    void **data;        /* one a parameter */
    uint32_t *fragments;
    rp_segment *slots; /* the inner optimizer's state that is averaged */
    /* In a checkpoint, data in flight are stored in the order of their parameters. */
    float *in_flight[RPI_STRATEGY_STATES];
    int64_t in_flight_step; /* the step at which it was copied; -1: not copied */
    bool has_begun, has_resumed;
    char advice[512]; /* noted before the first step and not repeated by the watch; "": none */
    int parts;        /* of the global batch: the number of ranks when the run began */
    bool is_alone;    /* a rank has died, and this one has not met the others yet */
    float *momentum;  /* the outer optimizer's, while there is no exchange object; NULL: none */
    rp_local_sgd_report report; /* of the latest step */
    rp_status status;           /* a failure that could not be returned at once */
    rpi_kept_error error;
} local_sgd;

static void close_local_sgd(void *context) {
    local_sgd *self = context;
    rp_local_sgd_destroy(self->local);
    rpi_buckets_destroy(&self->layout);
    rpi_free(self->data);
    rpi_free(self->fragments);
    rpi_free(self->slots);
    rpi_free(self->momentum);
    for (int i = 0; i < RPI_STRATEGY_STATES; i++) rpi_free(self->in_flight[i]);
    rpi_free(self);
}

static int parameters_of(const local_sgd *self) {
    return self->layout.segment_count;
}

static int64_t first_of(const local_sgd *self, int parameter) {
    return rpi_weights_parameter(self->setup.weights, parameter)->first;
}

/* Layer l is in fragment l mod P: each has some of all depths. */
static rp_status deal_layers(local_sgd *self) {
    uint64_t fragments = self->choice.options.fragments;
    RP_TRY(rpi_alloc_array((size_t)parameters_of(self), sizeof *self->fragments, "fragments",
                           &self->fragments));
    int layers = rpi_local_sgd_layers(self->setup.weights, self->fragments);
    if (fragments > (uint64_t)layers)
        return RP_FAIL(
            INVALID,
            "local-sgd: %llu fragments, and the model has %d layers; take at most as "
            "many",
            (unsigned long long)fragments, layers);
    for (int i = 0; i < parameters_of(self); i++) self->fragments[i] %= (uint32_t)fragments;
    self->choice.options.fragment_of = self->fragments;
    return RP_OK;
}

/* Finds where parameters lie now. */
static void find_data(local_sgd *self) {
    float *values = rpi_weights_values(self->setup.weights);
    for (int i = 0; i < parameters_of(self); i++) {
        self->data[i] = values + first_of(self, i);
        self->layout.segments[i].data = self->data[i];
    }
}

static bool flies(const local_sgd *self, int state) {
    return strncmp(rp_local_sgd_state_name(self->local, state), "in_flight", 9) == 0;
}

static rp_status allocate_states(local_sgd *self) {
    size_t count = (size_t)rpi_weights_count(self->setup.weights);
    int states = rp_local_sgd_state_count(self->local);
    if (states > RPI_STRATEGY_STATES) return RP_FAIL(INTERNAL, "%d states", states);
    for (int i = 0; i < states; i++)
        if (flies(self, i))
            RP_TRY(rpi_alloc_array(count, sizeof(float), "what is in flight",
                                   &self->in_flight[i]));
    return RP_OK;
}

static rp_status make_local(local_sgd *self) {
    return rp_local_sgd_create(self->setup.comm, self->layout.segments,
                               (size_t)parameters_of(self), &self->choice.options,
                               &self->local);
}

static rp_status prepare(local_sgd *self) {
    const rpi_strategy_setup *s = &self->setup;
    static const rp_codec exact;
    bool alone = rp_comm_world(s->comm) == 1;
    self->parts = rp_comm_world(s->comm);
    RP_TRY(rpi_local_sgd_choose(&rpi_strategy_local_sgd, s->options, &self->choice));
    RP_TRY(rpi_buckets_create(s->network, s->weights, s->bucket_bytes,
                              alone ? &exact : &s->codec, alone ? NULL : s->residual,
                              &self->layout));
    size_t parameters = (size_t)parameters_of(self);
    RP_TRY(rpi_alloc_array(parameters, sizeof *self->data, "parameters", &self->data));
    RP_TRY(rpi_alloc_array(parameters * (size_t)(s->optimizer->kind->slot_count + 1),
                           sizeof *self->slots, "optimizer state", &self->slots));
    RP_TRY(deal_layers(self));
    find_data(self);
    self->choice.options.algorithm = s->algorithm;
    self->choice.options.seed = s->seed;
    RP_TRY(make_local(self));
    return allocate_states(self);
}

/* Before the first step; a rank alone trains in any case. */
static void advise(local_sgd *self) {
    const rpi_strategy_setup *s = &self->setup;
    char *text = self->advice;
    if (rp_comm_world(s->comm) == 1) return;
    if (rp_local_sgd_advise(&self->choice.options, text, sizeof self->advice) != RP_OK)
        text[0] = '\0';
    if (text[0] && s->note) s->note(s->context, text);
}

static const char *suspect(void *context) {
    const local_sgd *self = context;
    return self && self->advice[0] ? self->advice : NULL;
}

static rp_status open_local_sgd(const rpi_strategy_setup *setup, void **out_self) {
    local_sgd *self = NULL;
    RP_TRY(rpi_alloc(sizeof *self, "a strategy", &self));
    self->setup = *setup;
    self->in_flight_step = -1;
    rp_status status = prepare(self);
    if (status == RP_OK) {
        advise(self);
        *out_self = self;
    } else {
        close_local_sgd(self);
    }
    return status;
}

/* ---- checkpoints ---- */

/* Copies between a checkpoint's arenas and the data in flight. */
static void copy_in_flight(local_sgd *self, bool to_arena) {
    for (int s = 0; s < rp_local_sgd_state_count(self->local); s++)
        for (int i = 0; i < parameters_of(self) && self->in_flight[s]; i++) {
            float *arena = self->in_flight[s] + first_of(self, i);
            float *part = rp_local_sgd_state(self->local, s, (size_t)i);
            size_t bytes = self->layout.segments[i].count * sizeof *arena;
            if (to_arena && part) memcpy(arena, part, bytes);
            if (to_arena && !part) memset(arena, 0, bytes);
            if (!to_arena && part) memcpy(part, arena, bytes);
        }
}

static bool is_outlived(const local_sgd *self, rp_status status) {
    return self->choice.goes_on && status == RP_PEER;
}

static void keep_failure(local_sgd *self, rp_status status) {
    if (status == RP_OK || self->status != RP_OK || is_outlived(self, status)) return;
    self->status = status;
    rpi_error_keep(&self->error);
}

static rp_status kept_failure(const local_sgd *self) {
    if (self->status != RP_OK) rpi_error_put_back(&self->error);
    return self->status;
}

/* If the exchange fails here, the ranks tell each other when they save the checkpoint. */
static int states(void *context, float *out_states[RPI_STRATEGY_STATES]) {
    local_sgd *self = context;
    int count = rp_local_sgd_state_count(self->local);
    int64_t step = (int64_t)rp_local_sgd_steps(self->local);
    keep_failure(self, rp_local_sgd_settle(self->local));
    if (self->has_begun && self->in_flight_step != step) copy_in_flight(self, true);
    if (self->has_begun) self->in_flight_step = step;
    for (int i = 0; i < count; i++)
        out_states[i] =
            self->in_flight[i] ? self->in_flight[i] : rp_local_sgd_state(self->local, i, 0);
    return count;
}

static void resumed(void *context) {
    local_sgd *self = context;
    self->has_resumed = true;
}

/* ---- a step ---- */

static rp_status begin_run(local_sgd *self, int64_t step) {
    self->has_begun = true;
    find_data(self);
    if (!self->has_resumed)
        return rp_local_sgd_restart(self->local, self->data, (uint64_t)step);
    RP_TRY(rp_local_sgd_resume(self->local, (uint64_t)step));
    copy_in_flight(self, false);
    return RP_OK;
}

static void begin(void *context, int64_t step) {
    local_sgd *self = context;
    self->seen = (rpi_gradients_seen){0};
    if (!self->has_begun) keep_failure(self, begin_run(self, step));
}

static rp_status gradient_final(void *context, int64_t first, int64_t count) {
    local_sgd *self = context;
    RP_TRY(rpi_gradients_seen_add(&self->seen, first, count));
    return kept_failure(self);
}

/* Scales a rank's share of the global batch to a mean; a rank alone scales to its own mean. */
static void scale_gradients(const local_sgd *self, int64_t count) {
    float *gradients = rpi_weights_gradients(self->setup.weights);
    for (int64_t i = 0; i < count; i++) gradients[i] *= (float)self->parts;
}

static size_t list_slots(const local_sgd *self, int fragment) {
    const rpi_strategy_setup *s = &self->setup;
    size_t count = 0;
    for (int slot = 0; slot < s->optimizer->kind->slot_count; slot++)
        for (int i = 0; i < parameters_of(self); i++)
            if ((int)self->fragments[i] == fragment)
                self->slots[count++] = (rp_segment){
                    .data = rpi_optimizer_state_slot(s->optimizer, slot, first_of(self, i)),
                    .count = self->layout.segments[i].count,
                    .dtype = RP_F32,
                    .tensor = self->layout.segments[i].tensor};
    return count;
}

/* An average that a death has interrupted is started again. */
static rp_status treat_inner_state(local_sgd *self, int fragment) {
    rp_status status = RP_OK;
    if (fragment < 0 || self->choice.inner_state == RPI_INNER_KEEP) return RP_OK;
    size_t count = list_slots(self, fragment);
    bool averages = self->choice.inner_state == RPI_INNER_AVERAGE && count;
    if (averages)
        status = rp_all_reduce(self->setup.comm, self->slots, count,
                               &(rp_collective_options)RP_COLLECTIVE_OPTIONS(.reduce = RP_AVG));
    if (averages && !is_outlived(self, status)) return status;
    for (size_t i = 0; i < count; i++)
        memset(self->slots[i].data, 0, self->slots[i].count * sizeof(float));
    return status;
}

static rp_status exchange(local_sgd *self, int64_t *out_exposed_ns) {
    const rpi_strategy_setup *s = &self->setup;
    RP_TRY(rp_local_sgd_step(self->local, self->data, s->rate(s->context), &self->report));
    int64_t start = rpi_now_ns();
    RP_TRY(treat_inner_state(self, self->report.finished));
    *out_exposed_ns = rpi_now_ns() - start + (int64_t)(self->report.wait_s * RPI_SECOND_NS);
    if (self->report.warning && s->note && !self->advice[0])
        s->note(s->context, self->report.warning);
    return RP_OK;
}

static rp_status finish(void *context, int64_t *out_exposed_ns) {
    local_sgd *self = context;
    const rpi_strategy_setup *s = &self->setup;
    int64_t count = rpi_weights_count(s->weights);
    RP_TRY(rpi_gradients_seen_check(&self->seen, count));
    scale_gradients(self, count);
    if (s->measure) s->measure(s->context, 0, count);
    if (s->measure) RP_TRY(s->measured(s->context, NULL));
    s->update(s->context, 0, count);
    *out_exposed_ns = 0;
    self->report = (rp_local_sgd_report){
        .started = -1, .finished = -1, .gradient_norm = NAN, .autocorrelation = NAN};
    rp_status status = self->is_alone ? RP_OK : exchange(self, out_exposed_ns);
    if (is_outlived(self, status)) self->is_alone = true;
    if (self->report.finished >= 0) rpi_weights_changed(s->weights, 0, count);
    return status;
}

/* ---- when a rank has died ---- */

static bool survives(const char *text) {
    rpi_local_sgd_choice choice;
    return rpi_local_sgd_choose(&rpi_strategy_local_sgd, text, &choice) == RP_OK &&
           choice.goes_on;
}

/* Copies between the outer momentum, if there is one, and a vector in the order of the arena.
 */
static void copy_momentum(local_sgd *self, float *arena, bool to_arena) {
    for (int s = 0; s < rp_local_sgd_state_count(self->local); s++) {
        if (strcmp(rp_local_sgd_state_name(self->local, s), "momentum") != 0) continue;
        for (int i = 0; i < parameters_of(self); i++) {
            float *own = rp_local_sgd_state(self->local, s, (size_t)i);
            float *kept = arena + first_of(self, i);
            size_t bytes = self->layout.segments[i].count * sizeof *own;
            memcpy(to_arena ? kept : own, to_arena ? own : kept, bytes);
        }
    }
}

/* Takes the outer momentum out of an exchange object that has failed, and destroys the object.
 */
static rp_status take_apart(local_sgd *self) {
    size_t count = (size_t)rpi_weights_count(self->setup.weights);
    if (!self->local) return RP_OK;
    RP_TRY(rpi_alloc_array(count, sizeof *self->momentum, "outer momentum", &self->momentum));
    copy_momentum(self, self->momentum, true);
    rp_local_sgd_destroy(self->local);
    self->local = NULL;
    return RP_OK;
}

/* A failure leaves everything as it was. */
static rp_status average(local_sgd *self, float *both) {
    size_t count = (size_t)rpi_weights_count(self->setup.weights);
    float *x = rpi_weights_values(self->setup.weights);
    rp_segment segment = {.data = both, .count = 2 * count, .dtype = RP_F32};
    memcpy(both, x, count * sizeof *x);
    memcpy(both + count, self->momentum, count * sizeof *x);
    RP_TRY(rp_all_reduce(self->setup.comm, &segment, 1,
                         &(rp_collective_options)RP_COLLECTIVE_OPTIONS(.reduce = RP_AVG)));
    memcpy(x, both, count * sizeof *x);
    memcpy(self->momentum, both + count, count * sizeof *x);
    rpi_weights_changed(self->setup.weights, 0, (int64_t)count);
    return RP_OK;
}

static rp_status begin_anew(local_sgd *self, int64_t step) {
    RP_TRY(make_local(self));
    RP_TRY(rp_local_sgd_restart(self->local, self->data, (uint64_t)step));
    copy_momentum(self, self->momentum, false);
    rpi_free(self->momentum);
    self->momentum = NULL;
    self->in_flight_step = -1;
    self->is_alone = false;
    return RP_OK;
}

static rp_status rejoin(void *context, rp_comm *comm, int64_t step) {
    local_sgd *self = context;
    float *both = NULL;
    self->setup.comm = comm;
    RP_TRY(take_apart(self));
    RP_TRY(rpi_alloc_array(2 * (size_t)rpi_weights_count(self->setup.weights), sizeof *both,
                           "the mean of ranks", &both));
    rp_status status = average(self, both);
    rpi_free(both);
    return status == RP_OK ? begin_anew(self, step) : status;
}

static void report(void *context, rpi_strategy_report *out_report) {
    const local_sgd *self = context;
    out_report->outer_gradient_norm = self->report.gradient_norm;
    out_report->autocorrelation = self->report.autocorrelation;
}

const rpi_strategy rpi_strategy_local_sgd = {
    .name = "local-sgd",
    .summary = "many steps of each rank by itself between two exchanges: DiLoCo and its kin",
    .replicas_differ = true,
    .all_reduces = true,
    .options = rpi_local_sgd_option_rows,
    .check = check,
    .survives = survives,
    .rejoin = rejoin,
    .open = open_local_sgd,
    .close = close_local_sgd,
    .begin = begin,
    .gradient_final = gradient_final,
    .finish = finish,
    .suspect = suspect,
    .nearer = "fewer local steps (every), a lower outer momentum, or a smaller --lr",
    .report = report,
    .states = states,
    .resumed = resumed,
};
