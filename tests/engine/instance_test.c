/* Sessions, programs and instances: several runs in flight, shared memory and parameters. */
#include "engine/instance.h"
#include "harness/check.h"

#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "engine/layers.h"
#include "op_fixture.h"
#include "shuffled_backend.h"

enum { SIZE = 6, CHANNELS = 16, CLASSES = 5, MOST = 6 };

/* ---- a small network: conv, batch norm, relu, pool, linear ---- */

typedef struct model {
    rpi_graph *graph;
    rpi_value_id loss, correct, logits;
    rpi_weights *weights;
} model;

static rpi_value_id norm(rpi_graph *graph, rpi_value_id x) {
    rpi_shape shape = SHAPE(CHANNELS);
    rpi_value_id scale = rpi_graph_parameter(graph, "norm.weight", shape);
    rpi_value_id shift = rpi_graph_parameter(graph, "norm.bias", shape);
    rpi_value_id mean = rpi_graph_state(graph, "norm.mean", shape);
    rpi_value_id variance = rpi_graph_state(graph, "norm.var", shape);
    return rpi_batch_norm2d(graph, "norm", x, scale, shift, mean, variance,
                            (rpi_batch_norm2d_attributes){0});
}

static void build(model *m) {
    *m = (model){0};
    REQUIRE_OK(rpi_graph_create(&m->graph));
    rpi_graph *graph = m->graph;
    rpi_value_id x = rpi_graph_input(graph, "x", RP_F32,
                                     SHAPE(rpi_graph_dimension(graph, "batch"), 2, SIZE, SIZE));
    rpi_value_id labels =
        rpi_graph_input(graph, "labels", RP_I32, SHAPE(rpi_graph_dimension(graph, "batch")));
    rpi_value_id scale = rpi_graph_input(graph, "scale", RP_F32, (rpi_shape){0});
    rpi_value_id w = rpi_graph_parameter(graph, "conv.weight", SHAPE(CHANNELS, 2, 3, 3));
    rpi_conv2d_attributes padded = {.padding = 1};
    x = rpi_relu(graph, "relu",
                 norm(graph, rpi_conv2d(graph, "conv", x, w, RPI_NO_VALUE, padded)));
    x = rpi_global_avg_pool(graph, "pool", x);
    rpi_value_id fc = rpi_graph_parameter(graph, "fc.weight", SHAPE(CLASSES, CHANNELS));
    rpi_value_id bias = rpi_graph_parameter(graph, "fc.bias", SHAPE(CLASSES));
    m->logits = rpi_linear(graph, "fc", x, fc, bias);
    m->loss = rpi_softmax_cross_entropy(graph, "loss", m->logits, labels, scale);
    m->correct = rpi_graph_output(graph, m->loss, 1);
    REQUIRE_OK(rpi_weights_create(graph, m->loss, &m->weights));
}

static void fill(rpi_weights *weights) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 0);
    float *values = rpi_weights_values(weights);
    for (int64_t i = 0; i < rpi_weights_count(weights); i++)
        values[i] = 0.5f * rpi_rng_normal(&rng);
    for (int64_t i = 0; i < rpi_weights_states_count(weights); i++)
        rpi_weights_states(weights)[i] = 1;
    rpi_weights_changed(weights, 0, rpi_weights_count(weights));
}

static void close_model(model *m) {
    rpi_weights_destroy(m->weights);
    rpi_graph_destroy(m->graph);
}

typedef struct batch {
    float x[MOST * 2 * SIZE * SIZE], scale;
    int32_t labels[MOST];
    const void *inputs[3];
} batch;

static void draw(batch *b, uint64_t index) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 10 + index);
    for (size_t i = 0; i < sizeof b->x / sizeof b->x[0]; i++) b->x[i] = rpi_rng_normal(&rng);
    for (int i = 0; i < MOST; i++) b->labels[i] = (int32_t)rpi_rng_below(&rng, CLASSES);
    b->scale = 0.1f;
    b->inputs[0] = b->x, b->inputs[1] = b->labels, b->inputs[2] = &b->scale;
}

static rpi_program *compile(const model *m, rpi_session *session, int64_t rows, bool training) {
    rpi_program *program = NULL;
    rpi_program_options options = {.training = training,
                                   .dimensions = {{"batch", rows}},
                                   .result_count = 2,
                                   .results = {m->correct, m->logits}};
    CHECK_OK(rpi_program_compile(session, m->graph, m->loss, &options, &program));
    return program;
}

/* ---- several runs in flight ---- */

enum { FLIGHTS = 3 };

typedef struct outcome {
    float loss[FLIGHTS], gradients[2048], states[64];
} outcome;

static void keep(const model *m, rpi_instance *const *instances, outcome *out) {
    *out = (outcome){0};
    for (int i = 0; i < FLIGHTS; i++) {
        rpi_tensor loss;
        REQUIRE_OK(rpi_instance_result(instances[i], m->loss, &loss));
        out->loss[i] = *(float *)loss.data;
    }
    size_t bytes = (size_t)rpi_weights_count(m->weights) * sizeof(float);
    REQUIRE(bytes <= sizeof out->gradients);
    memcpy(out->gradients, rpi_weights_gradients(m->weights), bytes);
    memcpy(out->states, rpi_weights_states(m->weights),
           (size_t)rpi_weights_states_count(m->weights) * sizeof(float));
}

/* All forward passes first, then all backward passes: the bits of one after the other. */
static void fly(const rpi_backend *backend) {
    model m;
    batch batches[FLIGHTS];
    rpi_session *session = NULL;
    rpi_instance *instances[FLIGHTS];
    outcome apart, together;
    build(&m);
    shuffled_backend_seed(check_seed());
    REQUIRE_OK(rpi_session_create(m.weights, backend, NULL, &session));
    rpi_program *program = compile(&m, session, MOST, true);
    for (int i = 0; i < FLIGHTS; i++) {
        draw(&batches[i], (uint64_t)i);
        REQUIRE_OK(rpi_instance_create(program, &instances[i]));
    }
    fill(m.weights);
    for (int i = 0; i < FLIGHTS; i++)
        REQUIRE_OK(
            rpi_instance_run(instances[i], &(rpi_run_options){.inputs = batches[i].inputs,
                                                              .accumulate = i > 0}));
    keep(&m, instances, &apart);
    CHECK_EQ(rpi_session_get_facts(session).arenas, 1);
    fill(m.weights);
    for (int i = 0; i < FLIGHTS; i++)
        REQUIRE_OK(rpi_instance_forward(instances[i],
                                        &(rpi_run_options){.inputs = batches[i].inputs}));
    CHECK_EQ(rpi_session_get_facts(session).arenas, FLIGHTS);
    for (int i = 0; i < FLIGHTS; i++)
        REQUIRE_OK(
            rpi_instance_backward(instances[i], &(rpi_run_options){.accumulate = i > 0}));
    keep(&m, instances, &together);
    CHECK_MSG(!memcmp(&apart, &together, sizeof apart), "%s", backend->name);
    for (int i = 0; i < FLIGHTS; i++) rpi_instance_destroy(instances[i]);
    rpi_program_destroy(program);
    rpi_session_destroy(session);
    close_model(&m);
}

static void in_flight(void) {
    for (int i = 0; rpi_backend_at(i); i++) fly(rpi_backend_at(i));
    fly(&shuffled_backend);
}

/* ---- backward in two halves ---- */

/* What on_gradient_final and on_given_gradient told of. */
typedef struct told {
    rpi_weights *weights;
    int64_t elements;
    int calls, given_calls;
    char seen[2048]; /* how often each element was final */
} told;

static rp_status on_final(void *context, int64_t first, int64_t count) {
    told *t = context;
    t->calls++;
    t->elements += count;
    for (int64_t i = first; i < first + count; i++) t->seen[i]++;
    return RP_OK;
}

static rp_status on_given(void *context, int index) {
    told *t = context;
    t->given_calls += index == 0;
    return RP_OK;
}

static void halve(const rpi_backend *backend, uint64_t seed) {
    model m;
    batch b;
    rpi_session *session = NULL;
    rpi_instance *instance = NULL;
    rpi_program *program = NULL;
    float gradients[2048];
    told t = {0};
    build(&m);
    fill(m.weights);
    draw(&b, 0);
    shuffled_backend_seed(seed);
    REQUIRE_OK(rpi_session_create(m.weights, backend, NULL, &session));
    rpi_program *whole = compile(&m, session, 3, true);
    rpi_run_options run = {.inputs = b.inputs};
    REQUIRE_OK(rpi_instance_create(whole, &instance));
    REQUIRE_OK(rpi_instance_run(instance, &run));
    CHECK_FAILS(rpi_instance_backward_inputs(instance, &run), INVALID, "halves_apart");
    size_t bytes = (size_t)rpi_weights_count(m.weights) * sizeof(float);
    memcpy(gradients, rpi_weights_gradients(m.weights), bytes);
    rpi_instance_destroy(instance);
    rpi_program_options options = {
        .training = true, .dimensions = {{"batch", 3}}, .halves_apart = true};
    REQUIRE_OK(rpi_program_compile(session, m.graph, m.loss, &options, &program));
    REQUIRE_OK(rpi_instance_create(program, &instance));
    run.on_gradient_final = on_final, run.context = &t;
    for (int apart = 0; apart < 2; apart++) {
        memset(rpi_weights_gradients(m.weights), 0xff, bytes);
        t = (told){0};
        REQUIRE_OK(rpi_instance_forward(instance, &run));
        CHECK_FAILS(rpi_instance_backward_weights(instance, &run), INVALID, "before those");
        if (apart) {
            REQUIRE_OK(rpi_instance_backward_inputs(instance, &run));
            CHECK_FAILS(rpi_instance_backward(instance, &run), INVALID, "is done");
            /* shuffled may have no kernel with a second half */
            CHECK(backend == &shuffled_backend || t.elements < rpi_weights_count(m.weights));
            REQUIRE_OK(rpi_instance_backward_weights(instance, &run));
        } else {
            REQUIRE_OK(rpi_instance_backward(instance, &run));
        }
        CHECK_MSG(!memcmp(gradients, rpi_weights_gradients(m.weights), bytes), "%s",
                  backend->name);
        for (int64_t i = 0; i < rpi_weights_count(m.weights); i++) CHECK_EQ(t.seen[i], 1);
    }
    rpi_instance_destroy(instance);
    rpi_program_destroy(program);
    rpi_program_destroy(whole);
    rpi_session_destroy(session);
    close_model(&m);
}

static void halves(void) {
    for (int i = 0; rpi_backend_at(i); i++) halve(rpi_backend_at(i), 0);
    for (uint64_t i = 0; i < 10; i++) halve(&shuffled_backend, check_seed() + i);
}

/* ---- one graph in two parts ---- */

static rpi_program *compile_part(const model *m, rpi_session *session, rpi_value_id cut,
                                 bool is_first) {
    rpi_program *program = NULL;
    rpi_program_options options = {.training = true, .dimensions = {{"batch", 4}}};
    options.result_count = options.seed_count = is_first;
    options.given_count = !is_first;
    options.results[0] = options.seeds[0] = options.given[0] = cut;
    CHECK_OK(rpi_program_compile(session, m->graph, is_first ? RPI_NO_VALUE : m->loss, &options,
                                 &program));
    return program;
}

/* Two stages of a pipeline, FLIGHTS micro-batches in flight: the bits of one program. */
static void run_parts(const model *m, rpi_program *const parts[2], rpi_value_id cut,
                      const batch *batches, told *tell) {
    rpi_instance *stages[FLIGHTS][2];
    rpi_tensor x, gradient;
    for (int i = 0; i < FLIGHTS; i++)
        for (int s = 0; s < 2; s++) REQUIRE_OK(rpi_instance_create(parts[s], &stages[i][s]));
    for (int i = 0; i < FLIGHTS; i++) {
        rpi_run_options run = {.inputs = batches[i].inputs};
        REQUIRE_OK(rpi_instance_forward(stages[i][0], &run));
        REQUIRE_OK(rpi_instance_result(stages[i][0], cut, &x));
        CHECK_FAILS(rpi_instance_forward(stages[i][1], &run), INVALID, "value 'relu'");
        run.given = (const void *[]){x.data};
        REQUIRE_OK(rpi_instance_forward(stages[i][1], &run));
    }
    for (int i = 0; i < FLIGHTS; i++) {
        rpi_run_options run = {.accumulate = i > 0,
                               .on_gradient_final = on_final,
                               .on_given_gradient = on_given,
                               .context = tell};
        REQUIRE_OK(rpi_instance_backward(stages[i][1], &run));
        REQUIRE_OK(rpi_instance_gradient(stages[i][1], cut, &gradient));
        run.seeds = (const void *[]){gradient.data};
        REQUIRE_OK(rpi_instance_backward(stages[i][0], &run));
    }
    CHECK_FAILS(rpi_instance_gradient(stages[0][0], cut, &gradient), INVALID, "no given value");
    CHECK_FAILS(rpi_instance_result(stages[0][1], m->logits, &gradient), INVALID, "neither");
    for (int i = 0; i < FLIGHTS; i++)
        for (int s = 0; s < 2; s++) rpi_instance_destroy(stages[i][s]);
}

static void split(const rpi_backend *backend) {
    model m;
    batch batches[FLIGHTS];
    rpi_session *session = NULL;
    rpi_instance *instance = NULL;
    float gradients[2048], states[64];
    told tell = {0};
    build(&m);
    rpi_value_id cut = RPI_NO_VALUE; /* the layer where the graph is cut, by its name */
    for (int i = 0; i < rpi_graph_node_count(m.graph); i++)
        if (!strcmp(rpi_graph_node(m.graph, i)->name, "relu"))
            cut = rpi_graph_node(m.graph, i)->outputs[0];
    REQUIRE_OK(rpi_session_create(m.weights, backend, NULL, &session));
    rpi_program *whole = compile(&m, session, 4, true);
    REQUIRE_OK(rpi_instance_create(whole, &instance));
    fill(m.weights);
    for (int i = 0; i < FLIGHTS; i++) {
        draw(&batches[i], (uint64_t)i);
        rpi_run_options run = {.inputs = batches[i].inputs, .accumulate = i > 0};
        REQUIRE_OK(rpi_instance_run(instance, &run));
    }
    size_t bytes = (size_t)rpi_weights_count(m.weights) * sizeof(float);
    size_t state_bytes = (size_t)rpi_weights_states_count(m.weights) * sizeof(float);
    memcpy(gradients, rpi_weights_gradients(m.weights), bytes);
    memcpy(states, rpi_weights_states(m.weights), state_bytes);
    rpi_program *parts[] = {compile_part(&m, session, cut, true),
                            compile_part(&m, session, cut, false)};
    fill(m.weights);
    run_parts(&m, parts, cut, batches, &tell);
    CHECK_MSG(!memcmp(gradients, rpi_weights_gradients(m.weights), bytes), "%s", backend->name);
    CHECK(!memcmp(states, rpi_weights_states(m.weights), state_bytes));
    for (int64_t i = 0; i < rpi_weights_count(m.weights); i++) CHECK_EQ(tell.seen[i], FLIGHTS);
    CHECK_EQ(tell.given_calls, FLIGHTS);
    rpi_instance_destroy(instance);
    for (int i = 0; i < 2; i++) rpi_program_destroy(parts[i]);
    rpi_program_destroy(whole);
    rpi_session_destroy(session);
    close_model(&m);
}

static void split_at_a_layer(void) {
    for (int i = 0; rpi_backend_at(i); i++) split(rpi_backend_at(i));
    shuffled_backend_seed(check_seed());
    split(&shuffled_backend);
}

/* ---- memory ---- */

/* Programs that do not run at the same time share one arena and one workspace, the largest. */
static void largest_not_the_sum(void) {
    model m;
    batch b;
    rpi_session *session = NULL;
    build(&m);
    draw(&b, 0);
    for (int s = 0; rpi_backend_at(s); s++) {
        rpi_program *programs[3];
        rpi_instance *instances[3];
        const int64_t rows[] = {2, MOST, 4};
        size_t most = 0, sum = 0;
        REQUIRE_OK(rpi_session_create(m.weights, rpi_backend_at(s), NULL, &session));
        for (int i = 0; i < 3; i++) {
            programs[i] = compile(&m, session, rows[i], i < 2);
            REQUIRE_OK(rpi_instance_create(programs[i], &instances[i]));
            size_t bytes = rpi_program_get_facts(programs[i]).memory_bytes;
            most = bytes > most ? bytes : most;
            sum += bytes;
        }
        rpi_run_options run = {.inputs = b.inputs};
        for (int i = 0; i < 6; i++) REQUIRE_OK(rpi_instance_run(instances[i % 3], &run));
        rpi_session_facts facts = rpi_session_get_facts(session);
        CHECK_EQ(facts.arenas, 1);
        CHECK(facts.arena_bytes <= most && most < sum);
        for (int i = 0; i < 3; i++) {
            rpi_instance_destroy(instances[i]);
            rpi_program_destroy(programs[i]);
        }
        rpi_session_destroy(session);
    }
    close_model(&m);
}

/* Results stay where they are when the arena serves another run. */
static void results_stay(void) {
    model m;
    batch b[2];
    rpi_session *session = NULL;
    rpi_instance *instances[2];
    rpi_tensor logits, correct;
    float kept[MOST * CLASSES];
    build(&m);
    fill(m.weights);
    REQUIRE_OK(rpi_session_create(m.weights, NULL, NULL, &session));
    rpi_program *program = compile(&m, session, MOST, true);
    for (int i = 0; i < 2; i++) {
        draw(&b[i], (uint64_t)i);
        REQUIRE_OK(rpi_instance_create(program, &instances[i]));
    }
    REQUIRE_OK(rpi_instance_run(instances[0], &(rpi_run_options){.inputs = b[0].inputs}));
    REQUIRE_OK(rpi_instance_result(instances[0], m.logits, &logits));
    REQUIRE_OK(rpi_instance_result(instances[0], m.correct, &correct));
    int32_t right = *(int32_t *)correct.data;
    memcpy(kept, logits.data, sizeof kept);
    REQUIRE_OK(rpi_instance_run(instances[1], &(rpi_run_options){.inputs = b[1].inputs}));
    CHECK(!memcmp(kept, logits.data, sizeof kept) && *(int32_t *)correct.data == right);
    for (int i = 0; i < 2; i++) rpi_instance_destroy(instances[i]);
    rpi_program_destroy(program);
    rpi_session_destroy(session);
    close_model(&m);
}

/* ---- what kernels know of a run ---- */

/* A kernel of the reference, and what its calls were told. */
typedef struct listener {
    rpi_kernel inner;
} listener;

static struct {
    int calls, repeats;
    uint64_t run, seed, step;
} heard;

static void hear(const rpi_kernel_io *io) {
    heard.calls++;
    heard.repeats += io->repeats;
    CHECK(io->run == heard.run && io->seed == heard.seed && io->step == heard.step);
}

static rp_status hear_forward(void *self, const rpi_kernel_io *io) {
    const listener *it = self;
    hear(io);
    return it->inner.forward(it->inner.self, io);
}

static rp_status hear_backward(void *self, const rpi_kernel_io *io) {
    const listener *it = self;
    hear(io);
    return it->inner.backward_inputs(it->inner.self, io);
}

static void destroy_listener(void *self) {
    listener *it = self;
    it->inner.destroy(it->inner.self);
    rpi_free(it);
}

static rp_status plan_listener(void *session, const rpi_unit *unit, rpi_kernel *kernel) {
    listener *it = NULL;
    RP_TRY(rpi_alloc(sizeof *it, "a listener", &it));
    rp_status status = rpi_backend_at(0)->plan(session, unit, kernel);
    if (status != RP_OK) {
        rpi_free(it);
        return status;
    }
    it->inner = *kernel;
    kernel->self = it;
    kernel->forward = hear_forward;
    kernel->backward_inputs = kernel->backward_inputs ? hear_backward : NULL;
    kernel->backward_weights = NULL; /* the reference makes all that it is asked for at once */
    kernel->destroy = destroy_listener;
    return RP_OK;
}

/* Seed and step are those of the forward pass in its backward too, and in what is repeated. */
static void kernels_are_told(void) {
    model m;
    batch b;
    rpi_instance *instance = NULL;
    rpi_backend backend = *rpi_backend_at(0);
    backend.plan = plan_listener;
    rpi_segment segment = {"conv", "relu"};
    rpi_program_options options = {.training = true,
                                   .dimensions = {{"batch", 2}},
                                   .recompute = &segment,
                                   .recompute_count = 1};
    build(&m);
    fill(m.weights);
    draw(&b, 0);
    REQUIRE_OK(solo_open(m.graph, m.weights, m.loss, &backend, &options, &instance));
    heard.calls = heard.repeats = 0;
    heard.run = 9, heard.seed = 1234, heard.step = 56;
    rpi_run_options run = {.inputs = b.inputs, .run = 9, .seed = 1234, .step = 56};
    REQUIRE_OK(rpi_instance_forward(instance, &run));
    REQUIRE_OK(rpi_instance_backward(instance, &(rpi_run_options){0}));
    CHECK(heard.calls >= 12 && heard.repeats == 3); /* conv, norm, relu */
    solo_close(instance);
    close_model(&m);
}

/* ---- order of calls, failures ---- */

static void order_of_calls(void) {
    model m;
    batch b;
    rpi_session *session = NULL;
    rpi_instance *training = NULL, *evaluating = NULL;
    build(&m);
    fill(m.weights);
    draw(&b, 0);
    rpi_run_options run = {.inputs = b.inputs};
    REQUIRE_OK(rpi_session_create(m.weights, NULL, NULL, &session));
    rpi_program *programs[] = {compile(&m, session, 2, true), compile(&m, session, 2, false)};
    REQUIRE_OK(rpi_instance_create(programs[0], &training));
    REQUIRE_OK(rpi_instance_create(programs[1], &evaluating));
    CHECK_FAILS(rpi_instance_backward(training, &run), INVALID, "without a forward pass");
    REQUIRE_OK(rpi_instance_run(training, &run));
    CHECK_FAILS(rpi_instance_backward(training, &run), INVALID, "without a forward pass");
    REQUIRE_OK(rpi_instance_forward(evaluating, &run));
    CHECK_FAILS(rpi_instance_backward(evaluating, &run), INVALID, "not compiled for training");
    REQUIRE_OK(rpi_instance_forward(training, &run));
    rpi_instance_drop(training);
    CHECK_FAILS(rpi_instance_backward(training, &run), INVALID, "without a forward pass");
    b.labels[1] = CLASSES; /* a failed pass gives its arena back */
    CHECK_FAILS(rpi_instance_forward(training, &run), INVALID, "label 5 at labels[1]");
    CHECK_FAILS(rpi_instance_backward(training, &run), INVALID, "without a forward pass");
    CHECK_EQ(rpi_session_get_facts(session).arenas, 1);
    rpi_instance_destroy(training);
    rpi_instance_destroy(evaluating);
    rpi_instance_destroy(NULL);
    for (int i = 0; i < 2; i++) rpi_program_destroy(programs[i]);
    rpi_session_destroy(session);
    rpi_session_destroy(NULL);
    close_model(&m);
}

static rp_status open_all(const model *m, rpi_instance **out) {
    rpi_program_options options = {.training = true, .dimensions = {{"batch", 2}}};
    return solo_open(m->graph, m->weights, m->loss, NULL, &options, out);
}

static void allocation_failures(void) {
    model m;
    rpi_instance *instance = NULL;
    build(&m);
    rpi_memory_fail_after(0);
    REQUIRE_OK(open_all(&m, &instance));
    long total = rpi_memory_fail_after(0);
    solo_close(instance);
    for (long n = 1; n <= total; n++) {
        rpi_memory_fail_after(n);
        CHECK_FAILS(open_all(&m, &instance), NOMEM, "no memory");
    }
    rpi_memory_fail_after(0);
    close_model(&m);
}

/* ---- a weight written between two uses in one run ---- */

/* As parameter shards would be gathered: the node in between writes what comes next. */
typedef struct gather {
    rpi_weights *weights;
    bool writes;
} gather;

static rp_status write_weight(void *context, const rpi_external_io *io) {
    const gather *g = context;
    size_t bytes = (size_t)rpi_shape_count(&io->inputs[0].shape) * sizeof(float);
    memcpy(io->outputs[0].data, io->inputs[0].data, bytes);
    const rpi_weight *weight = rpi_weights_find(g->weights, "w");
    float *values = rpi_weights_values(g->weights) + weight->first;
    for (int64_t i = 0; g->writes && i < weight->count; i++) values[i] *= -0.5f;
    if (g->writes) rpi_weights_changed(g->weights, weight->first, weight->count);
    return RP_OK;
}

/* y = conv(gather(conv(x, w)), w) */
static void written_between_uses(void) {
    enum { COUNT = 2 * CHANNELS * 16 * 16 };
    static float x[COUNT], wanted[COUNT];
    rpi_graph *graph = NULL;
    gather g = {.writes = true};
    rpi_conv2d_attributes padded = {.padding = 1};
    REQUIRE_OK(rpi_graph_create(&graph));
    rpi_value_id in = rpi_graph_input(graph, "x", RP_F32, SHAPE(2, CHANNELS, 16, 16));
    rpi_value_id w = rpi_graph_parameter(graph, "w", SHAPE(CHANNELS, CHANNELS, 3, 3));
    rpi_value_id y = rpi_conv2d(graph, "first", in, w, RPI_NO_VALUE, padded);
    y = rpi_external(graph, "gather", y,
                     (rpi_external_attributes){.context = &g, .forward_start = write_weight});
    y = rpi_conv2d(graph, "second", y, w, RPI_NO_VALUE, padded);
    REQUIRE_OK(rpi_weights_create(graph, RPI_NO_VALUE, &g.weights));
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    for (int i = 0; i < COUNT; i++) x[i] = rpi_rng_normal(&rng);
    for (int b = 0; rpi_backend_at(b); b++) {
        rpi_instance *instance = NULL;
        rpi_tensor result;
        rpi_program_options options = {.result_count = 1, .results = {y}};
        fill(g.weights);
        REQUIRE_OK(
            solo_open(graph, g.weights, RPI_NO_VALUE, rpi_backend_at(b), &options, &instance));
        const void *inputs[] = {x};
        for (int i = 0; i < 2; i++) /* the second run begins with what the first has left */
            REQUIRE_OK(rpi_instance_run(instance, &(rpi_run_options){.inputs = inputs}));
        REQUIRE_OK(rpi_instance_result(instance, y, &result));
        if (b == 0) memcpy(wanted, result.data, sizeof wanted);
        double difference = 0, size = 0;
        for (int i = 0; i < COUNT; i++) {
            double d = (double)((float *)result.data)[i] - (double)wanted[i];
            difference += d * d;
            size += (double)wanted[i] * (double)wanted[i];
        }
        CHECK_MSG(difference <= 1e-8 * size, "%s: off by %g of %g", rpi_backend_at(b)->name,
                  difference, size);
        solo_close(instance);
    }
    rpi_weights_destroy(g.weights);
    rpi_graph_destroy(graph);
}

/* A result may lie in an input: no step reads that, and it has to be given all the same. */
static void a_result_in_an_input(void) {
    static const float a[4] = {1, -2, 3, -4}, b[4] = {5, 6, 7, 8};
    static const struct {
        const void *inputs[2];
        const char *words;
    } lacking[] = {{{NULL, b}, "input 'a' is not given"},
                   {{a, NULL}, "input 'b' is not given"}};
    rpi_graph *graph = NULL;
    rpi_weights *weights = NULL;
    rpi_instance *instance = NULL;
    rpi_tensor result;
    REQUIRE_OK(rpi_graph_create(&graph));
    rpi_value_id in = rpi_graph_input(graph, "a", RP_F32, SHAPE(2, 2));
    rpi_value_id seen = rpi_graph_input(graph, "b", RP_F32, SHAPE(2, 2));
    seen = rpi_reshape(graph, "view", seen, SHAPE(4));
    rpi_value_id y = rpi_relu(graph, "relu", in);
    rpi_program_options options = {.result_count = 2, .results = {y, seen}};
    REQUIRE_OK(rpi_weights_create(graph, RPI_NO_VALUE, &weights));
    REQUIRE_OK(solo_open(graph, weights, RPI_NO_VALUE, NULL, &options, &instance));
    for (int i = 0; i < 2; i++)
        CHECK_FAILS(rpi_instance_run(instance, &(rpi_run_options){.inputs = lacking[i].inputs}),
                    INVALID, lacking[i].words);
    const void *inputs[] = {a, b};
    REQUIRE_OK(rpi_instance_run(instance, &(rpi_run_options){.inputs = inputs}));
    REQUIRE_OK(rpi_instance_result(instance, seen, &result));
    CHECK(memcmp(result.data, b, sizeof b) == 0);
    solo_close(instance);
    rpi_weights_destroy(weights);
    rpi_graph_destroy(graph);
}

/* As many results besides the loss, and values given by the caller, as a program may have. */
static void as_many_as_there_may_be(void) {
    rpi_graph *graph = NULL;
    rpi_weights *weights = NULL;
    rpi_instance *instance = NULL;
    rpi_program_options options = {.result_count = RPI_PROGRAM_RESULTS,
                                   .given_count = RPI_PROGRAM_CUTS};
    float data[RPI_PROGRAM_CUTS][2], sum = 0;
    char name[16];
    static const int32_t label = 1;
    static const float one = 1;
    const void *given[RPI_PROGRAM_CUTS];
    REQUIRE_OK(rpi_graph_create(&graph));
    rpi_value_id x = rpi_graph_input(graph, "x", RP_F32, SHAPE(1, 2)), total = x;
    for (int i = 0; i < RPI_PROGRAM_CUTS; i++) {
        snprintf(name, sizeof name, "given %d", i);
        options.given[i] = rpi_relu(graph, name, x);
        snprintf(name, sizeof name, "sum %d", i);
        total = i ? rpi_add(graph, name, total, options.given[i]) : options.given[i];
        data[i][0] = data[i][1] = (float)(1 << i);
        given[i] = data[i];
    }
    for (int i = 0; i < RPI_PROGRAM_RESULTS; i++) {
        snprintf(name, sizeof name, "result %d", i);
        options.results[i] = total = rpi_relu(graph, name, total);
    }
    rpi_value_id labels = rpi_graph_input(graph, "labels", RP_I32, SHAPE(1));
    rpi_value_id scale = rpi_graph_input(graph, "scale", RP_F32, (rpi_shape){0});
    rpi_value_id loss = rpi_softmax_cross_entropy(graph, "loss", total, labels, scale);
    REQUIRE_OK(rpi_weights_create(graph, loss, &weights));
    REQUIRE_OK(solo_open(graph, weights, loss, NULL, &options, &instance));
    const void *inputs[] = {NULL, &label, &one};
    REQUIRE_OK(
        rpi_instance_run(instance, &(rpi_run_options){.inputs = inputs, .given = given}));
    for (int i = 0; i < RPI_PROGRAM_CUTS; i++) sum += data[i][0];
    for (int i = 0; i < RPI_PROGRAM_RESULTS; i++) {
        rpi_tensor result;
        REQUIRE_OK(rpi_instance_result(instance, options.results[i], &result));
        CHECK(((const float *)result.data)[0] == sum && ((const float *)result.data)[1] == sum);
    }
    rpi_tensor result;
    REQUIRE_OK(rpi_instance_result(instance, loss, &result));
    CHECK_NEAR(*(const float *)result.data, log(2), 1e-6); /* of two alike */
    solo_close(instance);
    rpi_weights_destroy(weights);
    rpi_graph_destroy(graph);
}

/* ---- parameters belong to the model ---- */

/* y = relu(x w1^T) [w2^T] over rows of WIDTH. */
enum { WIDTH = 4 };

static rpi_value_id tower(rpi_graph *graph, int64_t rows, bool head, int64_t classes) {
    rpi_value_id x = rpi_graph_input(graph, "x", RP_F32, SHAPE(rows, WIDTH));
    rpi_value_id w1 = rpi_graph_parameter(graph, "body", SHAPE(WIDTH, WIDTH));
    x = rpi_relu(graph, "relu", rpi_linear(graph, "first", x, w1, RPI_NO_VALUE));
    if (!head) return x;
    rpi_value_id w2 = rpi_graph_parameter(graph, "head", SHAPE(classes, WIDTH));
    return rpi_linear(graph, "second", x, w2, RPI_NO_VALUE);
}

/* Two graphs of other lengths and tasks in one session; the parameters meet by name. */
static void graphs_share(void) {
    rpi_graph *graphs[2] = {0};
    rpi_value_id y[2];
    rpi_weights *weights = NULL;
    rpi_session *session = NULL;
    float x[3 * WIDTH], out[2][3 * WIDTH] = {{0}};
    for (int i = 0; i < 2; i++) {
        REQUIRE_OK(rpi_graph_create(&graphs[i]));
        y[i] = tower(graphs[i], i ? 3 : 2, i == 1, 3);
    }
    rpi_weights_source sources[] = {{.graph = graphs[0], .loss = RPI_NO_VALUE},
                                    {.graph = graphs[1], .loss = RPI_NO_VALUE}};
    REQUIRE_OK(rpi_weights_create_shared(sources, 2, &weights));
    CHECK_EQ(rpi_weights_parameter_count(weights), 2);
    CHECK_EQ(rpi_weights_find(weights, "head")->first, WIDTH * WIDTH);
    fill(weights);
    for (int i = 0; i < 3 * WIDTH; i++) x[i] = (float)(i % 5) - 2;
    REQUIRE_OK(rpi_session_create(weights, NULL, NULL, &session));
    for (int i = 0; i < 2; i++) {
        rpi_program *program = NULL;
        rpi_instance *instance = NULL;
        rpi_tensor tensor;
        rpi_program_options options = {.result_count = 1, .results = {y[i]}};
        REQUIRE_OK(rpi_program_compile(session, graphs[i], RPI_NO_VALUE, &options, &program));
        REQUIRE_OK(rpi_instance_create(program, &instance));
        const void *inputs[] = {x};
        REQUIRE_OK(rpi_instance_run(instance, &(rpi_run_options){.inputs = inputs}));
        REQUIRE_OK(rpi_instance_result(instance, y[i], &tensor));
        memcpy(out[i], tensor.data, sizeof(float) * (size_t)rpi_shape_count(&tensor.shape));
        rpi_instance_destroy(instance);
        rpi_program_destroy(program);
    }
    const float *head = rpi_weights_values(weights) + WIDTH * WIDTH;
    for (int c = 0; c < 3; c++) {
        double sum = 0;
        for (int i = 0; i < WIDTH; i++) sum += (double)out[0][i] * (double)head[c * WIDTH + i];
        CHECK_NEAR((double)out[1][c], sum, 1e-5);
    }
    rpi_session_destroy(session);
    rpi_weights_destroy(weights);
    for (int i = 0; i < 2; i++) rpi_graph_destroy(graphs[i]);
}

static void parameters_clash(void) {
    rpi_graph *graphs[3] = {0};
    rpi_weights *weights = NULL;
    rpi_instance *instance = NULL;
    rpi_value_id y[3];
    for (int i = 0; i < 3; i++) REQUIRE_OK(rpi_graph_create(&graphs[i]));
    y[0] = tower(graphs[0], 2, false, 0);
    y[1] = tower(graphs[1], 2, true, 3);
    y[2] = tower(graphs[2], 2, true, 5);
    rpi_weights_source sources[] = {{.graph = graphs[1], .loss = RPI_NO_VALUE},
                                    {.graph = graphs[2], .loss = RPI_NO_VALUE}};
    CHECK_FAILS(rpi_weights_create_shared(sources, 2, &weights), INVALID,
                "'head' is a parameter of 3 x 4 in the model's weights, but a parameter of "
                "5 x 4 in the graph");
    rpi_program_options options = {.result_count = 1};
    REQUIRE_OK(rpi_weights_create(graphs[1], RPI_NO_VALUE, &weights));
    options.results[0] = y[2];
    CHECK_FAILS(solo_open(graphs[2], weights, RPI_NO_VALUE, NULL, &options, &instance), INVALID,
                "'head' is a parameter of 3 x 4");
    rpi_weights_destroy(weights);
    REQUIRE_OK(rpi_weights_create(graphs[0], RPI_NO_VALUE, &weights));
    options.results[0] = y[1];
    CHECK_FAILS(solo_open(graphs[1], weights, RPI_NO_VALUE, NULL, &options, &instance),
                NOT_FOUND, "no parameter 'head'");
    rpi_weights_destroy(weights);
    for (int i = 0; i < 3; i++) rpi_graph_destroy(graphs[i]);
}

CASES({"as_many_as_there_may_be", as_many_as_there_may_be},
      {"a_result_in_an_input", a_result_in_an_input}, {"in_flight", in_flight},
      {"halves", halves}, {"split_at_a_layer", split_at_a_layer},
      {"largest_not_the_sum", largest_not_the_sum}, {"results_stay", results_stay},
      {"kernels_are_told", kernels_are_told}, {"order_of_calls", order_of_calls},
      {"allocation_failures", allocation_failures},
      {"written_between_uses", written_between_uses}, {"graphs_share", graphs_share},
      {"parameters_clash", parameters_clash})
