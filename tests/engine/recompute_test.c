/* Activations that are made again for backward, and gradients of activations that are added to
 * where they lie. */
#include "engine/instance.h"
#include "harness/check.h"

#include "base/rng.h"
#include "engine/layers.h"
#include "op_fixture.h"

#include <math.h>
#include <string.h>

enum { ROWS = 8, WIDTH = 16, SIZE = 6, LAYERS = 6, CLASSES = 4 };

/* What ran: how many steps of a kind, and how often the external node was called. */
typedef struct record {
    int adds, steps;
} record;

static void on_step(void *context, const rpi_step_report *report) {
    record *r = context;
    r->steps++;
    r->adds += !strcmp(report->what, "add") && report->pass == RPI_BACKWARD;
}

/* ---- recomputation ---- */

static rp_status count_and_copy(void *context, const rpi_external_io *io) {
    ++*(int *)context;
    memcpy(io->outputs[0].data, io->inputs[0].data,
           (size_t)rpi_shape_count(&io->inputs[0].shape) * sizeof(float));
    return RP_OK;
}

typedef struct net {
    rpi_graph *graph;
    rpi_value_id loss;
    rpi_weights *weights;
    int calls; /* of the external node in a layer */
    int wired; /* which layer */
    bool repeats;
    bool fronts,
        always; /* an external node is in front of each layer; rpi_external_attributes */
} net;

static rpi_value_id layer(net *n, int index, rpi_value_id x) {
    char name[32], what[48];
    rpi_graph *graph = n->graph;
    rpi_shape shape = SHAPE(WIDTH);
    snprintf(name, sizeof name, "layer%d", index);
    snprintf(what, sizeof what, "%s.weight", name);
    rpi_value_id w = rpi_graph_parameter(graph, what, SHAPE(WIDTH, WIDTH, 3, 3));
    rpi_value_id y = x;
    snprintf(what, sizeof what, "%s.front", name);
    if (n->fronts)
        y = rpi_external(graph, what, x,
                         (rpi_external_attributes){.context = &n->calls,
                                                   .forward_start = count_and_copy,
                                                   .always_repeats = n->always});
    snprintf(what, sizeof what, "%s.conv", name);
    y = rpi_conv2d(graph, what, y, w, RPI_NO_VALUE, (rpi_conv2d_attributes){.padding = 1});
    snprintf(what, sizeof what, "%s.scale", name);
    rpi_value_id scale = rpi_graph_parameter(graph, what, shape);
    snprintf(what, sizeof what, "%s.shift", name);
    rpi_value_id shift = rpi_graph_parameter(graph, what, shape);
    snprintf(what, sizeof what, "%s.mean", name);
    rpi_value_id mean = rpi_graph_state(graph, what, shape);
    snprintf(what, sizeof what, "%s.variance", name);
    rpi_value_id variance = rpi_graph_state(graph, what, shape);
    snprintf(what, sizeof what, "%s.norm", name);
    y = rpi_batch_norm2d(graph, what, y, scale, shift, mean, variance,
                         (rpi_batch_norm2d_attributes){0});
    snprintf(what, sizeof what, "%s.relu", name);
    y = rpi_relu(graph, what, y);
    if (index == n->wired)
        y = rpi_external(graph, "wire", y,
                         (rpi_external_attributes){.context = &n->calls,
                                                   .forward_start = count_and_copy,
                                                   .repeats = n->repeats});
    snprintf(what, sizeof what, "%s.add", name);
    return rpi_add(graph, what, x, y);
}

static void build_layers(net *n) {
    REQUIRE_OK(rpi_graph_create(&n->graph));
    rpi_graph *graph = n->graph;
    rpi_value_id x = rpi_graph_input(graph, "x", RP_F32, SHAPE(ROWS, WIDTH, SIZE, SIZE));
    rpi_value_id labels = rpi_graph_input(graph, "labels", RP_I32, SHAPE(ROWS));
    rpi_value_id scale = rpi_graph_input(graph, "scale", RP_F32, (rpi_shape){0});
    for (int i = 0; i < LAYERS; i++) x = layer(n, i, x);
    x = rpi_global_avg_pool(graph, "pool", x);
    rpi_value_id w = rpi_graph_parameter(graph, "fc.weight", SHAPE(CLASSES, WIDTH));
    n->loss = rpi_softmax_cross_entropy(
        graph, "loss", rpi_linear(graph, "fc", x, w, RPI_NO_VALUE), labels, scale);
    REQUIRE_OK(rpi_weights_create(graph, n->loss, &n->weights));
}

static void build_wired(net *n, int wired, bool repeats) {
    *n = (net){.wired = wired, .repeats = repeats};
    build_layers(n);
}

static void build(net *n) {
    build_wired(n, LAYERS / 2, false);
}

static void fill(rpi_weights *weights) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 0);
    for (int64_t i = 0; i < rpi_weights_count(weights); i++)
        rpi_weights_values(weights)[i] = 0.2f * rpi_rng_normal(&rng);
    for (int64_t i = 0; i < rpi_weights_states_count(weights); i++)
        rpi_weights_states(weights)[i] = 1;
    rpi_weights_changed(weights, 0, rpi_weights_count(weights));
}

typedef struct outcome {
    float loss, gradients[16384], states[256];
    size_t memory_bytes;
    int calls, steps;
} outcome;

static void run(net *n, const rpi_backend *backend, const rpi_program_options *options,
                outcome *out) {
    static float x[ROWS * WIDTH * SIZE * SIZE];
    int32_t labels[ROWS];
    const float scale = 0.1f;
    const void *inputs[] = {x, labels, &scale};
    rpi_instance *instance = NULL;
    rpi_tensor loss;
    record r = {0};
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    for (int i = 0; i < ROWS * WIDTH * SIZE * SIZE; i++) x[i] = rpi_rng_normal(&rng);
    for (int i = 0; i < ROWS; i++) labels[i] = (int32_t)rpi_rng_below(&rng, CLASSES);
    *out = (outcome){0};
    fill(n->weights);
    n->calls = 0;
    REQUIRE_OK(solo_open(n->graph, n->weights, n->loss, backend, options, &instance));
    rpi_run_options run = {.inputs = inputs, .on_step = on_step, .context = &r};
    REQUIRE_OK(rpi_instance_forward(instance, &run));
    REQUIRE_OK(rpi_instance_backward(instance, &run));
    REQUIRE_OK(rpi_instance_result(instance, n->loss, &loss));
    out->loss = *(float *)loss.data;
    out->calls = n->calls;
    out->steps = r.steps;
    out->memory_bytes = rpi_program_get_facts(rpi_instance_program(instance)).memory_bytes;
    size_t bytes = (size_t)rpi_weights_count(n->weights) * sizeof(float);
    size_t states = (size_t)rpi_weights_states_count(n->weights) * sizeof(float);
    REQUIRE(bytes <= sizeof out->gradients && states <= sizeof out->states);
    memcpy(out->gradients, rpi_weights_gradients(n->weights), bytes);
    memcpy(out->states, rpi_weights_states(n->weights), states);
    solo_close(instance);
}

/* The same bits with less memory; states move once, the external node is called once. */
static void same_bits(const rpi_backend *backend) {
    static outcome kept, again;
    net n;
    rpi_segment segments[] = {{"layer0.conv", "layer1.add"},
                              {"layer2.conv", "layer3.add"},
                              {"layer4.conv", "layer5.add"}};
    rpi_program_options options = {.training = true};
    build(&n);
    run(&n, backend, &options, &kept);
    options.recompute = segments;
    options.recompute_count = 3;
    for (int apart = 0; apart < 2; apart++) {
        options.halves_apart = apart;
        run(&n, backend, &options, &again);
        CHECK_MSG(kept.loss == again.loss, "%s", backend->name);
        CHECK_MSG(!memcmp(kept.gradients, again.gradients, sizeof kept.gradients), "%s",
                  backend->name);
        CHECK_MSG(!memcmp(kept.states, again.states, sizeof kept.states), "%s", backend->name);
        CHECK_EQ(again.calls, 1);
        CHECK(again.steps > kept.steps);
        if (!apart)
            CHECK_MSG(again.memory_bytes < kept.memory_bytes * 3 / 4, "%s: %zu of %zu bytes",
                      backend->name, again.memory_bytes, kept.memory_bytes);
    }
    rpi_weights_destroy(n.weights);
    rpi_graph_destroy(n.graph);
}

static void segments(void) {
    for (int i = 0; rpi_backend_at(i); i++) same_bits(rpi_backend_at(i));
}

/* Where backward needs what it made, a node that may run again does, and its output is not
 * kept; where nothing does, as at the end of a segment, it runs once. */
static void nodes_that_repeat(void) {
    static outcome kept, again;
    rpi_segment segments[] = {{"layer0.conv", "layer2.add"}, {"layer3.conv", "layer5.add"}};
    size_t held[2] = {0};
    for (int repeats = 0; repeats < 2; repeats++)
        for (int wired = 1; wired < 3; wired++) {
            net n;
            rpi_program_options options = {.training = true};
            build_wired(&n, wired, repeats);
            run(&n, NULL, &options, &kept);
            options.recompute = segments;
            options.recompute_count = 2;
            run(&n, NULL, &options, &again);
            CHECK_EQ(kept.calls, 1);
            CHECK_EQ(again.calls, repeats && wired == 1 ? 2 : 1);
            CHECK(kept.loss == again.loss);
            CHECK(!memcmp(kept.gradients, again.gradients, sizeof kept.gradients));
            if (wired == 1) held[repeats] = again.memory_bytes;
            rpi_weights_destroy(n.weights);
            rpi_graph_destroy(n.graph);
        }
    CHECK_MSG(held[1] <= held[0], "%zu bytes are held where %zu were", held[1], held[0]);
}

/* Without a segment, and in one, too: what is read backward is made again, once, and is not
 * kept meanwhile. */
static void nodes_that_always_repeat(const rpi_backend *backend) {
    static outcome kept, again;
    rpi_segment segments[] = {{"layer0.front", "layer2.add"}};
    for (int form = 0; form < 4; form++) {
        net n;
        rpi_program_options options = {.training = true,
                                       .recompute = form % 2 ? segments : NULL,
                                       .recompute_count = form % 2,
                                       .halves_apart = form / 2};
        for (int always = 0; always < 2; always++) {
            n = (net){.wired = -1, .fronts = true, .always = always};
            build_layers(&n);
            run(&n, backend, &options, always ? &again : &kept);
            rpi_weights_destroy(n.weights);
            rpi_graph_destroy(n.graph);
        }
        CHECK_EQ(kept.calls, LAYERS);
        CHECK_EQ(again.calls, 2 * LAYERS);
        CHECK(kept.loss == again.loss);
        CHECK(!memcmp(kept.gradients, again.gradients, sizeof kept.gradients));
        if (form < 2)
            CHECK_MSG(again.memory_bytes < kept.memory_bytes, "%s: %zu of %zu bytes",
                      backend->name, again.memory_bytes, kept.memory_bytes);
    }
}

static void always(void) {
    for (int i = 0; rpi_backend_at(i); i++) nodes_that_always_repeat(rpi_backend_at(i));
}

static void bad_segments(void) {
    net n;
    rpi_instance *instance = NULL;
    rpi_segment segment = {"layer1.conv", "nowhere"};
    rpi_program_options options = {
        .training = true, .recompute = &segment, .recompute_count = 1};
    build(&n);
    CHECK_FAILS(solo_open(n.graph, n.weights, n.loss, NULL, &options, &instance), INVALID,
                "options.recompute: the graph has no node 'nowhere'");
    segment.last = "layer0.conv";
    CHECK_FAILS(solo_open(n.graph, n.weights, n.loss, NULL, &options, &instance), INVALID,
                "'layer1.conv' stands behind 'layer0.conv'");
    options = (rpi_program_options){.compute = RP_F16};
    CHECK_FAILS(solo_open(n.graph, n.weights, n.loss, NULL, &options, &instance), UNSUPPORTED,
                "the reference computes in f32 and bf16, not in f16");
    rpi_weights_destroy(n.weights);
    rpi_graph_destroy(n.graph);
}

/* ---- accumulation ---- */

/* Three linear layers on one value, as queries, keys and values are: no step of the backward
 * pass adds gradients, and they are right by differences. */
static void no_sums(void) {
    rpi_graph *graph = NULL;
    rpi_weights *weights = NULL;
    const int32_t labels[ROWS] = {0, 1, 2, 3, 0, 1, 2, 3};
    const float scale = 0.2f;
    const void *inputs[] = {labels, &scale};
    REQUIRE_OK(rpi_graph_create(&graph));
    rpi_value_id label = rpi_graph_input(graph, "labels", RP_I32, SHAPE(ROWS));
    rpi_value_id factor = rpi_graph_input(graph, "scale", RP_F32, (rpi_shape){0});
    rpi_value_id x = rpi_graph_parameter(graph, "x", SHAPE(ROWS, CLASSES));
    rpi_value_id w0 = rpi_graph_parameter(graph, "in", SHAPE(CLASSES, CLASSES)), y[3];
    x = rpi_linear(graph, "first", x, w0, RPI_NO_VALUE);
    for (int i = 0; i < 3; i++) {
        const char *const names[][3] = {{"q", "q.weight", "q.relu"},
                                        {"k", "k.weight", "k.relu"},
                                        {"v", "v.weight", "v.relu"}};
        rpi_value_id w = rpi_graph_parameter(graph, names[i][1], SHAPE(CLASSES, CLASSES));
        y[i] = rpi_relu(graph, names[i][2], rpi_linear(graph, names[i][0], x, w, RPI_NO_VALUE));
    }
    x = rpi_add(graph, "sum 1", rpi_add(graph, "sum 0", y[0], y[1]), y[2]);
    rpi_value_id loss = rpi_softmax_cross_entropy(graph, "loss", x, label, factor);
    REQUIRE_OK(rpi_weights_create(graph, loss, &weights));
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 2);
    int64_t count = rpi_weights_count(weights);
    float *values = rpi_weights_values(weights), gradients[256];
    REQUIRE(count <= 256);
    for (int64_t i = 0; i < count; i++) values[i] = 0.7f * rpi_rng_normal(&rng);
    for (int b = 0; rpi_backend_at(b); b++) {
        rpi_instance *instance = NULL;
        rpi_program_options options = {.training = true};
        record r = {0};
        REQUIRE_OK(solo_open(graph, weights, loss, rpi_backend_at(b), &options, &instance));
        rpi_run_options go = {.inputs = inputs, .on_step = on_step, .context = &r};
        REQUIRE_OK(rpi_instance_run(instance, &go));
        CHECK_MSG(r.adds == 0, "%s: %d sums of gradients", rpi_backend_at(b)->name, r.adds);
        memcpy(gradients, rpi_weights_gradients(weights), (size_t)count * sizeof(float));
        for (int64_t i = 0; i < count; i++) {
            const float kept = values[i], step = 2e-3f;
            double losses[3];
            for (int side = -1; side <= 1; side++) {
                rpi_tensor tensor;
                values[i] = kept + (float)side * step;
                rpi_weights_changed(weights, 0, count);
                REQUIRE_OK(rpi_instance_forward(instance, &go));
                REQUIRE_OK(rpi_instance_result(instance, loss, &tensor));
                losses[side + 1] = (double)*(float *)tensor.data;
            }
            values[i] = kept;
            rpi_weights_changed(weights, 0, count);
            double up = (losses[2] - losses[1]) / (double)step;
            double down = (losses[1] - losses[0]) / (double)step;
            if (fabs(up - down) > 0.02) continue; /* a kink of relu in between */
            CHECK_NEAR((up + down) / 2, (double)gradients[i], 0.01);
        }
        solo_close(instance);
    }
    rpi_weights_destroy(weights);
    rpi_graph_destroy(graph);
}

CASES({"segments", segments}, {"nodes_that_repeat", nodes_that_repeat}, {"always", always},
      {"bad_segments", bad_segments}, {"no_sums", no_sums})
