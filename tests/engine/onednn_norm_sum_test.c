/* A batch norm or a group norm with a sum behind it, which the cpu backend makes in one (a
 * batch norm where channels fill blocks): whatever is added, with relu and without, in f32 and
 * bf16, as the reference has it.
 */
#include "base/rng.h"
#include "engine/layers.h"
#include "harness/check.h"
#include "op_fixture.h"

#include <math.h>

extern const rpi_backend rpi_backend_cpu;

enum { IMAGES = 3, COLORS = 4, SIZE = 9, CLASSES = 5, RUNS = 2, MOST_CHANNELS = 32 };

typedef enum addend { SHORTCUT, NORM, INPUT, PARAMETER, ADDENDS } addend;

typedef struct sum_case {
    addend addend;
    bool relu, is_first; /* is the norm the first of what is added? */
    int groups;          /* of group norms; 0: batch norms */
    int channels, threads;
} sum_case;

static rpi_value_id convolve(rpi_graph *g, const char *name, const char *weight, rpi_value_id x,
                             int in, int out) {
    return rpi_conv2d(g, name, x, rpi_graph_parameter(g, weight, SHAPE(out, in, 3, 3)),
                      RPI_NO_VALUE, (rpi_conv2d_attributes){.stride = 1, .padding = 1});
}

typedef struct norm_names {
    const char *node, *scale, *shift, *mean, *variance;
} norm_names;

#define NORM(name)                                                                             \
    &(norm_names) {                                                                            \
        name, name ".scale", name ".shift", name ".mean", name ".variance"                     \
    }

static rpi_value_id normalise(rpi_graph *g, const sum_case *c, const norm_names *names,
                              rpi_value_id x) {
    const rpi_shape shape = SHAPE(c->channels);
    rpi_value_id scale = rpi_graph_parameter(g, names->scale, shape);
    rpi_value_id shift = rpi_graph_parameter(g, names->shift, shape);
    if (c->groups)
        return rpi_group_norm(g, names->node, x, scale, shift,
                              (rpi_group_norm_attributes){.groups = c->groups});
    return rpi_batch_norm2d(
        g, names->node, x, scale, shift, rpi_graph_state(g, names->mean, shape),
        rpi_graph_state(g, names->variance, shape), (rpi_batch_norm2d_attributes){0});
}

static rpi_value_id add_to(rpi_graph *g, const sum_case *c, rpi_value_id x) {
    const rpi_shape all = SHAPE(IMAGES, c->channels, SIZE, SIZE);
    switch (c->addend) {
    case INPUT: return rpi_graph_input(g, "added", RP_F32, all);
    case PARAMETER: return rpi_graph_parameter(g, "added", all);
    case NORM: return normalise(g, c, NORM("beside norm"), x);
    default: return x;
    }
}

static rpi_value_id build(rpi_graph *g, const sum_case *c) {
    const int w = c->channels;
    rpi_value_id images =
        rpi_graph_input(g, "images", RP_F32, SHAPE(IMAGES, COLORS, SIZE, SIZE));
    rpi_value_id labels = rpi_graph_input(g, "labels", RP_I32, SHAPE(IMAGES));
    rpi_value_id scale = rpi_graph_input(g, "scale", RP_F32, (rpi_shape){0});
    rpi_value_id x = convolve(g, "front", "front.weight", images, COLORS, w);
    rpi_value_id y = convolve(g, "back", "back.weight", x, w, w);
    y = normalise(g, c, NORM("norm"), y);
    rpi_value_id other = add_to(g, c, x);
    y = rpi_add(g, "sum", c->is_first ? y : other, c->is_first ? other : y);
    if (c->relu) y = rpi_relu(g, "relu", y);
    y = convolve(g, "last", "last.weight", y, w, w);
    y = rpi_flatten(g, "flat", rpi_global_avg_pool(g, "mean", y));
    y = rpi_linear(g, "head", y, rpi_graph_parameter(g, "head.weight", SHAPE(CLASSES, w)),
                   RPI_NO_VALUE);
    return rpi_softmax_cross_entropy(g, "loss", y, labels, scale);
}

static void draw(float *x, int64_t count, float mean, float scale, uint64_t index) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, index);
    for (int64_t i = 0; i < count; i++) x[i] = mean + scale * rpi_rng_normal(&rng);
}

/* Shifts leave most of relu open: where a rounding opens one, the gradient jumps. */
static void draw_weights(rpi_weights *weights, uint64_t run) {
    for (int i = 0; i < rpi_weights_parameter_count(weights); i++) {
        const rpi_weight *weight = rpi_weights_parameter(weights, i);
        const bool is_matrix = weight->shape.dims > 1;
        const double fan = (double)weight->count / (double)weight->shape.size[0];
        draw(rpi_weights_values(weights) + weight->first, weight->count, is_matrix ? 0 : 2,
             is_matrix ? (float)sqrt(1 / fan) : 0.2f, 10 * run + (uint64_t)i);
    }
    rpi_weights_changed(weights, 0, rpi_weights_count(weights));
}

static void run(const rpi_graph *g, rpi_value_id loss, const rpi_backend *backend, int threads,
                rp_dtype compute, rpi_weights **out_weights) {
    static float images[IMAGES * COLORS * SIZE * SIZE],
        added[IMAGES * MOST_CHANNELS * SIZE * SIZE];
    static const int32_t labels[IMAGES] = {3, 0, 4};
    const float scale = 1.0f / IMAGES;
    const void *inputs[] = {images, labels, &scale, added};
    rpi_program_options options = {.training = true, .compute = compute};
    rpi_backend_options team = {.threads = threads};
    rpi_instance *instance = NULL;
    REQUIRE_OK(rpi_weights_create(g, loss, out_weights));
    REQUIRE_OK(solo_open_with(g, *out_weights, loss, backend, &team, &options, &instance));
    for (int i = 0; i < RUNS; i++) {
        draw(images, IMAGES * COLORS * SIZE * SIZE, 0, 1, 1000 + (uint64_t)i);
        draw(added, IMAGES * MOST_CHANNELS * SIZE * SIZE, 0, 1, 2000 + (uint64_t)i);
        draw_weights(*out_weights, 1 + (uint64_t)i);
        const rpi_run_options how = {.inputs = inputs, .accumulate = i > 0};
        REQUIRE_OK(rpi_instance_run(instance, &how));
    }
    solo_close(instance);
}

static void compare(const sum_case *c, rpi_weights *got, rpi_weights *wanted,
                    double tolerance) {
    for (int i = 0; i < rpi_weights_parameter_count(got); i++) {
        const rpi_weight *weight = rpi_weights_parameter(got, i);
        const double error =
            relative_l2(rpi_weights_gradients(got) + weight->first,
                        rpi_weights_gradients(wanted) + weight->first, weight->count);
        CHECK_MSG(error <= tolerance,
                  "addend %d, relu %d, first %d, %d channels, %d groups: %s: %.2e",
                  (int)c->addend, c->relu, c->is_first, c->channels, c->groups, weight->name,
                  error);
    }
    CHECK(relative_l2(rpi_weights_states(got), rpi_weights_states(wanted),
                      rpi_weights_states_count(wanted)) <= tolerance);
}

static void compare_backends(const sum_case *c) {
    rpi_graph *g = NULL;
    rpi_weights *wanted = NULL, *got = NULL;
    REQUIRE_OK(rpi_graph_create(&g));
    rpi_value_id loss = build(g, c);
    run(g, loss, rpi_backend_at(0), 1, RP_F32, &wanted);
    run(g, loss, &rpi_backend_cpu, c->threads, RP_F32, &got);
    compare(c, got, wanted, 1e-4);
    rpi_weights_destroy(wanted);
    rpi_weights_destroy(got);
    rpi_graph_destroy(g);
}

static double error_of(rpi_weights *got, rpi_weights *exact) {
    return relative_l2(rpi_weights_gradients(got), rpi_weights_gradients(exact),
                       rpi_weights_count(exact));
}

/* What is handed on rounded is some times as far from f32 as the reference, which rounds
 * factors alone. */
static void compare_halves(const sum_case *c) {
    rpi_graph *g = NULL;
    rpi_weights *exact = NULL, *factors = NULL, *got = NULL;
    REQUIRE_OK(rpi_graph_create(&g));
    rpi_value_id loss = build(g, c);
    run(g, loss, rpi_backend_at(0), 1, RP_F32, &exact);
    run(g, loss, rpi_backend_at(0), 1, RP_BF16, &factors);
    run(g, loss, &rpi_backend_cpu, c->threads, RP_BF16, &got);
    const double usual = error_of(factors, exact), error = error_of(got, exact);
    CHECK_MSG(error <= fmax(4 * usual, 0.1),
              "addend %d, relu %d, first %d, %d channels, %d groups: off by %.2e, the "
              "reference by %.2e",
              (int)c->addend, c->relu, c->is_first, c->channels, c->groups, error, usual);
    rpi_weights_destroy(exact);
    rpi_weights_destroy(factors);
    rpi_weights_destroy(got);
    rpi_graph_destroy(g);
}

static void for_all(void (*check)(const sum_case *c)) {
    static const int channels[] = {MOST_CHANNELS, 20, MOST_CHANNELS, MOST_CHANNELS, 20};
    static const int groups[] = {0, 0, 2, 8, 4};
    for (int i = 0; i < ADDENDS * 2 * 5; i++)
        check(&(sum_case){.addend = (addend)(i % ADDENDS),
                          .relu = i / ADDENDS % 2,
                          .is_first = i % 3 > 0,
                          .groups = groups[i / ADDENDS / 2],
                          .channels = channels[i / ADDENDS / 2],
                          .threads = i == ADDENDS ? 2 : 1});
}

static void floats(void) {
    for_all(compare_backends);
}

static void halves(void) {
    if (rpi_backend_check_compute(&rpi_backend_cpu, RP_BF16) != RP_OK)
        check_skip("this processor has no bf16");
    else
        for_all(compare_halves);
}

CASES({"floats", floats}, {"halves", halves})
