/* A rank that holds a whole model. It runs the micro-batches one after the other, forward and
 * backward. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "train/parallel/replica.h"

typedef struct alone {
    rpi_replica_setup setup;
} alone;

static rp_status open(const rpi_replica_setup *setup, void **out_self) {
    alone *self = NULL;
    RP_TRY(rpi_alloc(sizeof *self, "a replica", &self));
    self->setup = *setup;
    *out_self = self;
    return RP_OK;
}

static void close(void *self) {
    rpi_free(self);
}

/* A share has runs of two sizes: the last one may be short. */
static rp_status compile(void *context, bool training, int64_t samples) {
    const alone *self = context;
    rpi_instance *instance = NULL;
    int64_t most = self->setup.micro_batch, rest = samples % most;
    if (rest) RP_TRY(rpi_program_set_get(self->setup.programs, training, rest, &instance));
    if (samples < most) return RP_OK;
    return rpi_program_set_get(self->setup.programs, training, most, &instance);
}

static void tell_pass(const rpi_replica_setup *s, rpi_pass_kind kind, int64_t micro_batch,
                      int64_t start_ns) {
    const rpi_pipeline_pass pass = {(uint8_t)kind, 0, (int32_t)micro_batch};
    if (s->passed) s->passed(s->context, &pass, start_ns, rpi_now_ns());
}

/* Runs both passes and reports each. micro_batch: its number in the share. */
static rp_status run_model(const rpi_replica_setup *s, rpi_instance *instance,
                           const rpi_run_options *options, bool training, int64_t micro_batch) {
    const rpi_program *program = rpi_instance_program(instance);
    if (s->on_pass) RP_TRY(s->on_pass(s->context, program, RPI_FORWARD));
    int64_t start_ns = rpi_now_ns();
    RP_TRY(rpi_instance_forward(instance, options));
    if (!training) return RP_OK;
    tell_pass(s, RPI_PASS_FORWARD, micro_batch, start_ns);
    if (s->on_pass) RP_TRY(s->on_pass(s->context, program, RPI_BACKWARD));
    start_ns = rpi_now_ns();
    RP_TRY(rpi_instance_backward(instance, options));
    tell_pass(s, RPI_PASS_BACKWARD, micro_batch, start_ns);
    return RP_OK;
}

/* ---- learning ---- */

static rp_status run_and_tell(const rpi_replica_setup *s, rpi_instance *instance,
                              const rpi_run_options *options, int64_t first, int64_t count,
                              double *in_out_loss) {
    rpi_tensor loss;
    RP_TRY(run_model(s, instance, options, true, first / s->micro_batch));
    RP_TRY(rpi_instance_result(instance, s->network->loss, &loss));
    RP_TRY(rpi_memories_take(s->memories, instance, first, count));
    rpi_replica_run run = {instance, options, (double)*(const float *)loss.data};
    *in_out_loss += run.loss;
    return s->on_run ? s->on_run(s->context, &run) : RP_OK;
}

/* Learns from samples [first, first + count). Their gradients are added to those of earlier
 * runs, and are final in the last run. */
static rp_status learn_part(const alone *self, const rpi_replica_batch *batch, int64_t first,
                            int64_t count, double *in_out_loss) {
    const rpi_replica_setup *s = &self->setup;
    rpi_instance *instance = NULL;
    const void *inputs[RPI_NETWORK_INPUTS];
    RP_TRY(rpi_program_set_get(s->programs, true, count, &instance));
    rpi_replica_inputs(s, batch->samples, &batch->scales, first, inputs);
    rpi_memories_inputs(s->memories, first, inputs);
    bool is_last = batch->runs || first + count == batch->samples->count;
    rpi_run_options options = {.inputs = inputs,
                               .seed = batch->seed,
                               .step = batch->step,
                               .first_sample = batch->first_sample + first,
                               .accumulate = first > 0 && !batch->runs,
                               .on_gradient_final = is_last ? s->gradient_final : NULL,
                               .on_parameter = s->on_parameter,
                               .on_step = batch->on_step,
                               .context = s->context};
    return run_and_tell(s, instance, &options, first, count, in_out_loss);
}

static rp_status idle(void *context, bool training) {
    const alone *self = context;
    const rpi_replica_setup *s = &self->setup;
    rpi_instance *instance = NULL;
    const rpi_run_options options = {.idle = true,
                                     .on_parameter = s->on_parameter,
                                     .on_gradient_final = s->gradient_final,
                                     .context = s->context};
    RP_TRY(rpi_program_set_get(s->programs, training, s->micro_batch, &instance));
    return run_model(s, instance, &options, training, 0);
}

static rp_status learn(void *context, const rpi_replica_batch *batch, double *out_loss) {
    const alone *self = context;
    int64_t all = batch->samples->count, most = self->setup.micro_batch;
    int64_t own = (all + most - 1) / most;
    *out_loss = 0;
    if (!all && !batch->runs) return rpi_replica_learn_nothing(&self->setup);
    for (int64_t first = 0; first < all; first += most) {
        int64_t count = all - first < most ? all - first : most;
        RP_TRY(learn_part(self, batch, first, count, out_loss));
    }
    for (int64_t run = own; run < batch->runs; run++) RP_TRY(idle(context, true));
    if (all) rpi_memories_turn(self->setup.memories);
    return RP_OK;
}

/* ---- evaluating ---- */

static rp_status evaluate(void *context, const rpi_source_batch *samples,
                          rpi_memories *memories, rpi_replica_score *out_score) {
    const alone *self = context;
    const rpi_loss_scales plain = {1, 1, 1};
    rpi_instance *instance = NULL;
    const void *inputs[RPI_NETWORK_INPUTS];
    int64_t count = samples->count;
    RP_TRY(rpi_program_set_get(self->setup.programs, false, count, &instance));
    rpi_replica_inputs(&self->setup, samples, &plain, 0, inputs);
    rpi_memories_inputs(memories, 0, inputs);
    const rpi_run_options options = {.inputs = inputs,
                                     .on_parameter = self->setup.on_parameter,
                                     .context = self->setup.context};
    RP_TRY(run_model(&self->setup, instance, &options, false, 0));
    RP_TRY(rpi_memories_take(memories, instance, 0, count));
    rpi_memories_turn(memories);
    return rpi_replica_score_of(&self->setup, instance, count, out_score);
}

const rpi_replica_kind rpi_replica_alone = {.name = "alone",
                                            .open = open,
                                            .close = close,
                                            .compile = compile,
                                            .learn = learn,
                                            .evaluate = evaluate,
                                            .idle = idle};
