/* Gossip by copies (choco): what a codec loses of a change is in the next one, so that ranks
 * agree and find the limit of the exact algorithm whatever the codec; and every average on the
 * way is that of before, since the own change counts as neighbours decode it. */
#include "redpoll/gossip.h"

#include "comm/thread_world.h"

#include <math.h>
#include <string.h>

enum { RANKS = 4, COUNT = 3000 };

typedef struct task {
    const char *algorithm, *topology, *codec;
    int steps;
    double gamma, start; /* 0: chosen; ranks differ by so much from here */
    double spread[2];    /* of all ranks, before and after */
    double moved;        /* the mean, at most, of an element */
} task;

typedef struct vectors {
    float x[COUNT], gradient[COUNT];
} vectors;

static rp_gossip *open_gossip(const task *t, rp_comm *comm, vectors *at) {
    enum { FIRST = 1024 }; /* two tensors, of which the second ends within a bucket */
    rp_gossip *gossip = NULL;
    rp_segment layout[] = {{.count = FIRST, .dtype = RP_F32, .tensor = 0},
                           {.count = COUNT - FIRST, .dtype = RP_F32, .tensor = 1}};
    for (int i = 0; i < 2; i++) CHECK_OK(rp_codec_parse(t->codec, &layout[i].codec));
    rp_gossip_setup setup = RP_GOSSIP_SETUP(.topology = t->topology, .algorithm = t->algorithm,
                                            .dtype = RP_F32, .count = COUNT, .x = at->x,
                                            .gradient = at->gradient, .layouts = {layout},
                                            .layout_counts = {2}, .seed = 7, .gamma = t->gamma);
    CHECK_OK(rp_gossip_create(comm, &setup, &gossip));
    return gossip;
}

static void take_step(rp_gossip *gossip, int step, double rate) {
    rp_request *request = NULL;
    CHECK_OK(rp_gossip_post(gossip, step, rate, &request));
    CHECK_OK(rp_request_wait(&request));
    CHECK_OK(rp_gossip_apply(gossip, rate));
}

/* ---- without gradients: averaging ---- */

/* The mean of all ranks; returns how far they are from it, in all. */
static double find_mean(rp_comm *comm, const float *x, double *mean) {
    double spread = 0;
    rp_segment whole = {.data = mean, .count = COUNT, .dtype = RP_F64};
    rp_segment sum = {.data = &spread, .count = 1, .dtype = RP_F64};
    rp_collective_options average = RP_COLLECTIVE_OPTIONS(.reduce = RP_AVG);
    for (int i = 0; i < COUNT; i++) mean[i] = (double)x[i];
    CHECK_OK(rp_all_reduce(comm, &whole, 1, &average));
    for (int i = 0; i < COUNT; i++) spread += pow((double)x[i] - mean[i], 2);
    CHECK_OK(rp_all_reduce(comm, &sum, 1, &average));
    return sqrt(spread);
}

static void average(rp_comm *comm, int rank, int world, void *context) {
    (void)world;
    task *t = context;
    static _Thread_local vectors at;
    static _Thread_local double before[COUNT], after[COUNT];
    double moved = 0;
    memset(&at, 0, sizeof at);
    world_fill(11, rank, at.x, COUNT);
    double spread = find_mean(comm, at.x, before), left = spread;
    rp_gossip *gossip = open_gossip(t, comm, &at);
    for (int step = 0; step < t->steps; step++) {
        take_step(gossip, step, 0);
        if (step % 50 && step + 1 < t->steps) continue;
        left = find_mean(comm, at.x, after);
        for (int i = 0; i < COUNT; i++) moved = fmax(moved, fabs(after[i] - before[i]));
    }
    rp_gossip_destroy(gossip);
    if (rank) return;
    t->spread[0] = spread;
    t->spread[1] = left;
    t->moved = moved;
}

/* Most reach what floats allow. */
static void every_codec_agrees_and_keeps_the_mean(void) {
    static const struct {
        const char *codec;
        int steps;
        double most; /* of what ranks differ by, afterwards */
    } cases[] = {{"fp32", 40, 2e-5},
                 {"bf16", 40, 2e-5},
                 {"q8", 40, 2e-5},
                 {"q4", 60, 2e-5},
                 {"q4:rounding=stochastic", 80, 2e-5},
                 {"q2", 200, 2e-5},
                 {"topk:k=64,bucket=512", 500, 2e-5},
                 {"topk:k=64,bucket=1024,values=q2", 1000, 1e-3},
                 {"randk:k=64,bucket=512", 500, .5},
                 {"sign", 300, .2}}; /* of a bucket's smallest and largest it makes one */
    static const char *const topologies[] = {NULL, "exponential"};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        for (int i = 0; i < 2; i++) {
            task t = {"choco", topologies[i], cases[c].codec, .steps = cases[c].steps};
            world_run(RANKS, NULL, average, &t);
            CHECK_MSG(t.spread[1] < cases[c].most * t.spread[0], "%s: %g of %g is left",
                      t.codec, t.spread[1], t.spread[0]);
            double rounding = 2e-5 * sqrt(t.steps);
            CHECK_MSG(t.moved < rounding, "%s: the mean moved by %g", t.codec, t.moved);
        }
}

/* The same codec under plain gossip: ranks stay apart, or what they agree on is another. */
static void plain_gossip_does_not(void) {
    static const char *const codecs[] = {"q4", "topk:k=64,bucket=512"};
    for (int i = 0; i < 2; i++) {
        task t = {"atc", "torus", codecs[i], .steps = 500};
        world_run(RANKS, NULL, average, &t);
        CHECK_MSG(t.spread[1] > 1e-2 * t.spread[0] || t.moved > .1,
                  "%s: %g of %g is left, the mean moved by %g", t.codec, t.spread[1],
                  t.spread[0], t.moved);
    }
}

/* ---- least squares: the limit of the exact algorithm ---- */

static const double a[RANKS] = {1, 2, 3, 4}, b[RANKS] = {1, -1, 2, .5};

/* f = a (x - b scale)^2 / 2: each element's limit is that of gossip_test.c, scaled. */
static double scale_of(int element) {
    return 1 + element % 97 / 97.0;
}

static void descend(rp_gossip *gossip, vectors *at, int rank, int first, int steps) {
    for (int step = first; step < first + steps; step++) {
        for (int i = 0; i < COUNT; i++)
            at->gradient[i] = (float)(a[rank] * ((double)at->x[i] - b[rank] * scale_of(i)));
        take_step(gossip, step, .1);
    }
}

static void solve(rp_comm *comm, int rank, int world, void *context) {
    static const double limit[] = {.4667683960665, .3580874872838, .9750762970498,
                                   .7229569345541}; /* of gamma .5 */
    (void)world;
    const task *t = context;
    static _Thread_local vectors at;
    memset(&at, 0, sizeof at);
    rp_gossip *gossip = open_gossip(t, comm, &at);
    descend(gossip, &at, rank, 0, t->steps);
    for (int i = 0; i < COUNT; i++)
        CHECK_MSG(fabs((double)at.x[i] - limit[rank] * scale_of(i)) < 1e-5,
                  "%s: rank %d, element %d is %.7f, not %.7f", t->codec, rank, i,
                  (double)at.x[i], limit[rank] * scale_of(i));
    rp_gossip_destroy(gossip);
}

static void the_limit_is_that_without_a_codec(void) {
    static const char *const codecs[] = {"fp32", "q8", "q4", "q4:rounding=stochastic", "q2"};
    for (int i = 0; i < 5; i++) {
        task t = {"choco", "ring", codecs[i], .steps = 250, .gamma = .5};
        world_run(RANKS, NULL, solve, &t);
    }
}

/* ---- across restarts ---- */

static void stop_and_go_on(rp_comm *comm, int rank, int world, void *context) {
    (void)world;
    const task *t = context;
    static _Thread_local vectors whole, parts;
    memset(&whole, 0, sizeof whole);
    memset(&parts, 0, sizeof parts);
    rp_gossip *gossip = open_gossip(t, comm, &whole), *again = NULL;
    descend(gossip, &whole, rank, 0, 12);
    rp_gossip_destroy(gossip);
    gossip = open_gossip(t, comm, &parts);
    descend(gossip, &parts, rank, 0, 5);
    again = open_gossip(t, comm, &parts);
    for (int i = 0; rp_gossip_state(gossip, i); i++)
        memcpy(rp_gossip_state(again, i), rp_gossip_state(gossip, i), sizeof parts.x);
    CHECK_OK(rp_gossip_resume(again, 1));
    rp_gossip_destroy(gossip);
    descend(again, &parts, rank, 5, 7);
    rp_gossip_destroy(again);
    CHECK(memcmp(whole.x, parts.x, sizeof whole.x) == 0);
}

static void copies_are_all_there_is(void) {
    static const char *const codecs[] = {"q4", "q4:rounding=stochastic",
                                         "topk:k=64,bucket=512"};
    for (int i = 0; i < 3; i++) {
        task t = {"choco", NULL, codecs[i], .steps = 0};
        world_run(RANKS, NULL, stop_and_go_on, &t);
    }
}

/* ---- gamma ---- */

static void gamma_follows_from_what_a_codec_loses(void) {
    static const struct {
        const char *codec;
        double least, most;
    } cases[] = {{"fp32", 1, 1},
                 {"bf16", .99, 1},
                 {"q8", .99, 1},
                 {"q4", .9, 1},
                 {"q2", .25, .6},
                 {"topk:k=64,bucket=512", .25, .35},
                 {"topk:k=64,bucket=4096", .06, .1},
                 {"randk:k=64,bucket=512", .01, .1},
                 {"sign", .03, .06}};
    rp_comm *comm = NULL;
    static vectors at;
    REQUIRE_OK(rp_comm_create(NULL, 0, 1, NULL, &comm));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        task t = {"choco", NULL, cases[i].codec, .steps = 0};
        rp_gossip_info info;
        rp_gossip *gossip = open_gossip(&t, comm, &at);
        rp_gossip_get_info(gossip, &info);
        CHECK(info.copies == 1 && strcmp(info.topology, "torus") == 0);
        CHECK_MSG(info.gamma >= cases[i].least && info.gamma <= cases[i].most, "%s: %g",
                  cases[i].codec, info.gamma);
        take_step(gossip, 0, 0); /* alone */
        rp_gossip_destroy(gossip);
    }
    rp_segment layout = {.count = COUNT, .dtype = RP_F32};
    CHECK_OK(rp_codec_parse("q1:rounding=stochastic", &layout.codec));
    rp_gossip *gossip = NULL;
    rp_gossip_setup setup =
        RP_GOSSIP_SETUP(.algorithm = "choco", .dtype = RP_F32, .count = COUNT, .x = at.x,
                        .gradient = at.gradient, .layouts = {&layout}, .layout_counts = {1});
    CHECK_FAILS(rp_gossip_create(comm, &setup, &gossip), INVALID, "adds more than it takes");
    setup.gamma = 1;
    CHECK_FAILS(rp_gossip_create(comm, &setup, &gossip), INVALID, "with any gamma");
    CHECK_OK(rp_codec_parse("q1", &layout.codec));
    CHECK_FAILS(rp_gossip_create(comm, &setup, &gossip), INVALID, "with any gamma");
    rp_comm_destroy(comm);
}

CASES({"every codec agrees and keeps the mean", every_codec_agrees_and_keeps_the_mean},
      {"plain gossip does not", plain_gossip_does_not},
      {"the limit is that without a codec", the_limit_is_that_without_a_codec},
      {"copies are all there is", copies_are_all_there_is},
      {"gamma follows from what a codec loses", gamma_follows_from_what_a_codec_loses})
