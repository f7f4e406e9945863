/* Rows without a label cost nothing where they are many (hidden tokens, answers): every backend
 * has the reference's loss, counts and gradients whatever share of labels is ignored. */
#include "harness/check.h"
#include "op_fixture.h"

#include "base/rng.h"
#include "base/status.h"
#include "engine/layers.h"

#include <stdlib.h>

extern const rpi_backend rpi_backend_reference;

enum { ROWS = 300, WIDTH = 24, HIDDEN = 20, CLASSES = 37, PARAMETERS = 5, IGNORED = -100 };

static const char *const names[PARAMETERS] = {"body", "head", "head.bias", "other", "shift"};

typedef struct net {
    rpi_graph *graph;
    rpi_value_id loss, correct, valid;
    rpi_weights *weights;
    rpi_instance *instance;
} net;

/* Two heads read the body: the first one's gradient is added to, or adds. */
static void build(net *n) {
    *n = (net){0};
    REQUIRE_OK(rpi_graph_create(&n->graph));
    rpi_graph *g = n->graph;
    int64_t batch = rpi_graph_dimension(g, "batch");
    rpi_value_id x = rpi_graph_input(g, "x", RP_F32, SHAPE(batch, WIDTH));
    rpi_value_id labels = rpi_graph_input(g, "labels", RP_I32, SHAPE(batch));
    rpi_value_id all = rpi_graph_input(g, "all_labels", RP_I32, SHAPE(batch));
    rpi_value_id scale = rpi_graph_input(g, "scale", RP_F32, (rpi_shape){0});
    rpi_value_id body =
        rpi_linear(g, "body", x, rpi_graph_parameter(g, "body", SHAPE(HIDDEN, WIDTH)),
                   rpi_graph_parameter(g, "shift", SHAPE(HIDDEN)));
    rpi_value_id logits =
        rpi_linear(g, "logits", body, rpi_graph_parameter(g, "head", SHAPE(CLASSES, HIDDEN)),
                   rpi_graph_parameter(g, "head.bias", SHAPE(CLASSES)));
    rpi_value_id other =
        rpi_linear(g, "other_logits", body, rpi_graph_parameter(g, "other", SHAPE(3, HIDDEN)),
                   RPI_NO_VALUE);
    rpi_value_id first = rpi_softmax_cross_entropy(g, "loss", logits, labels, scale);
    n->correct = rpi_graph_output(g, first, 1);
    n->valid = rpi_graph_output(g, first, 2);
    n->loss = rpi_add(g, "both", first,
                      rpi_softmax_cross_entropy(g, "other_loss", other, all, scale));
    REQUIRE_OK(rpi_graph_check(g));
}

static void close_net(net *n) {
    solo_close(n->instance);
    rpi_weights_destroy(n->weights);
    rpi_graph_destroy(n->graph);
}

static void draw_weights(net *n) {
    for (int p = 0; p < PARAMETERS; p++) {
        const rpi_weight *w = rpi_weights_find(n->weights, names[p]);
        rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, (uint64_t)p);
        for (int64_t i = 0; i < w->count; i++)
            rpi_weights_values(n->weights)[w->first + i] = 0.3f * rpi_rng_normal(&rng);
    }
    rpi_weights_changed(n->weights, 0, rpi_weights_count(n->weights));
}

typedef struct batch {
    float x[ROWS * WIDTH];
    int32_t labels[ROWS], all[ROWS];
} batch;

/* Each label is ignored with this probability; the last one never, unless all are. */
static void draw_batch(batch *b, double ignored) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 77);
    for (int i = 0; i < ROWS * WIDTH; i++) b->x[i] = rpi_rng_normal(&rng);
    for (int i = 0; i < ROWS; i++) {
        int32_t label = (int32_t)rpi_rng_below(&rng, CLASSES);
        b->all[i] = label % 3;
        bool is_ignored =
            (double)rpi_rng_uniform(&rng) < ignored && (i < ROWS - 1 || ignored > 1);
        b->labels[i] = is_ignored ? IGNORED : label;
    }
}

typedef struct results {
    float loss;
    int32_t correct, valid;
    float *gradients; /* NULL: an evaluation */
    int64_t count;
} results;

static rp_status take(const net *n, rpi_value_id value, void *out) {
    rpi_tensor tensor;
    RP_TRY(rpi_instance_result(n->instance, value, &tensor));
    memcpy(out, tensor.data, 4);
    return RP_OK;
}

/* Twice, and gradients of both runs added. */
static void run(const rpi_backend *backend, const batch *b, bool training, results *out) {
    static const float scale = 1.0f / 64;
    net n;
    build(&n);
    rpi_program_options options = {.training = training,
                                   .dimensions = {{"batch", ROWS}},
                                   .result_count = 2,
                                   .results = {n.correct, n.valid}};
    REQUIRE_OK(rpi_weights_create(n.graph, n.loss, &n.weights));
    REQUIRE_OK(solo_open(n.graph, n.weights, n.loss, backend, &options, &n.instance));
    draw_weights(&n);
    const void *inputs[] = {b->x, b->labels, b->all, &scale};
    for (int i = 0; i < (training ? 2 : 1); i++)
        REQUIRE_OK(rpi_instance_run(n.instance,
                                    &(rpi_run_options){.inputs = inputs, .accumulate = i > 0}));
    CHECK_OK(take(&n, n.loss, &out->loss));
    CHECK_OK(take(&n, n.correct, &out->correct));
    CHECK_OK(take(&n, n.valid, &out->valid));
    out->count = training ? rpi_weights_count(n.weights) : 0;
    out->gradients = malloc((size_t)(out->count + 1) * sizeof(float));
    REQUIRE(out->gradients);
    memcpy(out->gradients, rpi_weights_gradients(n.weights),
           (size_t)out->count * sizeof(float));
    close_net(&n);
}

static void compare(const rpi_backend *backend, double ignored, bool training) {
    static batch b;
    results want = {0}, got = {0};
    draw_batch(&b, ignored);
    run(&rpi_backend_reference, &b, training, &want);
    run(backend, &b, training, &got);
    REQUIRE(want.gradients && got.gradients);
    CHECK_NEAR(got.loss / want.loss, 1, 1e-5);
    CHECK_EQ(got.correct, want.correct);
    CHECK_EQ(got.valid, want.valid);
    for (int64_t i = 0; i < want.count; i++)
        CHECK_MSG(fabs((double)(got.gradients[i] - want.gradients[i])) <= 2e-5,
                  "%s, %.2f ignored: gradient %lld is %g, not %g", backend->name, ignored,
                  (long long)i, (double)got.gradients[i], (double)want.gradients[i]);
    free(want.gradients);
    free(got.gradients);
}

static void any_share_of_labels(void) {
    static const double shares[] = {0, 0.1, 0.24, 0.27, 0.5, 0.85, 1, 2};
    for (int b = 0; rpi_backend_at(b); b++)
        for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
            compare(rpi_backend_at(b), shares[i], true);
            compare(rpi_backend_at(b), shares[i], false);
        }
}

/* The place of a wrong label is that of the batch, not that among the labels. */
static void wrong_labels_have_their_place(void) {
    static batch b;
    static const float scale = 1;
    for (int k = 0; rpi_backend_at(k); k++) {
        net n;
        build(&n);
        draw_batch(&b, 0.9);
        b.labels[250] = CLASSES;
        rpi_program_options options = {.training = true, .dimensions = {{"batch", ROWS}}};
        REQUIRE_OK(rpi_weights_create(n.graph, n.loss, &n.weights));
        REQUIRE_OK(
            solo_open(n.graph, n.weights, n.loss, rpi_backend_at(k), &options, &n.instance));
        draw_weights(&n);
        const void *inputs[] = {b.x, b.labels, b.all, &scale};
        CHECK_FAILS(rpi_instance_run(n.instance, &(rpi_run_options){.inputs = inputs}), INVALID,
                    "label 37 at labels[250]");
        close_net(&n);
    }
}

CASES({"any share of labels", any_share_of_labels},
      {"wrong labels have their place", wrong_labels_have_their_place})
