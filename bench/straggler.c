/* What one slow rank costs the others, and what they have learnt meanwhile: bench/straggler.sh
 * runs it for a table.
 *
 *     redpoll run -n 4 straggler --mode all-reduce --slower 3
 *     redpoll run -n 4 straggler --mode gossip --slower 3       windows: put, and nobody waits
 *     redpoll run -n 5 straggler --mode server --slower 3       one server, staleness 4
 *     redpoll run -n 5 straggler --mode async-local-sgd --slower 3 --every 10
 *
 * Each learner computes a real gradient of a small perceptron, which takes next to nothing, and
 * sleeps until its step has taken --step milliseconds (the last rank's: --slower times as
 * many). So ranks that share few cores behave as if each had its own. The run ends when --steps
 * undisturbed steps would have; rank 0 prints, as JSON, how many steps were done: of gossip the
 * mean over ranks, of a server its merges over the workers, of async-local-sgd the workers'
 * steps over the workers. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/option.h"
#include "base/rng.h"
#include "base/status.h"
#include "perceptron.h"
#include "redpoll/redpoll.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    const char *mode, *data;
    int64_t steps, batch, hidden, staleness, every, seed;
    double step_ms, slower, rate, outer_rate, outer_momentum;
} settings;

#define COUNT_OPTION(NAME, FIELD, FALLBACK, MAX, HELP)                                         \
    {                                                                                          \
        .name = NAME, .type = RPI_OPTION_COUNT, .offset = offsetof(settings, FIELD),           \
        .fallback = FALLBACK, .min = 1, .max = MAX, .value = "N", .help = HELP                 \
    }
#define REAL_OPTION(NAME, FIELD, FALLBACK, MAX, HELP)                                          \
    {                                                                                          \
        .name = NAME, .type = RPI_OPTION_REAL, .offset = offsetof(settings, FIELD),            \
        .fallback = FALLBACK, .min = 1e-6, .max = MAX, .value = "NUMBER", .help = HELP         \
    }

static const rpi_option options[] = {
    {.name = "mode",
     .type = RPI_OPTION_TEXT,
     .offset = offsetof(settings, mode),
     .fallback = "all-reduce",
     .value = "NAME",
     .help = "all-reduce, gossip, server or async-local-sgd"},
    {.name = "data",
     .type = RPI_OPTION_TEXT,
     .offset = offsetof(settings, data),
     .fallback = "fashion-mnist",
     .value = "NAME",
     .help = "or synthetic"},
    COUNT_OPTION("steps", steps, "400", 1e6, "undisturbed ones, which say how long"),
    COUNT_OPTION("batch-size", batch, "16", 4096, "images of each learner in a step"),
    COUNT_OPTION("hidden", hidden, "32", 256, "units of the hidden layer"),
    COUNT_OPTION("staleness", staleness, "4", 1e6,
                 "steps by which a push may be late: of server"),
    COUNT_OPTION("every", every, "10", 1e6, "steps between exchanges: of async-local-sgd"),
    COUNT_OPTION("seed", seed, "1", 1e9, "of parameters and order of the data"),
    REAL_OPTION("step", step_ms, "50", 1e5, "milliseconds of an undisturbed step"),
    REAL_OPTION("slower", slower, "1", 1e3, "a step of the last rank takes so many times that"),
    REAL_OPTION("lr", rate, "0.1", 100, "learning rate of plain SGD"),
    REAL_OPTION("outer-lr", outer_rate, "0.7", 100, "of the server of async-local-sgd"),
    REAL_OPTION("outer-momentum", outer_momentum, "0.6", 0.999, "likewise"),
    {.name = NULL},
};

typedef struct learner {
    const settings *is;
    rp_comm *comm;
    rpi_dataset data;
    perceptron model;
    rpi_rng rng;
    size_t count;
    float *x, *gradient; /* the gradient has an element more */
    float *base;         /* where local steps began */
    float *images;
    int32_t *labels;
    uint32_t *indices;
    int64_t ends_ns; /* of the run */
    double steps;    /* outcome */
    double merged;   /* steps that a server has merged */
    rp_parameter_server *server;
    rp_delayed_nesterov outer; /* of async-local-sgd */
} learner;

/* The mean gradient of a batch, times `share`; then the sleep that stands for computing it. */
static void compute(learner *l, float share) {
    const settings *is = l->is;
    bool is_slow = rp_comm_rank(l->comm) == rp_comm_world(l->comm) - 1;
    double step_s = 1e-3 * is->step_ms * (is_slow ? is->slower : 1);
    int64_t until = rpi_deadline_ns(step_s);
    for (int64_t i = 0; i < is->batch; i++)
        l->indices[i] = rpi_rng_below(&l->rng, (uint32_t)l->data.train.count);
    rpi_dataset_batch(&l->data, &l->data.train, l->indices, is->batch, l->images, l->labels);
    memset(l->gradient, 0, l->count * sizeof *l->gradient);
    perceptron_gradient(&l->model, l->x, l->images, l->labels, is->batch,
                        share / (float)is->batch, l->gradient);
    rpi_sleep_until_ns(until);
}

static void descend(const learner *l) {
    for (size_t i = 0; i < l->count; i++) l->x[i] -= (float)l->is->rate * l->gradient[i];
}

static bool has_time(const learner *l) {
    return rpi_now_ns() < l->ends_ns;
}

/* The clock starts when windows and servers have been made. */
static rp_status start_clock(learner *l) {
    RP_TRY(rp_barrier(l->comm));
    l->ends_ns = rpi_deadline_ns(1e-3 * l->is->step_ms * (double)l->is->steps);
    return RP_OK;
}

/* ---- all ways: at least one step each ---- */

/* The clock of rank 0 ends the run: one more element of the vector tells all ranks so. */
static rp_status learn_by_all_reduce(learner *l) {
    rp_segment whole = {.data = l->gradient, .count = l->count + 1, .dtype = RP_F32};
    RP_TRY(start_clock(l));
    for (l->gradient[l->count] = 0; l->gradient[l->count] == 0; l->steps++) {
        compute(l, 1.0f / (float)rp_comm_world(l->comm));
        l->gradient[l->count] = rp_comm_rank(l->comm) == 0 && !has_time(l) ? 1 : 0;
        RP_TRY(rp_all_reduce(l->comm, &whole, 1, NULL));
        descend(l);
    }
    return RP_OK;
}

/* One step of its own, then a put to both neighbours of a ring and the mean with what they have
 * put: no rank waits for another. */
static rp_status step_with_neighbours(learner *l, rp_window *window) {
    rp_window_send send = RP_WINDOW_SEND();
    compute(l, 1);
    descend(l);
    RP_TRY(rp_window_put(window, NULL, l->count, &send, NULL));
    RP_TRY(rp_window_update(window, NULL, NULL));
    l->steps++;
    return RP_OK;
}

static rp_status mean_of_ranks(learner *l) {
    double steps = l->steps;
    rp_segment all[] = {{.data = l->x, .count = l->count, .dtype = RP_F32},
                        {.data = &steps, .count = 1, .dtype = RP_F64}};
    rp_collective_options mean = RP_COLLECTIVE_OPTIONS(.reduce = RP_AVG);
    RP_TRY(rp_all_reduce(l->comm, &all[0], 1, &mean));
    RP_TRY(rp_all_reduce(l->comm, &all[1], 1, &mean));
    l->steps = steps;
    return RP_OK;
}

static rp_status learn_by_gossip(learner *l) {
    int rank = rp_comm_rank(l->comm), world = rp_comm_world(l->comm);
    int neighbours[] = {(rank + 1) % world, (rank + world - 1) % world};
    size_t count = world > 2 ? 2 : (size_t)(world - 1);
    rp_window_setup setup =
        RP_WINDOW_SETUP(.name = "parameters", .data = l->x, .count = l->count, .dtype = RP_F32,
                        .sources = neighbours, .destinations = neighbours,
                        .source_count = count, .destination_count = count);
    rp_window *window = NULL;
    RP_TRY(rp_window_create(l->comm, &setup, &window));
    rp_status status = start_clock(l);
    do {
        if (status == RP_OK) status = step_with_neighbours(l, window);
    } while (status == RP_OK && has_time(l));
    rp_status freed = rp_window_free(&window);
    RP_TRY(status);
    RP_TRY(freed);
    return mean_of_ranks(l);
}

/* The first note of a push says how many steps it brings. */
static void account(learner *l, const rp_parameter_merge *m) {
    for (int i = 0; i < m->push_count; i++) l->merged += m->pushes[i].notes[0];
    if (!has_time(l)) rp_parameter_server_stop(l->server);
}

static rp_status merge(void *context, const rp_parameter_merge *m) {
    learner *l = context;
    for (size_t i = 0; i < m->count; i++) m->values[i] -= (float)l->is->rate * m->gradient[i];
    account(l, m);
    return RP_OK;
}

static rp_status merge_outer(void *context, const rp_parameter_merge *m) {
    learner *l = context;
    RP_TRY(rp_delayed_nesterov_merge(&l->outer, m));
    account(l, m);
    return RP_OK;
}

static rp_status push(learner *l, double weight, double steps) {
    const double notes[RP_PUSH_NOTES] = {steps};
    return rp_parameter_server_push(l->server, weight, notes, NULL);
}

static rp_status push_gradient(learner *l) {
    int workers = rp_parameter_server_workers(l->server);
    compute(l, 1.0f / (float)workers);
    return push(l, 1.0 / workers, 1);
}

/* Pushes how far the worker went in its local steps. */
static rp_status push_local_steps(learner *l) {
    int64_t steps = 0;
    memcpy(l->base, l->x, l->count * sizeof *l->x);
    for (; steps < l->is->every && (steps == 0 || has_time(l)); steps++) {
        compute(l, 1);
        descend(l);
    }
    for (size_t i = 0; i < l->count; i++) l->gradient[i] = l->base[i] - l->x[i];
    return push(l, 1, (double)steps);
}

/* There are more steps than there is time for: the clock of the server ends the run. */
static rp_status push_and_pull(learner *l, rp_status (*push_one)(learner *l)) {
    RP_TRY(rp_parameter_server_begin(l->server, l->x, 0, (uint64_t)l->is->steps * 100));
    while (rp_parameter_server_goes_on(l->server)) RP_TRY(push_one(l));
    RP_TRY(rp_parameter_server_end(l->server));
    l->steps = l->merged / rp_parameter_server_workers(l->server);
    return RP_OK;
}

static rp_status learn_with(learner *l, const rp_parameter_server_options *how,
                            rp_status (*push_one)(learner *l)) {
    rp_segment whole = {.data = l->gradient, .count = l->count, .dtype = RP_F32};
    RP_TRY(rp_parameter_server_create(l->comm, &whole, 1, how, &l->server));
    rp_status status = start_clock(l);
    if (status == RP_OK) status = push_and_pull(l, push_one);
    rp_parameter_server_destroy(l->server);
    return status;
}

static rp_status learn_by_server(learner *l) {
    rp_parameter_server_options o =
        RP_PARAMETER_SERVER_OPTIONS(.servers = 1, .staleness = l->is->staleness, .merge = merge,
                                    .context = l);
    return learn_with(l, &o, push_gradient);
}

static rp_status learn_by_local_steps(learner *l) {
    rp_parameter_server_options o =
        RP_PARAMETER_SERVER_OPTIONS(.servers = 1, .staleness = RP_ANY_STALENESS,
                                    .merge = merge_outer, .context = l);
    RP_TRY(rpi_alloc_array(l->count, sizeof(float), "the server's parameters", &l->base));
    RP_TRY(rpi_alloc_array(l->count, sizeof(float), "outer momentum", &l->outer.momentum));
    RP_TRY(rpi_alloc_array(l->count, sizeof(float), "what pushes bring", &l->outer.buffer));
    l->outer.outer_rate = l->is->outer_rate;
    l->outer.outer_momentum = l->is->outer_momentum;
    l->outer.delay = (uint64_t)(rp_comm_world(l->comm) - 1);
    return learn_with(l, &o, push_local_steps);
}

static const struct {
    const char *name;
    rp_status (*learn)(learner *l);
    int least_world;
} modes[] = {{"all-reduce", learn_by_all_reduce, 1},
             {"gossip", learn_by_gossip, 2},
             {"server", learn_by_server, 2},
             {"async-local-sgd", learn_by_local_steps, 2}};

/* ---- a run ---- */

static rp_status make(learner *l) {
    const rpi_dataset_options none = {0};
    const settings *is = l->is;
    RP_TRY(rpi_dataset_open(is->data, &none, &l->data));
    const rpi_images *train = &l->data.train;
    size_t inputs = (size_t)train->channels * (size_t)train->height * (size_t)train->width;
    size_t batch = (size_t)is->batch;
    l->model = (perceptron){(int)inputs, (int)is->hidden, l->data.classes};
    l->count = perceptron_count(&l->model);
    RP_TRY(rpi_alloc_array(l->count, sizeof(float), "parameters", &l->x));
    RP_TRY(rpi_alloc_array(l->count + 1, sizeof(float), "a gradient", &l->gradient));
    RP_TRY(rpi_alloc_array(batch * inputs, sizeof(float), "images", &l->images));
    RP_TRY(rpi_alloc_array(batch, sizeof *l->labels, "labels", &l->labels));
    RP_TRY(rpi_alloc_array(batch, sizeof *l->indices, "indices", &l->indices));
    perceptron_begin(&l->model, (uint64_t)is->seed, l->x);
    l->rng = rpi_rng_make((uint64_t)is->seed, RPI_RNG_SHUFFLE, (uint64_t)rp_comm_rank(l->comm));
    return RP_OK;
}

static void clean_up(learner *l) {
    rpi_free(l->x);
    rpi_free(l->gradient);
    rpi_free(l->base);
    rpi_free(l->outer.momentum);
    rpi_free(l->outer.buffer);
    rpi_free(l->images);
    rpi_free(l->labels);
    rpi_free(l->indices);
    rpi_dataset_close(&l->data);
}

static rp_status print(const learner *l) {
    double accuracy = 0;
    RP_TRY(perceptron_accuracy(&l->model, l->x, &l->data, &accuracy));
    printf("{\"mode\":\"%s\",\"ranks\":%d,\"slower\":%g,\"undisturbed_steps\":%lld,"
           "\"steps\":%.2f,\"test_accuracy\":%.4f}\n",
           l->is->mode, rp_comm_world(l->comm), l->is->slower, (long long)l->is->steps,
           l->steps, accuracy);
    return RP_OK;
}

static rp_status learn(learner *l) {
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        if (strcmp(modes[i].name, l->is->mode) != 0) continue;
        if (rp_comm_world(l->comm) < modes[i].least_world)
            return RP_FAIL(INVALID, "--mode %s needs %d ranks: redpoll run -n %d straggler ...",
                           l->is->mode, modes[i].least_world, modes[i].least_world);
        return modes[i].learn(l);
    }
    return RP_FAIL(INVALID,
                   "--mode is '%s'; all-reduce, gossip, server or async-local-sgd are "
                   "allowed",
                   l->is->mode);
}

static rp_status run(const settings *is) {
    learner l = {.is = is};
    RP_TRY(rp_comm_join(NULL, &l.comm));
    rp_status status = make(&l);
    if (status == RP_OK) status = learn(&l);
    if (status == RP_OK && rp_comm_rank(l.comm) == 0) status = print(&l);
    if (status == RP_OK) status = rp_barrier(l.comm);
    rp_comm_destroy(l.comm);
    clean_up(&l);
    return status;
}

int main(int argc, char **argv) {
    settings is = {0};
    rpi_positional none = {0};
    bool help = false;
    if (rpi_options_defaults(options, &is) != RP_OK ||
        rpi_options_parse(options, argc, argv, &is, &none, &help) != RP_OK) {
        fprintf(stderr, "straggler: %s\n", rp_last_error()->message);
        return 2;
    }
    if (help) {
        printf("usage: redpoll run -n 4 straggler [OPTIONS]\n\n");
        rpi_options_help(options, stdout);
        return 0;
    }
    if (run(&is) == RP_OK) return 0;
    fprintf(stderr, "straggler: %s\n", rp_last_error()->message);
    return 1;
}
