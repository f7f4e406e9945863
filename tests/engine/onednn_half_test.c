/* What convolutions, norms and sums hand to each other in bf16 programs, forward and backward,
 * is kept rounded: a net with each way from one to the other, whose gradients are about as far
 * from those of f32 as those of the reference, which rounds factors alone; less memory; NaN is
 * found. */
#include "base/rng.h"
#include "engine/layers.h"
#include "harness/check.h"
#include "op_fixture.h"
#include "solo.h"

#include <math.h>
#include <string.h>

extern const rpi_backend rpi_backend_cpu;

enum { IMAGES = 3, COLORS = 3, SIZE = 18, CLASSES = 7, RUNS = 2 };

static rpi_value_id convolve(rpi_graph *g, const char *name, const char *weight, rpi_value_id x,
                             rpi_shape shape, int stride) {
    return rpi_conv2d(
        g, name, x, rpi_graph_parameter(g, weight, shape), RPI_NO_VALUE,
        (rpi_conv2d_attributes){.stride = stride, .padding = (int)shape.size[2] / 2});
}

/* The gradient of what is added in front of a norm is 0 but for rounding. */
static rpi_value_id convolve_and_add(rpi_graph *g, const char *name, const char *weight,
                                     const char *bias, rpi_value_id x, rpi_shape shape) {
    return rpi_conv2d(g, name, x, rpi_graph_parameter(g, weight, shape),
                      rpi_graph_parameter(g, bias, SHAPE(shape.size[0])),
                      (rpi_conv2d_attributes){.stride = 1, .padding = (int)shape.size[2] / 2});
}

typedef struct norm_names {
    const char *node, *scale, *shift, *mean, *variance;
} norm_names;

#define NORM(name)                                                                             \
    &(norm_names) {                                                                            \
        name, name ".scale", name ".shift", name ".mean", name ".variance"                     \
    }

/* Channels of a group of all norms; 0: they are batch norms. */
static int group_size;

static rpi_value_id normalise(rpi_graph *g, const norm_names *names, rpi_value_id x,
                              int64_t channels) {
    const rpi_shape shape = SHAPE(channels);
    if (group_size > 0)
        return rpi_group_norm(
            g, names->node, x, rpi_graph_parameter(g, names->scale, shape),
            rpi_graph_parameter(g, names->shift, shape),
            (rpi_group_norm_attributes){.groups = (int)channels / group_size});
    return rpi_batch_norm2d(g, names->node, x, rpi_graph_parameter(g, names->scale, shape),
                            rpi_graph_parameter(g, names->shift, shape),
                            rpi_graph_state(g, names->mean, shape),
                            rpi_graph_state(g, names->variance, shape),
                            (rpi_batch_norm2d_attributes){.epsilon = 1e-5f, .momentum = 0.1f});
}

/* A stem with a pool behind it, two residual blocks, one with a way of its own beside it, and a
 * layer of channels that fill no block. Channels beyond what is multiplied at once. */
static rpi_value_id build(rpi_graph *g) {
    rpi_value_id images =
        rpi_graph_input(g, "images", RP_F32, SHAPE(IMAGES, COLORS, SIZE, SIZE));
    rpi_value_id labels = rpi_graph_input(g, "labels", RP_I32, SHAPE(IMAGES));
    rpi_value_id scale = rpi_graph_input(g, "scale", RP_F32, (rpi_shape){0});
    rpi_value_id x = convolve(g, "stem", "stem.weight", images, SHAPE(16, COLORS, 3, 3), 1);
    x = rpi_relu(g, "stem relu", normalise(g, NORM("stem norm"), x, 16));
    x = rpi_max_pool2d(g, "pool", x,
                       (rpi_max_pool2d_attributes){.kernel = 3, .stride = 2, .padding = 1});
    rpi_value_id beside = convolve(g, "beside", "beside.weight", x, SHAPE(784, 16, 1, 1), 1);
    beside = normalise(g, NORM("beside norm"), beside, 784);
    x = convolve_and_add(g, "narrow", "narrow.weight", "narrow.bias", x, SHAPE(32, 16, 3, 3));
    x = rpi_relu(g, "narrow relu", normalise(g, NORM("narrow norm"), x, 32));
    x = convolve(g, "wide", "wide.weight", x, SHAPE(784, 32, 1, 1), 1);
    x = rpi_add(g, "sum", normalise(g, NORM("wide norm"), x, 784), beside);
    x = rpi_relu(g, "sum relu", x);
    rpi_value_id shortcut = x;
    x = convolve(g, "deep", "deep.weight", x, SHAPE(24, 784, 1, 1), 1);
    x = rpi_relu(g, "deep relu", normalise(g, NORM("deep norm"), x, 24));
    x = convolve_and_add(g, "back", "back.weight", "back.bias", x, SHAPE(784, 24, 1, 1));
    x = rpi_add(g, "sum 2", normalise(g, NORM("back norm"), x, 784), shortcut);
    x = rpi_relu(g, "sum 2 relu", x);
    x = convolve(g, "last", "last.weight", x, SHAPE(48, 784, 3, 3), 2);
    x = rpi_relu(g, "last relu", normalise(g, NORM("last norm"), x, 48));
    x = rpi_flatten(g, "flat", rpi_global_avg_pool(g, "mean", x));
    x = rpi_linear(g, "head", x, rpi_graph_parameter(g, "head.weight", SHAPE(CLASSES, 48)),
                   RPI_NO_VALUE);
    return rpi_softmax_cross_entropy(g, "loss", x, labels, scale);
}

static void draw(float *x, int64_t count, float scale, uint64_t index) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, index);
    for (int64_t i = 0; i < count; i++) x[i] = scale * rpi_rng_normal(&rng);
}

/* Of the size that keeps activations near 1, and shifts that leave most of relu open: where a
 * rounding opens or closes one, the gradient jumps. */
static void draw_weights(rpi_weights *weights, uint64_t index) {
    for (int i = 0; i < rpi_weights_parameter_count(weights); i++) {
        const rpi_weight *weight = rpi_weights_parameter(weights, i);
        float *values = rpi_weights_values(weights) + weight->first;
        const int64_t fan = weight->count / weight->shape.size[0];
        draw(values, weight->count, weight->shape.dims > 1 ? 1 / sqrtf((float)fan) : 0.2f,
             index + (uint64_t)i);
        const float mean = strstr(weight->name, ".shift") ? 2 : 1;
        for (int64_t j = 0; weight->shape.dims == 1 && j < weight->count; j++)
            values[j] += mean;
    }
    rpi_weights_changed(weights, 0, rpi_weights_count(weights));
}

typedef struct outcome {
    rpi_weights *weights;
    size_t memory;
} outcome;

static void open_net(const rpi_graph *graph, rpi_value_id loss, const rpi_backend *backend,
                     int threads, rp_dtype compute, rpi_weights **out_weights,
                     rpi_instance **out_instance) {
    rpi_program_options options = {.training = true, .compute = compute};
    rpi_backend_options team = {.threads = threads};
    REQUIRE_OK(rpi_weights_create(graph, loss, out_weights));
    REQUIRE_OK(
        solo_open_with(graph, *out_weights, loss, backend, &team, &options, out_instance));
}

static const int32_t labels[IMAGES] = {3, 0, 6};
static float images[IMAGES * COLORS * SIZE * SIZE];

static outcome run(const rpi_graph *graph, rpi_value_id loss, const rpi_backend *backend,
                   int threads, rp_dtype compute) {
    const float scale = 1.0f / IMAGES;
    const void *inputs[] = {images, labels, &scale};
    rpi_instance *instance = NULL;
    outcome found = {0};
    open_net(graph, loss, backend, threads, compute, &found.weights, &instance);
    for (int i = 0; i < RUNS && instance; i++) {
        draw(images, IMAGES * COLORS * SIZE * SIZE, 1, (uint64_t)i);
        draw_weights(found.weights, 100);
        rpi_run_options how = {.inputs = inputs, .accumulate = i > 0};
        CHECK_OK(rpi_instance_run(instance, &how));
    }
    if (instance)
        found.memory = rpi_program_get_facts(rpi_instance_program(instance)).memory_bytes;
    solo_close(instance);
    return found;
}

static double distance(const float *got, const float *wanted, int64_t count) {
    double difference = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        difference += pow((double)got[i] - (double)wanted[i], 2);
        size += pow((double)wanted[i], 2);
    }
    return sqrt(difference / size);
}

/* How far all gradients are from those of f32. */
static double error_of(rpi_weights *got, rpi_weights *exact) {
    return distance(rpi_weights_gradients(got), rpi_weights_gradients(exact),
                    rpi_weights_count(got));
}

static double states_error_of(rpi_weights *got, rpi_weights *exact) {
    if (rpi_weights_state_count(exact) == 0) return 0;
    const rpi_weight *last = rpi_weights_state(exact, rpi_weights_state_count(exact) - 1);
    return distance(rpi_weights_states(got), rpi_weights_states(exact),
                    last->first + last->count);
}

static bool lacks_bf16(void) {
    if (rpi_backend_check_compute(&rpi_backend_cpu, RP_BF16) == RP_OK) return false;
    check_skip("this processor has no bf16");
    return true;
}

static void check_gradients(void) {
    rpi_graph *graph = NULL;
    REQUIRE_OK(rpi_graph_create(&graph));
    rpi_value_id loss = build(graph);
    outcome exact = run(graph, loss, rpi_backend_at(0), 1, RP_F32);
    outcome factors = run(graph, loss, rpi_backend_at(0), 1, RP_BF16);
    const double usual = error_of(factors.weights, exact.weights);
    outcome f32 = run(graph, loss, &rpi_backend_cpu, 1, RP_F32);
    for (int threads = 1; threads <= 2; threads++) {
        outcome got = run(graph, loss, &rpi_backend_cpu, threads, RP_BF16);
        const double error = error_of(got.weights, exact.weights);
        const double states = states_error_of(got.weights, exact.weights);
        CHECK_MSG(states <= 1e-2, "statistics are off by %.2e", states);
        CHECK_MSG(error <= fmax(4 * usual, 0.1),
                  "gradients are off by %.2e, the reference's by %.2e", error, usual);
        CHECK_MSG(got.memory < f32.memory / 100 * 65, "%zu bytes in bf16, %zu in f32",
                  got.memory, f32.memory);
        rpi_weights_destroy(got.weights);
    }
    rpi_weights_destroy(exact.weights);
    rpi_weights_destroy(factors.weights);
    rpi_weights_destroy(f32.weights);
    rpi_graph_destroy(graph);
}

static void gradients_match(void) {
    if (!lacks_bf16()) check_gradients();
}

static void gradients_of_group_norms_match(void) {
    if (lacks_bf16()) return;
    group_size = 8;
    check_gradients();
    group_size = 0;
}

/* Also where the output that has it is kept in bf16. */
static void nan_is_found(void) {
    rpi_graph *graph = NULL;
    rpi_weights *weights = NULL;
    rpi_instance *instance = NULL;
    const float scale = 1.0f / IMAGES;
    const void *inputs[] = {images, labels, &scale};
    const char *name = NULL;
    if (lacks_bf16()) return;
    REQUIRE_OK(rpi_graph_create(&graph));
    rpi_value_id loss = build(graph);
    open_net(graph, loss, &rpi_backend_cpu, 1, RP_BF16, &weights, &instance);
    draw(images, IMAGES * COLORS * SIZE * SIZE, 1, 1);
    draw_weights(weights, 100);
    const rpi_run_options how = {.inputs = inputs};
    CHECK_OK(rpi_instance_find_nonfinite(instance, &how, &name));
    CHECK(name == NULL);
    rpi_weights_values(weights)[rpi_weights_find(weights, "wide.weight")->first + 40] = NAN;
    rpi_weights_changed(weights, 0, rpi_weights_count(weights));
    CHECK_OK(rpi_instance_find_nonfinite(instance, &how, &name));
    CHECK_MSG(name && !strcmp(name, "wide"), "'%s'", name ? name : "nothing");
    solo_close(instance);
    rpi_weights_destroy(weights);
    rpi_graph_destroy(graph);
}

CASES({"gradients_match", gradients_match},
      {"gradients_of_group_norms_match", gradients_of_group_norms_match},
      {"nan_is_found", nan_is_found})
