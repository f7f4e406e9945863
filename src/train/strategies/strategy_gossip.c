/* Every rank updates parameters of its own and averages them with a few neighbours, in the
 * rounds of a topology and by the rule of an algorithm (redpoll/gossip.h). No rank waits for
 * all others.
 *
 * A rule uses gradients. If it only moves x by them, the optimizer's own step replaces them:
 * what it would add to x counts as a gradient, at the rate -1. If the rule exchanges gradients
 * themselves (gradient-tracking) the optimizer must be plain SGD.
 *
 * A rank's gradient is that of its own samples, scaled so that the mean over ranks is that of
 * the global batch.
 *
 * When a rank dies each of the others completes the current step by itself. The ranks that are
 * left start the algorithm again, with the same topology for fewer ranks, because its vectors
 * contain a part of the dead rank; weights then sum to 1 again. */
#include "train/strategies/strategy.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "plan/gossip/gossip_rule.h"
#include "redpoll/gossip.h"
#include "train/strategies/bucket.h"
#include "train/strategies/gradients_seen.h"

#include <stdio.h>
#include <string.h>

extern const rpi_strategy rpi_strategy_gossip;

/* ---- topology=base,algorithm=atc ---- */

typedef struct choice {
    /* point into `words`; topology NULL: the algorithm's default */
    const char *topology, *algorithm, *on_loss;
    double gamma;
    rpi_strategy_words words;
} choice;

static const rpi_option options[] = {
    RPI_STRATEGY_OPTION("topology", RPI_OPTION_TEXT, offsetof(choice, topology), NULL, 0, 0,
                        "NAME",
                        "whom a rank averages with (docs/topologies.md), with its own options: "
                        "exponential:base=3,symmetric=on; base when absent, of choco and "
                        "exact-diffusion torus"),
    RPI_STRATEGY_OPTION("algorithm", RPI_OPTION_TEXT, offsetof(choice, algorithm), "atc", 0, 0,
                        "NAME",
                        "atc, awc, exact-diffusion, choco or gradient-tracking "
                        "(docs/decentralised.md)"),
    RPI_STRATEGY_OPTION("gamma", RPI_OPTION_REAL, offsetof(choice, gamma), "0", 0, 1, "SHARE",
                        "of choco: how far a step goes towards the neighbours' copies; 0: "
                        "chosen by what the codec loses"),
    RPI_STRATEGY_ON_LOSS(offsetof(choice, on_loss),
                         "stop, or continue without ranks that die, by the same topology for "
                         "those that are left"),
    {0},
};

static rp_status check_rule(const rpi_gossip_rule *rule, const choice *c) {
    if (rule->pushes)
        return RP_FAIL(UNSUPPORTED,
                       "gossip: %s is for links that go one way, which training has not; take "
                       "atc, awc, exact-diffusion, choco or gradient-tracking",
                       c->algorithm);
    if (c->gamma > 0 && !rule->copies)
        return RP_FAIL(INVALID, "gossip: gamma is of algorithm=choco, and %s has none",
                       c->algorithm);
    return RP_OK;
}

static bool survives(const char *text) {
    choice c = {.topology = NULL};
    bool goes_on = false;
    return rpi_strategy_read(&rpi_strategy_gossip, text, &c.words, &c) == RP_OK &&
           rpi_strategy_on_loss("gossip", c.on_loss, &goes_on) == RP_OK && goes_on;
}

/* Any rank may die. In large worlds so many deaths are checked before the first step; after
 * more of them the same check is made, and ends the run. */
enum { DEATHS = 64 };

static rp_status check_smaller_worlds(const choice *c, int world) {
    int least = world > DEATHS ? world - DEATHS : 1;
    for (int left = world - 1; left >= least; left--) {
        rp_status status = rp_gossip_check(c->topology, c->algorithm, left, NULL);
        if (status != RP_OK)
            return rpi_fail_context(status,
                                    "gossip: on-loss=continue needs a topology that %d of %d "
                                    "ranks have, too: ",
                                    left, world);
    }
    return RP_OK;
}

static rp_status check(const rpi_strategy_request *request) {
    choice c = {.topology = NULL};
    const rpi_gossip_rule *rule = NULL;
    bool goes_on = false;
    RP_TRY(rpi_strategy_read(&rpi_strategy_gossip, request->options, &c.words, &c));
    RP_TRY(rpi_strategy_on_loss("gossip", c.on_loss, &goes_on));
    RP_TRY(rpi_gossip_rule_find(c.algorithm, &rule));
    RP_TRY(check_rule(rule, &c));
    if (rule->sends > 1 && !request->plain_sgd)
        return RP_FAIL(INVALID,
                       "gossip: %s exchanges gradients, and takes --optimizer sgd --momentum 0 "
                       "--weight-decay 0 without --clip",
                       c.algorithm);
    if (request->warmup_exact || request->chooses_bits)
        return RP_FAIL(INVALID, "gossip takes neither --warmup-exact nor --codec auto");
    if (!request->world) return RP_OK;
    RP_TRY(rp_gossip_check(c.topology, c.algorithm, request->world, NULL));
    return goes_on ? check_smaller_worlds(&c, request->world) : RP_OK;
}

/* With copies, what a codec loses of a change is in the next change: there is no error
 * feedback. */
static bool feeds_back(const char *text) {
    choice c = {.topology = NULL};
    const rpi_gossip_rule *rule = NULL;
    return rpi_strategy_read(&rpi_strategy_gossip, text, &c.words, &c) == RP_OK &&
           rpi_gossip_rule_find(c.algorithm, &rule) == RP_OK && !rule->copies;
}

/* ---- the strategy ---- */

typedef struct gossip {
    rpi_strategy_setup setup;
    rp_gossip *gossip;
    rp_gossip_info info;
    rp_request *request; /* of the step's exchange; NULL: not posted yet, or over */
    rpi_buckets layouts[2];
    /* A parameter before the optimizer's step, as long as the longest; NULL: the rule takes
     * gradients. */
    float *before;
    int64_t step;
    rpi_gradients_seen seen; /* of the step */
    int parts;               /* of the global batch: the number of ranks when the run began */
    bool goes_on;            /* goes on without ranks that die */
    bool is_alone;           /* a rank has died, and this one has not met the others yet */
    rp_status started;
    rpi_kept_error error; /* the failure of the start */
    char advice[1024];    /* noted before the first step; "": nothing */
} gossip;

static void close_gossip(void *context) {
    gossip *self = context;
    if (self->request) (void)rp_request_wait(&self->request);
    rp_gossip_destroy(self->gossip);
    for (int i = 0; i < 2; i++) rpi_buckets_destroy(&self->layouts[i]);
    rpi_free(self->before);
    rpi_free(self);
}

static void tell_gamma(const gossip *self) {
    const rpi_strategy_setup *s = &self->setup;
    char line[96];
    snprintf(line, sizeof line, "gossip: choco takes gamma=%.3g, by what the codec loses",
             self->info.gamma);
    if (s->note) s->note(s->context, line);
}

static rp_status advise(gossip *self) {
    const rpi_strategy_setup *s = &self->setup;
    RP_TRY(rp_gossip_advise(self->gossip, self->advice, sizeof self->advice));
    if (self->advice[0] && s->note) s->note(s->context, self->advice);
    return RP_OK;
}

static const char *suspect(void *context) {
    const gossip *self = context;
    return self && self->advice[0] ? self->advice : NULL;
}

static rp_status make_gossip(gossip *self) {
    const rpi_strategy_setup *s = &self->setup;
    choice c = {.topology = NULL};
    RP_TRY(rpi_strategy_read(&rpi_strategy_gossip, s->options, &c.words, &c));
    rp_gossip_setup setup =
        RP_GOSSIP_SETUP(.topology = c.topology, .algorithm = c.algorithm, .dtype = RP_F32,
                        .count = (size_t)rpi_weights_count(s->weights),
                        .x = rpi_weights_values(s->weights),
                        .gradient = rpi_weights_gradients(s->weights), .seed = s->seed,
                        .gamma = c.gamma);
    for (int i = 0; i < 2; i++) {
        setup.layouts[i] = self->layouts[i].segments;
        setup.layout_counts[i] = (size_t)self->layouts[i].segment_count;
    }
    RP_TRY(rp_gossip_create(s->comm, &setup, &self->gossip));
    rp_gossip_get_info(self->gossip, &self->info);
    if (self->info.copies && !(c.gamma > 0) && self->info.gamma < 1) tell_gamma(self);
    return advise(self);
}

static rp_status prepare(gossip *self) {
    const rpi_strategy_setup *s = &self->setup;
    int64_t longest = 0;
    self->parts = rp_comm_world(s->comm);
    self->goes_on = survives(s->options);
    for (int i = 0; i < 2; i++) /* the second vector has no residual */
        RP_TRY(rpi_buckets_create(s->network, s->weights, s->bucket_bytes, &s->codec,
                                  i ? NULL : s->residual, &self->layouts[i]));
    /* random draws that differ from the first vector's */
    for (int i = 0; i < self->layouts[1].segment_count; i++)
        self->layouts[1].segments[i].tensor += (uint32_t)self->layouts[1].segment_count;
    RP_TRY(make_gossip(self));
    if (self->info.exchanged > 1) return RP_OK;
    for (int i = 0; i < rpi_weights_parameter_count(s->weights); i++) {
        int64_t count = rpi_weights_parameter(s->weights, i)->count;
        if (count > longest) longest = count;
    }
    return rpi_alloc_array((size_t)longest, sizeof *self->before, "gossip", &self->before);
}

static rp_status open_gossip(const rpi_strategy_setup *setup, void **out_self) {
    gossip *self = NULL;
    RP_TRY(rpi_alloc(sizeof *self, "a strategy", &self));
    self->setup = *setup;
    rp_status status = prepare(self);
    if (status == RP_OK)
        *out_self = self;
    else
        close_gossip(self);
    return status;
}

static void begin(void *context, int64_t step) {
    gossip *self = context;
    self->step = step;
    self->seen = (rpi_gradients_seen){0};
    self->started = RP_OK;
    if (!self->info.early || self->is_alone) return;
    self->started = rp_gossip_post(self->gossip, step, 0, &self->request);
    if (self->started != RP_OK) rpi_error_keep(&self->error);
}

static bool is_outlived(const gossip *self, rp_status status) {
    return self->goes_on && status == RP_PEER;
}

static rp_status kept_failure(const gossip *self) {
    if (self->started != RP_OK) rpi_error_put_back(&self->error);
    return self->started;
}

/* A death is handled when the step ends. */
static rp_status gradient_final(void *context, int64_t first, int64_t count) {
    gossip *self = context;
    RP_TRY(rpi_gradients_seen_add(&self->seen, first, count));
    return is_outlived(self, self->started) ? RP_OK : kept_failure(self);
}

/* Scales a rank's share of the global batch to a mean; a rank alone scales to its own mean. */
static void scale_gradients(const gossip *self, int64_t count) {
    float *gradients = rpi_weights_gradients(self->setup.weights);
    for (int64_t i = 0; i < count; i++) gradients[i] *= (float)self->parts;
}

/* Puts the optimizer's step in the place of a parameter's gradient; x does not change. */
static void take_step_of(const gossip *self, const rpi_weight *w) {
    const rpi_strategy_setup *s = &self->setup;
    float *x = rpi_weights_values(s->weights) + w->first;
    float *step = rpi_weights_gradients(s->weights) + w->first;
    memcpy(self->before, x, (size_t)w->count * sizeof *x);
    s->update(s->context, w->first, w->count);
    for (int64_t i = 0; i < w->count; i++) {
        step[i] = self->before[i] - x[i];
        x[i] = self->before[i];
    }
}

/* Parameter by parameter, of which most are still in a cache when their step is taken back. */
static void take_step(const gossip *self) {
    const rpi_weights *weights = self->setup.weights;
    for (int i = 0; i < rpi_weights_parameter_count(weights); i++)
        take_step_of(self, rpi_weights_parameter(weights, i));
}

static rp_status wait_for_neighbours(gossip *self, int64_t *in_out_exposed_ns) {
    int64_t start = rpi_now_ns();
    rp_status status = rp_request_wait(&self->request);
    *in_out_exposed_ns += rpi_now_ns() - start;
    return status;
}

/* Exchanges with neighbours; RP_PEER: one of them has died, and this rank has completed the
 * step alone. */
static rp_status exchange(gossip *self, int64_t *in_out_exposed_ns) {
    const rpi_strategy_setup *s = &self->setup;
    double rate = self->before ? 1 : s->rate(s->context);
    rp_status status = kept_failure(self);
    if (self->request) /* the exchange reads x, which the optimizer writes */
        status = wait_for_neighbours(self, in_out_exposed_ns);
    if (status != RP_OK && !is_outlived(self, status)) return status;
    if (self->before) take_step(self);
    if (!self->info.early) {
        status = rp_gossip_post(self->gossip, self->step, rate, &self->request);
        if (status == RP_OK) status = wait_for_neighbours(self, in_out_exposed_ns);
    }
    if (status == RP_OK) return rp_gossip_apply(self->gossip, rate);
    if (!is_outlived(self, status)) return status;
    rpi_kept_error why;
    rpi_error_keep(&why);
    RP_TRY(rp_gossip_alone(self->gossip, rate));
    rpi_error_put_back(&why);
    self->is_alone = true;
    return status;
}

static rp_status finish(void *context, int64_t *out_exposed_ns) {
    gossip *self = context;
    const rpi_strategy_setup *s = &self->setup;
    int64_t count = rpi_weights_count(s->weights);
    rp_status status = RP_OK;
    *out_exposed_ns = 0;
    RP_TRY(rpi_gradients_seen_check(&self->seen, count));
    scale_gradients(self, count);
    if (s->measure) s->measure(s->context, 0, count);
    if (s->measure) RP_TRY(s->measured(s->context, NULL));
    if (self->is_alone)
        s->update(s->context, 0, count);
    else
        status = exchange(self, out_exposed_ns);
    rpi_weights_changed(s->weights, 0, count);
    return status;
}

/* Residuals belong to what was sent before, which no rank knows any more. */
static rp_status rejoin(void *context, rp_comm *comm, int64_t step) {
    gossip *self = context;
    rpi_strategy_setup *s = &self->setup;
    (void)step; /* begin() is called with it */
    if (self->request) (void)rp_request_wait(&self->request);
    rp_gossip_destroy(self->gossip);
    self->gossip = NULL;
    s->comm = comm;
    if (s->residual)
        memset(s->residual, 0, (size_t)rpi_weights_count(s->weights) * sizeof *s->residual);
    self->is_alone = false;
    return make_gossip(self);
}

static int states(void *context, float *out_states[RPI_STRATEGY_STATES]) {
    gossip *self = context;
    for (int i = 0; i < self->info.states; i++)
        out_states[i] = rp_gossip_state(self->gossip, i);
    return self->info.states;
}

static void resumed(void *context) {
    gossip *self = context;
    (void)rp_gossip_resume(self->gossip, 1); /* training has no push algorithms */
}

const rpi_strategy rpi_strategy_gossip = {
    .name = "gossip",
    .summary = "every rank has parameters of its own and averages them with a few neighbours",
    .replicas_differ = true,
    .options = options,
    .check = check,
    .feeds_back = feeds_back,
    .survives = survives,
    .rejoin = rejoin,
    .open = open_gossip,
    .close = close_gossip,
    .begin = begin,
    .gradient_final = gradient_final,
    .finish = finish,
    .suspect = suspect,
    .nearer = "a codec of more bits, a topology that mixes faster (redpoll plan gossip), or a "
              "smaller --lr",
    .states = states,
    .resumed = resumed,
};
