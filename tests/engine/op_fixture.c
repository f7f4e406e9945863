#include "op_fixture.h"

#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "engine/layers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the loss: an external node ---- */

static rp_status dot(void *context, const rpi_external_io *io) {
    const float *coefficients = context, *x = io->inputs[0].data;
    double sum = 0;
    for (int64_t i = 0; i < rpi_shape_count(&io->inputs[0].shape); i++)
        sum += (double)x[i] * (double)coefficients[i];
    *(float *)io->outputs[0].data = (float)sum;
    return RP_OK;
}

static rp_status dot_backward(void *context, const rpi_external_io *io) {
    const float *coefficients = context, *dloss = io->inputs[0].data;
    float *dx = io->outputs[0].data;
    for (int64_t i = 0; i < rpi_shape_count(&io->outputs[0].shape); i++)
        dx[i] = *dloss * coefficients[i];
    return RP_OK;
}

/* ---- contents ---- */

/* No two closer than 0.02, none closer than 0.01 to 0: a shuffled grid. */
static void fill_spaced(rpi_rng *rng, float *x, int64_t count) {
    const int64_t half = count / 2;
    for (int64_t i = 0; i < count; i++) x[i] = 0.02f * ((float)(i - half) + 0.5f);
    for (int64_t i = count - 1; i > 0; i--) {
        int64_t j = rpi_rng_below(rng, (uint32_t)i + 1);
        float other = x[j];
        x[j] = x[i];
        x[i] = other;
    }
}

static void fill_normal(rpi_rng *rng, float *x, int64_t count) {
    for (int64_t i = 0; i < count; i++) x[i] = rpi_rng_normal(rng);
}

static void fill_positive(rpi_rng *rng, float *x, int64_t count) {
    for (int64_t i = 0; i < count; i++) x[i] = 0.5f + rpi_rng_uniform(rng);
}

const rpi_weight *op_fixture_weight(const op_fixture *fixture, int index) {
    const rpi_value *value = rpi_graph_value(fixture->graph, fixture->inputs[index]);
    return rpi_weights_find(fixture->weights, value->name);
}

static void fill_weight(op_fixture *fixture, int index, rpi_rng *rng) {
    const rpi_weight *weight = op_fixture_weight(fixture, index);
    float *values = rpi_weights_values(fixture->weights) + weight->first;
    switch (fixture->op->inputs[index].role) {
    case RPI_STATE:
        fill_positive(rng, rpi_weights_states(fixture->weights) + weight->first, weight->count);
        break;
    case RPI_WEIGHT: fill_normal(rng, values, weight->count); break;
    default: fill_spaced(rng, values, weight->count);
    }
}

static rp_status fill_input(op_fixture *fixture, int index, int slot, rpi_rng *rng) {
    const rpi_op_input *input = &fixture->op->inputs[index];
    int64_t count = rpi_shape_count(&fixture->example->inputs[index]);
    RP_TRY(rpi_alloc_array((size_t)count, rp_dtype_bytes(input->dtype), "an input",
                           &fixture->input_data[slot]));
    if (input->dtype == RP_F32) {
        fill_positive(rng, fixture->input_data[slot], count);
        return RP_OK;
    }
    int32_t *integers = fixture->input_data[slot];
    for (int64_t i = 0; i < count; i++)
        integers[i] = (int32_t)rpi_rng_below(rng, (uint32_t)fixture->example->classes);
    return RP_OK;
}

static rp_status fill(op_fixture *fixture, uint64_t seed) {
    rpi_rng rng = rpi_rng_make(seed, RPI_RNG_TEST, 0);
    int slot = 0;
    for (int i = 0; i < fixture->example->input_count; i++) {
        if (op_fixture_weight(fixture, i))
            fill_weight(fixture, i, &rng);
        else
            RP_TRY(fill_input(fixture, i, slot++, &rng));
    }
    const rpi_value *output = rpi_graph_value(fixture->graph, fixture->outputs[0]);
    fill_normal(&rng, fixture->coefficients, rpi_shape_count(&output->shape));
    return RP_OK;
}

/* ---- the graph ---- */

static rpi_value_id add_input(op_fixture *fixture, int index) {
    const rpi_op_input *input = &fixture->op->inputs[index];
    rpi_shape shape = fixture->example->inputs[index];
    if (input->role == RPI_STATE) return rpi_graph_state(fixture->graph, input->name, shape);
    if (input->has_gradient) return rpi_graph_parameter(fixture->graph, input->name, shape);
    return rpi_graph_input(fixture->graph, input->name, input->dtype, shape);
}

rp_status op_fixture_add_loss(op_fixture *fixture, rpi_value_id output) {
    RP_TRY(rpi_graph_check(fixture->graph));
    int64_t count = rpi_shape_count(&rpi_graph_value(fixture->graph, output)->shape);
    RP_TRY(
        rpi_alloc_array((size_t)count, sizeof(float), "coefficients", &fixture->coefficients));
    fixture->loss = rpi_external(fixture->graph, "the loss", output,
                                 (rpi_external_attributes){.context = fixture->coefficients,
                                                           .forward_start = dot,
                                                           .backward_start = dot_backward,
                                                           .output_count = 1});
    return rpi_weights_create(fixture->graph, fixture->loss, &fixture->weights);
}

static rp_status build(op_fixture *fixture, uint64_t seed) {
    RP_TRY(rpi_graph_create(&fixture->graph));
    for (int i = 0; i < fixture->example->input_count; i++)
        fixture->inputs[i] = add_input(fixture, i);
    rpi_value_id output = rpi_graph_add(fixture->graph, fixture->example->name, fixture->op,
                                        fixture->example->attributes,
                                        fixture->example->input_count, fixture->inputs);
    RP_TRY(rpi_graph_check(fixture->graph));
    for (int i = 0; i < fixture->op->output_count; i++)
        fixture->outputs[i] = rpi_graph_output(fixture->graph, output, i);
    RP_TRY(op_fixture_add_loss(fixture, output));
    return fill(fixture, seed);
}

rp_status op_fixture_open(const rpi_op *op, const rpi_op_example *example, uint64_t seed,
                          op_fixture *out_fixture) {
    *out_fixture = (op_fixture){.op = op, .example = example};
    rp_status status = build(out_fixture, seed);
    if (status != RP_OK) op_fixture_close(out_fixture);
    return status;
}

void op_fixture_close(op_fixture *fixture) {
    rpi_weights_destroy(fixture->weights);
    rpi_graph_destroy(fixture->graph);
    for (int i = 0; i < RPI_NODE_INPUTS; i++) rpi_free(fixture->input_data[i]);
    rpi_free(fixture->coefficients);
    memset(fixture, 0, sizeof *fixture);
}

rp_status op_fixture_compile(const op_fixture *fixture, const rpi_backend *backend,
                             bool training, rpi_instance **out_instance) {
    rpi_program_options options = {.training = training,
                                   .compute = fixture->compute,
                                   .result_count = fixture->op->output_count};
    for (int i = 0; i < options.result_count; i++) options.results[i] = fixture->outputs[i];
    return solo_open(fixture->graph, fixture->weights, fixture->loss, backend, &options,
                     out_instance);
}

rp_status op_fixture_run(const op_fixture *fixture, rpi_instance *instance, bool accumulate) {
    rpi_weights_changed(fixture->weights, 0, rpi_weights_count(fixture->weights));
    rpi_run_options options = {.inputs = (const void *const *)fixture->input_data,
                               .accumulate = accumulate};
    return rpi_instance_run(instance, &options);
}

double op_fixture_loss(const op_fixture *fixture, const rpi_instance *instance) {
    rpi_tensor output;
    if (rpi_instance_result(instance, fixture->outputs[0], &output) != RP_OK) return NAN;
    const float *y = output.data;
    double sum = 0;
    for (int64_t i = 0; i < rpi_shape_count(&output.shape); i++)
        sum += (double)y[i] * (double)fixture->coefficients[i];
    return sum;
}

double relative_l2(const float *a, const float *b, int64_t count) {
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < count; i++) {
        double d = (double)a[i] - (double)b[i];
        difference += d * d;
        norm += (double)b[i] * (double)b[i];
    }
    return difference == 0 ? 0 : sqrt(difference / norm);
}
