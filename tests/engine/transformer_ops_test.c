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

static void tokens_beyond_the_sequence(void) {
    net n;
    open_net(&n);
    rpi_value_id x = rpi_select_token(n.graph, "first", n.features, 5);
    x = rpi_linear(n.graph, "logits", x, rpi_graph_parameter(n.graph, "w", SHAPE(3, WIDTH)),
                   RPI_NO_VALUE);
    rpi_value_id labels = rpi_graph_input(n.graph, "classes", RP_I32,
                                          SHAPE(rpi_graph_dimension(n.graph, "batch")));
    n.loss = rpi_softmax_cross_entropy(n.graph, "loss", x, labels, n.scale);
    CHECK_FAILS(compile(&n, rpi_backend_at(0), true, LENGTH), INVALID,
                "node 'first' (select_token): token 5 of a sequence of 5; 0 to 4 are there");
    close_net(&n);
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
                    "label -1 at labels[1][0]; 0 to 10 are allowed, and -100 for none");
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

/* ---- attention ---- */

enum { HEADS = 2, KV_HEADS = 1, HEAD = 4, TOKENS = 70, PACKED = (HEADS + 2 * KV_HEADS) * HEAD };

/* x as three inputs (linear layers pick its parts) or as one. */
static rpi_value_id part(rpi_graph *g, const char *name, rpi_value_id x, int64_t width) {
    char text[64];
    snprintf(text, sizeof text, "%s.weight", name);
    return rpi_linear(g, name, x, rpi_graph_parameter(g, text, SHAPE(width, PACKED)),
                      RPI_NO_VALUE);
}

typedef struct attention_net {
    rpi_graph *graph;
    rpi_value_id y;
    rpi_weights *weights;
    rpi_instance *instance;
} attention_net;

static void open_attention(attention_net *n, bool packed, const rpi_backend *backend) {
    *n = (attention_net){0};
    rpi_attention_attributes attributes = {
        .heads = HEADS, .kv_heads = KV_HEADS, .causal = true, .window = 9};
    REQUIRE_OK(rpi_graph_create(&n->graph));
    rpi_graph *g = n->graph;
    rpi_value_id x = rpi_graph_input(g, "x", RP_F32, SHAPE(1, TOKENS, PACKED));
    rpi_value_id documents = rpi_graph_input(g, "documents", RP_I32, SHAPE(1, TOKENS));
    if (packed) {
        n->y = rpi_self_attention(g, "attention", x, documents, attributes);
    } else {
        rpi_value_id q = part(g, "q", x, HEADS * HEAD), k = part(g, "k", x, KV_HEADS * HEAD);
        n->y = rpi_attention(g, "attention", q, k, part(g, "v", x, KV_HEADS * HEAD), documents,
                             attributes);
    }
    rpi_program_options options = {.result_count = 1, .results = {n->y}};
    REQUIRE_OK(rpi_graph_check(g));
    REQUIRE_OK(rpi_weights_create(g, RPI_NO_VALUE, &n->weights));
    REQUIRE_OK(solo_open(g, n->weights, RPI_NO_VALUE, backend, &options, &n->instance));
}

static void close_attention(attention_net *n) {
    solo_close(n->instance);
    rpi_weights_destroy(n->weights);
    rpi_graph_destroy(n->graph);
}

/* weight[i][first + i] = 1: picks elements of a token. */
static void set_part(attention_net *n, const char *name, int first) {
    const rpi_weight *w = rpi_weights_find(n->weights, name);
    float *x = rpi_weights_values(n->weights) + w->first;
    for (int64_t i = 0; i < w->shape.size[0]; i++) x[i * PACKED + first + i] = 1;
}

/* Queries see keys of their own document, not after them, less than 9 away: by a plain loop. */
static void attend(const float *x, const int32_t *documents, double *y) {
    for (int i = 0; i < TOKENS * HEADS; i++) {
        int t = i / HEADS, h = i % HEADS;
        double sum = 0, *out = y + i * HEAD;
        for (int c = 0; c < HEAD; c++) out[c] = 0;
        for (int s = t; s >= 0 && s > t - 9 && documents[s] == documents[t]; s--) {
            const float *q = x + t * PACKED + h * HEAD, *k = x + s * PACKED + HEADS * HEAD;
            double score = 0;
            for (int c = 0; c < HEAD; c++) score += (double)q[c] * (double)k[c];
            double weight = exp(score / sqrt(HEAD));
            sum += weight;
            for (int c = 0; c < HEAD; c++) out[c] += weight * (double)k[HEAD * KV_HEADS + c];
        }
        for (int c = 0; c < HEAD; c++) out[c] /= sum;
    }
}

static void check_attention(const rpi_backend *backend, bool packed) {
    attention_net n;
    float x[TOKENS * PACKED];
    int32_t documents[TOKENS];
    double wanted[TOKENS * HEADS * HEAD];
    rpi_tensor y;
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 5);
    for (int i = 0; i < TOKENS * PACKED; i++) x[i] = rpi_rng_normal(&rng);
    for (int i = 0; i < TOKENS; i++) documents[i] = i < 3 ? 4 : i < 40 ? 0 : 9;
    attend(x, documents, wanted);
    open_attention(&n, packed, backend);
    if (!n.instance) return;
    if (!packed) {
        set_part(&n, "q.weight", 0);
        set_part(&n, "k.weight", HEADS * HEAD);
        set_part(&n, "v.weight", (HEADS + KV_HEADS) * HEAD);
        rpi_weights_changed(n.weights, 0, rpi_weights_count(n.weights));
    }
    CHECK_OK(rpi_instance_run(n.instance,
                              &(rpi_run_options){.inputs = (const void *[]){x, documents}}));
    REQUIRE_OK(rpi_instance_result(n.instance, n.y, &y));
    for (int i = 0; i < TOKENS * HEADS * HEAD; i++)
        CHECK_NEAR((double)((float *)y.data)[i], wanted[i], 1e-5);
    close_attention(&n);
}

static void attention_sees_what_it_should(void) {
    for (int b = 0; rpi_backend_at(b); b++)
        for (int packed = 0; packed < 2; packed++) check_attention(rpi_backend_at(b), packed);
}

/* What is refused, and what the message holds. */
static void attention_refused(void) {
    static const struct {
        rpi_attention_attributes attributes;
        int64_t queries, keys, width;
        const char *part;
    } wrong[] = {
        {{.heads = 0}, 4, 4, 8, "heads is 0; 1 or more"},
        {{.heads = 4, .kv_heads = 3}, 4, 4, 8, "kv_heads is 3; a divisor of the 4 heads"},
        {{.heads = 3}, 4, 4, 8, "query is 2 x 4 x 8; 3 heads of at most 256 elements"},
        {{.heads = 2, .kv_heads = 1}, 4, 4, 8, "the same batch and size of heads"},
        {{.heads = 1}, 4, 4, 300, "1 heads of at most 256 elements"},
        {{.heads = 1, .causal = true}, 5, 4, 8, "5 queries and 4 keys"},
        {{.heads = 1, .window = -1}, 4, 4, 8, "window is -1"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        rpi_graph *g = NULL;
        REQUIRE_OK(rpi_graph_create(&g));
        rpi_shape keys = SHAPE(2, wrong[i].keys, wrong[i].width);
        rpi_attention(
            g, "attend",
            rpi_graph_input(g, "q", RP_F32, SHAPE(2, wrong[i].queries, wrong[i].width)),
            rpi_graph_input(g, "k", RP_F32, keys), rpi_graph_input(g, "v", RP_F32, keys),
            RPI_NO_VALUE, wrong[i].attributes);
        CHECK_FAILS(rpi_graph_check(g), INVALID, wrong[i].part);
        rpi_graph_destroy(g);
    }
}

/* ---- dropout ---- */

enum { DROPPED = 2000 };

/* gelu(dropout(x)): its gradient needs what dropout made, or makes it again. */
typedef struct dropout_net {
    op_fixture fixture;
    rpi_value_id y;
    rpi_instance *instance;
    float outputs[DROPPED], gradients[DROPPED];
} dropout_net;

static void open_dropout(dropout_net *n, const rpi_backend *backend, const char *name,
                         bool training, bool recompute) {
    *n = (dropout_net){0};
    const rpi_segment segment = {name, "gelu"};
    REQUIRE_OK(rpi_graph_create(&n->fixture.graph));
    rpi_graph *g = n->fixture.graph;
    rpi_value_id x = rpi_graph_parameter(g, "x", SHAPE(DROPPED));
    n->y = rpi_dropout(g, name, x, 0.25f);
    REQUIRE_OK(op_fixture_add_loss(&n->fixture, rpi_gelu(g, "gelu", n->y, RPI_GELU_TANH)));
    rpi_program_options options = {.training = training,
                                   .result_count = 1,
                                   .results = {n->y},
                                   .recompute = &segment,
                                   .recompute_count = recompute};
    for (int i = 0; i < DROPPED; i++) {
        n->fixture.coefficients[i] = 1;
        rpi_weights_values(n->fixture.weights)[i] = 1;
    }
    REQUIRE_OK(
        solo_open(g, n->fixture.weights, n->fixture.loss, backend, &options, &n->instance));
}

static void run_dropout(dropout_net *n, uint64_t seed, uint64_t step) {
    rpi_tensor y;
    REQUIRE_OK(rpi_instance_run(n->instance, &(rpi_run_options){.seed = seed, .step = step}));
    REQUIRE_OK(rpi_instance_result(n->instance, n->y, &y));
    memcpy(n->outputs, y.data, sizeof n->outputs);
    memcpy(n->gradients, rpi_weights_gradients(n->fixture.weights), sizeof n->gradients);
}

static void close_dropout(dropout_net *n) {
    solo_close(n->instance);
    op_fixture_close(&n->fixture);
}

/* Of one run: what a backend, a name, a seed and a step give. */
static void drop(const rpi_backend *backend, const char *name, bool recompute, uint64_t seed,
                 uint64_t step, dropout_net *out) {
    open_dropout(out, backend, name, true, recompute);
    if (out->instance) run_dropout(out, seed, step);
    close_dropout(out);
}

static int count_differences(const float *a, const float *b) {
    int count = 0;
    for (int i = 0; i < DROPPED; i++) count += a[i] != b[i];
    return count;
}

static void dropout_draws(void) {
    static dropout_net first, other;
    drop(rpi_backend_at(0), "drop", false, 5, 9, &first);
    int zeros = 0;
    for (int i = 0; i < DROPPED; i++) {
        zeros += first.outputs[i] == 0;
        CHECK(first.outputs[i] == 0 || first.outputs[i] == 4.0f / 3);
        CHECK((first.gradients[i] == 0) == (first.outputs[i] == 0));
    }
    CHECK_MSG(zeros > DROPPED / 5 && zeros < DROPPED * 3 / 10, "%d of %d are dropped", zeros,
              (int)DROPPED);
    for (int b = 0; rpi_backend_at(b); b++)
        for (int recompute = 0; recompute < 2; recompute++) {
            drop(rpi_backend_at(b), "drop", recompute, 5, 9, &other);
            CHECK(count_differences(first.outputs, other.outputs) == 0);
            for (int i = 0; i < DROPPED; i++)
                CHECK_NEAR((double)other.gradients[i], (double)first.gradients[i], 1e-6);
        }
    drop(rpi_backend_at(0), "drop", false, 6, 9, &other);
    CHECK(count_differences(first.outputs, other.outputs) > DROPPED / 4);
    drop(rpi_backend_at(0), "drop", false, 5, 10, &other);
    CHECK(count_differences(first.outputs, other.outputs) > DROPPED / 4);
    drop(rpi_backend_at(0), "drop2", false, 5, 9, &other);
    CHECK(count_differences(first.outputs, other.outputs) > DROPPED / 4);
}

static void dropout_rests_in_evaluation(void) {
    static dropout_net n;
    for (int b = 0; rpi_backend_at(b); b++) {
        open_dropout(&n, rpi_backend_at(b), "drop", false, false);
        if (!n.instance) return;
        run_dropout(&n, 5, 9);
        for (int i = 0; i < DROPPED; i++) CHECK(n.outputs[i] == 1);
        close_dropout(&n);
    }
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

/* The same weights in both; runs of both, `more` of them accumulating. */
static void run_both(net *ours, net *reference, int more) {
    draw_all(ours);
    draw_all(reference);
    for (int i = 0; i <= more; i++) {
        CHECK_OK(run(ours, some_tokens, next_tokens, i));
        CHECK_OK(run(reference, some_tokens, next_tokens, i));
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
    run_both(&ours, &reference, accumulate);
    compare_nets(&ours, &reference, what);
    close_net(&ours);
    close_net(&reference);
}

static void activations_behind_layers(void) {
    for (int b = 1; rpi_backend_at(b); b++)
        for (int i = 0; i < 4; i++) check_mlp(rpi_backend_at(b), i & 1, i >> 1 & 1);
}

/* Both halves of backward by themselves: the second of a fused unit reads what the first left.
 */
static void halves_of_fused_units(void) {
    static const float scale = 0.125f;
    for (int b = 1; rpi_backend_at(b); b++)
        for (int of_features = 0; of_features < 2; of_features++) {
            net whole, apart;
            rpi_program_options options = {
                .training = true,
                .halves_apart = true,
                .dimensions = {{"batch", BATCH}, {"length", LENGTH}}};
            static const float features[BATCH * LENGTH * WIDTH] = {1, -2, 3, 0.5f, 7, -1};
            const void *inputs[] = {some_tokens, next_tokens, &scale, features};
            rpi_run_options run_options = {.inputs = inputs};
            build_mlp(&whole, of_features);
            build_mlp(&apart, of_features);
            REQUIRE_OK(compile(&whole, rpi_backend_at(b), true, LENGTH));
            REQUIRE_OK(rpi_weights_create(apart.graph, apart.loss, &apart.weights));
            REQUIRE_OK(solo_open(apart.graph, apart.weights, apart.loss, rpi_backend_at(b),
                                 &options, &apart.instance));
            draw_all(&whole);
            draw_all(&apart);
            rpi_weights_changed(whole.weights, 0, rpi_weights_count(whole.weights));
            rpi_weights_changed(apart.weights, 0, rpi_weights_count(apart.weights));
            CHECK_OK(rpi_instance_run(whole.instance, &run_options));
            CHECK_OK(rpi_instance_forward(apart.instance, &run_options));
            CHECK_OK(rpi_instance_backward_inputs(apart.instance, &run_options));
            CHECK_OK(rpi_instance_backward_weights(apart.instance, &run_options));
            CHECK(!memcmp(rpi_weights_gradients(whole.weights),
                          rpi_weights_gradients(apart.weights),
                          sizeof(float) * (size_t)rpi_weights_count(whole.weights)));
            close_net(&whole);
            close_net(&apart);
        }
}

/* The loss is a part of something else: its gradient is 2. */
static void loss_is_a_part(void) {
    for (int b = 1; rpi_backend_at(b); b++)
        for (int of_features = 0; of_features < 2; of_features++) {
            net ours, reference;
            net *both[] = {&ours, &reference};
            for (int i = 0; i < 2; i++) {
                net *n = both[i];
                build_mlp(n, of_features);
                rpi_value_id twice = rpi_add(n->graph, "twice", n->loss, n->loss);
                rpi_program_options options = {
                    .training = true, .dimensions = {{"batch", BATCH}, {"length", LENGTH}}};
                REQUIRE_OK(rpi_weights_create(n->graph, twice, &n->weights));
                REQUIRE_OK(solo_open(n->graph, n->weights, twice, rpi_backend_at(i ? 0 : b),
                                     &options, &n->instance));
            }
            run_both(&ours, &reference, 1);
            double error = relative_l2(rpi_weights_gradients(ours.weights),
                                       rpi_weights_gradients(reference.weights),
                                       rpi_weights_count(ours.weights));
            CHECK_MSG(error < 2e-5, "%s: gradients are off by %.2e", rpi_backend_at(b)->name,
                      error);
            close_net(&ours);
            close_net(&reference);
        }
}

/* More rows than the fast backend has logits of at a time. */
static void evaluates_row_by_row(void) {
    enum { LONG = 333 };
    static int32_t tokens[BATCH * LONG], labels[BATCH * LONG];
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 8);
    for (int i = 0; i < BATCH * LONG; i++) {
        tokens[i] = (int32_t)rpi_rng_below(&rng, VOCABULARY);
        labels[i] = i % 5 ? (int32_t)rpi_rng_below(&rng, VOCABULARY) : -100;
    }
    scores got, wanted = {0};
    for (int b = 0; rpi_backend_at(b); b++) {
        net n;
        labels[BATCH * LONG - 1] = 0;
        build_mlp(&n, false);
        REQUIRE_OK(compile(&n, rpi_backend_at(b), false, LONG));
        draw_all(&n);
        CHECK_OK(run(&n, tokens, labels, false));
        read_scores(&n, &got);
        if (b == 0) wanted = got;
        CHECK_NEAR(got.loss, wanted.loss, 1e-5 * wanted.loss);
        CHECK(got.correct == wanted.correct && got.valid == wanted.valid);
        labels[BATCH * LONG - 1] = VOCABULARY;
        CHECK_FAILS(run(&n, tokens, labels, false), INVALID, "label 11 at labels[1][332]");
        close_net(&n);
    }
}

/* NaN and infinity in a weight of each layer come out where the reference has them. */
static void nonfinite_through_fused_units(void) {
    static const float values[] = {NAN, INFINITY, -INFINITY};
    static const char *const names[] = {"wide.weight", "wide.bias", "plain.weight", "head",
                                        "head.bias"};
    for (int b = 1; rpi_backend_at(b); b++)
        for (int i = 0; i < 15; i++) {
            net ours, reference;
            net *both[] = {&ours, &reference};
            for (int j = 0; j < 2; j++) {
                build_mlp(both[j], false);
                REQUIRE_OK(compile(both[j], rpi_backend_at(j ? 0 : b), true, LENGTH));
                draw_all(both[j]);
                const rpi_weight *w = rpi_weights_find(both[j]->weights, names[i % 5]);
                rpi_weights_values(both[j]->weights)[w->first + 3] = values[i / 5];
                CHECK_OK(run(both[j], some_tokens, next_tokens, false));
            }
            const float *x = rpi_weights_gradients(ours.weights);
            const float *y = rpi_weights_gradients(reference.weights);
            int wrong = 0;
            for (int64_t j = 0; j < rpi_weights_count(ours.weights); j++)
                wrong += isnan(x[j]) != isnan(y[j]) || isinf(x[j]) != isinf(y[j]);
            CHECK_MSG(!wrong, "%s: %g in %s: %d elements are of another kind",
                      rpi_backend_at(b)->name, (double)values[i / 5], names[i % 5], wrong);
            close_net(&ours);
            close_net(&reference);
        }
}

CASES({"tokens out of range", tokens_out_of_range},
      {"sequences beyond the table", sequences_beyond_the_table},
      {"tokens beyond the sequence", tokens_beyond_the_sequence},
      {"ignored labels", ignored_labels}, {"labels out of range", labels_out_of_range},
      {"refused attributes", refused_attributes}, {"tied weight", tied_weight},
      {"attention sees what it should", attention_sees_what_it_should},
      {"attention refused", attention_refused}, {"dropout draws", dropout_draws},
      {"dropout rests in evaluation", dropout_rests_in_evaluation},
      {"activations behind layers", activations_behind_layers},
      {"halves of fused units", halves_of_fused_units}, {"loss is a part", loss_is_a_part},
      {"evaluates row by row", evaluates_row_by_row},
      {"nonfinite through fused units", nonfinite_through_fused_units})
