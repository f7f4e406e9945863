/* Every backend against the reference: every example of every op, and a network in which
 * layouts meet, values have several consumers and units may be fused. */
#include "harness/check.h"
#include "op_fixture.h"
#include "shuffled_backend.h"

#include "base/memory.h"
#include "base/rng.h"
#include "engine/layers.h"

/* Relative L2 of each tensor, against sums in double; in bf16 both round the same factors. */
#define TOLERANCE 2e-5

/* Everything that a run leaves behind. */
typedef struct outcome {
    float *gradients, *states;
    float *outputs[RPI_NODE_OUTPUTS];
} outcome;

static void copy_floats(const float *from, int64_t count, float **out) {
    *out = NULL;
    REQUIRE_OK(rpi_alloc_array((size_t)count, sizeof(float), "an outcome", out));
    memcpy(*out, from, (size_t)count * sizeof(float));
}

static void copy_output(const op_fixture *fixture, const rpi_instance *instance, int index,
                        float **out) {
    rpi_tensor tensor;
    *out = NULL;
    REQUIRE_OK(rpi_instance_result(instance, fixture->outputs[index], &tensor));
    int64_t count = rpi_shape_count(&tensor.shape);
    REQUIRE_OK(rpi_alloc_array((size_t)count, sizeof(float), "an outcome", out));
    for (int64_t i = 0; i < count; i++)
        (*out)[i] = tensor.dtype == RP_F32 ? ((float *)tensor.data)[i]
                                           : (float)((int32_t *)tensor.data)[i];
}

static void free_outcome(outcome *o) {
    rpi_free(o->gradients);
    rpi_free(o->states);
    for (int i = 0; i < RPI_NODE_OUTPUTS; i++) rpi_free(o->outputs[i]);
}

/* One run that overwrites gradients, then `more` that add to them. */
static void run_op(const op_fixture *fixture, const rpi_backend *backend, bool training,
                   int more, outcome *out) {
    rpi_instance *instance = NULL;
    *out = (outcome){0};
    REQUIRE_OK(op_fixture_compile(fixture, backend, training, &instance));
    for (int i = 0; i <= more; i++) CHECK_OK(op_fixture_run(fixture, instance, i > 0));
    rpi_weights *weights = fixture->weights;
    copy_floats(rpi_weights_gradients(weights), rpi_weights_count(weights), &out->gradients);
    copy_floats(rpi_weights_states(weights), rpi_weights_states_count(weights), &out->states);
    for (int i = 0; i < fixture->op->output_count; i++)
        copy_output(fixture, instance, i, &out->outputs[i]);
    solo_close(instance);
}

static void compare(const op_fixture *fixture, const rpi_backend *backend, const char *what,
                    const float *got, const float *wanted, int64_t count) {
    double error = relative_l2(got, wanted, count);
    CHECK_MSG(error <= TOLERANCE, "%s: %s (%s): %s is off by %.2e", backend->name,
              fixture->op->name, fixture->example->name, what, error);
}

static void compare_outcomes(const op_fixture *fixture, const rpi_backend *backend,
                             const outcome *got, const outcome *wanted, bool training) {
    rpi_weights *weights = fixture->weights;
    for (int i = 0; training && i < rpi_weights_parameter_count(weights); i++) {
        const rpi_weight *weight = rpi_weights_parameter(weights, i);
        compare(fixture, backend, weight->name, got->gradients + weight->first,
                wanted->gradients + weight->first, weight->count);
    }
    for (int i = 0; i < rpi_weights_state_count(weights); i++) {
        const rpi_weight *weight = rpi_weights_state(weights, i);
        compare(fixture, backend, weight->name, got->states + weight->first,
                wanted->states + weight->first, weight->count);
    }
    for (int i = 0; i < fixture->op->output_count; i++) {
        const rpi_value *value = rpi_graph_value(fixture->graph, fixture->outputs[i]);
        compare(fixture, backend, fixture->op->outputs[i].name, got->outputs[i],
                wanted->outputs[i], rpi_shape_count(&value->shape));
    }
}

/* Each side has a fixture of its own, as states move. */
static void check_op(const rpi_op *op, const rpi_op_example *example,
                     const rpi_backend *backend, rp_dtype compute, bool training, int more) {
    op_fixture ours, reference;
    outcome got, wanted;
    uint64_t seed = check_seed();
    REQUIRE_OK(op_fixture_open(op, example, seed, &ours));
    REQUIRE_OK(op_fixture_open(op, example, seed, &reference));
    ours.compute = reference.compute = compute;
    run_op(&ours, backend, training, more, &got);
    run_op(&reference, rpi_backend_at(0), training, more, &wanted);
    if (!check_failures()) compare_outcomes(&ours, backend, &got, &wanted, training);
    free_outcome(&got);
    free_outcome(&wanted);
    op_fixture_close(&ours);
    op_fixture_close(&reference);
}

static void walk_ops(const rpi_backend *backend, rp_dtype compute, bool training, int more) {
    for (int i = 0; rpi_op_at(i); i++) {
        if (training && rpi_op_has_cache(rpi_op_at(i))) continue;
        for (int j = 0; j < rpi_op_at(i)->example_count; j++)
            check_op(rpi_op_at(i), &rpi_op_at(i)->examples[j], backend, compute, training,
                     more);
    }
}

static void walk(bool training, int more) {
    for (int b = 0; rpi_backend_at(b); b++) walk_ops(rpi_backend_at(b), RP_F32, training, more);
    shuffled_backend_seed(check_seed());
    walk_ops(&shuffled_backend, RP_F32, training, more);
}

static void ops_in_training(void) {
    walk(true, 0);
}

static void ops_accumulating(void) {
    walk(true, 1);
}

static void ops_in_evaluation(void) {
    walk(false, 0);
}

/* ---- products in bf16 ---- */

static void ops_in_bf16(void) {
    for (int b = 0; rpi_backend_at(b); b++) {
        if (rpi_backend_check_compute(rpi_backend_at(b), RP_BF16) != RP_OK) continue;
        walk_ops(rpi_backend_at(b), RP_BF16, true, 0);
        walk_ops(rpi_backend_at(b), RP_BF16, true, 1);
        walk_ops(rpi_backend_at(b), RP_BF16, false, 0);
    }
}

static void round_all(float *x, int64_t count) {
    for (int64_t i = 0; i < count; i++) x[i] = rp_bf16_to_f32(rp_f32_to_bf16(x[i]));
}

/* Input, weight and the output's gradient are rounded, the bias is not. */
static void round_factors(op_fixture *fixture) {
    const rpi_value *output = rpi_graph_value(fixture->graph, fixture->outputs[0]);
    round_all(fixture->coefficients, rpi_shape_count(&output->shape));
    for (int i = 0; i < 2; i++) {
        const rpi_weight *weight = op_fixture_weight(fixture, i);
        round_all(rpi_weights_values(fixture->weights) + weight->first, weight->count);
    }
}

/* In bf16 the reference gives the bits that it gives in f32 of inputs that were rounded before;
 * but for the bias, whose gradient is that of what was not. */
static void check_definition(const rpi_op *op, const rpi_op_example *example) {
    op_fixture rounded, plain;
    outcome in_f32, in_bf16;
    REQUIRE_OK(op_fixture_open(op, example, check_seed(), &rounded));
    REQUIRE_OK(op_fixture_open(op, example, check_seed(), &plain));
    round_factors(&rounded);
    plain.compute = RP_BF16;
    run_op(&rounded, rpi_backend_at(0), true, 0, &in_f32);
    run_op(&plain, rpi_backend_at(0), true, 0, &in_bf16);
    const rpi_value *output = rpi_graph_value(plain.graph, plain.outputs[0]);
    size_t bytes = sizeof(float) * (size_t)rpi_shape_count(&output->shape);
    CHECK_MSG(!memcmp(in_f32.outputs[0], in_bf16.outputs[0], bytes), "%s (%s): output",
              op->name, example->name);
    for (int i = 0; i < 2; i++) {
        const rpi_weight *weight = op_fixture_weight(&plain, i);
        CHECK_MSG(!memcmp(in_f32.gradients + weight->first, in_bf16.gradients + weight->first,
                          sizeof(float) * (size_t)weight->count),
                  "%s (%s): gradient of %s", op->name, example->name, weight->name);
    }
    free_outcome(&in_f32);
    free_outcome(&in_bf16);
    op_fixture_close(&rounded);
    op_fixture_close(&plain);
}

static void bf16_rounds_factors(void) {
    int products = 0;
    for (int i = 0; rpi_op_at(i); i++) {
        const rpi_op *op = rpi_op_at(i);
        if (strcmp(op->name, "linear") != 0 && strcmp(op->name, "conv2d") != 0) continue;
        products++;
        for (int j = 0; j < op->example_count; j++) check_definition(op, &op->examples[j]);
    }
    CHECK_EQ(products, 2);
}

/* A backend that says nothing computes in f32 alone. */
static void other_precisions_are_refused(void) {
    CHECK_OK(rpi_backend_check_compute(&shuffled_backend, 0));
    CHECK_OK(rpi_backend_check_compute(&shuffled_backend, RP_F32));
    CHECK_FAILS(rpi_backend_check_compute(&shuffled_backend, RP_BF16), UNSUPPORTED,
                "backend shuffled computes in f32 only; bf16 is not supported");
    for (int b = 0; rpi_backend_at(b); b++)
        CHECK_FAILS(rpi_backend_check_compute(rpi_backend_at(b), RP_F64), UNSUPPORTED, "f64");
}

/* ---- a network ---- */

enum { IMAGES = 4, CLASSES = 10, WIDTH = 24, RUNS = 3 };

static rpi_value_id conv_norm(rpi_graph *graph, const char *name, rpi_value_id x, int64_t from,
                              int64_t to, int stride) {
    char names[5][64];
    static const char *const parts[] = {"weight", "scale", "shift", "mean", "variance"};
    for (int i = 0; i < 5; i++) snprintf(names[i], sizeof names[i], "%s.%s", name, parts[i]);
    rpi_shape channels = SHAPE(to);
    rpi_value_id weight = rpi_graph_parameter(graph, names[0], SHAPE(to, from, 3, 3));
    x = rpi_conv2d(graph, names[0], x, weight, RPI_NO_VALUE,
                   (rpi_conv2d_attributes){.stride = stride, .padding = 1});
    return rpi_batch_norm2d(graph, name, x, rpi_graph_parameter(graph, names[1], channels),
                            rpi_graph_parameter(graph, names[2], channels),
                            rpi_graph_state(graph, names[3], channels),
                            rpi_graph_state(graph, names[4], channels),
                            (rpi_batch_norm2d_attributes){0});
}

/* A value with three consumers, a bias convolution, max pooling of a strided block, an image
 * tensor flattened into a linear layer, and one more gradient path around all of it. */
static rpi_value_id build_network(rpi_graph *graph) {
    rpi_value_id images = rpi_graph_input(
        graph, "images", RP_F32, SHAPE(rpi_graph_dimension(graph, "batch"), 3, 12, 12));
    rpi_value_id labels =
        rpi_graph_input(graph, "labels", RP_I32, SHAPE(rpi_graph_dimension(graph, "batch")));
    rpi_value_id scale = rpi_graph_input(graph, "scale", RP_F32, (rpi_shape){0});
    rpi_value_id x = rpi_relu(graph, "relu0", conv_norm(graph, "stem", images, 3, WIDTH, 1));
    rpi_value_id y = rpi_relu(graph, "relu1", conv_norm(graph, "left", x, WIDTH, WIDTH, 1));
    rpi_value_id z = conv_norm(graph, "right", x, WIDTH, WIDTH, 1);
    y = rpi_relu(graph, "relu2", rpi_add(graph, "sum", rpi_add(graph, "skip", y, z), x));
    y = rpi_max_pool2d(graph, "pool", y,
                       (rpi_max_pool2d_attributes){.kernel = 3, .stride = 2, .padding = 1});
    rpi_value_id narrow = rpi_conv2d(
        graph, "narrow", y, rpi_graph_parameter(graph, "narrow.weight", SHAPE(5, 24, 1, 1)),
        rpi_graph_parameter(graph, "narrow.bias", SHAPE(5)),
        (rpi_conv2d_attributes){.stride = 2});
    rpi_value_id flat = rpi_flatten(graph, "flat", narrow);
    flat = rpi_linear(graph, "head", flat,
                      rpi_graph_parameter(graph, "head.weight", SHAPE(10, 45)),
                      rpi_graph_parameter(graph, "head.bias", SHAPE(10)));
    rpi_value_id wide =
        rpi_linear(graph, "side", rpi_global_avg_pool(graph, "mean", y),
                   rpi_graph_parameter(graph, "side.weight", SHAPE(10, 24)), RPI_NO_VALUE);
    return rpi_softmax_cross_entropy(graph, "loss", rpi_add(graph, "logits", flat, wide),
                                     labels, scale);
}

static void draw(float *x, int64_t count, float scale, uint64_t index) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, index);
    for (int64_t i = 0; i < count; i++) x[i] = scale * rpi_rng_normal(&rng);
}

/* Gradients, states and loss after RUNS runs, the last one accumulating. */
static void run_network(const rpi_graph *graph, rpi_value_id loss, const rpi_backend *backend,
                        rpi_weights *weights, double *out_loss) {
    static float images[IMAGES * 3 * 12 * 12];
    static const int32_t labels[IMAGES] = {3, 0, 9, 3};
    const float scale = 1.0f / IMAGES;
    const void *inputs[] = {images, labels, &scale};
    rpi_instance *instance = NULL;
    rpi_program_options options = {.training = true, .dimensions = {{"batch", IMAGES}}};
    REQUIRE_OK(solo_open(graph, weights, loss, backend, &options, &instance));
    for (int i = 0; i < RUNS; i++) {
        draw(images, IMAGES * 3 * 12 * 12, 1, (uint64_t)i);
        draw(rpi_weights_values(weights), rpi_weights_count(weights), 0.2f, 100 + (uint64_t)i);
        rpi_weights_changed(weights, 0, rpi_weights_count(weights));
        rpi_run_options run = {.inputs = inputs, .accumulate = i == RUNS - 1};
        REQUIRE_OK(rpi_instance_run(instance, &run));
    }
    rpi_tensor tensor;
    REQUIRE_OK(rpi_instance_result(instance, loss, &tensor));
    *out_loss = (double)*(float *)tensor.data;
    solo_close(instance);
}

static void compare_network(const rpi_backend *backend, rpi_weights *got, rpi_weights *wanted,
                            double tolerance) {
    for (int i = 0; i < rpi_weights_parameter_count(got); i++) {
        const rpi_weight *weight = rpi_weights_parameter(got, i);
        double error =
            relative_l2(rpi_weights_gradients(got) + weight->first,
                        rpi_weights_gradients(wanted) + weight->first, weight->count);
        CHECK_MSG(error <= tolerance, "%s: gradient of %s is off by %.2e", backend->name,
                  weight->name, error);
    }
    double error = relative_l2(rpi_weights_states(got), rpi_weights_states(wanted),
                               rpi_weights_states_count(got));
    CHECK_MSG(error <= TOLERANCE, "%s: states are off by %.2e", backend->name, error);
}

/* A sign that rounding flips in a ReLU moves gradients by more than rounding: hence 1e-3. */
static void network(void) {
    rpi_graph *graph = NULL;
    rpi_weights *wanted = NULL;
    double wanted_loss = 0;
    REQUIRE_OK(rpi_graph_create(&graph));
    rpi_value_id loss = build_network(graph);
    REQUIRE_OK(rpi_weights_create(graph, loss, &wanted));
    run_network(graph, loss, rpi_backend_at(0), wanted, &wanted_loss);
    for (int b = 1; rpi_backend_at(b); b++) {
        rpi_weights *got = NULL;
        double got_loss = 0;
        REQUIRE_OK(rpi_weights_create(graph, loss, &got));
        run_network(graph, loss, rpi_backend_at(b), got, &got_loss);
        CHECK_NEAR(got_loss, wanted_loss, 1e-4 * fabs(wanted_loss));
        compare_network(rpi_backend_at(b), got, wanted, 1e-3);
        rpi_weights_destroy(got);
    }
    rpi_weights_destroy(wanted);
    rpi_graph_destroy(graph);
}

/* Whatever a backend chooses of layouts, fusions and places, forward is the reference's to the
 * bit, and gradients are but for the order of sums. */
static void shuffled(void) {
    rpi_graph *graph = NULL;
    rpi_weights *wanted = NULL;
    double wanted_loss = 0, got_loss = 0;
    int fusions = 0;
    REQUIRE_OK(rpi_graph_create(&graph));
    rpi_value_id loss = build_network(graph);
    REQUIRE_OK(rpi_weights_create(graph, loss, &wanted));
    run_network(graph, loss, rpi_backend_at(0), wanted, &wanted_loss);
    for (uint64_t i = 0; i < 25 && !check_failures(); i++) {
        rpi_weights *got = NULL;
        shuffled_backend_seed(check_seed() + i);
        REQUIRE_OK(rpi_weights_create(graph, loss, &got));
        run_network(graph, loss, &shuffled_backend, got, &got_loss);
        CHECK(got_loss == wanted_loss);
        compare_network(&shuffled_backend, got, wanted, 1e-5);
        fusions += shuffled_backend_fusions();
        rpi_weights_destroy(got);
    }
    CHECK(fusions > 25);
    rpi_weights_destroy(wanted);
    rpi_graph_destroy(graph);
}

/* The same run twice gives the same bytes. */
static void repeats(void) {
    rpi_graph *graph = NULL;
    REQUIRE_OK(rpi_graph_create(&graph));
    rpi_value_id loss = build_network(graph);
    for (int b = 0; rpi_backend_at(b); b++) {
        rpi_weights *weights[2] = {NULL, NULL};
        double losses[2] = {0, 1};
        for (int i = 0; i < 2; i++) {
            REQUIRE_OK(rpi_weights_create(graph, loss, &weights[i]));
            run_network(graph, loss, rpi_backend_at(b), weights[i], &losses[i]);
        }
        size_t bytes = sizeof(float) * (size_t)rpi_weights_count(weights[0]);
        CHECK_MSG(losses[0] == losses[1] && !memcmp(rpi_weights_gradients(weights[0]),
                                                    rpi_weights_gradients(weights[1]), bytes),
                  "%s: two runs differ", rpi_backend_at(b)->name);
        for (int i = 0; i < 2; i++) rpi_weights_destroy(weights[i]);
    }
    rpi_graph_destroy(graph);
}

static void catalogue(void) {
    const rpi_backend *found = NULL;
    for (int i = 0; rpi_backend_at(i); i++) {
        CHECK_OK(rpi_backend_find(rpi_backend_at(i)->name, &found));
        CHECK(found == rpi_backend_at(i));
    }
    CHECK(!strcmp(rpi_backend_at(0)->name, "reference"));
    CHECK_FAILS(rpi_backend_find("refrence", &found), INVALID, "did you mean 'reference'");
    if (!rpi_backend_at(1)) {
        CHECK_FAILS(rpi_backend_find("cpu", &found), UNSUPPORTED, "this build has none");
        return;
    }
    CHECK(!strcmp(rpi_backend_default()->name, "cpu"));
    /* a checkpoint of an older version */
    CHECK_OK(rpi_backend_find("onednn", &found));
    CHECK(found == rpi_backend_default());
}

CASES({"ops_in_training", ops_in_training}, {"ops_accumulating", ops_accumulating},
      {"ops_in_evaluation", ops_in_evaluation}, {"ops_in_bf16", ops_in_bf16},
      {"bf16_rounds_factors", bf16_rounds_factors},
      {"other_precisions_are_refused", other_precisions_are_refused}, {"network", network},
      {"shuffled", shuffled}, {"repeats", repeats}, {"catalogue", catalogue})
