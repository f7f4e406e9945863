#include "train/parallel/layer_times.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "train/program_set.h"

#include <math.h>
#include <time.h>

enum { FEWEST = 4, MOST = 40 };
#define LONG_ENOUGH_S 0.25 /* repeats of one layer end after this time */

/* One layer alone, compiled in one way. */
typedef struct trial {
    const rpi_layer_times_setup *setup;
    rpi_network_part part;
    rpi_weights *weights;
    rpi_program_set set;
    rpi_program *program;
    rpi_instance *instance;
    float *given, *seed; /* stand for what other layers would hand over */
    const void *givens[1], *seeds[1];
} trial;

static void close_trial(trial *t) {
    rpi_instance_destroy(t->instance);
    rpi_program_destroy(t->program);
    rpi_program_set_close(&t->set);
    rpi_weights_destroy(t->weights);
    rpi_free(t->given);
    rpi_free(t->seed);
}

static rp_status make_values(const trial *t, rpi_value_id value, float scale, float **out) {
    if (value == RPI_NO_VALUE) return RP_OK;
    int64_t count = rpi_stage_crossing(t->setup->network, value, t->setup->samples);
    rpi_rng rng = rpi_rng_make(1, RPI_RNG_INIT, 0);
    RP_TRY(rpi_alloc_array((size_t)count, sizeof(float), "a layer's inputs", out));
    for (int64_t i = 0; i < count; i++) (*out)[i] = scale * (rpi_rng_uniform(&rng) - 0.5f);
    return RP_OK;
}

static rp_status make_weights(trial *t) {
    const rpi_network *n = t->setup->network;
    bool is_last = t->part.seed == RPI_NO_VALUE;
    const rpi_weights_source source = {.graph = n->graph,
                                       .loss = is_last ? n->loss : RPI_NO_VALUE,
                                       .given = &t->part.given,
                                       .given_count = t->part.given != RPI_NO_VALUE,
                                       .seeds = &t->part.seed,
                                       .seed_count = !is_last};
    RP_TRY(rpi_weights_create_shared(&source, 1, &t->weights));
    rpi_network_initialise(n, t->weights, 1);
    return RP_OK;
}

static rp_status open_trial(const rpi_layer_times_setup *s, int layer, bool halves, trial *t) {
    const rpi_model_layers *l = s->layers;
    *t = (trial){.setup = s,
                 .part = {.part = layer,
                          .first_node = l->first_node[layer],
                          .end_node = l->first_node[layer + 1],
                          .given = layer ? l->crossing[layer - 1] : RPI_NO_VALUE,
                          .seed = l->crossing[layer]}};
    RP_TRY(make_values(t, t->part.given, 2, &t->given));
    RP_TRY(make_values(t, t->part.seed, 1e-3f, &t->seed));
    t->givens[0] = t->given;
    t->seeds[0] = t->seed;
    RP_TRY(make_weights(t));
    RP_TRY(rpi_program_set_open(s->network, t->weights, s->backend, &s->options, s->compute,
                                &t->set));
    t->set.recompute = s->recompute;
    t->set.in_flight = true;
    t->set.halves = halves;
    RP_TRY(rpi_program_set_compile_part(&t->set, &t->part, true, s->samples, &t->program));
    return rpi_instance_create(t->program, &t->instance);
}

/* Where one thread computes, its processor time: another process may have taken its core for a
 * while. */
static int64_t now_ns(const trial *t) {
    struct timespec now;
    if (t->setup->options.threads != 1 || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) != 0)
        return rpi_now_ns();
    return (int64_t)now.tv_sec * RPI_SECOND_NS + now.tv_nsec;
}

static void keep_least(const trial *t, double *least, int64_t start_ns) {
    *least = fmin(*least, rpi_seconds(now_ns(t) - start_ns));
}

static rp_status run_forward(const trial *t, const rpi_run_options *run, double *least) {
    int64_t start = now_ns(t);
    RP_TRY(rpi_instance_forward(t->instance, run));
    keep_least(t, least, start);
    return RP_OK;
}

static rp_status run_halves(const trial *t, const rpi_run_options *run,
                            rpi_pipeline_layer *least) {
    RP_TRY(run_forward(t, run, &least->forward_s));
    int64_t start = now_ns(t);
    RP_TRY(rpi_instance_backward_inputs(t->instance, run));
    keep_least(t, &least->inputs_s, start);
    start = now_ns(t);
    RP_TRY(rpi_instance_backward_weights(t->instance, run));
    keep_least(t, &least->weights_s, start);
    return RP_OK;
}

static rp_status run_whole(const trial *t, const rpi_run_options *run,
                           rpi_pipeline_layer *least) {
    RP_TRY(run_forward(t, run, &least->forward_s));
    int64_t start = now_ns(t);
    RP_TRY(rpi_instance_backward(t->instance, run));
    keep_least(t, &least->whole_s, start);
    return RP_OK;
}

/* The first run warms up and does not count. */
static rp_status run_often(const trial *t, bool halves, rpi_pipeline_layer *in_out_least) {
    const rpi_run_options run = {.inputs = t->setup->inputs,
                                 .given = t->givens,
                                 .seeds = t->seeds,
                                 .seed = 1,
                                 .accumulate = true};
    rpi_pipeline_layer cold = *in_out_least;
    RP_TRY(halves ? run_halves(t, &run, &cold) : run_whole(t, &run, &cold));
    int64_t start = rpi_now_ns();
    int most = t->setup->together ? 2 * FEWEST : MOST;
    for (int i = 0; i < most; i++) {
        bool is_long = rpi_seconds(rpi_now_ns() - start) > LONG_ENOUGH_S;
        if (i >= FEWEST && is_long && !t->setup->together) break;
        RP_TRY(halves ? run_halves(t, &run, in_out_least) : run_whole(t, &run, in_out_least));
    }
    return RP_OK;
}

static double crossing_bytes(const trial *t, rpi_value_id value) {
    if (value == RPI_NO_VALUE) return 0;
    return (double)rpi_stage_crossing(t->setup->network, value, t->setup->samples) *
           sizeof(float);
}

static rp_status measure_way(const rpi_layer_times_setup *s, int layer, bool halves,
                             rpi_pipeline_layer *in_out) {
    trial t;
    rp_status status = open_trial(s, layer, halves, &t);
    if (status == RP_OK) status = run_often(&t, halves, in_out);
    if (status == RP_OK && halves) {
        rpi_program_facts facts = rpi_program_get_facts(t.program);
        in_out->kept_bytes = (double)facts.in_flight_bytes + crossing_bytes(&t, t.part.given);
        in_out->weights_bytes = (double)facts.between_bytes;
    }
    close_trial(&t);
    return status;
}

/* Where nothing was run the time is a finite number instead of infinity. */
static rp_status measure(const rpi_layer_times_setup *s, int layer, rpi_pipeline_layer *out) {
    rpi_pipeline_layer least = {.forward_s = INFINITY,
                                .inputs_s = INFINITY,
                                .weights_s = INFINITY,
                                .whole_s = INFINITY};
    RP_TRY(measure_way(s, layer, true, &least));
    RP_TRY(measure_way(s, layer, false, &least));
    *out = least;
    return RP_OK;
}

static int64_t size_of(const rpi_network *network, rpi_value_id value) {
    return value == RPI_NO_VALUE ? 0 : rpi_stage_crossing(network, value, 1);
}

static bool are_alike(const rpi_network *network, const rpi_node *a, const rpi_node *b) {
    if (a->op != b->op || a->input_count != b->input_count ||
        a->output_count != b->output_count)
        return false;
    for (int i = 0; i < a->input_count; i++)
        if (size_of(network, a->inputs[i]) != size_of(network, b->inputs[i])) return false;
    for (int i = 0; i < a->output_count; i++)
        if (size_of(network, a->outputs[i]) != size_of(network, b->outputs[i])) return false;
    return true;
}

bool rpi_layers_are_alike(const rpi_network *network, const rpi_model_layers *layers, int a,
                          int b) {
    const int *first = layers->first_node;
    int count = first[a + 1] - first[a];
    bool ends = layers->crossing[a] == RPI_NO_VALUE || layers->crossing[b] == RPI_NO_VALUE;
    if (count != first[b + 1] - first[b] || ends) return false;
    for (int i = 0; i < count; i++)
        if (!are_alike(network, rpi_graph_node(network->graph, first[a] + i),
                       rpi_graph_node(network->graph, first[b] + i)))
            return false;
    return true;
}

rp_status rpi_layer_times_measure(const rpi_layer_times_setup *s, rpi_pipeline_layer *out) {
    for (int i = 0; i < s->layers->count; i++) {
        int as = 0;
        while (as < i && !rpi_layers_are_alike(s->network, s->layers, as, i)) as++;
        if (as < i)
            out[i] = out[as];
        else
            RP_TRY(measure(s, i, &out[i]));
        out[i].name = s->layers->names[i];
        out[i].tie = NULL;
    }
    return RP_OK;
}
