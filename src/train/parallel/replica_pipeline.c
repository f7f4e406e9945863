/* Ranks that hold one model together, each of them one stage: micro-batches pass through all
 * stages, forward and backward, in the order of a schedule (plan/pipelines).
 *
 *     stage 0   F0 F1 F2 F3 .. B0 ..            F: wait for activations, compute, send
 *     stage 1      F0 B0 F1 B1                  B: wait for a gradient, compute, send
 *
 * Backward passes of a part run in the order of micro-batches in every schedule, so that
 * gradients add up as on a rank that holds the whole model. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "plan/pipelines/pipeline_orders.h"
#include "train/parallel/stage_runs.h"

#include <string.h>

typedef struct pipeline {
    rpi_replica_setup setup;
    void (*on_step)(void *context, const rpi_step_report *report); /* the share's */
    rpi_stage_runs runs;
    rpi_pipeline_orders orders; /* for the latest number of micro-batches */
    /* each micro-batch of the share reports its gradients by itself, and this rank is idle in
     * those that only other replicas have */
    bool apart;
    /* tellings: how many parts report each parameter. untold: how many of them have not
     * reported it in this step. Parameters before this one have all been reported. */
    int *tellings, *untold;
    int told;
} pipeline;

static void close(void *context) {
    pipeline *self = context;
    rpi_stage_runs_close(&self->runs);
    rpi_pipeline_orders_destroy(&self->orders);
    rpi_free(self->tellings);
    rpi_free(self->untold);
    rpi_free(self);
}

static rp_status count_tellings(pipeline *self) {
    const rpi_replica_setup *s = &self->setup;
    size_t count = (size_t)rpi_weights_parameter_count(s->weights);
    RP_TRY(rpi_alloc_array(count, sizeof(int), "parameters", &self->tellings));
    RP_TRY(rpi_alloc_array(count, sizeof(int), "parameters", &self->untold));
    for (int i = 0; i < s->network->parameter_count; i++) {
        const rpi_weight *w = rpi_weights_find(s->weights, s->network->parameters[i].name);
        for (int k = 0; w && !w->is_state && k < s->stage->chunks; k++)
            self->tellings[w->index] +=
                rpi_network_part_reads(s->network, &s->stage->parts[k], i);
    }
    return RP_OK;
}

static rp_status open(const rpi_replica_setup *setup, void **out_self) {
    pipeline *self = NULL;
    RP_TRY(rpi_alloc(sizeof *self, "a replica", &self));
    self->setup = *setup;
    rp_status status = rpi_stage_runs_open(&self->setup, &self->runs);
    if (status == RP_OK) status = count_tellings(self);
    if (status == RP_OK)
        *out_self = self;
    else
        close(self);
    return status;
}

/* ---- the order of a share ---- */

static int micro_batches_of(const pipeline *self, int64_t samples) {
    int64_t most = self->setup.micro_batch;
    return (int)((samples + most - 1) / most);
}

static rp_status build_orders(pipeline *self, int micro_batches) {
    const rpi_model_stage *stage = self->setup.stage;
    rpi_pipeline_shape shape;
    if (self->orders.passes && self->orders.shape.micro_batches == micro_batches) return RP_OK;
    rpi_pipeline_orders_destroy(&self->orders);
    RP_TRY(rpi_pipeline_shape_make(stage->schedule, stage->stages, micro_batches, 0, &shape));
    return rpi_pipeline_orders_build(stage->schedule, &shape, &self->orders);
}

static const rpi_pipeline_pass *passes_of(const pipeline *self) {
    return self->orders.passes + (ptrdiff_t)self->setup.stage->stage * self->orders.each;
}

static bool ends_run(const rpi_pipeline_pass *pass) {
    return pass->kind == RPI_PASS_BACKWARD || pass->kind == RPI_PASS_WEIGHTS;
}

/* The most micro-batches of a chunk in flight at a time. */
static int most_in_flight(const pipeline *self, int chunk) {
    int now = 0, most = 0;
    for (int i = 0; i < self->orders.each; i++) {
        const rpi_pipeline_pass *pass = &passes_of(self)[i];
        if (pass->chunk != chunk) continue;
        now += pass->kind == RPI_PASS_FORWARD;
        now -= ends_run(pass);
        if (now > most) most = now;
    }
    return most;
}

/* One slot more than there are runs in flight, to receive ahead. */
static rp_status reserve(pipeline *self) {
    int all = self->orders.shape.micro_batches;
    for (int k = 0; k < self->setup.stage->chunks; k++) {
        int slots = most_in_flight(self, k) + 1;
        RP_TRY(rpi_stage_runs_reserve(&self->runs, k, slots < all ? slots : all));
    }
    return RP_OK;
}

static rp_status compile_size(pipeline *self, bool training, int64_t samples) {
    for (int k = 0; k < self->setup.stage->chunks; k++)
        RP_TRY(rpi_stage_runs_compile(&self->runs, k, training, samples));
    return RP_OK;
}

static rp_status compile(void *context, bool training, int64_t samples) {
    pipeline *self = context;
    int64_t most = self->setup.micro_batch, rest = samples % most;
    if (!samples) return RP_OK;
    RP_TRY(build_orders(self, micro_batches_of(self, samples)));
    RP_TRY(reserve(self));
    if (rest) RP_TRY(compile_size(self, training, rest));
    return samples < most ? RP_OK : compile_size(self, training, most);
}

/* ---- gradients that are final ---- */

static void begin_telling(pipeline *self) {
    size_t count = (size_t)rpi_weights_parameter_count(self->setup.weights);
    memcpy(self->untold, self->tellings, count * sizeof(int));
    self->told = 0;
    if (!self->setup.stage->shares || self->apart) return;
    /* The schedule decides which part adds to a gradient first, so that all begin as zeros. */
    memset(rpi_weights_gradients(self->setup.weights), 0,
           (size_t)rpi_weights_count(self->setup.weights) * sizeof(float));
}

static void note_final(pipeline *self, int64_t first, int64_t count) {
    for (int i = 0; i < rpi_weights_parameter_count(self->setup.weights); i++) {
        const rpi_weight *w = rpi_weights_parameter(self->setup.weights, i);
        if (w->first >= first && w->first + w->count <= first + count) self->untold[i]--;
    }
}

/* Each part reports its parameters in its own order. This one reports them to the strategy in
 * the order of the arena. */
static rp_status on_final(void *context, int64_t first, int64_t count) {
    pipeline *self = context;
    const rpi_replica_setup *s = &self->setup;
    int parameters = rpi_weights_parameter_count(s->weights), from = self->told;
    note_final(self, first, count);
    while (self->told < parameters && self->untold[self->told] == 0) self->told++;
    if (self->told == from) return RP_OK;
    const rpi_weight *begin = rpi_weights_parameter(s->weights, from);
    const rpi_weight *end = rpi_weights_parameter(s->weights, self->told - 1);
    return s->gradient_final(s->context, begin->first, end->first + end->count - begin->first);
}

/* The engine has one context for all callbacks: this one passes a step's name on to its owner.
 */
static void on_step(void *context, const rpi_step_report *report) {
    const pipeline *self = context;
    self->on_step(self->setup.context, report);
}

static rp_status on_parameter(void *context, int index, rpi_parameter_event event) {
    const pipeline *self = context;
    return self->setup.on_parameter(self->setup.context, index, event);
}

/* ---- passes ---- */

static const void *given_of(pipeline *self, const rpi_stage_chunk *chunk,
                            const rpi_stage_slot *slot, int micro_batch) {
    rpi_tensor tensor = {.data = slot->given};
    if (chunk->before != self->setup.stage->stage) return tensor.data;
    int from = rpi_stage_runs_chunk_of(&self->runs, chunk->part->part - 1);
    const rpi_stage_chunk *source = &self->runs.chunks[from];
    const rpi_stage_slot *made = &source->slots[micro_batch % source->slot_count];
    (void)rpi_instance_result(made->instance, chunk->part->given, &tensor);
    return tensor.data;
}

static rp_status tell_pass(const pipeline *self, const rpi_stage_slot *slot, rpi_pass pass) {
    const rpi_replica_setup *s = &self->setup;
    if (!s->on_pass) return RP_OK;
    return s->on_pass(s->context, rpi_instance_program(slot->instance), pass);
}

/* The instance on which a micro-batch runs, and what it reports; for a micro-batch that is idle
 * here, only the reports. Parameters that its pass needs are gathered while it waits for
 * another stage. */
static rp_status prepare_run(pipeline *self, int k, int micro_batch, rpi_stage_slot *slot) {
    rpi_stage_chunk *chunk = &self->runs.chunks[k];
    int64_t samples = rpi_stage_runs_samples(&self->runs, micro_batch);
    bool is_last = micro_batch == self->runs.micro_batches - 1;
    RP_TRY(rpi_stage_runs_compile(&self->runs, k, true,
                                  samples ? samples : self->setup.micro_batch));
    slot->instance = chunk->sizes[0].instances[micro_batch % chunk->slot_count];
    slot->loss = 0;
    slot->options =
        (rpi_run_options){.idle = !samples,
                          .run = (uint64_t)micro_batch,
                          .on_gradient_final = self->apart || is_last ? on_final : NULL,
                          .on_parameter = self->setup.on_parameter ? on_parameter : NULL,
                          .on_step = self->on_step ? on_step : NULL,
                          .context = self};
    return tell_pass(self, slot, RPI_FORWARD);
}

static rp_status prepare(pipeline *self, const rpi_replica_batch *batch, int k, int micro_batch,
                         rpi_stage_slot *slot) {
    rpi_stage_chunk *chunk = &self->runs.chunks[k];
    int64_t first = micro_batch * self->setup.micro_batch;
    RP_TRY(prepare_run(self, k, micro_batch, slot));
    if (slot->options.idle) return RP_OK;
    rpi_replica_inputs(&self->setup, batch->samples, &batch->scales, first, slot->inputs);
    RP_TRY(rpi_stage_runs_take(&self->runs, k, micro_batch, RPI_LINK_ACTIVATION));
    slot->givens[0] = given_of(self, chunk, slot, micro_batch);
    slot->seeds[0] = slot->seed;
    slot->options.inputs = slot->inputs;
    slot->options.given = slot->givens;
    slot->options.seeds = slot->seeds;
    slot->options.seed = batch->seed;
    slot->options.step = batch->step;
    slot->options.first_sample = batch->first_sample + first;
    slot->options.accumulate = !self->apart && (micro_batch > 0 || self->setup.stage->shares);
    return RP_OK;
}

static void time_pass(const pipeline *self, rpi_pass_kind kind, int k, int micro_batch,
                      int64_t start_ns) {
    const rpi_pipeline_pass pass = {(uint8_t)kind, (uint8_t)k, micro_batch};
    if (self->setup.passed)
        self->setup.passed(self->setup.context, &pass, start_ns, rpi_now_ns());
}

static rp_status run_forward(pipeline *self, const rpi_replica_batch *batch, int k,
                             int micro_batch, double *in_out_loss) {
    const rpi_replica_setup *s = &self->setup;
    rpi_stage_slot *slot = NULL;
    rpi_tensor loss;
    RP_TRY(rpi_stage_runs_acquire(&self->runs, k, micro_batch, true, &slot));
    RP_TRY(prepare(self, batch, k, micro_batch, slot));
    int64_t start_ns = rpi_now_ns();
    RP_TRY(rpi_instance_forward(slot->instance, &slot->options));
    if (slot->options.idle) return RP_OK;
    time_pass(self, RPI_PASS_FORWARD, k, micro_batch, start_ns);
    if (self->runs.chunks[k].behind >= 0)
        return rpi_stage_runs_send(&self->runs, k, micro_batch, RPI_LINK_ACTIVATION);
    RP_TRY(rpi_instance_result(slot->instance, s->network->loss, &loss));
    slot->loss = (double)*(const float *)loss.data;
    *in_out_loss += slot->loss;
    return RP_OK;
}

/* Sends back the activations' gradients, after a whole backward pass or its first half. */
static rp_status run_inputs(pipeline *self, int k, int micro_batch, bool whole) {
    rpi_stage_chunk *chunk = &self->runs.chunks[k];
    rpi_stage_slot *slot = &chunk->slots[micro_batch % chunk->slot_count];
    if (self->apart) begin_telling(self);
    RP_TRY(tell_pass(self, slot, RPI_BACKWARD));
    RP_TRY(rpi_stage_runs_take(&self->runs, k, micro_batch, RPI_LINK_GRADIENT));
    int64_t start_ns = rpi_now_ns();
    RP_TRY(whole ? rpi_instance_backward(slot->instance, &slot->options)
                 : rpi_instance_backward_inputs(slot->instance, &slot->options));
    if (slot->options.idle) return RP_OK;
    time_pass(self, whole ? RPI_PASS_BACKWARD : RPI_PASS_INPUTS, k, micro_batch, start_ns);
    return rpi_stage_runs_send(&self->runs, k, micro_batch, RPI_LINK_GRADIENT);
}

static rp_status run_weights(pipeline *self, int k, int micro_batch) {
    rpi_stage_chunk *chunk = &self->runs.chunks[k];
    rpi_stage_slot *slot = &chunk->slots[micro_batch % chunk->slot_count];
    int64_t start_ns = rpi_now_ns();
    RP_TRY(rpi_instance_backward_weights(slot->instance, &slot->options));
    time_pass(self, RPI_PASS_WEIGHTS, k, micro_batch, start_ns);
    return RP_OK;
}

static rp_status end_run(pipeline *self, int k, int micro_batch) {
    rpi_stage_chunk *chunk = &self->runs.chunks[k];
    rpi_stage_slot *slot = &chunk->slots[micro_batch % chunk->slot_count];
    const rpi_replica_run run = {slot->instance, &slot->options, slot->loss};
    chunk->done++;
    if (slot->options.idle) return RP_OK;
    return self->setup.on_run ? self->setup.on_run(self->setup.context, &run) : RP_OK;
}

static rp_status run_pass(pipeline *self, const rpi_replica_batch *batch,
                          const rpi_pipeline_pass *pass, double *in_out_loss) {
    int k = pass->chunk, m = pass->micro_batch;
    if (pass->kind == RPI_PASS_FORWARD) return run_forward(self, batch, k, m, in_out_loss);
    if (pass->kind != RPI_PASS_WEIGHTS)
        RP_TRY(run_inputs(self, k, m, pass->kind == RPI_PASS_BACKWARD));
    if (pass->kind == RPI_PASS_WEIGHTS) RP_TRY(run_weights(self, k, m));
    return ends_run(pass) ? end_run(self, k, m) : RP_OK;
}

static rp_status learn(void *context, const rpi_replica_batch *batch, double *out_loss) {
    pipeline *self = context;
    int64_t samples = batch->samples->count;
    *out_loss = 0;
    self->apart = batch->runs > 0;
    if (!samples && !self->apart) return rpi_replica_learn_nothing(&self->setup);
    self->on_step = batch->on_step;
    RP_TRY(
        build_orders(self, self->apart ? (int)batch->runs : micro_batches_of(self, samples)));
    RP_TRY(reserve(self));
    RP_TRY(rpi_stage_runs_begin(&self->runs, true, samples));
    begin_telling(self);
    for (int i = 0; i < self->orders.each; i++) {
        RP_TRY(rpi_stage_runs_post_ahead(&self->runs, true));
        RP_TRY(run_pass(self, batch, &passes_of(self)[i], out_loss));
    }
    return RP_OK;
}

/* ---- evaluating ---- */

/* Runs this stage's part `k` once. The next stage computes while this one goes on. */
static rp_status evaluate_part(pipeline *self, const rpi_source_batch *samples, int k) {
    static const rpi_loss_scales plain = {1, 1, 1};
    rpi_stage_chunk *chunk = &self->runs.chunks[k];
    rpi_stage_slot *slot = &chunk->slots[0];
    RP_TRY(rpi_stage_runs_compile(&self->runs, k, false, samples->count));
    slot->instance = chunk->sizes[0].instances[0];
    RP_TRY(tell_pass(self, slot, RPI_FORWARD));
    rpi_replica_inputs(&self->setup, samples, &plain, 0, slot->inputs);
    RP_TRY(rpi_stage_runs_take(&self->runs, k, 0, RPI_LINK_ACTIVATION));
    slot->givens[0] = given_of(self, chunk, slot, 0);
    slot->options =
        (rpi_run_options){.inputs = slot->inputs,
                          .given = slot->givens,
                          .on_parameter = self->setup.on_parameter ? on_parameter : NULL,
                          .context = self};
    RP_TRY(rpi_instance_forward(slot->instance, &slot->options));
    return rpi_stage_runs_send(&self->runs, k, 0, RPI_LINK_ACTIVATION);
}

/* `memories` are not used: models that have some are refused. */
static rp_status evaluate(void *context, const rpi_source_batch *samples,
                          rpi_memories *memories, rpi_replica_score *out_score) {
    pipeline *self = context;
    const rpi_model_stage *stage = self->setup.stage;
    (void)memories;
    *out_score = (rpi_replica_score){0};
    /* Where a share had nothing to train there is no slot yet. */
    for (int k = 0; k < stage->chunks; k++) RP_TRY(rpi_stage_runs_reserve(&self->runs, k, 1));
    RP_TRY(rpi_stage_runs_begin(&self->runs, false, samples->count));
    RP_TRY(rpi_stage_runs_post_ahead(&self->runs, false));
    for (int k = 0; k < stage->chunks; k++) RP_TRY(evaluate_part(self, samples, k));
    for (int k = 0; k < stage->chunks; k++)
        if (self->runs.chunks[k].behind < 0)
            return rpi_replica_score_of(&self->setup, self->runs.chunks[k].slots[0].instance,
                                        samples->count, out_score);
    return RP_OK;
}

/* ---- what only other replicas have ---- */

static rp_status idle_part(pipeline *self, int k) {
    rpi_stage_chunk *chunk = &self->runs.chunks[k];
    rpi_stage_slot slot = {0};
    RP_TRY(rpi_stage_runs_compile(&self->runs, k, false, self->setup.micro_batch));
    slot.instance = chunk->sizes[0].instances[0];
    slot.options =
        (rpi_run_options){.idle = true,
                          .on_parameter = self->setup.on_parameter ? on_parameter : NULL,
                          .context = self};
    RP_TRY(tell_pass(self, &slot, RPI_FORWARD));
    return rpi_instance_forward(slot.instance, &slot.options);
}

/* In learning, learn() knows which micro-batches are idle here. */
static rp_status idle(void *context, bool training) {
    pipeline *self = context;
    if (training) return RP_FAIL(INTERNAL, "a pipeline's idle runs are those of a share");
    for (int k = 0; k < self->setup.stage->chunks; k++) RP_TRY(idle_part(self, k));
    return RP_OK;
}

const rpi_replica_kind rpi_replica_pipeline = {.name = "pipeline",
                                               .open = open,
                                               .close = close,
                                               .compile = compile,
                                               .learn = learn,
                                               .evaluate = evaluate,
                                               .idle = idle};
