#include "train/strategies/served.h"

#include "base/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- options ---- */

static rp_status read_whole(const char *strategy, const char *name, const char *text,
                            const char *other, int64_t *out_number) {
    enum { MOST = 1 << 20 };
    char *end = NULL;
    long long number = strtoll(text, &end, 10);
    if (!*text || *end || number < 0 || number > MOST)
        return RP_FAIL(INVALID, "%s: %s=%s; %s, or a whole number from 0 to %d", strategy, name,
                       text, other, MOST);
    *out_number = number;
    return RP_OK;
}

rp_status rpi_served_read(const char *strategy, const rpi_served_choice *c,
                          rp_parameter_server_options *out_options) {
    int64_t servers = 0, staleness = RP_ANY_STALENESS;
    if (strcmp(c->servers, "shared") != 0) {
        RP_TRY(read_whole(strategy, "servers", c->servers, "shared", &servers));
        if (!servers)
            return RP_FAIL(INVALID,
                           "%s: servers=0; 1 or more, or shared, where every rank "
                           "serves and learns",
                           strategy);
    }
    if (strcmp(c->staleness, "inf") != 0)
        RP_TRY(read_whole(strategy, "staleness", c->staleness, "inf", &staleness));
    bool goes_on = false;
    RP_TRY(rpi_strategy_on_loss(strategy, c->on_loss, &goes_on));
    *out_options =
        (rp_parameter_server_options)RP_PARAMETER_SERVER_OPTIONS(.servers = (int)servers,
                                                                 .staleness = staleness,
                                                                 .quorum = (int)c->quorum,
                                                                 .grace_s = c->grace_ms / 1000,
                                                                 .goes_on = goes_on);
    return RP_OK;
}

rp_status rpi_served_check(const char *strategy, const rp_parameter_server_options *options,
                           const rpi_strategy_request *request) {
    if (request->warmup_exact || request->chooses_bits)
        return RP_FAIL(INVALID, "%s takes neither --warmup-exact nor --codec auto", strategy);
    return rp_parameter_server_check(options, request->world);
}

/* ---- opening ---- */

static rp_status create(const rpi_served *served, rp_comm *comm,
                        rp_parameter_server **out_server) {
    const rpi_buckets *layout = &served->layout;
    RP_TRY(rp_parameter_server_create(comm, layout->segments, (size_t)layout->segment_count,
                                      &served->options, out_server));
    rp_parameter_server_name(*out_server, served->setup.first_ranks);
    return RP_OK;
}

rp_status rpi_served_open(const rpi_strategy_setup *setup,
                          const rp_parameter_server_options *options, rpi_served *served) {
    static const rp_codec exact;
    bool alone = rp_comm_world(setup->comm) == 1;
    served->setup = *setup;
    served->options = *options;
    served->options.seed = setup->seed;
    served->options.workers = alone ? 0 : setup->workers;
    if (served->options.goes_on && setup->may_return) served->options.goes_on = 2;
    served->own_step = -1;
    RP_TRY(rpi_buckets_create(setup->network, setup->weights, setup->bucket_bytes,
                              alone ? &exact : &setup->codec, alone ? NULL : setup->residual,
                              &served->layout));
    return create(served, setup->comm, &served->server);
}

void rpi_served_close(rpi_served *served) {
    rp_parameter_server_destroy(served->next);
    rp_parameter_server_destroy(served->server);
    rpi_buckets_destroy(&served->layout);
}

/* ---- what the first server tells ---- */

/* Numbers that pushes carry beside gradients. */
enum { LOSS, SHARE, COUNT, COMPUTE, WAIT, ASKED, FAULT, AUTOCORRELATION, NOTES };
_Static_assert((int)NOTES <= (int)RP_PUSH_NOTES, "more notes than a push carries");

static void add_push(rpi_served_tally *t, const rp_parameter_push *push) {
    t->loss += push->notes[LOSS];
    t->share += push->notes[SHARE];
    t->count += push->notes[COUNT];
    t->compute_s += push->notes[COMPUTE];
    t->wait_s += push->notes[WAIT];
    t->asked |= (int)push->notes[ASKED];
    t->has_fault |= push->notes[FAULT] != 0;
    t->stale += (double)push->staleness;
    t->stalest = fmax(t->stalest, (double)push->staleness);
    t->missed += (double)push->updates;
    t->pushes++;
    if (isnan(push->notes[AUTOCORRELATION])) return;
    t->autocorrelation += push->notes[AUTOCORRELATION];
    t->correlated++;
}

int64_t rpi_served_border(const rpi_served *served, int64_t round) {
    int64_t steps = served->span->last_step - served->span->first_step;
    return steps * round / served->rounds;
}

static rp_status tell_round(rpi_served *served) {
    const rpi_served_tally *t = &served->since;
    rp_comm_stats now;
    int64_t from = rpi_served_border(served, served->rounds_told++);
    int64_t to = rpi_served_border(served, served->rounds_told);
    rp_parameter_server_get_stats(served->server, &now);
    rpi_strategy_step step = {
        .step = served->span->first_step + to,
        .steps = to - from,
        .loss = t->share > 0 ? t->loss / t->share : NAN,
        .count = t->count,
        .compute_s = t->compute_s / t->pushes,
        .exposed_s = t->wait_s / t->pushes,
        .staleness_mean = t->stale / t->pushes,
        .staleness_max = t->stalest,
        .missed_updates = t->missed / t->pushes,
        .autocorrelation = t->correlated ? t->autocorrelation / t->correlated : NAN,
        .bytes_sent = now.wire_bytes_sent - served->before.wire_bytes_sent,
        .bytes_received = now.wire_bytes_received - served->before.wire_bytes_received,
        .asked = t->asked,
        .has_fault = t->has_fault};
    bool stops = false;
    RP_TRY(served->span->stepped(served->span->context, &step, &stops));
    if (stops) rp_parameter_server_stop(served->server);
    served->autocorrelation = step.autocorrelation;
    served->before = now;
    served->since = (rpi_served_tally){0};
    return RP_OK;
}

rp_status rpi_served_account(rpi_served *served, const rp_parameter_merge *merge) {
    if (rp_comm_rank(served->setup.comm) != 0) return RP_OK;
    for (int i = 0; i < merge->push_count; i++) add_push(&served->since, &merge->pushes[i]);
    if (served->since.asked || served->since.has_fault)
        rp_parameter_server_stop(served->server);
    if (served->options.staleness == 0) return tell_round(served);
    /* A quorum's merges do not end where rounds do. */
    int workers = rp_parameter_server_workers(served->server);
    int beyond = served->surplus + served->since.pushes - workers;
    if (beyond < 0) return RP_OK;
    served->surplus = beyond;
    return tell_round(served);
}

/* ---- workers ---- */

rp_status rpi_served_learn(rpi_served *served, rpi_strategy_part *out_part) {
    const rpi_strategy_span *span = served->span;
    return span->learn(span->context, served->own_step++, out_part);
}

void rpi_served_clip(const rpi_served *served, double share) {
    const rpi_strategy_setup *s = &served->setup;
    int64_t count = rpi_weights_count(s->weights);
    float *gradients = rpi_weights_gradients(s->weights);
    double squares = 0;
    if (!(s->clip > 0) || share <= 0) return;
    for (int64_t i = 0; i < count; i++) squares += (double)gradients[i] * (double)gradients[i];
    double scale = s->clip / (sqrt(squares) / share + 1e-6);
    for (int64_t i = 0; i < count && scale < 1; i++) gradients[i] *= (float)scale;
}

rp_status rpi_served_push(rpi_served *served, double weight, const rpi_strategy_part *learnt,
                          double autocorrelation) {
    rpi_weights *weights = served->setup.weights;
    rp_parameter_report report = {0};
    const double notes[RP_PUSH_NOTES] = {
        [LOSS] = learnt->loss,       [SHARE] = learnt->share,
        [COUNT] = learnt->count,     [COMPUTE] = learnt->compute_s,
        [WAIT] = served->waited_s,   [ASKED] = learnt->asked,
        [FAULT] = learnt->has_fault, [AUTOCORRELATION] = autocorrelation};
    RP_TRY(rp_parameter_server_push(served->server, weight, notes, &report));
    served->waited_s = report.wait_s;
    rpi_weights_changed(weights, 0, rpi_weights_count(weights));
    return RP_OK;
}

rp_status rpi_served_work(rpi_served *served, rp_status (*push)(void *context), void *context) {
    rp_status status = RP_OK;
    while (status == RP_OK && rp_parameter_server_goes_on(served->server))
        status = push(context);
    if (status == RP_OK) return RP_OK;
    rpi_kept_error why;
    rpi_error_keep(&why);
    rp_parameter_server_abort(served->server, status, why.message);
    rpi_error_put_back(&why);
    return status;
}

/* ---- a span ---- */

rp_status rpi_served_begin(rpi_served *served, const rpi_strategy_span *span, int64_t rounds) {
    rpi_weights *weights = served->setup.weights;
    served->span = span;
    served->rounds = rounds;
    served->rounds_told = 0;
    served->surplus = 0;
    if (served->own_step < 0) served->own_step = span->first_step;
    RP_TRY(rp_parameter_server_begin(served->server, rpi_weights_values(weights),
                                     (uint64_t)span->first_step, (uint64_t)rounds));
    rpi_weights_changed(weights, 0, rpi_weights_count(weights));
    return RP_OK;
}

rp_status rpi_served_end(rpi_served *served) {
    rpi_weights *weights = served->setup.weights;
    RP_TRY(rp_parameter_server_end(served->server));
    rpi_weights_changed(weights, 0, rpi_weights_count(weights));
    return RP_OK;
}

rp_status rpi_served_confirm(rpi_served *served, rp_status status, bool *out_again,
                             rp_comm **out_comm) {
    int again = 0;
    RP_TRY(rp_parameter_server_confirm(served->server, status, &again));
    *out_again = again != 0;
    *out_comm = rp_parameter_server_comm(served->server);
    return RP_OK;
}

/* ---- workers that come back ---- */

/* Servers start from the parameters that all ranks have after a span, and pushes are numbered
 * anew: no push is merged twice, none is missing. */
rp_status rpi_served_grow(rpi_served *served, rp_comm *comm) {
    served->next_comm = comm;
    return create(served, comm, &served->next);
}

void rpi_served_settle(rpi_served *served, bool grows) {
    rp_parameter_server_destroy(grows ? served->server : served->next);
    if (grows) served->server = served->next;
    if (grows) served->setup.comm = served->next_comm;
    if (grows) rp_parameter_server_get_stats(served->server, &served->before);
    served->next = NULL;
}
