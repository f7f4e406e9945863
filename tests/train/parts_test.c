/* Parts of models: each has the weights of its own layers alone, and together they learn what
 * the whole does; and parameters that are in memory only while a step needs them. */
#include "engine/instance.h"
#include "harness/check.h"

#include "base/memory.h"
#include "base/rng.h"
#include "train/models/layer_names.h"
#include "train/models/network.h"

#include <math.h>

enum { ROWS = 3, TOKENS = 12, RUNS = 2 };

/* A row a model: it is cut behind its first block, one in the middle, and the last but one.
 * Ties are tables that both parts hold. */
static const struct model_row {
    const char *text;
    int ties, size; /* pixels a side */
} models[] = {
    {"gpt2:layers=3,hidden=16,heads=2,vocabulary=64,positions=16", 1, 0},
    {"llama:layers=2,hidden=16,heads=4,kv-heads=2,intermediate=24,vocabulary=64", 0, 0},
    {"llama:layers=3,hidden=16,heads=2,intermediate=24,vocabulary=64,tied=on", 1, 0},
    {"vit:layers=3,hidden=16,heads=2,patch=7", 0, 14},
    {"resnet20", 0, 4},
};
enum { MODELS = sizeof models / sizeof models[0] };

static rpi_data_shape data_of(const struct model_row *row) {
    return (rpi_data_shape){.sequence = TOKENS,
                            .vocabulary = 64,
                            .channels = 1,
                            .height = row->size,
                            .width = row->size,
                            .classes = 10};
}

/* ---- a network and its inputs ---- */

typedef struct work {
    rpi_network network;
    rpi_segment *blocks;
    int block_count;
    void *memory[RUNS][RPI_TASK_INPUTS];
    const void *inputs[RUNS][RPI_NETWORK_INPUTS];
    float scale;
} work;

static void draw(const rpi_task_input *input, const rpi_data_shape *data, rpi_rng *rng,
                 void **out) {
    size_t bytes = ROWS * rpi_task_input_bytes(input, data), count = bytes / 4;
    REQUIRE_OK(rpi_alloc(bytes, "inputs", out));
    for (size_t i = 0; i < count; i++) {
        if (input->dtype == RP_F32)
            ((float *)*out)[i] = rpi_rng_normal(rng);
        else
            ((int32_t *)*out)[i] = (int32_t)rpi_rng_below(rng, 10);
    }
}

static void open_work(work *w, const struct model_row *row) {
    const rpi_data_shape data = data_of(row);
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 0);
    *w = (work){.scale = 1.0f / (ROWS * RUNS)};
    REQUIRE_OK(rpi_network_build(row->text, &data, &w->network));
    REQUIRE_OK(rpi_blocks_of(w->network.graph, &w->blocks, &w->block_count));
    const rpi_task *task = w->network.task;
    for (int r = 0; r < RUNS; r++) {
        for (int i = 0; i < task->input_count; i++) {
            draw(&task->inputs[i], &data, &rng, &w->memory[r][i]);
            w->inputs[r][i] = w->memory[r][i];
        }
        w->inputs[r][task->input_count] = &w->scale;
    }
}

static void close_work(work *w) {
    for (int r = 0; r < RUNS; r++)
        for (int i = 0; i < RPI_TASK_INPUTS; i++) rpi_free(w->memory[r][i]);
    rpi_free(w->blocks);
    rpi_network_close(&w->network);
}

static rpi_value_id output_of(const rpi_graph *graph, const char *node) {
    for (int i = 0; i < rpi_graph_node_count(graph); i++)
        if (!strcmp(rpi_graph_node(graph, i)->name, node))
            return rpi_graph_node(graph, i)->outputs[0];
    return RPI_NO_VALUE;
}

/* ---- a part of it, or the whole ---- */

typedef struct part {
    rpi_weights *weights;
    rpi_session *session;
    rpi_program *program;
    rpi_instance *instances[RUNS];
} part;

static void open_program(part *p, const work *w, rpi_value_id loss,
                         const rpi_program_options *given) {
    rpi_program_options options = *given;
    const rpi_graph *graph = w->network.graph;
    options.training = true;
    for (int i = 0, n = 0; i < rpi_graph_dimension_count(graph); i++) {
        const char *name = rpi_graph_dimension_name(graph, i);
        options.dimensions[n++] =
            (rpi_dimension_binding){name, strcmp(name, "batch") ? TOKENS : ROWS};
    }
    REQUIRE_OK(rpi_session_create(p->weights, NULL, NULL, &p->session));
    REQUIRE_OK(rpi_program_compile(p->session, graph, loss, &options, &p->program));
    for (int r = 0; r < RUNS; r++)
        REQUIRE_OK(rpi_instance_create(p->program, &p->instances[r]));
}

static void open_part(part *p, const work *w, rpi_value_id loss,
                      const rpi_program_options *options) {
    const rpi_weights_source source = {.graph = w->network.graph,
                                       .loss = loss,
                                       .given_count = options->given_count,
                                       .given = options->given,
                                       .seed_count = options->seed_count,
                                       .seeds = options->seeds};
    *p = (part){0};
    REQUIRE_OK(rpi_weights_create_shared(&source, 1, &p->weights));
    rpi_network_initialise(&w->network, p->weights, 5);
    open_program(p, w, loss, options);
}

static void close_part(part *p) {
    for (int r = 0; r < RUNS; r++) rpi_instance_destroy(p->instances[r]);
    rpi_program_destroy(p->program);
    rpi_session_destroy(p->session);
    rpi_weights_destroy(p->weights);
}

static void run_whole(const part *whole, const work *w) {
    for (int r = 0; r < RUNS; r++)
        REQUIRE_OK(
            rpi_instance_run(whole->instances[0], &(rpi_run_options){.inputs = w->inputs[r],
                                                                     .accumulate = r > 0,
                                                                     .first_sample = r}));
}

/* All forward, all backward: as many runs are in flight as there are micro-batches. */
static void run_parts(const part *first, const part *second, const work *w, rpi_value_id cut) {
    rpi_tensor x[RUNS], gradient;
    for (int r = 0; r < RUNS; r++) {
        rpi_run_options run = {.inputs = w->inputs[r], .run = (uint64_t)r, .first_sample = r};
        REQUIRE_OK(rpi_instance_forward(first->instances[r], &run));
        REQUIRE_OK(rpi_instance_result(first->instances[r], cut, &x[r]));
        run.given = (const void *[]){x[r].data};
        REQUIRE_OK(rpi_instance_forward(second->instances[r], &run));
    }
    for (int r = 0; r < RUNS; r++) {
        rpi_run_options run = {.accumulate = r > 0};
        REQUIRE_OK(rpi_instance_backward(second->instances[r], &run));
        REQUIRE_OK(rpi_instance_gradient(second->instances[r], cut, &gradient));
        run.seeds = (const void *[]){gradient.data};
        REQUIRE_OK(rpi_instance_backward(first->instances[r], &run));
    }
}

/* ---- both are one ---- */

static const float *gradient_of(const part *p, const char *name) {
    const rpi_weight *weight = rpi_weights_find(p->weights, name);
    return weight && !weight->is_state ? rpi_weights_gradient_at(p->weights, weight->index)
                                       : NULL;
}

static void check_gradient(const rpi_weight *weight, const float *wanted, const float *a,
                           const float *b) {
    REQUIRE(a || b);
    if (!a || !b) {
        CHECK_MSG(!memcmp(wanted, a ? a : b, (size_t)weight->count * sizeof *wanted), "%s",
                  weight->name);
        return;
    }
    for (int64_t i = 0; i < weight->count; i++)
        CHECK_NEAR((double)wanted[i], (double)a[i] + (double)b[i], 1e-6);
}

static const float *values_of(const part *p, const rpi_weight *weight) {
    return weight->is_state ? rpi_weights_state_at(p->weights, weight->index)
                            : rpi_weights_value_at(p->weights, weight->index);
}

/* What a part has is what the whole has of the same name, states after the runs included. */
static void check_values(const part *p, const part *whole) {
    int parameters = rpi_weights_parameter_count(p->weights);
    for (int i = 0; i < parameters + rpi_weights_state_count(p->weights); i++) {
        const rpi_weight *here = i < parameters ? rpi_weights_parameter(p->weights, i)
                                                : rpi_weights_state(p->weights, i - parameters);
        const rpi_weight *there = rpi_weights_find(whole->weights, here->name);
        REQUIRE(there && there->count == here->count);
        CHECK_MSG(!memcmp(values_of(p, here), values_of(whole, there),
                          (size_t)here->count * sizeof(float)),
                  "%s", here->name);
    }
}

static void check_parts(const part *whole, const part *first, const part *second, int ties) {
    int shared = 0;
    int64_t twice = 0;
    for (int i = 0; i < rpi_weights_parameter_count(whole->weights); i++) {
        const rpi_weight *weight = rpi_weights_parameter(whole->weights, i);
        const float *a = gradient_of(first, weight->name),
                    *b = gradient_of(second, weight->name);
        check_gradient(weight, rpi_weights_gradient_at(whole->weights, i), a, b);
        shared += a && b;
        twice += a && b ? weight->count : 0;
    }
    CHECK_EQ(shared, ties);
    CHECK_EQ(rpi_weights_count(first->weights) + rpi_weights_count(second->weights),
             rpi_weights_count(whole->weights) + twice);
    CHECK_EQ(rpi_weights_states_count(first->weights) +
                 rpi_weights_states_count(second->weights),
             rpi_weights_states_count(whole->weights));
    check_values(first, whole);
    check_values(second, whole);
}

static void cut_behind(const work *w, const part *whole, int block, int ties) {
    rpi_value_id cut = output_of(w->network.graph, w->blocks[block].last);
    rpi_program_options before = {.seed_count = 1, .seeds = {cut}, .result_count = 1};
    rpi_program_options behind = {.given_count = 1, .given = {cut}};
    part first, second;
    before.results[0] = cut;
    open_part(&first, w, RPI_NO_VALUE, &before);
    open_part(&second, w, w->network.loss, &behind);
    run_parts(&first, &second, w, cut);
    check_parts(whole, &first, &second, ties);
    close_part(&first);
    close_part(&second);
}

static void parts_have_their_own_weights_alone(void) {
    for (int m = 0; m < MODELS; m++) {
        work w;
        part whole;
        open_work(&w, &models[m]);
        open_part(&whole, &w, w.network.loss, &(rpi_program_options){0});
        run_whole(&whole, &w);
        const int cuts[] = {0, w.block_count / 2, w.block_count - 2};
        for (int c = 0; c < 3; c++)
            if (c == 0 || cuts[c] > cuts[c - 1])
                cut_behind(&w, &whole, cuts[c], models[m].ties);
        close_part(&whole);
        close_work(&w);
    }
}

/* ---- runs in flight ---- */

/* What memory the runs of a program take together, all forward and then all backward. */
typedef struct flight {
    rpi_program_facts facts;
    rpi_session_facts session;
} flight;

static void fly(const part *p, const work *w, bool apart) {
    for (int r = 0; r < RUNS; r++) {
        rpi_run_options run = {.inputs = w->inputs[r], .run = (uint64_t)r, .first_sample = r};
        REQUIRE_OK(rpi_instance_forward(p->instances[r], &run));
    }
    for (int r = 0; r < RUNS; r++) {
        rpi_run_options run = {.accumulate = r > 0};
        if (apart)
            REQUIRE_OK(rpi_instance_backward_inputs(p->instances[r], &run));
        else
            REQUIRE_OK(rpi_instance_backward(p->instances[r], &run));
    }
    for (int r = 0; apart && r < RUNS; r++)
        REQUIRE_OK(rpi_instance_backward_weights(p->instances[r],
                                                 &(rpi_run_options){.accumulate = r > 0}));
}

/* Of the whole network, with the gradients of `whole`. */
static flight fly_all(const work *w, const part *whole, const rpi_program_options *options) {
    part p;
    flight f;
    open_part(&p, w, w->network.loss, options);
    fly(&p, w, options->halves_apart);
    CHECK_MSG(!memcmp(rpi_weights_gradients(p.weights), rpi_weights_gradients(whole->weights),
                      (size_t)rpi_weights_count(whole->weights) * sizeof(float)),
              "%s, apart %d, shared %d, again %d", w->network.text, options->halves_apart,
              options->shares_passing, options->recompute_count);
    f.facts = rpi_program_get_facts(p.program);
    f.session = rpi_session_get_facts(p.session);
    CHECK_EQ(f.session.arenas, RUNS);
    close_part(&p);
    return f;
}

/* With everything made again, a run in flight keeps the inputs of blocks, and what passes is
 * there once. Halves apart spare as much until the first half, which makes them for both. */
static void check_flights(const work *w, const part *whole) {
    rpi_program_options plain = {0}, shared = {.shares_passing = true};
    rpi_program_options apart = {.halves_apart = true}, again = shared, both = apart;
    again.recompute = both.recompute = w->blocks;
    again.recompute_count = both.recompute_count = w->block_count;
    flight one = fly_all(w, whole, &plain), kept = fly_all(w, whole, &shared);
    CHECK_EQ(one.facts.passing_bytes, 0);
    CHECK_EQ(one.facts.in_flight_bytes, one.facts.memory_bytes);
    CHECK(kept.facts.in_flight_bytes < one.facts.in_flight_bytes);
    CHECK_EQ(kept.facts.memory_bytes, kept.facts.in_flight_bytes + kept.facts.passing_bytes);
    flight halves = fly_all(w, whole, &apart), made = fly_all(w, whole, &again);
    flight made_apart = fly_all(w, whole, &both);
    CHECK_MSG(made.facts.in_flight_bytes < kept.facts.in_flight_bytes * 2 / 3,
              "%s: %zu of %zu bytes in flight", w->network.text, made.facts.in_flight_bytes,
              kept.facts.in_flight_bytes);
    CHECK(made.session.arena_bytes < kept.session.arena_bytes);
    CHECK_MSG(made_apart.facts.in_flight_bytes < halves.facts.in_flight_bytes * 2 / 3,
              "%s: %zu of %zu bytes in flight, halves apart", w->network.text,
              made_apart.facts.in_flight_bytes, halves.facts.in_flight_bytes);
    CHECK(made_apart.facts.between_bytes >= made_apart.facts.in_flight_bytes);
}

static void runs_in_flight_hold_what_they_keep(void) {
    for (int m = 0; m < MODELS; m++) {
        work w;
        part whole;
        open_work(&w, &models[m]);
        open_part(&whole, &w, w.network.loss, &(rpi_program_options){0});
        run_whole(&whole, &w);
        check_flights(&w, &whole);
        close_part(&whole);
        close_work(&w);
    }
}

/* ---- parameters that are here only while they are needed ---- */

/* What a run tells of parameters, and whether values are lent; gradients, once they are. */
typedef struct lender {
    part *here;
    const part *home;
    float **values, **gradients; /* of each parameter; NULL: not here */
    int in_pass[2048], told;     /* the order of what was needed */
    int at_once, most_at_once;
    bool refuses_all;
} lender;

static void copy_in(const lender *l, int index, float **out) {
    const rpi_weight *weight = rpi_weights_parameter(l->here->weights, index);
    size_t bytes = (size_t)weight->count * sizeof(float);
    REQUIRE_OK(rpi_alloc(bytes, "a parameter", out));
    memcpy(*out, rpi_weights_value_at(l->home->weights, index), bytes);
}

static rp_status lend(void *context, int index, rpi_parameter_event event) {
    lender *l = context;
    rpi_weights *weights = l->here->weights;
    int64_t count = rpi_weights_parameter(weights, index)->count;
    if (l->refuses_all) return RP_OK;
    switch (event) {
    case RPI_VALUES_NEEDED:
        CHECK_MSG(!l->values[index], "parameter %d is needed twice", index);
        copy_in(l, index, &l->values[index]);
        rpi_weights_place_values(weights, index, l->values[index]);
        rpi_weights_changed(weights, rpi_weights_parameter(weights, index)->first, count);
        l->in_pass[l->told++] = index;
        if (++l->at_once > l->most_at_once) l->most_at_once = l->at_once;
        break;
    case RPI_VALUES_DONE:
        CHECK_MSG(l->values[index], "parameter %d is done, and was not needed", index);
        rpi_weights_place_values(weights, index, NULL);
        memset(l->values[index], 0xff, (size_t)count * sizeof(float));
        rpi_free(l->values[index]);
        l->values[index] = NULL;
        l->at_once--;
        break;
    case RPI_GRADIENT_NEEDED:
        CHECK_MSG(!l->gradients[index], "gradient %d is needed twice", index);
        RP_TRY(rpi_alloc((size_t)count * sizeof(float), "a gradient", &l->gradients[index]));
        memset(l->gradients[index], 0xff, (size_t)count * sizeof(float));
        rpi_weights_place_gradient(weights, index, l->gradients[index]);
    }
    return RP_OK;
}

static void check_order(const lender *l, rpi_pass pass) {
    int count = 0, index;
    while ((index = rpi_program_needs(l->here->program, pass, count)) >= 0)
        CHECK_MSG(l->in_pass[count++] == index, "need %d of pass %d", count, (int)pass);
    CHECK_EQ(count, l->told);
}

static void run_lent(lender *l, const work *w, bool apart) {
    rpi_instance *instance = l->here->instances[0];
    rpi_run_options run = {.inputs = w->inputs[0], .on_parameter = lend, .context = l};
    REQUIRE_OK(rpi_instance_forward(instance, &run));
    check_order(l, RPI_FORWARD);
    CHECK_EQ(l->at_once, 0);
    l->told = 0;
    if (apart) {
        REQUIRE_OK(rpi_instance_backward_inputs(instance, &run));
        CHECK_EQ(l->at_once, 0);
        REQUIRE_OK(rpi_instance_backward_weights(instance, &run));
    } else {
        REQUIRE_OK(rpi_instance_backward(instance, &run));
    }
    check_order(l, RPI_BACKWARD);
    CHECK_EQ(l->at_once, 0);
}

static void open_lender(lender *l, part *here, const part *home, const work *w, bool apart) {
    *here = (part){0};
    *l = (lender){.here = here, .home = home};
    REQUIRE_OK(rpi_weights_create_table(w->network.graph, w->network.loss, &here->weights));
    open_program(here, w, w->network.loss, &(rpi_program_options){.halves_apart = apart});
    size_t parameters = (size_t)rpi_weights_parameter_count(here->weights);
    REQUIRE_OK(rpi_alloc_array(parameters, sizeof *l->values, "values", &l->values));
    REQUIRE_OK(rpi_alloc_array(parameters, sizeof *l->gradients, "gradients", &l->gradients));
    for (int i = 0; i < rpi_weights_state_count(here->weights); i++)
        rpi_weights_place_state(here->weights, i, rpi_weights_state_at(home->weights, i));
}

static void close_lender(lender *l) {
    for (int i = 0; i < rpi_weights_parameter_count(l->here->weights); i++) {
        rpi_free(l->values[i]);
        rpi_free(l->gradients[i]);
    }
    rpi_free(l->values);
    rpi_free(l->gradients);
    close_part(l->here);
}

static void learn_lent(const work *w, const part *home, bool apart) {
    lender l;
    part here;
    open_lender(&l, &here, home, w, apart);
    run_lent(&l, w, apart);
    int parameters = rpi_weights_parameter_count(here.weights);
    CHECK_MSG(l.most_at_once <= 6, "%d of %d at a time", l.most_at_once, parameters);
    REQUIRE_OK(
        rpi_instance_run(home->instances[0], &(rpi_run_options){.inputs = w->inputs[0]}));
    for (int i = 0; i < parameters; i++) {
        const rpi_weight *weight = rpi_weights_parameter(here.weights, i);
        REQUIRE(l.gradients[i]);
        CHECK_MSG(!memcmp(l.gradients[i], rpi_weights_gradient_at(home->weights, i),
                          (size_t)weight->count * sizeof(float)),
                  "%s", weight->name);
    }
    close_lender(&l);
}

static void parameters_come_and_go(void) {
    for (int m = 0; m < MODELS; m++) {
        work w;
        part home;
        open_work(&w, &models[m]);
        open_part(&home, &w, w.network.loss, &(rpi_program_options){0});
        learn_lent(&w, &home, false);
        learn_lent(&w, &home, true);
        close_part(&home);
        close_work(&w);
    }
}

/* An idle run has no inputs, tells what one tells that computes, and leaves gradients of zero
 * wherever they were put. */
static void idle_runs_tell_and_compute_nothing(void) {
    for (int m = 0; m < MODELS; m++) {
        work w;
        part home, here;
        lender l;
        open_work(&w, &models[m]);
        open_part(&home, &w, w.network.loss, &(rpi_program_options){0});
        open_lender(&l, &here, &home, &w, false);
        rpi_run_options idle = {.idle = true, .on_parameter = lend, .context = &l};
        REQUIRE_OK(rpi_instance_forward(here.instances[0], &idle));
        check_order(&l, RPI_FORWARD);
        l.told = 0;
        REQUIRE_OK(rpi_instance_backward(here.instances[0], &idle));
        check_order(&l, RPI_BACKWARD);
        CHECK_EQ(l.at_once, 0);
        for (int i = 0; i < rpi_weights_parameter_count(here.weights); i++) {
            int64_t count = rpi_weights_parameter(here.weights, i)->count, other = 0;
            REQUIRE(l.gradients[i]);
            for (int64_t e = 0; e < count; e++) other += l.gradients[i][e] != 0;
            CHECK_EQ(other, 0);
        }
        close_lender(&l);
        close_part(&home);
        close_work(&w);
    }
}

static void a_parameter_that_lies_nowhere(void) {
    work w;
    part home, here;
    lender l;
    open_work(&w, &models[0]);
    open_part(&home, &w, w.network.loss, &(rpi_program_options){0});
    open_lender(&l, &here, &home, &w, false);
    l.refuses_all = true;
    rpi_run_options run = {.inputs = w.inputs[0], .on_parameter = lend, .context = &l};
    CHECK_FAILS(rpi_instance_forward(here.instances[0], &run), INVALID,
                "the values of 'wte.weight' lie nowhere when a step needs them");
    run.on_parameter = NULL;
    for (int i = 0; i < rpi_weights_parameter_count(here.weights); i++)
        rpi_weights_place_values(here.weights, i, rpi_weights_value_at(home.weights, i));
    REQUIRE_OK(rpi_instance_forward(here.instances[0], &run));
    CHECK_FAILS(rpi_instance_backward(here.instances[0], &run), INVALID,
                "the gradient of 'wte.weight' lies nowhere when a step needs it");
    close_lender(&l);
    close_part(&home);
    close_work(&w);
}

CASES({"idle_runs_tell_and_compute_nothing", idle_runs_tell_and_compute_nothing},
      {"parts_have_their_own_weights_alone", parts_have_their_own_weights_alone},
      {"runs_in_flight_hold_what_they_keep", runs_in_flight_hold_what_they_keep},
      {"parameters_come_and_go", parameters_come_and_go},
      {"a_parameter_that_lies_nowhere", a_parameter_that_lies_nowhere})
