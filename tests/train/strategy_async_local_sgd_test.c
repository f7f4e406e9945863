/* Training by asynchronous local SGD: the paper's iterates; exchanges of all together are
 * DiLoCo's steps; a run that is resumed goes on as if it had never stopped. */
#include "harness/check.h"
#include "train/checkpoint/safetensors.h"
#include "train/strategies/strategy.h"
#include "train_ranks.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- f_i(x) = a_i (x - b_i)^2 / 2, inner rate .1, four local steps, from 0 ---- */

enum { WORKERS = 4, LOCAL = 4, ROUNDS = 4 };

static const float a[WORKERS] = {1, 2, 3, 4}, b[WORKERS] = {1, -1, 2, .5F};

typedef struct problem {
    const char *options;
    bool in_turn;                        /* workers exchange one after the other */
    atomic_int begun;                    /* workers that have their first parameters */
    atomic_int exchanges;                /* that were answered */
    double values[ROUNDS * WORKERS + 1]; /* that servers had behind so many exchanges */
} problem;

typedef struct solver {
    problem *problem;
    rpi_weights *weights;
    int worker;
} solver;

/* A worker that begins an exchange has what servers had behind its exchange before. */
static void note_value(solver *self, int round) {
    problem *p = self->problem;
    int behind = p->in_turn ? (round - 1) * WORKERS + self->worker + 1 : round * WORKERS;
    if (round == 0 || round >= ROUNDS || (!p->in_turn && self->worker)) return;
    p->values[behind] = (double)rpi_weights_values(self->weights)[0];
    atomic_fetch_add(&p->exchanges, 1);
}

static void wait_until(const atomic_int *number, int least) {
    for (int ms = 0; atomic_load(number) < least && ms < 30000; ms++) usleep(1000);
}

/* The first exchange comes when all have begun from the same parameters; the last round is in
 * any order, once all have come so far. */
static void wait_for_turn(const solver *self, int round) {
    int turn = round * WORKERS + self->worker, last = (ROUNDS - 1) * WORKERS;
    if (!self->problem->in_turn) return;
    wait_until(&self->problem->begun, WORKERS);
    wait_until(&self->problem->exchanges, turn < last ? turn : last);
}

static rp_status learn(void *context, int64_t step, rpi_strategy_part *out_part) {
    solver *self = context;
    int round = (int)(step / LOCAL);
    int64_t count = rpi_weights_count(self->weights);
    if (step == 0) atomic_fetch_add(&self->problem->begun, 1);
    if (step % LOCAL == 0) note_value(self, round);
    if (step % LOCAL == LOCAL - 1) wait_for_turn(self, round);
    for (int64_t i = 0; i < count; i++)
        rpi_weights_gradients(self->weights)[i] =
            a[self->worker] * (rpi_weights_values(self->weights)[i] - b[self->worker]) /
            WORKERS;
    *out_part = (rpi_strategy_part){.loss = 1, .share = 1.0 / WORKERS, .count = 1};
    return RP_OK;
}

static void descend(void *context, const rpi_strategy_update *u) {
    (void)context;
    for (int64_t i = 0; i < u->count; i++)
        u->values[i] -= .1F * u->gradient_scale * u->gradient[i];
}

static rp_status stepped(void *context, const rpi_strategy_step *step, bool *out_stops) {
    (void)context;
    CHECK_EQ(step->steps, LOCAL);
    CHECK_EQ(step->step % LOCAL, 0);
    CHECK_NEAR(step->loss, 4, 1e-9); /* a mean over samples */
    CHECK_NEAR(step->count, LOCAL * WORKERS, 0);
    *out_stops = false;
    return RP_OK;
}

static rp_status solve_with(const rpi_network *network, rpi_weights *weights, problem *p,
                            rp_comm *comm) {
    const rpi_strategy *strategy = NULL;
    void *self = NULL;
    rp_comm *left = NULL;
    RP_TRY(rpi_strategy_find("async-local-sgd", &strategy));
    solver own = {.problem = p, .weights = weights, .worker = rp_comm_rank(comm) - 1};
    static const rpi_optimizer plain = {.name = "plain"};
    const rpi_optimizer_state stateless = {.kind = &plain};
    rpi_strategy_setup setup = {.comm = comm,
                                .network = network,
                                .weights = weights,
                                .optimizer = &stateless,
                                .options = p->options,
                                .bucket_bytes = 1 << 20};
    rpi_strategy_span span = {.last_step = ROUNDS * LOCAL,
                              .context = &own,
                              .learn = learn,
                              .update = descend,
                              .stepped = stepped};
    RP_TRY(strategy->open(&setup, &self));
    rp_status status = strategy->run(self, &span, &left);
    strategy->close(self);
    return status;
}

static rp_status solve(void *context, rp_comm *comm) {
    rpi_data_shape shape = {.channels = 1, .height = 4, .width = 4, .classes = 2};
    rpi_network network = {0};
    rpi_weights *weights = NULL;
    rp_status status = rpi_network_build("mlp:hidden=4", &shape, &network);
    if (status == RP_OK) status = rpi_weights_create(network.graph, network.loss, &weights);
    if (status == RP_OK)
        memset(rpi_weights_values(weights), 0,
               (size_t)rpi_weights_count(weights) * sizeof(float));
    if (status == RP_OK) status = solve_with(&network, weights, context, comm);
    rpi_weights_destroy(weights);
    rpi_network_close(&network);
    return status;
}

static void the_first_iterates_in_turn(void) {
    static const struct {
        int exchanges;
        double value;
    } wanted[] = {{1, .0601825},  {2, -.0431375},   {3, .2228275},
                  {4, .56807625}, {8, 1.159212026}, {12, 1.391332547}};
    problem p = {.options = "servers=1,every=4,outer-momentum=.9", .in_turn = true};
    REQUIRE_OK(ranks_run(1 + WORKERS, solve, &p));
    for (int i = 0; i < 6; i++)
        CHECK_NEAR(p.values[wanted[i].exchanges], wanted[i].value, 1e-5);
}

static void the_first_iterates_together(void) {
    static const double wanted[] = {.56807625, .8939169984, .9533516921};
    problem p = {.options = "servers=1,every=4,staleness=0,outer-momentum=.9"};
    REQUIRE_OK(ranks_run(1 + WORKERS, solve, &p));
    for (int i = 0; i < 3; i++) CHECK_NEAR(p.values[(i + 1) * WORKERS], wanted[i], 1e-5);
}

/* ---- runs ---- */

static rpi_train_options local_options(const char *strategy) {
    rpi_train_options options = ranks_options();
    options.strategy = strategy;
    options.model = "mlp:hidden=48x32";
    options.optimizer = "adamw";
    options.lr = .003;
    options.steps = 16;
    return options;
}

static void train_into(const char *folder, rpi_train_options options, int world) {
    options.out = ranks_folder(folder);
    options.overwrite = true;
    CHECK_OK(ranks_train(&options, world, NULL));
}

/* Of tensors whose names do not begin with `but` (NULL: of all), the furthest two elements. */
static double furthest(const char *x_folder, const char *y_folder, const char *but) {
    rpi_safetensors *x = NULL, *y = NULL;
    double most = 0;
    CHECK_OK(rpi_safetensors_open(ranks_path(ranks_folder(x_folder), "model.safetensors"), &x));
    CHECK_OK(rpi_safetensors_open(ranks_path(ranks_folder(y_folder), "model.safetensors"), &y));
    for (int i = 0; x && y && i < rpi_safetensors_count(x); i++) {
        const rpi_named_tensor *tensor = rpi_safetensors_at(x, i);
        size_t count = (size_t)rpi_shape_count(&tensor->shape);
        if (but && strncmp(tensor->name, but, strlen(but)) == 0) continue;
        float *p = calloc(count, sizeof *p), *q = calloc(count, sizeof *q);
        CHECK_OK(rpi_safetensors_read(x, tensor->name, RP_F32, &tensor->shape, p));
        CHECK_OK(rpi_safetensors_read(y, tensor->name, RP_F32, &tensor->shape, q));
        for (size_t e = 0; e < count; e++) most = fmax(most, fabs((double)p[e] - (double)q[e]));
        free(p);
        free(q);
    }
    if (!x || !y) most = INFINITY;
    rpi_safetensors_close(x);
    rpi_safetensors_close(y);
    return most;
}

static void together_is_diloco(void) {
    rpi_train_options options = local_options("local-sgd:outer=diloco,every=4");
    options.optimizer = "sgd"; /* AdamW makes much of a last bit */
    train_into("diloco", options, 3);
    options.strategy = "async-local-sgd:every=4,staleness=0";
    train_into("shared", options, 3);
    options.strategy = "async-local-sgd:every=4,staleness=0,servers=2";
    train_into("served", options, 5);
    CHECK_NEAR(furthest("diloco", "shared", "optimizer."), 0, 1e-6);
    CHECK(furthest("shared", "served", NULL) == 0); /* the first worker's optimizer, too */
}

static void resumed_as_if_never_stopped(void) {
    static const struct {
        const char *strategy;
        int world;
    } kinds[] = {{"async-local-sgd:every=4", 1},
                 {"async-local-sgd:every=4,staleness=0,momentum-every=5", 3},
                 {"async-local-sgd:every=4,staleness=0,servers=2", 5}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        rpi_train_options options = local_options(kinds[i].strategy);
        options.codec = "q4";
        train_into("whole", options, kinds[i].world);
        options.steps = 8;
        train_into("parts", options, kinds[i].world);
        options.steps = 16;
        options.out = options.resume = ranks_folder("parts");
        REQUIRE_OK(ranks_train(&options, kinds[i].world, NULL));
        CHECK(furthest("whole", "parts", NULL) == 0);
    }
    rpi_train_options options = local_options("async-local-sgd:every=4");
    options.steps = 20;
    options.out = options.resume = ranks_folder("parts");
    REQUIRE_OK(ranks_train(&options, 2, NULL));
    CHECK_MSG(strstr(ranks_notes(), "optimizers of their own") &&
                  strstr(ranks_notes(), "the first worker's"),
              "%s", ranks_notes());
}

static void every_kind_learns(void) {
    static const struct {
        const char *strategy, *codec;
        int world;
    } kinds[] = {
        {"async-local-sgd:every=7,servers=1,outer-momentum=.6", "q4", 4},
        {"async-local-sgd:every=10,outer-momentum=.6", "fp32", 3},
        {"async-local-sgd:every=10,servers=2,staleness=1,outer-momentum=.6", "fp32", 5},
        {"async-local-sgd:every=10,servers=1,quorum=2,grace=1,outer-momentum=.6", "q8", 4},
        {"async-local-sgd:every=10,servers=2,quorum=2,outer-momentum=.6", "q8", 5},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        rpi_train_options options = local_options(kinds[i].strategy);
        rpi_train_result result = {0};
        options.codec = kinds[i].codec;
        options.steps = 60;
        options.eval_every = 15; /* which no exchange need divide */
        options.clip = i == 1 ? 5 : 0;
        REQUIRE_OK(ranks_train(&options, kinds[i].world, &result));
        CHECK_MSG(result.test.accuracy > .9, "%s with %s: accuracy is %g", kinds[i].strategy,
                  kinds[i].codec, result.test.accuracy);
        CHECK_EQ(result.steps, 60);
        CHECK(isnan(result.test.consensus_distance));
    }
}

static void high_momentum_is_told(void) {
    rpi_train_options options =
        local_options("async-local-sgd:every=1,staleness=0,outer-momentum=.9");
    options.optimizer = "sgd";
    options.lr = .001;
    options.steps = 40;
    CHECK_OK(ranks_train(&options, 2, NULL));
    CHECK_MSG(strstr(ranks_notes(), "outer momentum 0.9 is high for 1 local step"), "%s",
              ranks_notes());
    CHECK_MSG(strstr(ranks_notes(), "where none is given it is 0.3"), "'%s'", ranks_notes());
    options.strategy = "async-local-sgd:every=10";
    CHECK_OK(ranks_train(&options, 2, NULL));
    CHECK_MSG(!strstr(ranks_notes(), "outer momentum"), "%s", ranks_notes());
}

static void asked_to_stop(void) {
    for (int rank = 0; rank < 3; rank += 2) {
        rpi_train_options options = local_options("async-local-sgd:every=40,servers=1");
        rpi_train_result result = {0};
        options.steps = 160;
        /* A server asks when a round is told, a worker in any of its steps. */
        ranks_ask((ranks_wish){.rank = rank, .step = rank ? 5 : 1, .what = RPI_ASKED_STOP});
        REQUIRE_OK(ranks_train(&options, 3, &result));
        ranks_ask((ranks_wish){0});
        CHECK(result.stopped);
        /* Whole rounds; how many, depends on who else has exchanged by then. */
        CHECK_MSG(result.steps % 40 == 0 && result.steps <= 160, "%lld steps",
                  (long long)result.steps);
    }
}

static void what_diverges_is_named(void) {
    rpi_train_options options = local_options("async-local-sgd:every=4,servers=1");
    options.optimizer = "sgd";
    options.lr = 1e30;
    CHECK_FAILS(ranks_train(&options, 3, NULL), CORRUPT, "training has diverged at step");
    for (int rank = 0; rank < 3; rank++) CHECK(strstr(ranks_message(rank), "diverged"));
}

static void expect(const char *strategy, int world, const char *words) {
    rpi_train_options options = local_options(strategy);
    rp_status status = rpi_train_check(&options, world);
    CHECK_MSG(status == RP_INVALID && strstr(rp_last_error()->message, words),
              "%s: %s, '%s' lacks '%s'", strategy, rp_status_name(status),
              rp_last_error()->message, words);
}

static void mistakes_are_named(void) {
    expect("async-local-sgd:every=0", 4, "1 step or more");
    expect("async-local-sgd:outer-momentum=1", 4, "below 1");
    expect("async-local-sgd:outer-lr=0", 4, "an outer rate of 0");
    expect("async-local-sgd:servers=4", 4, "take at most 3, or shared");
    expect("async-local-sgd:quorum=5", 4, "a quorum of 5 of 4");
    expect("local-sgd:outer=async,every=7", 4, "--strategy async-local-sgd:every=7");
    expect("async-local-sgd:evry=2", 4, "did you mean 'every'");
    expect("async-local-sgd:on-loss=continue", 4, "servers=1 or more");
    rpi_train_options options = local_options("async-local-sgd");
    options.warmup_exact = 1;
    CHECK_FAILS(rpi_train_check(&options, 4), INVALID, "neither --warmup-exact");
}

CASES({"the first iterates of exchanges in turn", the_first_iterates_in_turn},
      {"and of exchanges together", the_first_iterates_together},
      {"exchanges together are DiLoCo's steps", together_is_diloco},
      {"resumed as if it had never stopped", resumed_as_if_never_stopped},
      {"every kind learns", every_kind_learns},
      {"a momentum that is too high is told", high_momentum_is_told},
      {"asked to stop", asked_to_stop}, {"what diverges is named", what_diverges_is_named},
      {"mistakes are named", mistakes_are_named})
