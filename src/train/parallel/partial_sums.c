#include "train/parallel/partial_sums.h"

#include "base/memory.h"
#include "base/status.h"

enum { TIE_TAG = 1 << 30 }; /* above all tags of stage_links.c */

static const rpi_weight *weight_of(const rpi_partial_sums *s, const rpi_stage_tied *tie) {
    return rpi_weights_find(s->weights, s->network->parameters[tie->parameter].name);
}

static bool is_ours(const rpi_partial_sums *s, const rpi_stage_tied *tie) {
    return tie->stages[0] == s->stage->stage || tie->stages[1] == s->stage->stage;
}

/* The longest run that this rank owns of a tied table. */
static int64_t longest_run(const rpi_partial_sums *s, const rpi_stage_tied *tie,
                           const rpi_optimizer_state *optimizer) {
    const rpi_weight *weight = weight_of(s, tie);
    const rpi_arena_range tensor = {weight->first, weight->count};
    rpi_arena_range run = {0};
    int64_t most = 0;
    while (rpi_optimizer_state_next(optimizer, tensor, &run))
        if (run.count > most) most = run.count;
    return most;
}

rp_status rpi_partial_sums_open(const rpi_model_stage *stage, const rpi_network *network,
                                rpi_weights *weights, const rpi_optimizer_state *optimizer,
                                rp_comm *stages, rpi_partial_sums *out_sums) {
    rpi_partial_sums s = {
        .stage = stage, .network = network, .weights = weights, .stages = stages};
    int64_t most = 0;
    for (int i = 0; stage && i < stage->tie_count; i++) {
        if (!is_ours(&s, &stage->ties[i])) continue;
        int64_t run = longest_run(&s, &stage->ties[i], optimizer);
        if (run > most) most = run;
    }
    if (most) RP_TRY(rpi_alloc_array((size_t)most, sizeof *s.theirs, "a tie", &s.theirs));
    *out_sums = s;
    return RP_OK;
}

void rpi_partial_sums_close(rpi_partial_sums *s) {
    rpi_free(s->theirs);
    *s = (rpi_partial_sums){0};
}

/* Both ranks add their two parts: a sum of two is the same in either order. */
static rp_status tie_run(const rpi_partial_sums *s, const rpi_stage_tied *tie,
                         const rpi_optimizer_state *optimizer, rpi_arena_range run) {
    float *own = rpi_optimizer_state_gradients(optimizer, run.first);
    int peer = tie->stages[tie->stages[0] == s->stage->stage];
    size_t count = (size_t)run.count;
    rp_request *sent = NULL, *received = NULL;
    RP_TRY(rp_recv_start(s->stages, s->theirs, count, RP_F32, peer, TIE_TAG, &received));
    rp_status status = rp_send_start(s->stages, own, count, RP_F32, peer, TIE_TAG, &sent);
    if (status == RP_OK) status = rp_request_wait(&sent);
    rp_status there = rp_request_wait(&received);
    if (status == RP_OK) status = there;
    if (status != RP_OK)
        return rpi_fail_context(
            status, "the gradient of %s, of which stages %d and %d have parts: ",
            s->network->parameters[tie->parameter].name, tie->stages[0], tie->stages[1]);
    for (size_t i = 0; i < count; i++) own[i] += s->theirs[i];
    return RP_OK;
}

static rp_status tie_one(const rpi_partial_sums *s, const rpi_stage_tied *tie,
                         const rpi_optimizer_state *optimizer) {
    const rpi_weight *weight = weight_of(s, tie);
    const rpi_arena_range tensor = {weight->first, weight->count};
    rpi_arena_range run = {0};
    while (rpi_optimizer_state_next(optimizer, tensor, &run))
        RP_TRY(tie_run(s, tie, optimizer, run));
    return RP_OK;
}

rp_status rpi_partial_sums_tie(const rpi_partial_sums *s,
                               const rpi_optimizer_state *optimizer) {
    for (int i = 0; s->stage && i < s->stage->tie_count; i++)
        if (is_ours(s, &s->stage->ties[i])) RP_TRY(tie_one(s, &s->stage->ties[i], optimizer));
    return RP_OK;
}

/* Runs that follow each other are measured as one. */
typedef struct measuring {
    rpi_optimizer_state *optimizer;
    int64_t begin; /* where the tensor begins in the arena */
    rpi_arena_range ahead;
} measuring;

static void measure_ahead(measuring *m) {
    if (m->ahead.count) rpi_optimizer_state_measure(m->optimizer, m->ahead);
    m->ahead = (rpi_arena_range){0};
}

static rp_status measure_run(void *context, const rpi_parameter *parameter,
                             const rpi_shard_run *run) {
    measuring *m = context;
    int64_t first = m->begin + run->local;
    (void)parameter;
    if (run->holder > 0) return RP_OK;
    if (m->ahead.count && m->ahead.first + m->ahead.count != first) measure_ahead(m);
    if (!m->ahead.count) m->ahead.first = first;
    m->ahead.count += run->count;
    return RP_OK;
}

/* Records were checked when they were declared, so that their runs cannot fail. */
void rpi_partial_sums_measure(const rpi_partial_sums *s, rpi_optimizer_state *optimizer) {
    for (int i = 0; i < s->network->parameter_count; i++) {
        const rpi_parameter *parameter = &s->network->parameters[i];
        const rpi_weight *weight = rpi_weights_find(s->weights, parameter->name);
        if (!weight || weight->is_state) continue;
        if (s->stage && !rpi_stage_counts(s->stage, i)) continue;
        measuring m = {.optimizer = optimizer, .begin = weight->first};
        (void)rpi_network_runs(s->network, i, measure_run, &m);
        measure_ahead(&m);
    }
}
