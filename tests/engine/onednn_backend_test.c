/* Whole networks on the oneDNN backend against the reference: odd channel counts, short
 * batches, one and two threads, accumulated gradients, changed weights, bytes that repeat. */
#include "base/memory.h"
#include "base/rng.h"
#include "engine/layers.h"
#include "harness/check.h"
#include "solo.h"

#include <stdio.h>
#include <stdlib.h>

extern const rpi_backend rpi_backend_cpu;

enum { CLASSES = 5, MOST_THREADS = 2 };

/* ---- a small residual network with every op of the backend ---- */

typedef struct net_case {
    const char *name;
    int channels, width, size, batch;
    bool pooled, biased;
} net_case;

typedef struct net {
    rpi_graph *graph;
    rpi_value_id logits, loss;
} net;

static rpi_value_id conv(rpi_graph *g, const char *name, rpi_value_id x, int in, int out,
                         int kernel, int stride, bool biased) {
    char text[64];
    snprintf(text, sizeof text, "%s.weight", name);
    rpi_value_id weight =
        rpi_graph_parameter(g, text, (rpi_shape){4, {out, in, kernel, kernel}});
    snprintf(text, sizeof text, "%s.bias", name);
    rpi_value_id bias =
        biased ? rpi_graph_parameter(g, text, (rpi_shape){1, {out}}) : RPI_NO_VALUE;
    rpi_conv2d_attributes attributes = {.stride = stride, .padding = kernel / 2};
    return rpi_conv2d(g, name, x, weight, bias, attributes);
}

static rpi_value_id norm(rpi_graph *g, const char *name, rpi_value_id x, int channels) {
    static const char *const parts[] = {"scale", "shift", "mean", "variance"};
    rpi_value_id values[4];
    for (int i = 0; i < 4; i++) {
        char text[64];
        snprintf(text, sizeof text, "%s.%s", name, parts[i]);
        rpi_shape shape = {1, {channels}};
        values[i] =
            i < 2 ? rpi_graph_parameter(g, text, shape) : rpi_graph_state(g, text, shape);
    }
    return rpi_batch_norm2d(g, name, x, values[0], values[1], values[2], values[3],
                            (rpi_batch_norm2d_attributes){0});
}

static void build(const net_case *c, net *out) {
    rpi_graph *g = NULL;
    REQUIRE_OK(rpi_graph_create(&g));
    int w = c->width;
    rpi_value_id x = rpi_graph_input(
        g, "images", RP_F32,
        (rpi_shape){4, {rpi_graph_dimension(g, "batch"), c->channels, c->size, c->size}});
    rpi_value_id labels =
        rpi_graph_input(g, "labels", RP_I32, (rpi_shape){1, {rpi_graph_dimension(g, "batch")}});
    rpi_value_id scale = rpi_graph_input(g, "scale", RP_F32, (rpi_shape){0});
    x = conv(g, "stem", x, c->channels, w, 3, 1, c->biased);
    x = rpi_relu(g, "stem.relu", norm(g, "stem.norm", x, w));
    if (c->pooled)
        x = rpi_max_pool2d(g, "pool", x,
                           (rpi_max_pool2d_attributes){.kernel = 3, .stride = 2, .padding = 1});
    rpi_value_id y = conv(g, "one", x, w, w, 3, 1, c->biased);
    y = rpi_relu(g, "one.relu", norm(g, "one.norm", y, w));
    y = norm(g, "two.norm", conv(g, "two", y, w, w, 3, 1, false), w);
    x = rpi_relu(g, "two.relu", rpi_add(g, "two.add", y, x));
    y = norm(g, "three.norm", conv(g, "three", x, w, w + 1, 3, 2, false), w + 1);
    x = norm(g, "short.norm", conv(g, "short", x, w, w + 1, 1, 2, false), w + 1);
    x = rpi_relu(g, "last.relu", rpi_add(g, "last.add", x, y));
    x = rpi_global_avg_pool(g, "mean", x);
    rpi_value_id weight = rpi_graph_parameter(g, "fc.weight", (rpi_shape){2, {CLASSES, w + 1}});
    rpi_value_id bias = rpi_graph_parameter(g, "fc.bias", (rpi_shape){1, {CLASSES}});
    out->logits = rpi_linear(g, "fc", x, weight, bias);
    out->loss = rpi_softmax_cross_entropy(g, "loss", out->logits, labels, scale);
    out->graph = g;
    CHECK_OK(rpi_graph_check(g));
}

static void fill_weights(rpi_weights *weights, uint64_t seed) {
    rpi_rng rng = rpi_rng_make(seed, RPI_RNG_TEST, 0);
    for (int i = 0; i < rpi_weights_parameter_count(weights); i++) {
        const rpi_weight *w = rpi_weights_parameter(weights, i);
        float *values = rpi_weights_values(weights) + w->first;
        double fan_in = w->shape.dims > 1 ? (double)w->count / (double)w->shape.size[0] : 4;
        for (int64_t j = 0; j < w->count; j++)
            values[j] = rpi_rng_normal(&rng) * (float)(1.5 / sqrt(fan_in));
    }
    rpi_weights_changed(weights, 0, rpi_weights_count(weights));
    float *states = rpi_weights_states(weights);
    for (int64_t j = 0; j < rpi_weights_states_count(weights); j++)
        states[j] = 0.5f + rpi_rng_uniform(&rng);
}

/* ---- running one ---- */

typedef struct runner {
    rpi_weights *weights;
    rpi_instance *instance;
    float *images, scale;
    int32_t *labels;
    const void *inputs[3];
} runner;

static void stop(runner *it) {
    solo_close(it->instance);
    rpi_weights_destroy(it->weights);
    rpi_free(it->images);
    rpi_free(it->labels);
    *it = (runner){0};
}

static rp_status start(const net_case *c, const net *n, const rpi_backend *backend,
                       const rpi_backend_options *options, bool training, runner *it) {
    size_t pixels = (size_t)c->batch * (size_t)c->channels * (size_t)c->size * (size_t)c->size;
    *it = (runner){.scale = 1.0f / (float)c->batch};
    RP_TRY(rpi_weights_create(n->graph, n->loss, &it->weights));
    RP_TRY(rpi_alloc_array(pixels, sizeof(float), "images", &it->images));
    RP_TRY(rpi_alloc_array((size_t)c->batch, sizeof(int32_t), "labels", &it->labels));
    rpi_rng rng = rpi_rng_make(7, RPI_RNG_TEST, 1);
    for (size_t i = 0; i < pixels; i++) it->images[i] = rpi_rng_normal(&rng);
    for (int i = 0; i < c->batch; i++) it->labels[i] = (int32_t)rpi_rng_below(&rng, CLASSES);
    fill_weights(it->weights, 3);
    it->inputs[0] = it->images, it->inputs[1] = it->labels, it->inputs[2] = &it->scale;
    rpi_program_options wanted = {.training = training,
                                  .dimensions = {{"batch", c->batch}},
                                  .result_count = 1,
                                  .results = {n->logits}};
    return solo_open_with(n->graph, it->weights, n->loss, backend, options, &wanted,
                          &it->instance);
}

static rp_status run(runner *it, bool accumulate) {
    rpi_run_options options = {.inputs = it->inputs, .accumulate = accumulate};
    return rpi_instance_run(it->instance, &options);
}

/* ---- comparing ---- */

static double distance(const float *a, const float *b, int64_t count) {
    double difference = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        double d = (double)a[i] - (double)b[i];
        difference += d * d;
        size += (double)b[i] * (double)b[i];
    }
    return size > 0 ? sqrt(difference / size) : sqrt(difference);
}

/* A bias in front of a batch norm has no gradient but rounding. */
static bool vanishes(const net_case *c, const char *name) {
    size_t length = strlen(name);
    return c->biased && length > 5 && !strcmp(name + length - 5, ".bias") &&
           strcmp(name, "fc.bias") != 0;
}

static void compare(const net_case *c, runner *a, runner *b, const net *n, double tolerance) {
    rpi_tensor x, y;
    CHECK_OK(rpi_instance_result(a->instance, n->logits, &x));
    CHECK_OK(rpi_instance_result(b->instance, n->logits, &y));
    double error = distance(x.data, y.data, rpi_shape_count(&x.shape));
    CHECK_MSG(error <= tolerance, "%s: logits differ by %g", c->name, error);
    for (int i = 0; i < rpi_weights_parameter_count(a->weights); i++) {
        const rpi_weight *w = rpi_weights_parameter(a->weights, i);
        const float *ga = rpi_weights_gradients(a->weights) + w->first;
        const float *gb = rpi_weights_gradients(b->weights) + w->first;
        error = distance(ga, gb, w->count);
        if (!vanishes(c, w->name))
            CHECK_MSG(error <= tolerance, "%s: gradient of %s differs by %g", c->name, w->name,
                      error);
    }
    for (int i = 0; i < rpi_weights_state_count(a->weights); i++) {
        const rpi_weight *s = rpi_weights_state(a->weights, i);
        error = distance(rpi_weights_states(a->weights) + s->first,
                         rpi_weights_states(b->weights) + s->first, s->count);
        CHECK_MSG(error <= tolerance, "%s: state %s differs by %g", c->name, s->name, error);
    }
}

static const net_case nets[] = {
    {"1 channel", 1, 16, 8, 3, .pooled = true},
    {"3 channels, batch 1", 3, 17, 7, 1, .biased = true},
    {"10 channels", 10, 10, 9, 2, .pooled = true, .biased = true},
    {"17 channels, batch 5", 17, 3, 6, 5, .pooled = false},
    {"width 2", 2, 2, 5, 4, .biased = true},
    {"8 channels", 8, 8, 12, 3, .pooled = true, .biased = true},
    {"15 channels", 15, 15, 7, 2, .biased = true},
    {"width 20", 1, 20, 9, 2, .pooled = true},
    {"width 24", 2, 24, 6, 3, .biased = true},
    {"winograd", 1, 32, 14, 8, .biased = false},
    {"winograd, odd", 4, 47, 15, 5, .biased = true},
};
enum { NETS = sizeof nets / sizeof nets[0] };

static void train_like_reference(const net_case *c, int threads) {
    net n = {0};
    runner ours = {0}, theirs = {0};
    rpi_backend_options options = {.threads = threads};
    build(c, &n);
    CHECK_OK(start(c, &n, &rpi_backend_cpu, &options, true, &ours));
    CHECK_OK(start(c, &n, rpi_backend_at(0), &options, true, &theirs));
    if (ours.instance && theirs.instance) {
        CHECK_OK(run(&ours, false));
        CHECK_OK(run(&theirs, false));
        compare(c, &ours, &theirs, &n, 1e-4);
        /* Other weights, added to the same gradients: packed copies must follow. */
        fill_weights(ours.weights, 4);
        fill_weights(theirs.weights, 4);
        CHECK_OK(run(&ours, true));
        CHECK_OK(run(&theirs, true));
        compare(c, &ours, &theirs, &n, 1e-4);
    }
    stop(&ours);
    stop(&theirs);
    rpi_graph_destroy(n.graph);
}

static void training(void) {
    for (int i = 0; i < NETS; i++)
        for (int threads = 1; threads <= MOST_THREADS; threads++)
            train_like_reference(&nets[i], threads);
}

static void evaluation(void) {
    for (int i = 0; i < NETS; i++) {
        net n = {0};
        runner ours = {0}, theirs = {0};
        rpi_backend_options options = {0};
        build(&nets[i], &n);
        CHECK_OK(start(&nets[i], &n, &rpi_backend_cpu, &options, false, &ours));
        CHECK_OK(start(&nets[i], &n, rpi_backend_at(0), &options, false, &theirs));
        if (ours.instance && theirs.instance) {
            CHECK_OK(run(&ours, false));
            CHECK_OK(run(&theirs, false));
            compare(&nets[i], &ours, &theirs, &n, 1e-4);
        }
        stop(&ours);
        stop(&theirs);
        rpi_graph_destroy(n.graph);
    }
}

/* ---- the same bytes ---- */

static void same_bytes(runner *a, runner *b) {
    size_t bytes = (size_t)rpi_weights_count(a->weights) * sizeof(float);
    CHECK(memcmp(rpi_weights_gradients(a->weights), rpi_weights_gradients(b->weights), bytes) ==
          0);
    bytes = (size_t)rpi_weights_states_count(a->weights) * sizeof(float);
    CHECK(memcmp(rpi_weights_states(a->weights), rpi_weights_states(b->weights), bytes) == 0);
}

static void run_twice(const net_case *c, const rpi_backend_options *options) {
    net n = {0};
    runner first = {0}, second = {0};
    build(c, &n);
    CHECK_OK(start(c, &n, &rpi_backend_cpu, options, true, &first));
    CHECK_OK(start(c, &n, &rpi_backend_cpu, options, true, &second));
    if (first.instance && second.instance) {
        CHECK_OK(run(&first, false));
        CHECK_OK(run(&second, false));
        same_bytes(&first, &second);
    }
    stop(&first);
    stop(&second);
    rpi_graph_destroy(n.graph);
}

static void repeats(void) {
    rpi_backend_options options = {.threads = MOST_THREADS};
    for (int i = 0; i < NETS; i++) run_twice(&nets[i], &options);
}

/* ---- failures ---- */

static void allocations_fail(void) {
    net n = {0};
    rpi_backend_options options = {.threads = 1};
    build(&nets[2], &n);
    rp_status status = RP_NOMEM;
    for (long nth = 1; status == RP_NOMEM && nth < 20000; nth++) {
        runner it = {0};
        rpi_memory_fail_after(nth);
        status = start(&nets[2], &n, &rpi_backend_cpu, &options, true, &it);
        rpi_memory_fail_after(0);
        stop(&it);
    }
    CHECK_OK(status);
    rpi_graph_destroy(n.graph);
}

static void bad_threads(void) {
    rpi_backend_options options = {.threads = -1};
    void *session = NULL;
    CHECK_FAILS(rpi_backend_cpu.open(&options, &session), INVALID, "threads");
}

CASES({"training", training}, {"evaluation", evaluation}, {"repeats", repeats},
      {"allocations_fail", allocations_fail}, {"bad_threads", bad_threads})
