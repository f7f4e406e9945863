/* Asynchronous local SGD (arXiv 2401.09135): each worker trains by itself with the run's
 * optimizer. After every so many steps it sends the servers the distance that it went, and
 * continues from their current parameters. Servers apply each distance when it arrives, and
 * have a momentum of those of all workers (rp_delayed_nesterov). No worker waits for another,
 * unless a staleness is given.
 *
 * A worker's gradient is that of its own samples, scaled so that the mean over workers is that
 * of the global batch. A span of steps is cut into rounds of exchanges of equal length, at most
 * `every` steps, so that it ends with an exchange: then every rank has the servers' parameters.
 * Each worker keeps its own optimizer's state. If rank 0 only serves it gets the first
 * worker's, for the saved model. */
#include "train/strategies/served.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/units.h"
#include "plan/local_sgd/momentum_watch.h"
#include "redpoll/local_sgd.h"

#include <math.h>
#include <string.h>

extern const rpi_strategy rpi_strategy_async_local_sgd;

/* ---- options ---- */

typedef struct choice {
    rpi_served_choice served;
    int64_t every, momentum_every;
    double outer_rate, outer_momentum;
    const char *momentum_text; /* NULL: it follows from `every` */
} choice;

static rp_status check_real(const char *text) {
    double value;
    return rpi_parse_real(text, &value);
}

#define CHOICE(name, type, field, fallback, most, value, help)                                 \
    RPI_STRATEGY_OPTION(name, type, offsetof(choice, field), fallback, 0, most, value, help)

static const rpi_option options[] = {
    CHOICE("every", RPI_OPTION_COUNT, every, "100", 1e9, "N",
           "steps of a worker from one exchange with the servers to the next, at most"),
    RPI_SERVED_SERVERS,
    RPI_SERVED_STALENESS("inf",
                         "exchanges of another that what a worker brings may be late; 0: "
                         "all exchange together, which is DiLoCo, inf: nobody waits for "
                         "another"),
    CHOICE("outer-lr", RPI_OPTION_REAL, outer_rate, "0.7", 0, "NUMBER",
           "of the servers' optimizer"),
    {"outer-momentum", NULL, "outer-momentum", RPI_OPTION_TEXT, offsetof(choice, momentum_text),
     NULL, 0, 0, "NUMBER",
     "of the servers' optimizer; when absent up to 50 steps 0.3, beyond that 0.9", check_real},
    CHOICE("momentum-every", RPI_OPTION_COUNT, momentum_every, "0", 1e9, "N",
           "exchanges of any workers from one use of the momentum to the next; 0: as many as "
           "workers"),
    RPI_SERVED_QUORUM(
        "servers take so many exchanges at once, and what comes within the grace; 0: "
        "each by itself. With a staleness"),
    RPI_SERVED_GRACE,
    RPI_SERVED_ON_LOSS,
    {0},
};

static rp_status check_outer(const choice *c) {
    float stands_for_vectors = 0;
    rp_delayed_nesterov outer = {.outer_rate = c->outer_rate,
                                 .outer_momentum = c->outer_momentum,
                                 .delay = 1,
                                 .momentum = &stands_for_vectors,
                                 .buffer = &stands_for_vectors};
    return rp_delayed_nesterov_check(&outer);
}

static rp_status read_options(const char *text, choice *c, rp_parameter_server_options *out) {
    const rpi_strategy *strategy = &rpi_strategy_async_local_sgd;
    *c = (choice){.every = 0};
    RP_TRY(rpi_strategy_read(strategy, text, &c->served.words, c));
    if (c->every < 1)
        return RP_FAIL(INVALID, "%s: every=0; 1 step or more from one exchange to the next",
                       strategy->name);
    c->outer_momentum = rp_outer_momentum("delayed-nesterov", (uint64_t)c->every);
    if (c->momentum_text) RP_TRY(rpi_parse_real(c->momentum_text, &c->outer_momentum));
    RP_TRY(check_outer(c));
    return rpi_served_read(strategy->name, &c->served, out);
}

static rp_status check(const rpi_strategy_request *request) {
    choice c;
    rp_parameter_server_options o;
    RP_TRY(read_options(request->options, &c, &o));
    return rpi_served_check(rpi_strategy_async_local_sgd.name, &o, request);
}

static int servers(const char *text) {
    choice c;
    rp_parameter_server_options o = RP_PARAMETER_SERVER_OPTIONS();
    return read_options(text, &c, &o) == RP_OK ? o.servers : 0;
}

static bool survives(const char *text) {
    choice c;
    rp_parameter_server_options o = RP_PARAMETER_SERVER_OPTIONS();
    return read_options(text, &c, &o) == RP_OK && o.goes_on;
}

/* ---- the strategy ---- */

typedef struct async_local {
    rpi_served served;
    int64_t every;
    rp_delayed_nesterov outer; /* a server's vectors */
    float *base;               /* a worker's: the servers' parameters at its latest exchange */
    int64_t exchanges;         /* this worker's, in the span */
    float *samples;            /* of this worker's latest pseudo-gradient */
    rpi_momentum_watch watch;  /* on rank 0, over all workers */
    char advice[512];          /* noted before the first step; "": nothing */
} async_local;

static void close_local(void *context) {
    async_local *self = context;
    rpi_served_close(&self->served);
    rpi_free(self->samples);
    rpi_free(self->outer.momentum);
    rpi_free(self->outer.buffer);
    rpi_free(self->base);
    rpi_free(self);
}

static bool serves(const async_local *self) {
    int servers = self->served.options.servers;
    return !servers || rp_comm_rank(self->served.setup.comm) < servers;
}

/* On rank 0, for the round that was just reported. */
static void advise(async_local *self) {
    const rpi_strategy_setup *s = &self->served.setup;
    const char *line = rpi_momentum_watch_take(&self->watch, self->served.autocorrelation,
                                               (uint64_t)self->every);
    if (line && s->note) s->note(s->context, line);
}

static rp_status merge(void *context, const rp_parameter_merge *m) {
    async_local *self = context;
    int64_t told = self->served.rounds_told;
    RP_TRY(rp_delayed_nesterov_merge(&self->outer, m));
    RP_TRY(rpi_served_account(&self->served, m));
    if (self->served.rounds_told > told) advise(self);
    return RP_OK;
}

/* A server's vectors are as long as the model; it uses its shard of them. */
static rp_status allocate(async_local *self) {
    size_t count = (size_t)rpi_weights_count(self->served.setup.weights);
    rp_delayed_nesterov *outer = &self->outer;
    if (serves(self)) {
        RP_TRY(rpi_alloc_array(count, sizeof(float), "outer momentum", &outer->momentum));
        RP_TRY(rpi_alloc_array(count, sizeof(float), "what exchanges bring", &outer->buffer));
    }
    if (rp_parameter_server_worker(self->served.server) < 0) return RP_OK;
    RP_TRY(rpi_alloc_array(count, sizeof(float), "the servers' parameters", &self->base));
    return rpi_alloc_array(rpi_sample_count(count, rpi_sample_stride(count)), sizeof(float),
                           "pseudo-gradients", &self->samples);
}

static rp_status prepare(async_local *self, const rpi_strategy_setup *setup) {
    choice c;
    rp_parameter_server_options o;
    RP_TRY(read_options(setup->options, &c, &o));
    o.merge = merge;
    o.context = self;
    self->every = c.every;
    self->outer.outer_rate = self->watch.rate = c.outer_rate;
    self->outer.outer_momentum = self->watch.momentum = c.outer_momentum;
    RP_TRY(rpi_served_open(setup, &o, &self->served));
    int workers = rp_parameter_server_workers(self->served.server);
    self->outer.delay = (uint64_t)(c.momentum_every ? c.momentum_every : workers);
    return allocate(self);
}

/* Before the first step; the watch then does not repeat it. */
static void advise_at_first(async_local *self) {
    char *text = self->advice;
    const rpi_strategy_setup *s = &self->served.setup;
    if (rp_comm_world(s->comm) == 1) return;
    (void)rp_delayed_nesterov_advise(&self->outer, (uint64_t)self->every, text,
                                     sizeof self->advice);
    if (!text[0]) return;
    self->watch.has_warned = true;
    if (s->note) s->note(s->context, text);
}

static const char *suspect(void *context) {
    const async_local *self = context;
    return self && self->advice[0] ? self->advice : NULL;
}

static rp_status open_local(const rpi_strategy_setup *setup, void **out_self) {
    async_local *self = NULL;
    RP_TRY(rpi_alloc(sizeof *self, "a strategy", &self));
    rp_status status = prepare(self, setup);
    if (status == RP_OK) {
        advise_at_first(self);
        *out_self = self;
    } else {
        close_local(self);
    }
    return status;
}

/* ---- workers ---- */

/* Nothing is sent before the exchange. */
static rp_status gradient_final(void *context, int64_t first, int64_t count) {
    (void)context, (void)first, (void)count;
    return RP_OK;
}

static void add_part(const rpi_strategy_part *part, rpi_strategy_part *sum) {
    sum->loss += part->loss;
    sum->share += part->share;
    sum->count += part->count;
    sum->compute_s += part->compute_s;
    sum->asked |= part->asked;
    sum->has_fault |= part->has_fault;
}

/* A worker that is ahead of all others keeps the rate of the end of the span. */
static rp_status step_alone(async_local *self, rpi_strategy_part *in_out_learnt) {
    const rpi_strategy_setup *s = &self->served.setup;
    const rpi_strategy_span *span = self->served.span;
    int64_t step = self->served.own_step, last = span->last_step - 1;
    int workers = rp_parameter_server_workers(self->served.server);
    rpi_strategy_part part = {0};
    RP_TRY(rpi_served_learn(&self->served, &part));
    add_part(&part, in_out_learnt);
    if (!(part.share > 0)) return RP_OK; /* no samples in a short last batch */
    rpi_served_clip(&self->served, part.share);
    rpi_strategy_update update = {.count = rpi_weights_count(s->weights),
                                  .step = step < last ? step : last,
                                  .updates = (uint64_t)step,
                                  .values = rpi_weights_values(s->weights),
                                  .gradient = rpi_weights_gradients(s->weights),
                                  .gradient_scale = (float)workers,
                                  .rate_scale = 1};
    span->update(span->context, &update);
    rpi_weights_changed(s->weights, 0, update.count);
    return RP_OK;
}

static void take_base(async_local *self) {
    const rpi_weights *weights = self->served.setup.weights;
    size_t bytes = (size_t)rpi_weights_count(weights) * sizeof(float);
    if (self->base) memcpy(self->base, rpi_weights_values(self->served.setup.weights), bytes);
}

/* The cosine between a pseudo-gradient and the one before it. */
static double likeness(async_local *self, const float *went) {
    size_t count = (size_t)rpi_weights_count(self->served.setup.weights);
    rpi_sample_products sums = {0};
    rpi_sample_gradient(RP_F32, went, count, rpi_sample_stride(count), self->samples, &sums);
    return rpi_sample_cosine(&sums);
}

/* Ends early if the run is to stop, or has diverged. */
static rp_status exchange(void *context) {
    async_local *self = context;
    rpi_weights *weights = self->served.setup.weights;
    int64_t round = self->exchanges++ % self->served.rounds, count = rpi_weights_count(weights);
    int64_t steps =
        rpi_served_border(&self->served, round + 1) - rpi_served_border(&self->served, round);
    rpi_strategy_part learnt = {0};
    for (; steps > 0 && !learnt.asked && !learnt.has_fault; steps--)
        RP_TRY(step_alone(self, &learnt));
    const float *values = rpi_weights_values(weights);
    float *went = rpi_weights_gradients(weights);
    for (int64_t i = 0; i < count; i++) went[i] = self->base[i] - values[i];
    RP_TRY(rpi_served_push(&self->served, 1, &learnt, likeness(self, went)));
    take_base(self);
    return RP_OK;
}

/* ---- a span ---- */

static rp_status confirm(void *context, rp_status status, bool *out_again, rp_comm **out_comm) {
    async_local *self = context;
    return rpi_served_confirm(&self->served, status, out_again, out_comm);
}

static const char *lost(void *context, int rank) {
    const async_local *self = context;
    return rp_parameter_server_lost(self->served.server, rank);
}

static rp_status grow(void *context, rp_comm *comm) {
    async_local *self = context;
    return rpi_served_grow(&self->served, comm);
}

static void settle(void *context, bool grows) {
    async_local *self = context;
    rpi_served_settle(&self->served, grows);
}

/* From the first living worker; without one the first server keeps its own. */
static rp_status give_inner_state(async_local *self) {
    const rpi_strategy_setup *s = &self->served.setup;
    rp_comm *comm = rp_parameter_server_comm(self->served.server);
    int first = self->served.options.servers, rank = rp_comm_rank(comm);
    size_t count = (size_t)rpi_weights_count(s->weights);
    if (first >= rp_comm_world(comm)) return RP_OK;
    for (int i = 0; i < s->optimizer->kind->slot_count && first; i++) {
        float *slot = rpi_optimizer_state_slot(s->optimizer, i, 0);
        if (rank == first) RP_TRY(rp_send(comm, slot, count, RP_F32, 0, 0));
        if (rank == 0) RP_TRY(rp_recv(comm, slot, count, RP_F32, first, 0));
    }
    return RP_OK;
}

static rp_status run(void *context, const rpi_strategy_span *span, rp_comm **out_comm) {
    async_local *self = context;
    int64_t steps = span->last_step - span->first_step;
    bool again = true;
    RP_TRY(rpi_served_begin(&self->served, span, (steps + self->every - 1) / self->every));
    self->exchanges = 0;
    take_base(self);
    RP_TRY(rpi_served_work(&self->served, exchange, self));
    RP_TRY(rpi_served_end(&self->served));
    while (again) RP_TRY(confirm(self, give_inner_state(self), &again, out_comm));
    return RP_OK;
}

/* ---- checkpoints ---- */

static int states(void *context, float *out_states[RPI_STRATEGY_STATES]) {
    const async_local *self = context;
    if (!self->outer.momentum) return 0;
    out_states[0] = self->outer.momentum;
    out_states[1] = self->outer.buffer;
    return 2;
}

static uint64_t *counter(void *context) {
    async_local *self = context;
    return &self->outer.pushes;
}

static void resumed(void *context) {
    (void)context; /* the state that was read is used where it lies */
}

const rpi_strategy rpi_strategy_async_local_sgd = {
    .name = "async-local-sgd",
    .summary = "many steps of each worker by itself between two exchanges with servers, nobody "
               "waiting: delayed Nesterov",
    .replicas_differ = true,
    .options = options,
    .check = check,
    .open = open_local,
    .close = close_local,
    .gradient_final = gradient_final,
    .servers = servers,
    .suspect = suspect,
    .survives = survives,
    .run = run,
    .confirm = confirm,
    .lost = lost,
    .grow = grow,
    .settle = settle,
    .states = states,
    .counter = counter,
    .resumed = resumed,
};
