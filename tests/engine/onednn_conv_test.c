/* Convolutions in bf16 between layers, where activations lie in blocks: the reference's numbers
 * with one thread and with two, gradients of an activation with two consumers, accumulation. */
#include "base/memory.h"
#include "base/rng.h"
#include "engine/layers.h"
#include "harness/check.h"
#include "solo.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

extern const rpi_backend rpi_backend_cpu;

enum { IMAGES = 3, COLORS = 4, CLASSES = 7, RUNS = 2 };
/* Where sums differ in their last bits, some are rounded to other numbers of bf16. */
#define TOLERANCE 5e-4
/* The same numbers in every run: where a sum of others is zero but for its last bits, a ReLU is
 * open in one backend and closed in the other, which is more than TOLERANCE. */
#define SEED      1

typedef struct conv_case {
    const char *name;
    int channels, filters, size, window, stride, padding;
    bool biased;
} conv_case;

static const conv_case convolutions[] = {
    {"1x1", 16, 32, 7, 1, 1, 0, false},
    {"1x1 with bias", 80, 16, 5, 1, 1, 0, true},
    {"1x1 stride 2", 48, 32, 9, 1, 2, 0, false},
    {"3x3", 32, 48, 6, 3, 1, 1, false},
    {"3x3 with bias", 16, 64, 5, 3, 1, 1, true},
    {"3x3 of longer rows", 16, 64, 12, 3, 1, 1, true},
    {"3x3 stride 2", 32, 16, 10, 3, 2, 1, false},
    {"3x3 stride 2 without padding", 16, 16, 8, 3, 2, 0, false},
    {"5x5", 16, 16, 6, 5, 1, 2, true},
    {"7x7 stride 3", 16, 32, 17, 7, 3, 3, false},
};
enum { CONVOLUTIONS = sizeof convolutions / sizeof convolutions[0] };

/* `branch` 0 and 1 read the same activation, whose gradient is the sum of theirs. */
static rpi_value_id convolve(rpi_graph *graph, const conv_case *c, rpi_value_id x, int branch) {
    static const char *const names[2][3] = {{"a", "a.weight", "a.bias"},
                                            {"b", "b.weight", "b.bias"}};
    rpi_shape weight = {4, {c->filters, c->channels, c->window, c->window}};
    rpi_value_id bias = RPI_NO_VALUE;
    if (c->biased)
        bias = rpi_graph_parameter(graph, names[branch][2], (rpi_shape){1, {c->filters}});
    return rpi_conv2d(graph, names[branch][0], x,
                      rpi_graph_parameter(graph, names[branch][1], weight), bias,
                      (rpi_conv2d_attributes){.stride = c->stride, .padding = c->padding});
}

static rpi_value_id build(rpi_graph *graph, const conv_case *c) {
    int64_t side = (c->size + 2 * c->padding - c->window) / c->stride + 1;
    rpi_value_id images = rpi_graph_input(graph, "images", RP_F32,
                                          (rpi_shape){4, {IMAGES, COLORS, c->size, c->size}});
    rpi_value_id labels = rpi_graph_input(graph, "labels", RP_I32, (rpi_shape){1, {IMAGES}});
    rpi_value_id scale = rpi_graph_input(graph, "scale", RP_F32, (rpi_shape){0});
    rpi_value_id front =
        rpi_graph_parameter(graph, "front.weight", (rpi_shape){4, {c->channels, COLORS, 1, 1}});
    rpi_value_id x = rpi_conv2d(graph, "front", images, front, RPI_NO_VALUE,
                                (rpi_conv2d_attributes){.stride = 1});
    x = rpi_add(graph, "sum", convolve(graph, c, x, 0), convolve(graph, c, x, 1));
    rpi_value_id head = rpi_graph_parameter(
        graph, "head.weight", (rpi_shape){2, {CLASSES, c->filters * side * side}});
    x = rpi_linear(graph, "head", rpi_flatten(graph, "flat", x), head, RPI_NO_VALUE);
    return rpi_softmax_cross_entropy(graph, "loss", x, labels, scale);
}

static void draw(float *x, int64_t count, float scale, uint64_t index) {
    rpi_rng rng = rpi_rng_make(SEED, RPI_RNG_TEST, index);
    for (int64_t i = 0; i < count; i++) x[i] = scale * rpi_rng_normal(&rng);
}

/* Logits far below one: the neighbouring number of bf16 is then too near to turn the softmax,
 * and with it every gradient, by more than TOLERANCE. */
static void draw_weights(rpi_weights *weights, uint64_t index) {
    draw(rpi_weights_values(weights), rpi_weights_count(weights), 0.1f, index);
    for (int i = 0; i < rpi_weights_parameter_count(weights); i++) {
        const rpi_weight *weight = rpi_weights_parameter(weights, i);
        if (strcmp(weight->name, "head.weight") == 0)
            draw(rpi_weights_values(weights) + weight->first, weight->count, 0.002f, index);
    }
    rpi_weights_changed(weights, 0, rpi_weights_count(weights));
}

/* Gradients of all runs, accumulated; weights change in between. */
static void run(const conv_case *c, const rpi_graph *graph, rpi_value_id loss,
                const rpi_backend *backend, int threads, rpi_weights **out_weights) {
    static float images[IMAGES * COLORS * 20 * 20];
    static const int32_t labels[IMAGES] = {3, 0, 6};
    const float scale = 1.0f / IMAGES;
    const void *inputs[] = {images, labels, &scale};
    rpi_instance *instance = NULL;
    rpi_weights *weights = NULL;
    rpi_program_options options = {.training = true, .compute = RP_BF16};
    rpi_backend_options team = {.threads = threads};
    REQUIRE_OK(rpi_weights_create(graph, loss, &weights));
    REQUIRE_OK(solo_open_with(graph, weights, loss, backend, &team, &options, &instance));
    for (int i = 0; i < RUNS; i++) {
        draw(images, IMAGES * COLORS * c->size * c->size, 1, (uint64_t)i);
        draw_weights(weights, 100 + (uint64_t)i);
        rpi_run_options how = {.inputs = inputs, .accumulate = i > 0};
        REQUIRE_OK(rpi_instance_run(instance, &how));
    }
    solo_close(instance);
    *out_weights = weights;
}

static double distance(const float *got, const float *wanted, int64_t count) {
    double difference = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        difference += pow((double)got[i] - (double)wanted[i], 2);
        size += pow((double)wanted[i], 2);
    }
    return sqrt(difference / size);
}

static void compare(const conv_case *c, rpi_weights *got, rpi_weights *wanted) {
    for (int i = 0; i < rpi_weights_parameter_count(got); i++) {
        const rpi_weight *weight = rpi_weights_parameter(got, i);
        double error = distance(rpi_weights_gradients(got) + weight->first,
                                rpi_weights_gradients(wanted) + weight->first, weight->count);
        CHECK_MSG(error <= TOLERANCE, "%s: gradient of %s is off by %.2e", c->name,
                  weight->name, error);
    }
}

static void compare_backends(const conv_case *c) {
    rpi_graph *graph = NULL;
    rpi_weights *wanted = NULL, *got = NULL, *threaded = NULL;
    REQUIRE_OK(rpi_graph_create(&graph));
    rpi_value_id loss = build(graph, c);
    run(c, graph, loss, rpi_backend_at(0), 1, &wanted);
    run(c, graph, loss, &rpi_backend_cpu, 1, &got);
    run(c, graph, loss, &rpi_backend_cpu, 2, &threaded);
    if (wanted && got && threaded) {
        compare(c, got, wanted);
        compare(c, threaded, wanted);
    }
    rpi_weights_destroy(wanted);
    rpi_weights_destroy(got);
    rpi_weights_destroy(threaded);
    rpi_graph_destroy(graph);
}

static void convolutions_match(void) {
    if (rpi_backend_check_compute(&rpi_backend_cpu, RP_BF16) != RP_OK) {
        check_skip("this processor has no bf16");
        return;
    }
    for (int i = 0; i < CONVOLUTIONS; i++) compare_backends(&convolutions[i]);
}

CASES({"convolutions_match", convolutions_match})
