/* NaN and infinity go where the definition of each op sends them, on every backend: put at
 * drawn places into each input, and into the gradient that comes back, of every op and of the
 * chains that backends fuse. What comes out is NaN, +inf or -inf in the places where the
 * reference's result is, and finite in all others. */
#include "harness/check.h"
#include "op_fixture.h"
#include "shuffled_backend.h"

#include "base/rng.h"
#include "engine/layers.h"

#include <stdlib.h>

extern const rpi_op rpi_op_attention, rpi_op_relative_attention, rpi_op_self_attention;

enum { VALUES = 3, TRIALS = 2, MOST_PLACES = 8, MOST_TENSORS = 24 };

static const float values[VALUES] = {NAN, INFINITY, -INFINITY};
static const char *const value_names[VALUES] = {"NaN", "inf", "-inf"};

/* Floats that can be spoiled, by name. */
typedef struct place {
    const char *name;
    float *data;
    int64_t count;
} place;

/* A graph under test with everything it reads. */
typedef struct subject {
    const char *name;
    bool spreads;       /* its gradients may be NaN in more places than the definition's */
    op_fixture fixture; /* of a chain: without op and example */
    rpi_value_id results[RPI_NODE_OUTPUTS];
    int result_count;
    place places[MOST_PLACES];
    int place_count;
} subject;

static void add_place(subject *s, const char *name, float *data, int64_t count) {
    s->places[s->place_count++] = (place){name, data, count};
}

static void add_weights(subject *s) {
    rpi_weights *weights = s->fixture.weights;
    for (int i = 0; i < rpi_weights_parameter_count(weights); i++) {
        const rpi_weight *w = rpi_weights_parameter(weights, i);
        add_place(s, w->name, rpi_weights_values(weights) + w->first, w->count);
    }
    for (int i = 0; i < rpi_weights_state_count(weights); i++) {
        const rpi_weight *w = rpi_weights_state(weights, i);
        add_place(s, w->name, rpi_weights_states(weights) + w->first, w->count);
    }
    const rpi_value *output = rpi_graph_value(s->fixture.graph, s->results[0]);
    add_place(s, "the gradient of the output", s->fixture.coefficients,
              rpi_shape_count(&output->shape));
}

/* ---- single ops ---- */

/* Off the grid on which the fixture draws: an element that is the mean of its channel but for
 * rounding would be 0 times infinity on one backend and not on the other. */
static void leave_the_grid(op_fixture *f) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 3);
    float *x = rpi_weights_values(f->weights);
    for (int64_t i = 0; i < rpi_weights_count(f->weights); i++)
        x[i] += 0.008f * (rpi_rng_uniform(&rng) - 0.5f);
}

static void open_op(const rpi_op *op, const rpi_op_example *example, subject *s) {
    *s = (subject){.name = op->name,
                   .spreads = op == &rpi_op_attention || op == &rpi_op_self_attention ||
                              op == &rpi_op_relative_attention};
    REQUIRE_OK(op_fixture_open(op, example, check_seed(), &s->fixture));
    leave_the_grid(&s->fixture);
    s->result_count = op->output_count;
    for (int i = 0; i < op->output_count; i++) s->results[i] = s->fixture.outputs[i];
    add_weights(s);
    for (int i = 0, slot = 0; i < example->input_count; i++) {
        if (op_fixture_weight(&s->fixture, i)) continue;
        if (op->inputs[i].dtype == RP_F32)
            add_place(s, op->inputs[i].name, s->fixture.input_data[slot],
                      rpi_shape_count(&example->inputs[i]));
        slot++;
    }
}

/* ---- chains: what backends fuse, and layouts of their own ---- */

typedef struct chain {
    const char *name;
    int64_t images, channels, filters, size;
    int kernel; /* of the convolutions */
    rpi_value_id (*build)(rpi_graph *graph, const struct chain *c, rpi_value_id x);
} chain;

static rpi_value_id convolve(rpi_graph *g, const chain *c, const char *name, rpi_value_id x) {
    rpi_value_id weight =
        rpi_graph_parameter(g, name, SHAPE(c->filters, c->channels, c->kernel, c->kernel));
    return rpi_conv2d(g, name, x, weight, RPI_NO_VALUE,
                      (rpi_conv2d_attributes){.stride = 1, .padding = c->kernel / 2});
}

static rpi_value_id normalise(rpi_graph *g, int64_t channels, rpi_value_id x) {
    rpi_shape shape = SHAPE(channels);
    rpi_value_id scale = rpi_graph_parameter(g, "scale", shape);
    rpi_value_id shift = rpi_graph_parameter(g, "shift", shape);
    rpi_value_id mean = rpi_graph_state(g, "mean", shape);
    rpi_value_id variance = rpi_graph_state(g, "variance", shape);
    return rpi_batch_norm2d(g, "norm", x, scale, shift, mean, variance,
                            (rpi_batch_norm2d_attributes){0});
}

/* Four groups, of part of a block or across its edge. */
static rpi_value_id normalise_groups(rpi_graph *g, int64_t channels, rpi_value_id x) {
    rpi_value_id scale = rpi_graph_parameter(g, "scale", SHAPE(channels));
    rpi_value_id shift = rpi_graph_parameter(g, "shift", SHAPE(channels));
    return rpi_group_norm(g, "norm", x, scale, shift, (rpi_group_norm_attributes){.groups = 4});
}

static rpi_value_id pool(rpi_graph *g, rpi_value_id x) {
    return rpi_max_pool2d(g, "pool", x,
                          (rpi_max_pool2d_attributes){.kernel = 3, .stride = 2, .padding = 1});
}

static rpi_value_id norm_relu(rpi_graph *g, const chain *c, rpi_value_id x) {
    return rpi_relu(g, "relu", normalise(g, c->channels, x));
}

static rpi_value_id conv_norm_relu(rpi_graph *g, const chain *c, rpi_value_id x) {
    return rpi_relu(g, "relu", normalise(g, c->filters, convolve(g, c, "weight", x)));
}

static rpi_value_id conv_norm(rpi_graph *g, const chain *c, rpi_value_id x) {
    return normalise(g, c->filters, convolve(g, c, "weight", x));
}

static rpi_value_id conv_group_norm_relu(rpi_graph *g, const chain *c, rpi_value_id x) {
    x = convolve(g, c, "weight", x);
    return rpi_relu(g, "relu", normalise_groups(g, c->filters, x));
}

static rpi_value_id group_norm_add_relu(rpi_graph *g, const chain *c, rpi_value_id x) {
    rpi_value_id a = convolve(g, c, "a", x), b = convolve(g, c, "b", x);
    return rpi_relu(g, "relu", rpi_add(g, "add", normalise_groups(g, c->filters, a), b));
}

static rpi_value_id conv_relu(rpi_graph *g, const chain *c, rpi_value_id x) {
    return rpi_relu(g, "relu", convolve(g, c, "weight", x));
}

static rpi_value_id conv_add_relu(rpi_graph *g, const chain *c, rpi_value_id x) {
    rpi_value_id a = convolve(g, c, "a", x), b = convolve(g, c, "b", x);
    return rpi_relu(g, "relu", rpi_add(g, "add", a, b));
}

static rpi_value_id add_relu(rpi_graph *g, const chain *c, rpi_value_id x) {
    rpi_value_id other =
        rpi_graph_parameter(g, "other", SHAPE(c->images, c->channels, c->size, c->size));
    return rpi_relu(g, "relu", rpi_add(g, "add", x, other));
}

static rpi_value_id conv_pool(rpi_graph *g, const chain *c, rpi_value_id x) {
    return pool(g, convolve(g, c, "weight", x));
}

static rpi_value_id conv_mean(rpi_graph *g, const chain *c, rpi_value_id x) {
    return rpi_global_avg_pool(g, "mean", convolve(g, c, "weight", x));
}

static rpi_value_id layer(rpi_graph *g, const chain *c, rpi_value_id x, bool biased) {
    rpi_value_id weight = rpi_graph_parameter(g, "weight", SHAPE(c->filters, c->size));
    rpi_value_id bias =
        biased ? rpi_graph_parameter(g, "bias", SHAPE(c->filters)) : RPI_NO_VALUE;
    return rpi_linear(g, "layer", x, weight, bias);
}

static rpi_value_id layer_gelu(rpi_graph *g, const chain *c, rpi_value_id x) {
    return rpi_gelu(g, "gelu", layer(g, c, x, true), RPI_GELU_TANH);
}

static rpi_value_id layer_gelu_erf(rpi_graph *g, const chain *c, rpi_value_id x) {
    return rpi_gelu(g, "gelu", layer(g, c, x, true), RPI_GELU_ERF);
}

static rpi_value_id layer_silu(rpi_graph *g, const chain *c, rpi_value_id x) {
    return rpi_silu(g, "silu", layer(g, c, x, false));
}

static const chain chains[] = {
    {"norm + relu", 3, 5, 5, 4, 1, norm_relu},
    {"norm + relu, wide", 2, 32, 32, 5, 1, norm_relu},
    {"add + relu", 2, 5, 5, 3, 1, add_relu},
    {"conv, norm + relu", 3, 5, 5, 4, 1, conv_norm_relu},
    {"conv 3x3, norm + relu", 2, 16, 32, 6, 3, conv_norm_relu},
    {"conv 3x3, norm + relu, odd", 2, 20, 17, 5, 3, conv_norm_relu},
    {"conv, norm", 3, 7, 20, 4, 1, conv_norm},
    {"conv, group norm + relu", 3, 5, 4, 4, 1, conv_group_norm_relu},
    {"conv 3x3, group norm + relu", 2, 16, 32, 6, 3, conv_group_norm_relu},
    {"conv 3x3, group norm + relu, odd", 2, 20, 36, 5, 3, conv_group_norm_relu},
    {"conv, group norm + add + relu", 3, 7, 20, 4, 1, group_norm_add_relu},
    {"conv 3x3, group norm + add + relu", 2, 16, 32, 6, 3, group_norm_add_relu},
    {"conv, relu", 2, 5, 20, 4, 1, conv_relu},
    {"conv 3x3, relu", 2, 16, 16, 6, 3, conv_relu},
    {"conv, add + relu", 2, 16, 16, 4, 1, conv_add_relu},
    {"conv 3x3, add + relu", 2, 8, 20, 5, 3, conv_add_relu},
    {"conv, max pool", 2, 4, 5, 7, 1, conv_pool},
    {"conv 3x3, max pool", 2, 16, 16, 8, 3, conv_pool},
    {"conv, mean", 2, 5, 20, 4, 1, conv_mean},
    {"linear + gelu", 2, 3, 20, 5, 0, layer_gelu},
    {"linear + gelu by erf", 2, 3, 7, 5, 0, layer_gelu_erf},
    {"linear + silu", 2, 3, 18, 5, 0, layer_silu},
};
enum { CHAINS = sizeof chains / sizeof chains[0] };

/* Where a GELU saturates its slope is 0 or next to it, as it rounds: infinity times that is NaN
 * or infinity. So what goes into one stays small. */
static void fill(op_fixture *f, float spread) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    float *x = rpi_weights_values(f->weights), *state = rpi_weights_states(f->weights);
    for (int64_t i = 0; i < rpi_weights_count(f->weights); i++)
        x[i] = spread * rpi_rng_normal(&rng);
    for (int64_t i = 0; i < rpi_weights_states_count(f->weights); i++)
        state[i] = 0.5f + rpi_rng_uniform(&rng);
}

static void open_chain(const chain *c, subject *s) {
    *s = (subject){.name = c->name, .result_count = 1};
    op_fixture *f = &s->fixture;
    REQUIRE_OK(rpi_graph_create(&f->graph));
    rpi_value_id x =
        rpi_graph_parameter(f->graph, "input", SHAPE(c->images, c->channels, c->size, c->size));
    s->results[0] = c->build(f->graph, c, x);
    REQUIRE_OK(op_fixture_add_loss(f, s->results[0]));
    fill(f, c->kernel ? 1 : 0.5f); /* no kernel: linear layers */
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 2);
    const rpi_value *output = rpi_graph_value(f->graph, s->results[0]);
    for (int64_t i = 0; i < rpi_shape_count(&output->shape); i++)
        f->coefficients[i] = rpi_rng_normal(&rng);
    add_weights(s);
}

/* ---- running ---- */

typedef struct tensor {
    const char *name;
    float *data;
    int64_t count;
} tensor;

typedef struct outcome {
    tensor tensors[MOST_TENSORS];
    int count;
} outcome;

static void keep(outcome *o, const char *name, const rpi_tensor *t) {
    tensor *kept = &o->tensors[o->count++];
    *kept = (tensor){.name = name, .count = rpi_shape_count(&t->shape)};
    kept->data = malloc((size_t)kept->count * sizeof(float));
    if (!kept->data) abort();
    for (int64_t i = 0; i < kept->count; i++)
        kept->data[i] =
            t->dtype == RP_F32 ? ((float *)t->data)[i] : (float)((int32_t *)t->data)[i];
}

static void keep_weight(outcome *o, const rpi_weight *w, float *arena) {
    keep(o, w->name,
         &(rpi_tensor){.data = arena + w->first, .dtype = RP_F32, .shape = w->shape});
}

static void free_outcome(outcome *o) {
    for (int i = 0; i < o->count; i++) free(o->tensors[i].data);
    o->count = 0;
}

/* One thread: these arrays are small, and threads of several tests would wait for cores. */
static rpi_instance *compile(const subject *s, const rpi_backend *backend, bool training) {
    rpi_instance *instance = NULL;
    rpi_program_options options = {.training = training, .result_count = s->result_count};
    rpi_backend_options one_thread = {.threads = 1};
    for (int i = 0; i < s->result_count; i++) options.results[i] = s->results[i];
    CHECK_OK(solo_open_with(s->fixture.graph, s->fixture.weights, s->fixture.loss, backend,
                            &one_thread, &options, &instance));
    return instance;
}

static void run(const subject *s, rpi_instance *instance, bool training, outcome *o) {
    rpi_weights *weights = s->fixture.weights;
    *o = (outcome){0};
    REQUIRE(instance);
    CHECK_OK(op_fixture_run(&s->fixture, instance, false));
    for (int i = 0; i < s->result_count; i++) {
        rpi_tensor t;
        REQUIRE_OK(rpi_instance_result(instance, s->results[i], &t));
        keep(o, "the output", &t);
    }
    for (int i = 0; training && i < rpi_weights_parameter_count(weights); i++)
        keep_weight(o, rpi_weights_parameter(weights, i), rpi_weights_gradients(weights));
    for (int i = 0; i < rpi_weights_state_count(weights); i++)
        keep_weight(o, rpi_weights_state(weights, i), rpi_weights_states(weights));
}

/* ---- comparing ---- */

static const char *kind_of(float x) {
    if (isfinite(x)) return "finite";
    return isnan(x) ? "NaN" : x > 0 ? "inf" : "-inf";
}

static int count_nonfinite(const outcome *o) {
    int found = 0;
    for (int i = 0; i < o->count; i++)
        for (int64_t j = 0; j < o->tensors[i].count; j++)
            found += !isfinite(o->tensors[i].data[j]);
    return found;
}

/* What spreads may be NaN, and nothing that was not finite may become so. */
static bool is_as_wanted(float got, float wanted, bool spreads) {
    if (kind_of(got) == kind_of(wanted)) return true;
    return spreads && isnan(got);
}

/* The first `exact` tensors do not spread. */
static void compare(const outcome *got, const outcome *wanted, int exact, const char *what) {
    CHECK(got->count == wanted->count);
    for (int i = 0; i < got->count; i++) {
        const tensor *a = &got->tensors[i], *b = &wanted->tensors[i];
        int wrong = 0;
        int64_t first = -1;
        for (int64_t j = 0; j < a->count; j++) {
            if (is_as_wanted(a->data[j], b->data[j], i >= exact)) continue;
            if (!wrong++) first = j;
        }
        CHECK_MSG(!wrong, "%s: %s[%lld] is %s, not %s (%d such of %lld)", what, a->name,
                  (long long)first, wrong ? kind_of(a->data[first]) : "",
                  wrong ? kind_of(b->data[first]) : "", wrong, (long long)a->count);
    }
}

/* What a run reads, so that the next one starts from the same. */
typedef struct copies {
    float *data[MOST_PLACES];
} copies;

static void save(const subject *s, copies *c) {
    for (int i = 0; i < s->place_count; i++) {
        const place *from = &s->places[i];
        if (!from->data) continue;
        c->data[i] = malloc((size_t)from->count * sizeof(float));
        if (!c->data[i]) abort();
        memcpy(c->data[i], from->data, (size_t)from->count * sizeof(float));
    }
}

static void free_copies(copies *c) {
    for (int i = 0; i < MOST_PLACES; i++) free(c->data[i]);
}

static void restore(const subject *s, const copies *c) {
    for (int i = 0; i < s->place_count; i++)
        if (c->data[i])
            memcpy(s->places[i].data, c->data[i], (size_t)s->places[i].count * sizeof(float));
}

static void spoil(const place *p, float value, uint64_t trial) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1000 + trial);
    for (uint64_t i = 0; i <= trial % TRIALS; i++)
        p->data[rpi_rng_below(&rng, (uint32_t)p->count)] = value;
}

/* The backend under test and the reference, which is right. */
typedef struct pair {
    const rpi_backend *backend;
    bool training;
    rpi_instance *instance, *reference;
} pair;

static void try_one(const subject *s, const copies *originals, const pair *p, int spoiled,
                    int value, uint64_t trial) {
    outcome got, wanted;
    char what[256];
    snprintf(what, sizeof what, "%s: %s, %s in %s, %s", p->backend->name, s->name,
             value_names[value], s->places[spoiled].name,
             p->training ? "training" : "evaluation");
    restore(s, originals);
    spoil(&s->places[spoiled], values[value], trial);
    run(s, p->reference, p->training, &wanted);
    restore(s, originals);
    spoil(&s->places[spoiled], values[value], trial);
    run(s, p->instance, p->training, &got);
    compare(&got, &wanted, s->spreads ? s->result_count : MOST_TENSORS, what);
    free_outcome(&got);
    free_outcome(&wanted);
}

static void try_all(const subject *s, const rpi_backend *backend, bool training) {
    copies originals = {0};
    uint64_t trial = 0;
    pair p = {backend, training, compile(s, backend, training),
              compile(s, rpi_backend_at(0), training)};
    save(s, &originals);
    for (int i = 0; i < s->place_count; i++)
        for (int v = 0; v < VALUES; v++)
            for (int n = 0; n < TRIALS; n++) try_one(s, &originals, &p, i, v, trial++);
    free_copies(&originals);
    solo_close(p.instance);
    solo_close(p.reference);
}

static void walk_ops(const rpi_backend *backend) {
    for (int i = 0; rpi_op_at(i); i++)
        for (int j = 0; j < rpi_op_at(i)->example_count; j++)
            for (int training = 0; training < 2 - rpi_op_has_cache(rpi_op_at(i)); training++) {
                subject s;
                open_op(rpi_op_at(i), &rpi_op_at(i)->examples[j], &s);
                try_all(&s, backend, training);
                op_fixture_close(&s.fixture);
            }
}

static void walk_chains(const rpi_backend *backend) {
    for (int i = 0; i < CHAINS; i++)
        for (int training = 0; training < 2; training++) {
            subject s;
            open_chain(&chains[i], &s);
            try_all(&s, backend, training);
            op_fixture_close(&s.fixture);
        }
}

static void ops(void) {
    for (int b = 1; rpi_backend_at(b); b++) walk_ops(rpi_backend_at(b));
    shuffled_backend_seed(check_seed());
    walk_ops(&shuffled_backend);
}

static void fused_units(void) {
    for (int b = 1; rpi_backend_at(b); b++) walk_chains(rpi_backend_at(b));
    shuffled_backend_seed(check_seed());
    walk_chains(&shuffled_backend);
}

/* NaN in the data or a parameter is seen in what a step leaves: an op that takes it for a
 * number hides that a run is lost. */
static void check_seen(const subject *s, const rpi_backend *backend, const place *p) {
    outcome o;
    rpi_instance *instance = compile(s, backend, true);
    run(s, instance, true, &o);
    CHECK_MSG(count_nonfinite(&o) > 0, "%s: %s: NaN in %s is lost", backend->name, s->name,
              p->name);
    free_outcome(&o);
    solo_close(instance);
}

static void nothing_is_swallowed(void) {
    for (int i = 0; i < CHAINS; i++) {
        subject s;
        copies originals = {0};
        open_chain(&chains[i], &s);
        save(&s, &originals);
        for (int b = 0; rpi_backend_at(b); b++)
            for (int p = 0; p < rpi_weights_parameter_count(s.fixture.weights); p++) {
                restore(&s, &originals);
                spoil(&s.places[p], NAN, (uint64_t)p);
                check_seen(&s, rpi_backend_at(b), &s.places[p]);
            }
        free_copies(&originals);
        op_fixture_close(&s.fixture);
    }
}

/* Winograd's tiles may spread what direct sums keep in their windows, but lose nothing of it.
 */
static void winograd_spreads_and_keeps(void) {
    static const chain wide = {"winograd", 8, 32, 32, 14, 3, conv_norm_relu};
    for (int v = 0; v < VALUES; v++)
        for (int b = 1; rpi_backend_at(b); b++) {
            subject s;
            outcome got, wanted;
            open_chain(&wide, &s);
            spoil(&s.places[0], values[v], (uint64_t)v);
            rpi_instance *reference = compile(&s, rpi_backend_at(0), false);
            rpi_instance *instance = compile(&s, rpi_backend_at(b), false);
            run(&s, reference, false, &wanted);
            run(&s, instance, false, &got);
            int64_t lost = 0;
            if (!got.tensors[0].data || !wanted.tensors[0].data) abort();
            for (int64_t i = 0; i < wanted.tensors[0].count; i++)
                lost += isnan(wanted.tensors[0].data[i]) && !isnan(got.tensors[0].data[i]);
            CHECK_MSG(count_nonfinite(&wanted) > 0 && lost == 0,
                      "%s: %s in %s: %lld of the output are lost", rpi_backend_at(b)->name,
                      value_names[v], s.places[0].name, (long long)lost);
            free_outcome(&got);
            free_outcome(&wanted);
            solo_close(reference);
            solo_close(instance);
            op_fixture_close(&s.fixture);
        }
}

CASES({"ops", ops}, {"fused units", fused_units},
      {"nothing is swallowed", nothing_is_swallowed},
      {"winograd spreads and keeps", winograd_spreads_and_keeps})
