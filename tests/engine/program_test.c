/* Programs: accumulation, finality of gradients, evaluation, repeated runs, failures. */
#include "harness/check.h"
#include "solo.h"

#include "base/memory.h"
#include "base/rng.h"
#include "engine/layers.h"
#include "op_fixture.h"

#include <stdlib.h>

enum { ROWS = 6, INPUTS = 5, HIDDEN = 7, CLASSES = 4 };

/* ---- a small model with everything the order of gradients can stumble over ---- */

typedef struct model {
    rpi_graph *graph;
    rpi_value_id loss, correct, logits, hidden;
    rpi_weights *weights;
} model;

/* A weight used twice, a residual, a parameter of role data, one that is never used. */
static void build(model *m) {
    *m = (model){0};
    REQUIRE_OK(rpi_graph_create(&m->graph));
    rpi_graph *graph = m->graph;
    rpi_value_id x =
        rpi_graph_input(graph, "x", RP_F32, SHAPE(rpi_graph_dimension(graph, "batch"), INPUTS));
    rpi_value_id labels =
        rpi_graph_input(graph, "labels", RP_I32, SHAPE(rpi_graph_dimension(graph, "batch")));
    rpi_value_id scale = rpi_graph_input(graph, "scale", RP_F32, (rpi_shape){0});
    rpi_value_id w1 = rpi_graph_parameter(graph, "w1", SHAPE(HIDDEN, INPUTS));
    rpi_value_id b1 = rpi_graph_parameter(graph, "b1", SHAPE(HIDDEN));
    rpi_value_id tied = rpi_graph_parameter(graph, "tied", SHAPE(HIDDEN, HIDDEN));
    rpi_value_id unused = rpi_graph_parameter(graph, "unused", SHAPE(3));
    rpi_value_id w2 = rpi_graph_parameter(graph, "w2", SHAPE(CLASSES, HIDDEN));
    (void)unused;
    x = rpi_relu(graph, "relu1", rpi_linear(graph, "fc1", x, w1, b1));
    rpi_value_id y =
        rpi_relu(graph, "relu2", rpi_linear(graph, "again1", x, tied, RPI_NO_VALUE));
    y = rpi_linear(graph, "again2", y, tied, RPI_NO_VALUE);
    x = rpi_add(graph, "residual", x, y);
    m->hidden = x;
    m->logits = rpi_linear(graph, "fc2", x, w2, RPI_NO_VALUE);
    m->loss = rpi_softmax_cross_entropy(graph, "loss", m->logits, labels, scale);
    m->correct = rpi_graph_output(graph, m->loss, 1);
    REQUIRE_OK(rpi_weights_create(graph, m->loss, &m->weights));
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 0);
    for (int64_t i = 0; i < rpi_weights_count(m->weights); i++)
        rpi_weights_values(m->weights)[i] = 0.5f * rpi_rng_normal(&rng);
    rpi_weights_changed(m->weights, 0, rpi_weights_count(m->weights));
}

static void close_model(model *m) {
    rpi_weights_destroy(m->weights);
    rpi_graph_destroy(m->graph);
}

typedef struct batch {
    float x[ROWS * INPUTS];
    int32_t labels[ROWS];
    float scale;
} batch;

static void draw(batch *b) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    for (int i = 0; i < ROWS * INPUTS; i++) b->x[i] = rpi_rng_normal(&rng);
    for (int i = 0; i < ROWS; i++) b->labels[i] = (int32_t)rpi_rng_below(&rng, CLASSES);
    b->scale = 1.0f / ROWS;
}

static rp_status compile(const model *m, int64_t rows, bool training, rpi_instance **out) {
    rpi_program_options options = {.training = training,
                                   .dimensions = {{"batch", rows}},
                                   .result_count = 2,
                                   .results = {m->correct, m->logits}};
    return solo_open(m->graph, m->weights, m->loss, NULL, &options, out);
}

/* Rows first, first + 1 ... of the batch. */
static rp_status run(rpi_instance *instance, const batch *b, int first,
                     rpi_run_options options) {
    const void *inputs[] = {b->x + first * INPUTS, b->labels + first, &b->scale};
    options.inputs = inputs;
    return rpi_instance_run(instance, &options);
}

static float loss_of(const model *m, const rpi_instance *instance) {
    rpi_tensor tensor;
    if (rpi_instance_result(instance, m->loss, &tensor) != RP_OK) return NAN;
    return *(float *)tensor.data;
}

/* ---- accumulation ---- */

/* Micro-batches that accumulate, of two sizes over the same arenas, equal the whole batch. */
static void accumulation(void) {
    model m;
    batch b;
    rpi_instance *whole = NULL, *four = NULL, *two = NULL;
    float gradients[512];
    build(&m);
    draw(&b);
    REQUIRE_OK(compile(&m, ROWS, true, &whole));
    REQUIRE_OK(compile(&m, 4, true, &four));
    REQUIRE_OK(compile(&m, 2, true, &two));
    size_t count = (size_t)rpi_weights_count(m.weights);
    REQUIRE(count <= 512);
    REQUIRE_OK(run(whole, &b, 0, (rpi_run_options){0}));
    float whole_loss = loss_of(&m, whole);
    memcpy(gradients, rpi_weights_gradients(m.weights), count * sizeof(float));
    REQUIRE_OK(run(four, &b, 0, (rpi_run_options){0}));
    REQUIRE_OK(run(two, &b, 4, (rpi_run_options){.accumulate = true}));
    CHECK_NEAR((double)loss_of(&m, four) + (double)loss_of(&m, two), (double)whole_loss, 1e-5);
    for (int i = 0; i < rpi_weights_parameter_count(m.weights); i++) {
        const rpi_weight *weight = rpi_weights_parameter(m.weights, i);
        const float *sum = rpi_weights_gradients(m.weights) + weight->first;
        CHECK_MSG(relative_l2(sum, gradients + weight->first, weight->count) < 1e-5, "%s",
                  weight->name);
    }
    solo_close(whole);
    solo_close(four);
    solo_close(two);
    close_model(&m);
}

/* What no step writes is zero, and keeps what is accumulated. */
static void unused_parameters(void) {
    model m;
    batch b;
    rpi_instance *instance = NULL;
    build(&m);
    draw(&b);
    REQUIRE_OK(compile(&m, ROWS, true, &instance));
    const rpi_weight *unused = rpi_weights_find(m.weights, "unused");
    float *gradient = rpi_weights_gradients(m.weights) + unused->first;
    gradient[0] = 5;
    REQUIRE_OK(run(instance, &b, 0, (rpi_run_options){.accumulate = true}));
    CHECK(gradient[0] == 5);
    REQUIRE_OK(run(instance, &b, 0, (rpi_run_options){0}));
    CHECK(gradient[0] == 0);
    solo_close(instance);
    close_model(&m);
}

/* ---- finality ---- */

typedef struct watch {
    rpi_weights *weights;
    int64_t end;
    int calls, fail_at;
    float seen[512]; /* gradients as they were when they were called final */
} watch;

static rp_status on_final(void *context, int64_t first, int64_t count) {
    watch *w = context;
    CHECK_EQ(first, w->end);
    CHECK(count > 0);
    memcpy(w->seen + first, rpi_weights_gradients(w->weights) + first,
           (size_t)count * sizeof(float));
    w->end = first + count;
    w->calls++;
    return w->calls == w->fail_at ? RP_FAIL(PEER, "rank 3 is gone") : RP_OK;
}

/* Calls cover the arena in order and without gaps, and nothing is written after it was called
 * final. */
static void finality(void) {
    model m;
    batch b;
    rpi_instance *instance = NULL;
    build(&m);
    draw(&b);
    REQUIRE_OK(compile(&m, ROWS, true, &instance));
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        watch w = {.weights = m.weights};
        REQUIRE_OK(run(instance, &b, 0,
                       (rpi_run_options){.accumulate = accumulate,
                                         .on_gradient_final = on_final,
                                         .context = &w}));
        size_t bytes = sizeof(float) * (size_t)rpi_weights_count(m.weights);
        CHECK_EQ(w.end, rpi_weights_count(m.weights));
        CHECK(w.calls >= 3);
        CHECK(!memcmp(w.seen, rpi_weights_gradients(m.weights), bytes));
    }
    watch w = {.weights = m.weights, .fail_at = 2};
    CHECK_FAILS(
        run(instance, &b, 0, (rpi_run_options){.on_gradient_final = on_final, .context = &w}),
        PEER, "rank 3");
    CHECK_EQ(w.calls, 2);
    solo_close(instance);
    close_model(&m);
}

/* ---- evaluation, results, reports ---- */

static void evaluation(void) {
    model m;
    batch b;
    rpi_instance *training = NULL, *evaluating = NULL;
    rpi_tensor logits[2], correct;
    build(&m);
    draw(&b);
    REQUIRE_OK(compile(&m, ROWS, true, &training));
    REQUIRE_OK(compile(&m, ROWS, false, &evaluating));
    const void *inputs[] = {b.x, b.labels, &b.scale};
    REQUIRE_OK(rpi_instance_forward(training, &(rpi_run_options){.inputs = inputs}));
    REQUIRE_OK(run(evaluating, &b, 0, (rpi_run_options){0}));
    for (int64_t i = 0; i < rpi_weights_count(m.weights); i++)
        CHECK(rpi_weights_gradients(m.weights)[i] == 0);
    CHECK(loss_of(&m, training) == loss_of(&m, evaluating));
    REQUIRE_OK(rpi_instance_result(training, m.logits, &logits[0]));
    REQUIRE_OK(rpi_instance_result(evaluating, m.logits, &logits[1]));
    CHECK(rpi_shape_equal(&logits[0].shape, &SHAPE(ROWS, CLASSES)));
    CHECK(!memcmp(logits[0].data, logits[1].data, sizeof(float) * ROWS * CLASSES));
    REQUIRE_OK(rpi_instance_result(evaluating, m.correct, &correct));
    int right = 0;
    for (int n = 0; n < ROWS; n++) {
        const float *row = (const float *)logits[1].data + n * CLASSES;
        int best = 0;
        for (int c = 1; c < CLASSES; c++) best = row[c] > row[best] ? c : best;
        right += best == b.labels[n];
    }
    CHECK_EQ(*(int32_t *)correct.data, right);
    CHECK_FAILS(rpi_instance_result(training, m.hidden, &correct), INVALID, "neither");
    rpi_program_facts with = rpi_program_get_facts(rpi_instance_program(training));
    rpi_program_facts without = rpi_program_get_facts(rpi_instance_program(evaluating));
    CHECK(without.memory_bytes < with.memory_bytes && without.backward_flops == 0);
    CHECK(with.memory_bytes < with.unshared_bytes);
    solo_close(training);
    solo_close(evaluating);
    close_model(&m);
}

/* 2 * rows * (5 * 7 + 7 * 7 * 2 + 7 * 4) for the products of forward, and their gradients. */
static void flops(void) {
    model m;
    rpi_instance *instance = NULL;
    build(&m);
    REQUIRE_OK(compile(&m, ROWS, true, &instance));
    rpi_program_facts facts = rpi_program_get_facts(rpi_instance_program(instance));
    int64_t products = 2 * ROWS * (INPUTS * HIDDEN + 2 * HIDDEN * HIDDEN + HIDDEN * CLASSES);
    int64_t first = 2 * ROWS * INPUTS * HIDDEN; /* the images need no gradient */
    int64_t small = 10 * ROWS * (2 * HIDDEN + CLASSES);
    CHECK(facts.forward_flops >= products && facts.forward_flops < products + small);
    CHECK(facts.backward_flops >= 2 * products - first &&
          facts.backward_flops < 2 * products - first + small);
    solo_close(instance);
    close_model(&m);
}

typedef struct tally {
    int steps;
    int64_t last_end_ns;
    bool backward;
} tally;

static void on_step(void *context, const rpi_step_report *report) {
    tally *t = context;
    CHECK(report->name && report->what);
    CHECK(report->start_ns >= t->last_end_ns && report->end_ns >= report->start_ns);
    CHECK(!t->backward || report->pass == RPI_BACKWARD);
    t->backward = report->pass == RPI_BACKWARD;
    t->last_end_ns = report->end_ns;
    t->steps++;
}

static void reports(void) {
    model m;
    batch b;
    rpi_instance *instance = NULL;
    tally t = {0};
    build(&m);
    draw(&b);
    REQUIRE_OK(compile(&m, ROWS, true, &instance));
    REQUIRE_OK(run(instance, &b, 0, (rpi_run_options){.on_step = on_step, .context = &t}));
    CHECK_EQ(t.steps, rpi_program_get_facts(rpi_instance_program(instance)).steps);
    CHECK(t.backward);
    solo_close(instance);
    close_model(&m);
}

/* A run allocates nothing. */
static void no_allocation(void) {
    model m;
    batch b;
    rpi_instance *instance = NULL;
    build(&m);
    draw(&b);
    REQUIRE_OK(compile(&m, ROWS, true, &instance));
    rpi_memory_fail_after(0);
    REQUIRE_OK(run(instance, &b, 0, (rpi_run_options){0}));
    CHECK_EQ(rpi_memory_fail_after(0), 0);
    solo_close(instance);
    close_model(&m);
}

/* ---- random graphs: in-place and shared memory change nothing ---- */

enum { LAYERS = 14, WIDTH = 6 };

/* Layers whose inputs are any earlier values; the loss sees them all. */
static rpi_value_id random_graph(rpi_rng *rng, rpi_graph *graph) {
    rpi_value_id values[LAYERS + 1], sum = RPI_NO_VALUE;
    rpi_value_id labels = rpi_graph_input(graph, "labels", RP_I32, SHAPE(ROWS));
    rpi_value_id scale = rpi_graph_input(graph, "scale", RP_F32, (rpi_shape){0});
    values[0] = rpi_graph_parameter(graph, "x", SHAPE(ROWS, WIDTH));
    rpi_value_id shared = rpi_graph_parameter(graph, "shared", SHAPE(WIDTH, WIDTH));
    for (int i = 1; i <= LAYERS; i++) {
        char name[16], weight[16];
        snprintf(name, sizeof name, "n%d", i);
        snprintf(weight, sizeof weight, "w%d", i);
        rpi_value_id a = values[rpi_rng_below(rng, (uint32_t)i)];
        rpi_value_id b = values[rpi_rng_below(rng, (uint32_t)i)];
        switch (rpi_rng_below(rng, 5)) {
        case 0: values[i] = rpi_relu(graph, name, a); break;
        case 1: values[i] = rpi_flatten(graph, name, a); break;
        case 2: values[i] = rpi_linear(graph, name, a, shared, RPI_NO_VALUE); break;
        case 3:
            values[i] = rpi_linear(graph, name, a,
                                   rpi_graph_parameter(graph, weight, SHAPE(WIDTH, WIDTH)),
                                   RPI_NO_VALUE);
            break;
        default: values[i] = rpi_add(graph, name, a, b);
        }
    }
    for (int i = LAYERS / 2; i <= LAYERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "sum%d", i);
        sum = sum == RPI_NO_VALUE ? values[i] : rpi_add(graph, name, sum, values[i]);
    }
    return rpi_softmax_cross_entropy(graph, "loss", sum, labels, scale);
}

/* The loss for parameter element `index` moved by `step`. */
static double moved_loss(rpi_instance *instance, rpi_weights *weights, rpi_value_id loss,
                         int64_t index, float step, const void *const *inputs) {
    rpi_tensor tensor;
    float *value = rpi_weights_values(weights) + index, kept = *value;
    *value += step;
    CHECK_OK(rpi_instance_run(instance, &(rpi_run_options){.inputs = inputs}));
    *value = kept;
    if (rpi_instance_result(instance, loss, &tensor) != RP_OK) return NAN;
    return (double)*(float *)tensor.data;
}

/* The same bits when random segments are made again, and when weights' gradients come last. */
static void check_again(rpi_rng *rng, const rpi_graph *graph, rpi_weights *weights,
                        rpi_value_id loss, const void *const *inputs, const float *gradients) {
    rpi_instance *instance = NULL;
    int nodes = rpi_graph_node_count(graph);
    int first = (int)rpi_rng_below(rng, (uint32_t)nodes);
    int last = first + (int)rpi_rng_below(rng, (uint32_t)(nodes - first));
    rpi_segment segment = {rpi_graph_node(graph, first)->name,
                           rpi_graph_node(graph, last)->name};
    rpi_program_options options = {.training = true,
                                   .halves_apart = rpi_rng_below(rng, 2),
                                   .recompute = &segment,
                                   .recompute_count = 1};
    REQUIRE_OK(solo_open(graph, weights, loss, NULL, &options, &instance));
    REQUIRE_OK(rpi_instance_run(instance, &(rpi_run_options){.inputs = inputs}));
    CHECK_MSG(!memcmp(gradients, rpi_weights_gradients(weights),
                      (size_t)rpi_weights_count(weights) * sizeof(float)),
              "%s to %s again", segment.first, segment.last);
    solo_close(instance);
}

static void check_random_graph(rpi_rng *rng, int *tried) {
    rpi_graph *graph = NULL;
    rpi_weights *weights = NULL;
    rpi_instance *instance = NULL;
    float gradients[1024];
    int32_t labels[ROWS];
    const float scale = 0.1f;
    const void *inputs[] = {labels, &scale};
    for (int i = 0; i < ROWS; i++) labels[i] = (int32_t)rpi_rng_below(rng, WIDTH);
    REQUIRE_OK(rpi_graph_create(&graph));
    rpi_value_id loss = random_graph(rng, graph);
    REQUIRE_OK(rpi_weights_create(graph, loss, &weights));
    int64_t count = rpi_weights_count(weights);
    for (int64_t i = 0; i < count; i++)
        rpi_weights_values(weights)[i] = 0.5f * rpi_rng_normal(rng);
    rpi_program_options options = {.training = true};
    REQUIRE_OK(solo_open(graph, weights, loss, NULL, &options, &instance));
    watch w = {.weights = weights};
    REQUIRE_OK(rpi_instance_run(
        instance,
        &(rpi_run_options){.inputs = inputs, .on_gradient_final = on_final, .context = &w}));
    CHECK_EQ(w.end, count);
    CHECK(!memcmp(w.seen, rpi_weights_gradients(weights), sizeof(float) * (size_t)count));
    memcpy(gradients, rpi_weights_gradients(weights), sizeof(float) * (size_t)count);
    check_again(rng, graph, weights, loss, inputs, gradients);
    /* Slopes of the two sides differ where a ReLU has its kink in between: not tried. */
    double here = moved_loss(instance, weights, loss, 0, 0, inputs);
    for (int64_t i = 0; i < count; i += 5) {
        const float step = 2e-3f;
        double up =
            (moved_loss(instance, weights, loss, i, step, inputs) - here) / (double)step;
        double down =
            (here - moved_loss(instance, weights, loss, i, -step, inputs)) / (double)step;
        double slope = (up + down) / 2, tolerance = 0.01 + 0.01 * fabs(slope);
        if (fabs(up - down) > tolerance) continue;
        CHECK_NEAR(slope, (double)gradients[i], tolerance);
        (*tried)++;
    }
    solo_close(instance);
    rpi_weights_destroy(weights);
    rpi_graph_destroy(graph);
}

static void random_graphs(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 3);
    int tried = 0;
    for (int i = 0; i < 60; i++) check_random_graph(&rng, &tried);
    CHECK_MSG(tried > 500, "only %d differences were tried", tried);
}

/* ---- failures ---- */

static void bad_requests(void) {
    model m;
    batch b;
    rpi_instance *instance = NULL;
    build(&m);
    draw(&b);
    rpi_program_options options = {.training = true, .dimensions = {{"batch", 0}}};
    CHECK_FAILS(solo_open(m.graph, m.weights, m.loss, NULL, &options, &instance), INVALID,
                "dimension 'batch' is 0; at least 1 is wanted");
    options.dimensions[0].size = 2;
    CHECK_FAILS(solo_open(m.graph, m.weights, m.logits, NULL, &options, &instance), INVALID,
                "the loss 'fc2' is no scalar");
    CHECK_FAILS(solo_open(m.graph, m.weights, 999, NULL, &options, &instance), INVALID,
                "no value");
    CHECK_FAILS(solo_open(m.graph, m.weights, RPI_NO_VALUE, NULL, &options, &instance), INVALID,
                "without a loss");
    options.dimensions[0].name = "bacth";
    CHECK_FAILS(solo_open(m.graph, m.weights, m.loss, NULL, &options, &instance), INVALID,
                "the graph has no dimension 'bacth'; did you mean 'batch'?");
    options.dimensions[0].name = NULL;
    CHECK_FAILS(solo_open(m.graph, m.weights, m.loss, NULL, &options, &instance), INVALID,
                "'x' has a dimension 'batch', which is not bound");
    options.dimensions[0].name = options.dimensions[1].name = "batch";
    options.dimensions[1].size = 3;
    CHECK_FAILS(solo_open(m.graph, m.weights, m.loss, NULL, &options, &instance), INVALID,
                "dimension 'batch' is bound twice");
    options.dimensions[1].name = NULL;
    options.result_count = 1;
    options.results[0] = 0;
    CHECK_FAILS(solo_open(m.graph, m.weights, m.loss, NULL, &options, &instance), INVALID,
                "no activation");
    options.result_count = 99;
    CHECK_FAILS(solo_open(m.graph, m.weights, m.loss, NULL, &options, &instance), INVALID,
                "at most 72");
    REQUIRE_OK(compile(&m, ROWS, true, &instance));
    CHECK_FAILS(rpi_instance_run(instance, &(rpi_run_options){0}), INVALID, "input 'x'");
    b.labels[2] = CLASSES;
    CHECK_FAILS(run(instance, &b, 0, (rpi_run_options){0}), INVALID,
                "node 'loss' (softmax_cross_entropy): label 4 at labels[2]; 0 to 3");
    b.labels[2] = -1;
    CHECK_FAILS(run(instance, &b, 0, (rpi_run_options){0}), INVALID, "label -1");
    solo_close(instance);
    solo_close(NULL);
    close_model(&m);
}

static bool supports_nothing(const rpi_unit *unit) {
    (void)unit;
    return false;
}

static void unsupported(void) {
    model m;
    rpi_instance *instance = NULL;
    build(&m);
    rpi_backend backend = *rpi_backend_at(0);
    backend.supports = supports_nothing;
    backend.name = "empty";
    rpi_program_options options = {.dimensions = {{"batch", 1}}};
    CHECK_FAILS(solo_open(m.graph, m.weights, m.loss, &backend, &options, &instance),
                UNSUPPORTED, "node 'fc1' (linear): backend empty");
    close_model(&m);
}

/* A result that the loss does not depend on, made of what it does: no gradient comes from it.
 */
static void result_beside_the_loss(void) {
    model m;
    batch b;
    rpi_instance *plain = NULL, *more = NULL;
    rpi_tensor tensor;
    float gradients[512];
    build(&m);
    draw(&b);
    rpi_value_id beside = rpi_relu(m.graph, "beside", m.logits);
    rpi_program_options options = {.training = true,
                                   .dimensions = {{"batch", ROWS}},
                                   .result_count = 1,
                                   .results = {beside}};
    size_t bytes = (size_t)rpi_weights_count(m.weights) * sizeof(float);
    REQUIRE(bytes <= sizeof gradients);
    REQUIRE_OK(compile(&m, ROWS, true, &plain));
    REQUIRE_OK(run(plain, &b, 0, (rpi_run_options){0}));
    memcpy(gradients, rpi_weights_gradients(m.weights), bytes);
    REQUIRE_OK(solo_open(m.graph, m.weights, m.loss, NULL, &options, &more));
    REQUIRE_OK(run(more, &b, 0, (rpi_run_options){0}));
    REQUIRE_OK(rpi_instance_result(more, beside, &tensor));
    CHECK(!memcmp(gradients, rpi_weights_gradients(m.weights), bytes));
    solo_close(plain);
    solo_close(more);
    close_model(&m);
}

/* ---- a backend that offers to fuse and then has no kernel ---- */

static bool fuse_anything(void *session, const rpi_unit *unit, const rpi_node *next) {
    (void)session, (void)unit, (void)next;
    return true;
}

static int refused;

static rp_status plan_single(void *session, const rpi_unit *unit, rpi_kernel *kernel) {
    if (unit->node_count == 1) return rpi_backend_at(0)->plan(session, unit, kernel);
    refused++;
    return RP_FAIL(UNSUPPORTED, "no kernel for %d nodes", unit->node_count);
}

/* Refused units run node by node, and give the bits of a backend that fuses nothing. */
static void refused_fusion(void) {
    model m;
    batch b;
    rpi_instance *alone = NULL, *fused = NULL;
    float gradients[512];
    rpi_backend backend = *rpi_backend_at(0);
    backend.fuse = fuse_anything;
    backend.plan = plan_single;
    build(&m);
    draw(&b);
    rpi_program_options options = {.training = true, .dimensions = {{"batch", ROWS}}};
    size_t bytes = (size_t)rpi_weights_count(m.weights) * sizeof(float);
    REQUIRE(bytes <= sizeof gradients);
    REQUIRE_OK(compile(&m, ROWS, true, &alone));
    REQUIRE_OK(run(alone, &b, 0, (rpi_run_options){0}));
    memcpy(gradients, rpi_weights_gradients(m.weights), bytes);
    refused = 0;
    REQUIRE_OK(solo_open(m.graph, m.weights, m.loss, &backend, &options, &fused));
    CHECK(refused >= 2);
    REQUIRE_OK(run(fused, &b, 0, (rpi_run_options){0}));
    CHECK(loss_of(&m, alone) == loss_of(&m, fused));
    CHECK(!memcmp(gradients, rpi_weights_gradients(m.weights), bytes));
    solo_close(alone);
    solo_close(fused);
    close_model(&m);
}

static void allocation_failures(void) {
    model m;
    rpi_instance *instance = NULL;
    build(&m);
    rpi_memory_fail_after(0);
    REQUIRE_OK(compile(&m, ROWS, true, &instance));
    long total = rpi_memory_fail_after(0);
    solo_close(instance);
    CHECK(total > 10);
    for (long n = 1; n <= total; n++) {
        rpi_memory_fail_after(n);
        CHECK_FAILS(compile(&m, ROWS, true, &instance), NOMEM, "no memory");
    }
    rpi_memory_fail_after(0);
    close_model(&m);
}

CASES({"accumulation", accumulation}, {"unused_parameters", unused_parameters},
      {"finality", finality}, {"evaluation", evaluation}, {"flops", flops},
      {"reports", reports}, {"no_allocation", no_allocation}, {"random_graphs", random_graphs},
      {"bad_requests", bad_requests}, {"unsupported", unsupported},
      {"refused_fusion", refused_fusion}, {"result_beside_the_loss", result_beside_the_loss},
      {"allocation_failures", allocation_failures})
