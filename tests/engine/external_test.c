/* External nodes: both halves run, in both directions, and other work runs in between. */
#include "harness/check.h"
#include "solo.h"

#include "engine/layers.h"
#include "op_fixture.h"

enum { ROWS = 2, WIDTH = 3, EVENTS = 64 };

/* y = 2 x, as a communication would be: started with the input, delivered at the finish. */
typedef struct doubler {
    const void *started_from, *started_to;
    int starts, finishes;
    rp_status failure;
} doubler;

static rp_status start(void *context, const rpi_external_io *io) {
    doubler *d = context;
    d->started_from = io->inputs[0].data;
    d->started_to = io->outputs[0].data;
    d->starts++;
    return d->failure == RP_OK ? RP_OK : RP_FAIL(PEER, "rank 1 is gone");
}

static rp_status finish(void *context, const rpi_external_io *io) {
    doubler *d = context;
    const float *x = io->inputs[0].data;
    float *y = io->outputs[0].data;
    CHECK(d->started_from == x && d->started_to == y);
    CHECK(rpi_shape_equal(&io->inputs[0].shape, &io->outputs[0].shape));
    for (int64_t i = 0; i < rpi_shape_count(&io->inputs[0].shape); i++) y[i] = 2 * x[i];
    d->finishes++;
    return RP_OK;
}

/* What ran, in order: "loss softmax_cross_entropy", "wire finish" ... */
typedef struct record {
    char text[EVENTS][64];
    int count;
} record;

static void on_step(void *context, const rpi_step_report *report) {
    record *r = context;
    if (r->count < EVENTS)
        snprintf(r->text[r->count++], sizeof r->text[0], "%s %s", report->name, report->what);
}

static int position(const record *r, const char *text, int from) {
    for (int i = from; i < r->count; i++)
        if (!strcmp(r->text[i], text)) return i;
    return -1;
}

/* x -> first -> wire -> relu -> sum and x -> side -> work -> sum: in forward `work` overlaps
 * with the wire, in backward `side` does. */
typedef struct net {
    rpi_graph *graph;
    rpi_weights *weights;
    rpi_value_id loss, summed;
    rpi_instance *instance;
} net;

static void build(net *n, rpi_external_attributes attributes) {
    *n = (net){0};
    REQUIRE_OK(rpi_graph_create(&n->graph));
    rpi_value_id labels = rpi_graph_input(n->graph, "labels", RP_I32, SHAPE(ROWS));
    rpi_value_id scale = rpi_graph_input(n->graph, "scale", RP_F32, (rpi_shape){0});
    rpi_value_id x = rpi_graph_parameter(n->graph, "x", SHAPE(ROWS, WIDTH));
    rpi_value_id weight = rpi_graph_parameter(n->graph, "weight", SHAPE(WIDTH, WIDTH));
    rpi_value_id first = rpi_linear(n->graph, "first", x, weight, RPI_NO_VALUE);
    rpi_value_id other = rpi_graph_parameter(n->graph, "other", SHAPE(WIDTH, WIDTH));
    rpi_value_id side = rpi_linear(n->graph, "side", x, other, RPI_NO_VALUE);
    rpi_value_id wired = rpi_external(n->graph, "wire", first, attributes);
    rpi_value_id work = rpi_relu(n->graph, "work", side);
    n->summed = rpi_add(n->graph, "sum", rpi_relu(n->graph, "relu", wired), work);
    n->loss = rpi_softmax_cross_entropy(n->graph, "loss", n->summed, labels, scale);
    REQUIRE_OK(rpi_weights_create(n->graph, n->loss, &n->weights));
    for (int64_t i = 0; i < rpi_weights_count(n->weights); i++)
        rpi_weights_values(n->weights)[i] = 0.1f * (float)(i + 1);
    rpi_program_options options = {.training = true, .result_count = 1, .results = {n->summed}};
    REQUIRE_OK(solo_open(n->graph, n->weights, n->loss, NULL, &options, &n->instance));
}

static void close_net(net *n) {
    solo_close(n->instance);
    rpi_weights_destroy(n->weights);
    rpi_graph_destroy(n->graph);
}

static rp_status run(net *n, record *r) {
    static const int32_t labels[ROWS] = {0, 2};
    const float scale = 0.5f;
    const void *inputs[] = {labels, &scale};
    return rpi_instance_run(
        n->instance, &(rpi_run_options){.inputs = inputs, .on_step = on_step, .context = r});
}

static void both_halves(void) {
    net n;
    record r = {0};
    doubler forward = {0};
    build(&n, (rpi_external_attributes){.context = &forward,
                                        .forward_start = start,
                                        .forward_finish = finish,
                                        .backward_start = start,
                                        .backward_finish = finish});
    REQUIRE_OK(run(&n, &r));
    CHECK_EQ(forward.starts, 2);
    CHECK_EQ(forward.finishes, 2);
    int started = position(&r, "wire start", 0), finished = position(&r, "wire finish", 0);
    int work = position(&r, "work relu", 0), used = position(&r, "relu relu", 0);
    CHECK(started >= 0 && started < work && work < finished && finished < used);
    int back_start = position(&r, "wire start", finished);
    int back_finish = position(&r, "wire finish", finished + 1);
    int back_work = position(&r, "side linear", finished);
    int back_use = position(&r, "first linear", finished);
    CHECK(back_start > 0 && back_start < back_work && back_work < back_finish);
    CHECK(back_finish < back_use);
    close_net(&n);
}

/* Gradients are those of doubling, by differences. */
static void numbers(void) {
    net n;
    record r = {0};
    doubler d = {0};
    build(&n, (rpi_external_attributes){.context = &d,
                                        .forward_start = start,
                                        .forward_finish = finish,
                                        .backward_start = start,
                                        .backward_finish = finish});
    REQUIRE_OK(run(&n, &r));
    int64_t count = rpi_weights_count(n.weights);
    float gradients[64];
    REQUIRE(count <= 64);
    memcpy(gradients, rpi_weights_gradients(n.weights), (size_t)count * sizeof(float));
    for (int64_t i = 0; i < count; i++) {
        float *value = rpi_weights_values(n.weights) + i;
        const float kept = *value, step = 2e-3f;
        double loss[2];
        for (int side = 0; side < 2; side++) {
            rpi_tensor tensor;
            *value = side ? kept + step : kept - step;
            REQUIRE_OK(run(&n, &r));
            REQUIRE_OK(rpi_instance_result(n.instance, n.loss, &tensor));
            loss[side] = (double)*(float *)tensor.data;
        }
        *value = kept;
        CHECK_NEAR((loss[1] - loss[0]) / (2 * (double)step), (double)gradients[i], 1e-3);
    }
    close_net(&n);
}

/* x -> before -> wire -> after: what tensor parallelism does in front of a split layer. The
 * gradient that the wire sends leaves before the gradient of the layer's weight is made. */
static void hides_under_weights(void) {
    rpi_graph *graph = NULL;
    rpi_weights *weights = NULL;
    rpi_instance *instance = NULL;
    record r = {0};
    doubler d = {0};
    static const int32_t labels[ROWS] = {0, 2};
    const float scale = 1;
    const void *inputs[] = {labels, &scale};
    REQUIRE_OK(rpi_graph_create(&graph));
    rpi_value_id label = rpi_graph_input(graph, "labels", RP_I32, SHAPE(ROWS));
    rpi_value_id factor = rpi_graph_input(graph, "scale", RP_F32, (rpi_shape){0});
    rpi_value_id x = rpi_graph_parameter(graph, "x", SHAPE(ROWS, WIDTH));
    rpi_value_id w1 = rpi_graph_parameter(graph, "w1", SHAPE(WIDTH, WIDTH));
    rpi_value_id w2 = rpi_graph_parameter(graph, "w2", SHAPE(WIDTH, WIDTH));
    x = rpi_linear(graph, "before", x, w1, RPI_NO_VALUE);
    x = rpi_external(graph, "wire", x,
                     (rpi_external_attributes){.context = &d,
                                               .forward_start = start,
                                               .forward_finish = finish,
                                               .backward_start = start,
                                               .backward_finish = finish});
    x = rpi_linear(graph, "after", x, w2, RPI_NO_VALUE);
    rpi_value_id loss = rpi_softmax_cross_entropy(graph, "loss", x, label, factor);
    REQUIRE_OK(rpi_weights_create(graph, loss, &weights));
    rpi_program_options options = {.training = true};
    REQUIRE_OK(solo_open(graph, weights, loss, NULL, &options, &instance));
    REQUIRE_OK(rpi_instance_run(
        instance, &(rpi_run_options){.inputs = inputs, .on_step = on_step, .context = &r}));
    int begin = position(&r, "loss softmax_cross_entropy", 0);
    begin = position(&r, "loss softmax_cross_entropy", begin + 1);
    int to_inputs = position(&r, "after linear", begin);
    int start_at = position(&r, "wire start", begin);
    int to_weights = position(&r, "after linear", to_inputs + 1);
    int finish_at = position(&r, "wire finish", begin);
    CHECK(to_inputs > 0 && to_inputs < start_at && start_at < to_weights &&
          to_weights < finish_at);
    solo_close(instance);
    rpi_weights_destroy(weights);
    rpi_graph_destroy(graph);
}

/* Queries and keys of one input: its gradient leaves when both have added to it, in front of
 * the gradients of both weights. */
static void hides_under_both_weights(void) {
    rpi_graph *graph = NULL;
    rpi_weights *weights = NULL;
    rpi_instance *instance = NULL;
    record r = {0};
    doubler d = {0};
    static const int32_t labels[ROWS] = {0, 2};
    const float scale = 1;
    const void *inputs[] = {labels, &scale};
    REQUIRE_OK(rpi_graph_create(&graph));
    rpi_value_id label = rpi_graph_input(graph, "labels", RP_I32, SHAPE(ROWS));
    rpi_value_id factor = rpi_graph_input(graph, "scale", RP_F32, (rpi_shape){0});
    rpi_value_id x = rpi_graph_parameter(graph, "x", SHAPE(ROWS, WIDTH)), y[2];
    x = rpi_relu(graph, "before", x);
    x = rpi_external(graph, "wire", x,
                     (rpi_external_attributes){
                         .context = &d, .backward_start = start, .backward_finish = finish});
    for (int i = 0; i < 2; i++) {
        rpi_value_id w = rpi_graph_parameter(graph, i ? "w k" : "w q", SHAPE(WIDTH, WIDTH));
        y[i] = rpi_linear(graph, i ? "k" : "q", x, w, RPI_NO_VALUE);
    }
    rpi_value_id loss = rpi_softmax_cross_entropy(
        graph, "loss", rpi_add(graph, "sum", y[0], y[1]), label, factor);
    REQUIRE_OK(rpi_weights_create(graph, loss, &weights));
    for (int64_t i = 0; i < rpi_weights_count(weights); i++)
        rpi_weights_values(weights)[i] = 0.1f * (float)(i + 1);
    rpi_program_options options = {.training = true};
    REQUIRE_OK(solo_open(graph, weights, loss, NULL, &options, &instance));
    REQUIRE_OK(rpi_instance_run(
        instance, &(rpi_run_options){.inputs = inputs, .on_step = on_step, .context = &r}));
    int begin = position(&r, "loss softmax_cross_entropy", 0);
    int k = position(&r, "k linear", begin), q = position(&r, "q linear", begin);
    int sent = position(&r, "wire start", begin), came = position(&r, "wire finish", begin);
    CHECK(k > begin && k < q && q < sent);
    for (int i = 0; i < 2; i++) {
        int weight = position(&r, i ? "k linear" : "q linear", sent);
        CHECK(weight > sent && weight < came);
    }
    CHECK(came < position(&r, "before relu", sent));
    solo_close(instance);
    rpi_weights_destroy(weights);
    rpi_graph_destroy(graph);
}

/* Straight on a parameter, whose gradient must go to the arena, and beside another consumer. */
static void on_a_parameter(void) {
    rpi_graph *graph = NULL;
    rpi_weights *weights = NULL;
    rpi_instance *instance = NULL;
    doubler d = {0};
    const int32_t labels[ROWS] = {1, 1};
    const float scale = 1;
    const void *inputs[] = {labels, &scale};
    REQUIRE_OK(rpi_graph_create(&graph));
    rpi_value_id label = rpi_graph_input(graph, "labels", RP_I32, SHAPE(ROWS));
    rpi_value_id factor = rpi_graph_input(graph, "scale", RP_F32, (rpi_shape){0});
    rpi_value_id x = rpi_graph_parameter(graph, "x", SHAPE(ROWS, WIDTH));
    rpi_value_id wired = rpi_external(graph, "wire", x,
                                      (rpi_external_attributes){.context = &d,
                                                                .forward_start = start,
                                                                .forward_finish = finish,
                                                                .backward_start = start,
                                                                .backward_finish = finish});
    rpi_value_id loss = rpi_softmax_cross_entropy(
        graph, "loss", rpi_add(graph, "sum", wired, x), label, factor);
    REQUIRE_OK(rpi_weights_create(graph, loss, &weights));
    rpi_program_options options = {.training = true};
    REQUIRE_OK(solo_open(graph, weights, loss, NULL, &options, &instance));
    REQUIRE_OK(rpi_instance_run(instance, &(rpi_run_options){.inputs = inputs}));
    /* All logits are 0: d loss / d logit is 1/3 less the label, and d logit / d x is 3. */
    for (int i = 0; i < ROWS * WIDTH; i++)
        CHECK_NEAR((double)rpi_weights_gradients(weights)[i], i % WIDTH == 1 ? -2 : 1, 1e-6);
    solo_close(instance);
    rpi_weights_destroy(weights);
    rpi_graph_destroy(graph);
}

/* Without a backward the gradient passes; with one half each, that half does it all. */
static void halves_alone(void) {
    net n;
    record r = {0};
    doubler d = {0};
    build(&n, (rpi_external_attributes){.context = &d, .forward_start = start});
    REQUIRE_OK(run(&n, &r));
    CHECK_EQ(d.starts, 1);
    CHECK(position(&r, "wire finish", 0) < 0);
    close_net(&n);
}

static float double_one(net *n, const rpi_external_attributes *attributes, float *gradients,
                        record *r) {
    rpi_tensor loss;
    build(n, *attributes);
    CHECK_OK(run(n, r));
    memcpy(gradients, rpi_weights_gradients(n->weights),
           sizeof(float) * (size_t)rpi_weights_count(n->weights));
    CHECK_OK(rpi_instance_result(n->instance, n->loss, &loss));
    float value = *(const float *)loss.data;
    close_net(n);
    return value;
}

static rp_status hand_on(void *context, const rpi_external_io *io) {
    (void)context;
    memcpy(io->outputs[0].data, io->inputs[0].data,
           sizeof(float) * (size_t)rpi_shape_count(&io->inputs[0].shape));
    return RP_OK;
}

/* ---- what is not kept but made again ---- */

enum { BLOCKS = 3, COPIES = 4, NARROW = 16, WIDE = COPIES * NARROW, TALL = 32 };

/* Each row so many times, side by side: as what several ranks have. */
static rp_status widen(void *context, const rpi_external_io *io) {
    doubler *d = context;
    const float *x = io->inputs[0].data;
    float *y = io->outputs[0].data;
    for (int i = 0; i < TALL * WIDE; i++) y[i] = x[i / WIDE * NARROW + i % NARROW];
    d->finishes++;
    return RP_OK;
}

static rp_status add_copies(void *context, const rpi_external_io *io) {
    const float *x = io->inputs[0].data;
    float *y = io->outputs[0].data;
    (void)context;
    memset(y, 0, TALL * NARROW * sizeof *y);
    for (int i = 0; i < TALL * WIDE; i++) y[i / WIDE * NARROW + i % NARROW] += x[i];
    return RP_OK;
}

/* BLOCKS times x -> tanh -> wire -> up -> relu: the wires' outputs, which are wide, are what
 * products read backward. */
static void build_wired(rpi_graph *graph, const rpi_external_attributes *wire,
                        rpi_value_id *out_loss) {
    rpi_value_id labels = rpi_graph_input(graph, "labels", RP_I32, SHAPE(TALL));
    rpi_value_id scale = rpi_graph_input(graph, "scale", RP_F32, (rpi_shape){0});
    rpi_value_id x = rpi_graph_parameter(graph, "x", SHAPE(TALL, NARROW));
    for (int b = 0; b < BLOCKS; b++) {
        char name[4][16];
        static const char *const parts[] = {"tanh", "wire", "up", "relu"};
        for (int i = 0; i < 4; i++) snprintf(name[i], sizeof name[i], "%s%d", parts[i], b);
        rpi_value_id weight = rpi_graph_parameter(graph, name[3], SHAPE(NARROW, WIDE));
        x = rpi_tanh(graph, name[0], x);
        x = rpi_external(graph, name[1], x, *wire);
        x = rpi_relu(graph, name[3], rpi_linear(graph, name[2], x, weight, RPI_NO_VALUE));
    }
    *out_loss = rpi_softmax_cross_entropy(graph, "loss", x, labels, scale);
}

typedef struct wired {
    float gradients[TALL * NARROW + BLOCKS * WIDE * NARROW];
    rpi_program_facts facts;
    record steps;
    int starts;
} wired;

static void run_wired(bool remade, bool halves_apart, wired *out) {
    rpi_graph *graph = NULL;
    rpi_weights *weights = NULL;
    rpi_instance *instance = NULL;
    rpi_value_id loss;
    static int32_t labels[TALL];
    const float scale = 1;
    const void *inputs[] = {labels, &scale};
    doubler d = {0};
    *out = (wired){0};
    REQUIRE_OK(rpi_graph_create(&graph));
    build_wired(graph,
                &(rpi_external_attributes){.context = &d,
                                           .forward_start = start,
                                           .forward_finish = widen,
                                           .backward_finish = add_copies,
                                           .output_count = 1,
                                           .output_shapes = {SHAPE(TALL, WIDE)},
                                           .always_repeats = remade},
                &loss);
    REQUIRE_OK(rpi_weights_create(graph, loss, &weights));
    REQUIRE((size_t)rpi_weights_count(weights) == sizeof out->gradients / sizeof(float));
    for (int64_t i = 0; i < rpi_weights_count(weights); i++)
        rpi_weights_values(weights)[i] = 0.01f * (float)(i * 7 % 23 - 11);
    rpi_program_options options = {
        .training = true, .shares_passing = true, .halves_apart = halves_apart};
    REQUIRE_OK(solo_open(graph, weights, loss, NULL, &options, &instance));
    out->facts = rpi_program_get_facts(rpi_instance_program(instance));
    const rpi_run_options run = {.inputs = inputs, .on_step = on_step, .context = &out->steps};
    REQUIRE_OK(rpi_instance_run(instance, &run));
    memcpy(out->gradients, rpi_weights_gradients(weights), sizeof out->gradients);
    out->starts = d.starts;
    solo_close(instance);
    rpi_weights_destroy(weights);
    rpi_graph_destroy(graph);
}

/* The same bits; each wire runs once more, while a unit behind it is at work; and what a run
 * holds for backward is less by what the wires make. */
static void made_again(void) {
    for (int apart = 0; apart < 2; apart++) {
        wired kept, remade;
        run_wired(false, apart, &kept);
        run_wired(true, apart, &remade);
        CHECK(!memcmp(kept.gradients, remade.gradients, sizeof kept.gradients));
        CHECK_EQ(kept.starts, BLOCKS);
        CHECK_EQ(remade.starts, 2 * BLOCKS);
        size_t each = TALL * (WIDE - NARROW) * sizeof(float);
        CHECK_MSG(kept.facts.in_flight_bytes >=
                      remade.facts.in_flight_bytes + (BLOCKS - 1) * each,
                  "%zu bytes in flight, made again %zu; a wire makes %zu more",
                  kept.facts.in_flight_bytes, remade.facts.in_flight_bytes, each);
        int begin = position(&remade.steps, "loss softmax_cross_entropy", 0);
        begin = position(&remade.steps, "loss softmax_cross_entropy", begin + 1);
        int started = position(&remade.steps, "wire1 start", begin);
        int work = position(&remade.steps, "relu1 relu", started);
        int finished = position(&remade.steps, "wire1 finish", started);
        CHECK(begin > 0 && started > begin && work > started && finished > work);
    }
}

/* Without a forward the output is the input where it lies: the same bits as of a copy, and no
 * step in forward. */
static void passes_forward(void) {
    net n;
    record r[2] = {{.count = 0}, {.count = 0}};
    float gradients[2][64] = {{0}}, losses[2];
    for (int passes = 0; passes < 2; passes++) {
        doubler d = {0};
        rpi_external_attributes attributes = {.context = &d,
                                              .forward_start = passes ? NULL : hand_on,
                                              .backward_start = start,
                                              .backward_finish = finish};
        losses[passes] = double_one(&n, &attributes, gradients[passes], &r[passes]);
        CHECK_EQ(d.finishes, 1);
    }
    CHECK(losses[0] == losses[1]);
    CHECK(!memcmp(gradients[0], gradients[1], sizeof gradients[0]));
    CHECK(position(&r[0], "wire start", 0) < position(&r[0], "loss softmax_cross_entropy", 0));
    CHECK(position(&r[1], "wire start", 0) > position(&r[1], "loss softmax_cross_entropy", 0));
}

static void failing(void) {
    net n;
    record r = {0};
    doubler d = {.failure = RP_PEER};
    build(&n, (rpi_external_attributes){
                  .context = &d, .forward_start = start, .forward_finish = finish});
    CHECK_FAILS(run(&n, &r), PEER, "node 'wire' (start): rank 1 is gone");
    close_net(&n);
}

/* ---- several inputs and outputs, runs in flight, cancelling ---- */

/* y0 = a + b, y1 = a - b; so do the gradients: da = g0 + g1, db = g0 - g1. */
typedef struct mixer {
    uint64_t started[8], finished[8], cancelled[8];
    int starts, finishes, cancels;
    int failing_finish; /* the n-th */
    bool backward_cancelled;
} mixer;

static rp_status mix_start(void *context, const rpi_external_io *io) {
    mixer *m = context;
    m->started[m->starts++ % 8] = io->run;
    return RP_OK;
}

static float element(const rpi_tensor *tensor, int64_t i) {
    return tensor->data ? ((const float *)tensor->data)[i] : 0;
}

static rp_status mix_finish(void *context, const rpi_external_io *io) {
    mixer *m = context;
    m->finished[m->finishes++ % 8] = io->run;
    if (m->finishes == m->failing_finish) return RP_FAIL(PEER, "rank 1 is gone");
    CHECK_EQ(io->input_count, 2);
    CHECK_EQ(io->output_count, 2);
    float *y[] = {io->outputs[0].data, io->outputs[1].data};
    for (int64_t i = 0; i < rpi_shape_count(&io->inputs[0].shape); i++) {
        float a = element(&io->inputs[0], i), b = element(&io->inputs[1], i);
        if (y[0]) y[0][i] = a + b;
        if (y[1]) y[1][i] = a - b;
    }
    return RP_OK;
}

static void mix_cancel(void *context, uint64_t run, bool is_backward) {
    mixer *m = context;
    m->cancelled[m->cancels++ % 8] = run;
    m->backward_cancelled = is_backward;
}

static rp_status fail_if_asked(void *context, const rpi_external_io *io) {
    bool fails = *(bool *)context;
    memcpy(io->outputs[0].data, io->inputs[0].data,
           (size_t)rpi_shape_count(&io->inputs[0].shape) * sizeof(float));
    return fails ? RP_FAIL(PEER, "rank 2 is gone") : RP_OK;
}

/* a, b -> mix -> (relu of y0) + y1 + late(side(c)). While mix is under way, `late` runs in
 * forward and `side` in backward; these may fail. */
typedef struct mixing {
    mixer mixer;
    bool forward_fails, backward_fails;
    rpi_graph *graph;
    rpi_weights *weights;
    rpi_value_id loss;
    rpi_instance *instance;
} mixing;

static rp_status copy(void *context, const rpi_external_io *io) {
    (void)context;
    bool fails = false;
    return fail_if_asked(&fails, io);
}

static rp_status late_forward(void *context, const rpi_external_io *io) {
    return fail_if_asked(&((mixing *)context)->forward_fails, io);
}

static rp_status side_backward(void *context, const rpi_external_io *io) {
    return fail_if_asked(&((mixing *)context)->backward_fails, io);
}

static void build_mixing(mixing *it, bool uses_second) {
    *it = (mixing){0};
    rpi_shape shape = SHAPE(ROWS, WIDTH);
    REQUIRE_OK(rpi_graph_create(&it->graph));
    rpi_graph *graph = it->graph;
    rpi_value_id labels = rpi_graph_input(graph, "labels", RP_I32, SHAPE(ROWS));
    rpi_value_id scale = rpi_graph_input(graph, "scale", RP_F32, (rpi_shape){0});
    rpi_value_id x[] = {rpi_graph_parameter(graph, "a", shape),
                        rpi_graph_parameter(graph, "b", shape)};
    rpi_value_id c = rpi_graph_parameter(graph, "c", shape);
    for (int i = 0; i < 2; i++) x[i] = rpi_relu(graph, i ? "relu b" : "relu a", x[i]);
    rpi_external_attributes side = {
        .context = it, .forward_start = copy, .backward_start = side_backward};
    rpi_external_attributes late_ones = {.context = it, .forward_start = late_forward};
    rpi_value_id s = rpi_external(graph, "side", rpi_relu(graph, "relu c", c), side);
    rpi_value_id y =
        rpi_external_node(graph, "mix", 2, x,
                          (rpi_external_attributes){.context = &it->mixer,
                                                    .forward_start = mix_start,
                                                    .forward_finish = mix_finish,
                                                    .backward_start = mix_start,
                                                    .backward_finish = mix_finish,
                                                    .cancel = mix_cancel,
                                                    .output_count = 2,
                                                    .output_shapes = {shape, shape}});
    rpi_value_id late = rpi_external(graph, "late", rpi_relu(graph, "relu s", s), late_ones);
    rpi_value_id sum = rpi_add(graph, "sum", rpi_relu(graph, "relu y", y), late);
    if (uses_second) sum = rpi_add(graph, "sum 1", sum, rpi_graph_output(graph, y, 1));
    it->loss = rpi_softmax_cross_entropy(graph, "loss", sum, labels, scale);
    REQUIRE_OK(rpi_weights_create(graph, it->loss, &it->weights));
    for (int64_t i = 0; i < rpi_weights_count(it->weights); i++)
        rpi_weights_values(it->weights)[i] = 0.3f + 0.1f * (float)(i * i % 11);
    rpi_program_options options = {.training = true};
    REQUIRE_OK(solo_open(graph, it->weights, it->loss, NULL, &options, &it->instance));
}

static void close_mixing(mixing *it) {
    solo_close(it->instance);
    rpi_weights_destroy(it->weights);
    rpi_graph_destroy(it->graph);
}

static rp_status run_mixing(mixing *it, uint64_t run, double *out_loss) {
    static const int32_t labels[ROWS] = {0, 2};
    static const float scale = 0.5f;
    const void *inputs[] = {labels, &scale};
    rpi_tensor loss;
    rp_status status =
        rpi_instance_run(it->instance, &(rpi_run_options){.inputs = inputs, .run = run});
    if (status == RP_OK && out_loss) {
        status = rpi_instance_result(it->instance, it->loss, &loss);
        *out_loss = (double)*(float *)loss.data;
    }
    return status;
}

/* Gradients by differences, with both outputs used and with one of them. */
static void several_values(void) {
    for (int uses_second = 0; uses_second < 2; uses_second++) {
        mixing it;
        float gradients[32];
        build_mixing(&it, uses_second);
        int64_t count = rpi_weights_count(it.weights);
        REQUIRE(count <= 32);
        CHECK_OK(run_mixing(&it, 77, NULL));
        CHECK_EQ(it.mixer.starts, 2);
        CHECK_EQ(it.mixer.finishes, 2);
        CHECK_EQ(it.mixer.cancels, 0);
        for (int i = 0; i < 2; i++)
            CHECK(it.mixer.started[i] == 77 && it.mixer.finished[i] == 77);
        memcpy(gradients, rpi_weights_gradients(it.weights), (size_t)count * sizeof(float));
        for (int64_t i = 0; i < count; i++) {
            float *value = rpi_weights_values(it.weights) + i;
            const float kept = *value, step = 4e-3f;
            double above = 0, below = 0;
            *value = kept + step;
            CHECK_OK(run_mixing(&it, 0, &above));
            *value = kept - step;
            CHECK_OK(run_mixing(&it, 0, &below));
            *value = kept;
            CHECK_NEAR((above - below) / (2 * (double)step), (double)gradients[i], 1e-3);
        }
        close_mixing(&it);
    }
}

/* A failure between start and finish: what was begun is cancelled, once, by its run. */
static void cancelled(void) {
    for (int backward = 0; backward < 2; backward++) {
        mixing it;
        build_mixing(&it, false);
        it.forward_fails = !backward;
        it.backward_fails = backward;
        CHECK_FAILS(run_mixing(&it, 5, NULL), PEER, "rank 2 is gone");
        CHECK_EQ(it.mixer.starts, 1 + backward);
        CHECK_EQ(it.mixer.finishes, backward);
        CHECK_EQ(it.mixer.cancels, 1);
        CHECK(it.mixer.cancelled[0] == 5 && it.mixer.backward_cancelled == backward);
        it.forward_fails = it.backward_fails = false;
        CHECK_OK(run_mixing(&it, 6, NULL)); /* and the next run is whole */
        CHECK_EQ(it.mixer.starts, 3 + backward);
        CHECK_EQ(it.mixer.cancels, 1);
        close_mixing(&it);
    }
}

/* Whoever fails in its own finish has been called, and knows. */
static void a_failed_finish_is_not_cancelled(void) {
    for (int backward = 0; backward < 2; backward++) {
        mixing it;
        build_mixing(&it, false);
        it.mixer.failing_finish = 1 + backward;
        CHECK_FAILS(run_mixing(&it, 5, NULL), PEER, "rank 1 is gone");
        CHECK_EQ(it.mixer.starts, 1 + backward);
        CHECK_EQ(it.mixer.finishes, 1 + backward);
        CHECK_EQ(it.mixer.cancels, 0);
        close_mixing(&it);
    }
}

/* The bounds of the graph: too many outputs, shapes that cannot pass. */
static void bad_nodes(void) {
    rpi_graph *graph = NULL;
    rpi_external_attributes attributes = {.forward_start = mix_start, .output_count = 9};
    REQUIRE_OK(rpi_graph_create(&graph));
    rpi_value_id x = rpi_graph_input(graph, "x", RP_F32, SHAPE(2, 3));
    CHECK_EQ(rpi_external(graph, "wide", x, attributes), RPI_NO_VALUE);
    CHECK_FAILS(rpi_graph_check(graph), INVALID, "9 outputs; at most 4");
    rpi_graph_destroy(graph);
    REQUIRE_OK(rpi_graph_create(&graph));
    x = rpi_graph_input(graph, "x", RP_F32, SHAPE(2, 3));
    attributes.output_count = 2;
    CHECK_EQ(rpi_external(graph, "pass", x, attributes), RPI_NO_VALUE);
    CHECK_FAILS(rpi_graph_check(graph), INVALID, "there are 1 inputs and 2 outputs");
    rpi_graph_destroy(graph);
}

CASES({"several_values", several_values}, {"cancelled", cancelled},
      {"a_failed_finish_is_not_cancelled", a_failed_finish_is_not_cancelled},
      {"bad_nodes", bad_nodes}, {"both_halves", both_halves}, {"numbers", numbers},
      {"hides_under_weights", hides_under_weights},
      {"hides_under_both_weights", hides_under_both_weights},
      {"on_a_parameter", on_a_parameter}, {"halves_alone", halves_alone},
      {"passes forward", passes_forward}, {"made again", made_again}, {"failing", failing})
