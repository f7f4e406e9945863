/* Servers keep the parameters and step them with the run's optimizer; workers push gradients
 * and get parameters back (redpoll/parameter_server.h).
 *
 * A worker's gradient is of its own samples, scaled by 1 / (those of the global batch). Where
 * servers merge a push of everybody, the sum is the gradient of the global batch, and its step
 * that of all-reduce, bit for bit. What they merge of fewer is divided by its share of the
 * batch, to be a mean again, and stepped with as much of the learning rate: a round of single
 * pushes goes as far as one step of all. */
#include "train/strategies/strategy.h"

#include "base/memory.h"
#include "base/status.h"
#include "redpoll/parameter_server.h"
#include "train/strategies/bucket.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const rpi_strategy rpi_strategy_parameter_server;

/* ---- options ---- */

typedef struct choice {
    const char *servers, *staleness, *on_loss; /* in `words` */
    int64_t quorum;
    double grace_ms;
    rpi_strategy_words words;
} choice;

static const rpi_option options[] = {
    RPI_STRATEGY_OPTION("servers", RPI_OPTION_TEXT, offsetof(choice, servers), "shared", 0, 0,
                        "N",
                        "ranks that keep the parameters and do nothing else, or shared: every "
                        "rank keeps a part of them, and learns"),
    RPI_STRATEGY_OPTION("staleness", RPI_OPTION_TEXT, offsetof(choice, staleness), "0", 0, 0,
                        "N",
                        "steps that a gradient may be late; 0: synchronous, inf: nobody waits "
                        "for another"),
    RPI_STRATEGY_OPTION(
        "quorum", RPI_OPTION_COUNT, offsetof(choice, quorum), "0", 0, 1e6, "N",
        "a step takes so many workers' gradients, weighed by their samples, and "
        "what comes within the grace; 0: none. With servers=1 and a staleness"),
    RPI_STRATEGY_OPTION("grace", RPI_OPTION_REAL, offsetof(choice, grace_ms), "0", 0, 0, "MS",
                        "milliseconds for which a quorum waits for more"),
    RPI_STRATEGY_ON_LOSS(offsetof(choice, on_loss),
                         "stop, or continue without workers that die, or are silent too long; "
                         "not with servers=shared"),
    {0},
};

static rp_status read_whole(const char *name, const char *text, const char *other, int most,
                            int64_t *out_number) {
    char *end = NULL;
    long long number = strtoll(text, &end, 10);
    if (!*text || *end || number < 0 || number > most)
        return RP_FAIL(INVALID, "parameter-server: %s=%s; %s, or a whole number from 0 to %d",
                       name, text, other, most);
    *out_number = number;
    return RP_OK;
}

static rp_status read_options(const char *text, rp_parameter_server_options *out) {
    choice c;
    int64_t servers = 0, staleness = RP_ANY_STALENESS;
    RP_TRY(rpi_strategy_read(&rpi_strategy_parameter_server, text, &c.words, &c));
    if (strcmp(c.servers, "shared") != 0) {
        RP_TRY(read_whole("servers", c.servers, "shared", 1 << 20, &servers));
        if (!servers)
            return RP_FAIL(INVALID, "parameter-server: servers=0; 1 or more, or shared, where "
                                    "every rank serves and learns");
    }
    if (strcmp(c.staleness, "inf") != 0)
        RP_TRY(read_whole("staleness", c.staleness, "inf", 1 << 20, &staleness));
    bool goes_on = false;
    RP_TRY(rpi_strategy_on_loss("parameter-server", c.on_loss, &goes_on));
    *out = (rp_parameter_server_options){.servers = (int)servers,
                                         .staleness = staleness,
                                         .quorum = (int)c.quorum,
                                         .grace_s = c.grace_ms / 1000,
                                         .goes_on = goes_on};
    return RP_OK;
}

static rp_status check(const rpi_strategy_request *request) {
    rp_parameter_server_options o;
    RP_TRY(read_options(request->options, &o));
    if (request->warmup_exact || request->chooses_bits)
        return RP_FAIL(INVALID, "parameter-server takes neither --warmup-exact nor "
                                "--codec auto");
    return rp_parameter_server_check(&o, request->world);
}

static int servers(const char *text) {
    rp_parameter_server_options o = {0};
    return read_options(text, &o) == RP_OK ? o.servers : 0;
}

static bool outlives(const char *text) {
    rp_parameter_server_options o = {0};
    return read_options(text, &o) == RP_OK && o.goes_on;
}

/* ---- the strategy ---- */

/* What pushes carry beside gradients. */
enum { LOSS, COUNT, COMPUTE, WAIT, ASKED, FAULT };

/* Of pushes since the last whole step. */
typedef struct tally {
    double loss, weight, count, compute_s, wait_s, stale, stalest, missed;
    int pushes, asked;
    bool has_fault;
} tally;

typedef struct server_strategy {
    rpi_strategy_setup setup;
    rp_parameter_server_options options;
    rp_parameter_server *server;
    rpi_buckets layout;
    const rpi_strategy_span *span; /* under way */
    int64_t own_step;              /* the next that this worker learns from; -1: none yet */
    double waited_s;               /* for the answer to its last push */
    tally since;                   /* on the first server */
    int surplus;                   /* its pushes that belong to the step after the last told */
    int64_t steps_told;            /* of this span */
    rp_comm_stats before;          /* when the last step was told */
} server_strategy;

static void close_server(void *context) {
    server_strategy *self = context;
    rp_parameter_server_destroy(self->server);
    rpi_buckets_destroy(&self->layout);
    rpi_free(self);
}

/* ---- on servers ---- */

static bool is_synchronous(const server_strategy *self) {
    return self->options.staleness == 0;
}

static void add_push(tally *t, const rp_parameter_push *push) {
    t->loss += push->notes[LOSS];
    t->count += push->notes[COUNT];
    t->compute_s += push->notes[COMPUTE];
    t->wait_s += push->notes[WAIT];
    t->asked |= (int)push->notes[ASKED];
    t->has_fault |= push->notes[FAULT] != 0;
    t->weight += push->weight;
    t->stale += (double)push->staleness;
    t->stalest = fmax(t->stalest, (double)push->staleness);
    t->missed += (double)push->updates;
    t->pushes++;
}

static rp_status tell_step(server_strategy *self) {
    const tally *t = &self->since;
    rp_comm_stats now;
    rp_parameter_server_get_stats(self->server, &now);
    rpi_strategy_step step = {.step = self->span->first_step + ++self->steps_told,
                              .loss = t->weight > 0 ? t->loss / t->weight : NAN,
                              .count = t->count,
                              .compute_s = t->compute_s / t->pushes,
                              .exposed_s = t->wait_s / t->pushes,
                              .staleness_mean = t->stale / t->pushes,
                              .staleness_max = t->stalest,
                              .missed_updates = t->missed / t->pushes,
                              .bytes_sent = now.wire_bytes_sent - self->before.wire_bytes_sent,
                              .bytes_received =
                                  now.wire_bytes_received - self->before.wire_bytes_received,
                              .asked = t->asked,
                              .has_fault = t->has_fault};
    bool stops = false;
    RP_TRY(self->span->stepped(self->span->context, &step, &stops));
    if (stops) rp_parameter_server_stop(self->server);
    self->before = now;
    self->since = (tally){0};
    return RP_OK;
}

static rp_status account(server_strategy *self, const rp_parameter_merge *merge) {
    for (int i = 0; i < merge->push_count; i++) add_push(&self->since, &merge->pushes[i]);
    if (is_synchronous(self)) return tell_step(self);
    /* A quorum's merges do not end where steps do. */
    int beyond = self->surplus + self->since.pushes - rp_parameter_server_workers(self->server);
    if (beyond < 0) return RP_OK;
    self->surplus = beyond;
    return tell_step(self);
}

static rp_status merge(void *context, const rp_parameter_merge *m) {
    server_strategy *self = context;
    rpi_strategy_update update = {.first = (int64_t)m->first,
                                  .count = (int64_t)m->count,
                                  .step = (int64_t)m->step,
                                  .updates = m->version,
                                  .values = m->values,
                                  .gradient = m->gradient,
                                  .rate_scale = is_synchronous(self) ? 1 : m->weight};
    if (!m->is_complete) update.gradient_scale = (float)(1 / m->weight);
    /* Who has no samples in a short last batch has no gradient, either. */
    if (m->weight > 0) self->span->update(self->span->context, &update);
    return rp_comm_rank(self->setup.comm) == 0 ? account(self, m) : RP_OK;
}

/* ---- opening ---- */

static rp_status prepare(server_strategy *self) {
    const rpi_strategy_setup *s = &self->setup;
    static const rp_codec exact;
    bool alone = rp_comm_world(s->comm) == 1;
    RP_TRY(read_options(s->options, &self->options));
    self->options.seed = s->seed;
    self->options.merge = merge;
    self->options.context = self;
    RP_TRY(rpi_buckets_create(s->network, s->weights, s->bucket_bytes,
                              alone ? &exact : &s->codec, alone ? NULL : s->residual,
                              &self->layout));
    return rp_parameter_server_create(s->comm, self->layout.segments,
                                      (size_t)self->layout.segment_count, &self->options,
                                      &self->server);
}

static rp_status open_server(const rpi_strategy_setup *setup, void **out_self) {
    server_strategy *self = NULL;
    RP_TRY(rpi_alloc(sizeof *self, "a strategy", &self));
    self->setup = *setup;
    self->own_step = -1;
    rp_status status = prepare(self);
    if (status == RP_OK)
        *out_self = self;
    else
        close_server(self);
    return status;
}

/* ---- workers ---- */

/* A server's part leaves when it is whole, under the rest of the backward pass; a gradient that
 * may be clipped does not before its norm is known. */
static rp_status gradient_final(void *context, int64_t first, int64_t count) {
    server_strategy *self = context;
    if (self->setup.clip > 0) return RP_OK;
    return rp_parameter_server_final(self->server, (size_t)(first + count));
}

/* By the norm of the worker's own mean gradient. */
static void clip(const server_strategy *self, double share) {
    int64_t count = rpi_weights_count(self->setup.weights);
    float *gradients = rpi_weights_gradients(self->setup.weights);
    double squares = 0;
    if (!(self->setup.clip > 0) || share <= 0) return;
    for (int64_t i = 0; i < count; i++) squares += (double)gradients[i] * (double)gradients[i];
    double scale = self->setup.clip / (sqrt(squares) / share + 1e-6);
    for (int64_t i = 0; i < count && scale < 1; i++) gradients[i] *= (float)scale;
}

static rp_status push(server_strategy *self) {
    rpi_strategy_part part = {0};
    rp_parameter_report report = {0};
    RP_TRY(self->span->learn(self->span->context, self->own_step, &part));
    self->own_step++;
    clip(self, part.share);
    double notes[RP_PUSH_NOTES] = {
        [LOSS] = part.loss,      [COUNT] = part.count, [COMPUTE] = part.compute_s,
        [WAIT] = self->waited_s, [ASKED] = part.asked, [FAULT] = part.has_fault};
    RP_TRY(rp_parameter_server_push(self->server, part.share, notes, &report));
    self->waited_s = report.wait_s;
    rpi_weights_changed(self->setup.weights, 0, rpi_weights_count(self->setup.weights));
    return RP_OK;
}

static rp_status work(server_strategy *self) {
    rp_status status = RP_OK;
    while (status == RP_OK && rp_parameter_server_goes_on(self->server)) status = push(self);
    if (status == RP_OK) return RP_OK;
    rpi_kept_error why;
    rpi_error_keep(&why);
    rp_parameter_server_abort(self->server, status, why.message);
    rpi_error_put_back(&why);
    return status;
}

/* ---- a span ---- */

static rp_status confirm(void *context, rp_status status, bool *out_again, rp_comm **out_comm) {
    server_strategy *self = context;
    int again = 0;
    RP_TRY(rp_parameter_server_confirm(self->server, status, &again));
    *out_again = again != 0;
    *out_comm = rp_parameter_server_comm(self->server);
    return RP_OK;
}

static rp_status gather_slots(server_strategy *self) {
    const rpi_strategy_setup *s = &self->setup;
    for (int i = 0; i < s->slot_count; i++)
        RP_TRY(rp_parameter_server_gather(self->server, s->slots[i]));
    return RP_OK;
}

static rp_status share_slots(server_strategy *self, rp_comm **out_comm) {
    bool again = true;
    while (again) RP_TRY(confirm(self, gather_slots(self), &again, out_comm));
    return RP_OK;
}

static rp_status run(void *context, const rpi_strategy_span *span, rp_comm **out_comm) {
    server_strategy *self = context;
    const rpi_strategy_setup *s = &self->setup;
    int64_t count = rpi_weights_count(s->weights);
    self->span = span;
    self->steps_told = 0;
    self->surplus = 0;
    if (self->own_step < 0) self->own_step = span->first_step;
    RP_TRY(rp_parameter_server_begin(self->server, rpi_weights_values(s->weights),
                                     (uint64_t)span->first_step,
                                     (uint64_t)(span->last_step - span->first_step)));
    rpi_weights_changed(s->weights, 0, count);
    RP_TRY(work(self));
    RP_TRY(rp_parameter_server_end(self->server));
    rpi_weights_changed(s->weights, 0, count);
    return share_slots(self, out_comm);
}

const rpi_strategy rpi_strategy_parameter_server = {
    .name = "parameter-server",
    .summary = "servers keep and step the parameters, workers push gradients: synchronous, "
               "stale by so many steps, or asynchronous",
    .options = options,
    .check = check,
    .open = open_server,
    .close = close_server,
    .gradient_final = gradient_final,
    .servers = servers,
    .outlives = outlives,
    .run = run,
    .confirm = confirm,
};
