/* What the examples of ops cannot show: refusals by name and place, and a weight that two ops
 * share. On every backend. */
#include "harness/check.h"
#include "op_fixture.h"

#include "base/rng.h"
#include "base/status.h"
#include "engine/layers.h"

enum { BATCH = 2, LENGTH = 5, VOCABULARY = 11, WIDTH = 6 };

static const int32_t some_tokens[BATCH * LENGTH] = {3, 0, 10, 3, 7, 1, 3, 9, 10, 0};
static const int32_t next_tokens[BATCH * LENGTH] = {0, 10, 3, 7, 1, 3, 9, 10, 0, 2};

/* A graph of tokens with a loss, and one run of it. */
typedef struct net {
    rpi_graph *graph;
    rpi_value_id tokens, labels, scale, features, loss;
    rpi_weights *weights;
    rpi_instance *instance;
} net;

static void open_net(net *n) {
    *n = (net){0};
    REQUIRE_OK(rpi_graph_create(&n->graph));
    rpi_shape shape =
        SHAPE(rpi_graph_dimension(n->graph, "batch"), rpi_graph_dimension(n->graph, "length"));
    n->tokens = rpi_graph_input(n->graph, "tokens", RP_I32, shape);
    n->labels = rpi_graph_input(n->graph, "labels", RP_I32, shape);
    n->scale = rpi_graph_input(n->graph, "scale", RP_F32, (rpi_shape){0});
    shape.size[shape.dims++] = WIDTH;
    n->features = rpi_graph_input(n->graph, "features", RP_F32, shape);
}

static void close_net(net *n) {
    solo_close(n->instance);
    rpi_weights_destroy(n->weights);
    rpi_graph_destroy(n->graph);
}

static rp_status compile(net *n, const rpi_backend *backend, bool training, int64_t length) {
    rpi_program_options options = {.training = training,
                                   .result_count = 2,
                                   .results = {rpi_graph_output(n->graph, n->loss, 1),
                                               rpi_graph_output(n->graph, n->loss, 2)},
                                   .dimensions = {{"batch", BATCH}, {"length", length}}};
    RP_TRY(rpi_weights_create(n->graph, n->loss, &n->weights));
    return solo_open(n->graph, n->weights, n->loss, backend, &options, &n->instance);
}

static rp_status run(net *n, const int32_t *tokens, const int32_t *labels, bool accumulate) {
    static const float scale = 0.125f;
    float features[BATCH * LENGTH * WIDTH];
    const void *inputs[] = {tokens, labels, &scale, features};
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 99);
    for (int i = 0; i < BATCH * LENGTH * WIDTH; i++) features[i] = rpi_rng_normal(&rng);
    rpi_weights_changed(n->weights, 0, rpi_weights_count(n->weights));
    return rpi_instance_run(n->instance,
                            &(rpi_run_options){.inputs = inputs, .accumulate = accumulate});
}

static void draw(net *n, const char *name, uint64_t index) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, index);
    const rpi_weight *weight = rpi_weights_find(n->weights, name);
    REQUIRE(weight);
    float *x = rpi_weights_values(n->weights) + weight->first;
    for (int64_t i = 0; i < weight->count; i++) x[i] = rpi_rng_normal(&rng);
}

static const float *gradient_of(const net *n, const char *name) {
    return rpi_weights_gradients(n->weights) + rpi_weights_find(n->weights, name)->first;
}

/* ---- refusals ---- */

/* tokens -> embedding -> positions -> logits -> loss */
static void build_language_model(net *n, const char *head) {
    open_net(n);
    rpi_graph *g = n->graph;
    rpi_value_id table = rpi_graph_parameter(g, "table", SHAPE(VOCABULARY, WIDTH));
    rpi_value_id weight =
        strcmp(head, "table") ? rpi_graph_parameter(g, head, SHAPE(VOCABULARY, WIDTH)) : table;
    rpi_value_id x = rpi_embedding(g, "embed", n->tokens, table);
    x = rpi_position_embedding(g, "place", x,
                               rpi_graph_parameter(g, "positions", SHAPE(LENGTH + 3, WIDTH)));
    x = rpi_linear(g, "logits", x, weight, RPI_NO_VALUE);
    n->loss = rpi_softmax_cross_entropy(g, "loss", x, n->labels, n->scale);
    REQUIRE_OK(rpi_graph_check(g));
}

static void tokens_out_of_range(void) {
    static const int32_t wrong[] = {VOCABULARY, -1, INT32_MIN, INT32_MAX};
    for (int b = 0; rpi_backend_at(b); b++) {
        net n;
        int32_t tokens[BATCH * LENGTH];
        build_language_model(&n, "head");
        REQUIRE_OK(compile(&n, rpi_backend_at(b), true, LENGTH));
        for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
            char text[128];
            memcpy(tokens, some_tokens, sizeof tokens);
            tokens[LENGTH + 3] = wrong[i];
            snprintf(text, sizeof text,
                     "node 'embed' (embedding): token %d at tokens[1][3]; the table 'table' "
                     "has tokens 0 to 10",
                     (int)wrong[i]);
            CHECK_FAILS(run(&n, tokens, next_tokens, false), INVALID, text);
        }
        CHECK_OK(run(&n, some_tokens, next_tokens, false));
        close_net(&n);
    }
}

static void sequences_beyond_the_table(void) {
    for (int b = 0; rpi_backend_at(b); b++) {
        net n;
        build_language_model(&n, "head");
        CHECK_FAILS(compile(&n, rpi_backend_at(b), true, LENGTH + 4), INVALID,
                    "node 'place' (position_embedding): the sequence is 9 long; the table has "
                    "8 positions");
        close_net(&n);
    }
}

/* ---- labels ---- */

typedef struct scores {
    double loss;
    int32_t correct, valid;
} scores;

static void read_scores(const net *n, scores *out) {
    rpi_tensor loss, correct, valid;
    *out = (scores){0};
    REQUIRE_OK(rpi_instance_result(n->instance, n->loss, &loss));
    REQUIRE_OK(
        rpi_instance_result(n->instance, rpi_graph_output(n->graph, n->loss, 1), &correct));
    REQUIRE_OK(
        rpi_instance_result(n->instance, rpi_graph_output(n->graph, n->loss, 2), &valid));
    *out =
        (scores){(double)*(float *)loss.data, *(int32_t *)correct.data, *(int32_t *)valid.data};
}

/* Labels of even or odd places; the others are ignored. first 2: all are. */
static void score_half(net *n, int first, bool accumulate, scores *out) {
    int32_t labels[BATCH * LENGTH];
    for (int i = 0; i < BATCH * LENGTH; i++) labels[i] = i % 2 == first ? next_tokens[i] : -100;
    CHECK_OK(run(n, some_tokens, labels, accumulate));
    read_scores(n, out);
}

static void check_ignored(const rpi_backend *backend) {
    net n;
    scores all, even, odd, none;
    float wanted[VOCABULARY * WIDTH];
    build_language_model(&n, "head");
    REQUIRE_OK(compile(&n, backend, true, LENGTH));
    draw(&n, "table", 1);
    draw(&n, "head", 2);
    CHECK_OK(run(&n, some_tokens, next_tokens, false));
    read_scores(&n, &all);
    memcpy(wanted, gradient_of(&n, "head"), sizeof wanted);
    score_half(&n, 0, false, &even);
    score_half(&n, 1, true, &odd);
    CHECK_NEAR(even.loss + odd.loss, all.loss, 1e-6 * all.loss);
    CHECK_EQ(even.correct + odd.correct, all.correct);
    CHECK_EQ(all.valid, BATCH * LENGTH);
    CHECK_EQ(even.valid, BATCH * LENGTH / 2);
    double error = relative_l2(gradient_of(&n, "head"), wanted, VOCABULARY * WIDTH);
    CHECK_MSG(error < 1e-6, "%s: halves of the labels are off by %.2e", backend->name, error);
    score_half(&n, 2, false, &none);
    CHECK(none.loss == 0 && none.correct == 0 && none.valid == 0);
    for (int i = 0; i < VOCABULARY * WIDTH; i++) CHECK(gradient_of(&n, "head")[i] == 0);
    close_net(&n);
}

static void ignored_labels(void) {
    for (int b = 0; rpi_backend_at(b); b++) check_ignored(rpi_backend_at(b));
}

static void labels_out_of_range(void) {
    for (int b = 0; rpi_backend_at(b); b++) {
        net n;
        int32_t labels[BATCH * LENGTH];
        build_language_model(&n, "head");
        REQUIRE_OK(compile(&n, rpi_backend_at(b), true, LENGTH));
        memcpy(labels, next_tokens, sizeof labels);
        labels[2] = -100;
        CHECK_OK(run(&n, some_tokens, labels, false));
        labels[LENGTH] = -1;
        CHECK_FAILS(run(&n, some_tokens, labels, false), INVALID,
                    "node 'loss' (softmax_cross_entropy): label -1 at labels[1][0]; 0 to 10 "
                    "are allowed, and -100 for none");
        close_net(&n);
    }
}

static void refused_attributes(void) {
    net n;
    open_net(&n);
    rpi_value_id x = rpi_embedding(n.graph, "embed", n.tokens,
                                   rpi_graph_parameter(n.graph, "table", SHAPE(7, 7)));
    rpi_softmax_cross_entropy_with(n.graph, "loss", x, n.labels, n.scale,
                                   (rpi_cross_entropy_attributes){.smoothing = 1.5f});
    CHECK_FAILS(rpi_graph_check(n.graph), INVALID, "smoothing is 1.5; 0 to 1 are allowed");
    close_net(&n);
}

/* ---- a weight that the embedding and the last layer share ---- */

static void check_tied(const rpi_backend *backend, bool accumulate) {
    net tied, apart;
    float sums[VOCABULARY * WIDTH];
    build_language_model(&tied, "table");
    build_language_model(&apart, "head");
    REQUIRE_OK(compile(&tied, backend, true, LENGTH));
    REQUIRE_OK(compile(&apart, backend, true, LENGTH));
    draw(&tied, "table", 1);
    draw(&apart, "table", 1);
    draw(&apart, "head", 1);
    for (int i = 0; i <= accumulate; i++) {
        CHECK_OK(run(&tied, some_tokens, next_tokens, i));
        CHECK_OK(run(&apart, some_tokens, next_tokens, i));
    }
    for (int i = 0; i < VOCABULARY * WIDTH; i++)
        sums[i] = gradient_of(&apart, "table")[i] + gradient_of(&apart, "head")[i];
    double error = relative_l2(gradient_of(&tied, "table"), sums, VOCABULARY * WIDTH);
    CHECK_MSG(error < 1e-6, "%s: the tied gradient is off by %.2e", backend->name, error);
    error = relative_l2(gradient_of(&tied, "positions"), gradient_of(&apart, "positions"),
                        (LENGTH + 3) * WIDTH);
    CHECK_MSG(error < 1e-6, "%s: the positions' gradient is off by %.2e", backend->name, error);
    close_net(&tied);
    close_net(&apart);
}

static void tied_weight(void) {
    for (int b = 0; rpi_backend_at(b); b++)
        for (int accumulate = 0; accumulate < 2; accumulate++)
            check_tied(rpi_backend_at(b), accumulate);
}

/* ---- units that a backend fuses ---- */

/* Two layers with an activation each, of tokens or of features that have no gradient. */
static void build_mlp(net *n, bool of_features) {
    open_net(n);
    rpi_graph *g = n->graph;
    rpi_value_id x = n->features;
    if (!of_features)
        x = rpi_embedding(g, "embed", n->tokens,
                          rpi_graph_parameter(g, "table", SHAPE(VOCABULARY, WIDTH)));
    x = rpi_linear(g, "wide", x, rpi_graph_parameter(g, "wide.weight", SHAPE(17, WIDTH)),
                   rpi_graph_parameter(g, "wide.bias", SHAPE(17)));
    x = rpi_gelu(g, "gelu", x, RPI_GELU_TANH);
    x = rpi_linear(g, "plain", x, rpi_graph_parameter(g, "plain.weight", SHAPE(19, 17)),
                   RPI_NO_VALUE);
    x = rpi_silu(g, "silu", x);
    x = rpi_linear(g, "logits", x, rpi_graph_parameter(g, "head", SHAPE(VOCABULARY, 19)),
                   rpi_graph_parameter(g, "head.bias", SHAPE(VOCABULARY)));
    n->loss = rpi_softmax_cross_entropy(g, "loss", x, n->labels, n->scale);
    REQUIRE_OK(rpi_graph_check(g));
}

static void draw_all(net *n) {
    for (int i = 0; i < rpi_weights_parameter_count(n->weights); i++)
        draw(n, rpi_weights_parameter(n->weights, i)->name, 7);
}

static void compare_nets(const net *got, const net *wanted, const char *what) {
    scores a, b;
    read_scores(got, &a);
    read_scores(wanted, &b);
    CHECK_NEAR(a.loss, b.loss, 1e-5 * fabs(b.loss));
    CHECK(a.correct == b.correct && a.valid == b.valid);
    for (int i = 0; i < rpi_weights_parameter_count(wanted->weights); i++) {
        const rpi_weight *w = rpi_weights_parameter(wanted->weights, i);
        double error =
            relative_l2(gradient_of(got, w->name), gradient_of(wanted, w->name), w->count);
        CHECK_MSG(error < 2e-5, "%s: gradient of %s is off by %.2e", what, w->name, error);
    }
}

static void check_mlp(const rpi_backend *backend, bool of_features, bool accumulate) {
    net ours, reference;
    char what[96];
    snprintf(what, sizeof what, "%s, of %s%s", backend->name,
             of_features ? "features" : "tokens", accumulate ? ", accumulating" : "");
    build_mlp(&ours, of_features);
    build_mlp(&reference, of_features);
    REQUIRE_OK(compile(&ours, backend, true, LENGTH));
    REQUIRE_OK(compile(&reference, rpi_backend_at(0), true, LENGTH));
    draw_all(&ours);
    draw_all(&reference);
    for (int i = 0; i <= accumulate; i++) {
        CHECK_OK(run(&ours, some_tokens, next_tokens, i));
        CHECK_OK(run(&reference, some_tokens, next_tokens, i));
    }
    compare_nets(&ours, &reference, what);
    close_net(&ours);
    close_net(&reference);
}

static void activations_behind_layers(void) {
    for (int b = 1; rpi_backend_at(b); b++)
        for (int i = 0; i < 4; i++) check_mlp(rpi_backend_at(b), i & 1, i >> 1 & 1);
}

CASES({"tokens out of range", tokens_out_of_range},
      {"sequences beyond the table", sequences_beyond_the_table},
      {"ignored labels", ignored_labels}, {"labels out of range", labels_out_of_range},
      {"refused attributes", refused_attributes}, {"tied weight", tied_weight},
      {"activations behind layers", activations_behind_layers})
