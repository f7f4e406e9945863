/* Decentralised least squares through the exchange itself: first iterates and limits as the
 * equations have them. f_i(x) = a_i (x - b_i)^2 / 2, a = 1 2 3 4, b = 1 -1 2 .5: the optimum of
 * all is 0.7. */
#include "comm/gossip.h"

#include "comm/thread_world.h"

#include <math.h>
#include <string.h>

enum { RANKS = 4, COUNT = 3 };

static const double a[RANKS] = {1, 2, 3, 4}, b[RANKS] = {1, -1, 2, .5};

typedef struct problem {
    const char *topology, *algorithm;
    double rate;
    double first[3][RANKS]; /* iterates; zeros: not known */
    double limit[RANKS];
    bool floats;
} problem;

typedef struct place {
    double x[COUNT], gradient[COUNT];
    float x32[COUNT], gradient32[COUNT];
} place;

static void set_gradient(const problem *p, int rank, place *at) {
    for (int i = 0; i < COUNT; i++) {
        double x = p->floats ? (double)at->x32[i] : at->x[i];
        at->gradient[i] = a[rank] * (x - b[rank]);
        at->gradient32[i] = (float)at->gradient[i];
    }
}

static void check_x(const problem *p, int rank, const place *at, double wanted,
                    const char *what, int step) {
    double tolerance = p->floats ? 1e-5 : 1e-10;
    for (int i = 0; i < COUNT; i++) {
        double x = p->floats ? (double)at->x32[i] : at->x[i];
        CHECK_MSG(fabs(x - wanted) < tolerance,
                  "%s over %s, %s %d: rank %d at %.12f, not %.12f", p->algorithm, p->topology,
                  what, step, rank, x, wanted);
    }
}

static rpi_gossip *open_gossip(const problem *p, rp_comm *comm, place *at) {
    rpi_gossip *gossip = NULL;
    rpi_gossip_setup setup = {.comm = comm,
                              .topology = p->topology,
                              .algorithm = p->algorithm,
                              .dtype = p->floats ? RP_F32 : RP_F64,
                              .count = COUNT,
                              .x = p->floats ? (void *)at->x32 : (void *)at->x,
                              .gradient =
                                  p->floats ? (void *)at->gradient32 : (void *)at->gradient};
    CHECK_OK(rpi_gossip_open(&setup, &gossip));
    return gossip;
}

static void solve(rp_comm *comm, int rank, int world, void *context) {
    enum { STEPS = 900 };
    (void)world;
    const problem *p = context;
    place at = {.x = {0}};
    rpi_gossip *gossip = open_gossip(p, comm, &at);
    for (int step = 0; gossip && step < STEPS; step++) {
        CHECK_OK(rpi_gossip_start(gossip, step));
        set_gradient(p, rank, &at);
        CHECK_OK(rpi_gossip_finish(gossip, step, p->rate));
        if (step < 3 && p->first[0][0] != 0)
            check_x(p, rank, &at, p->first[step][rank], "iterate", step);
    }
    check_x(p, rank, &at, p->limit[rank], "limit", STEPS);
    rpi_gossip_close(gossip);
}

#define BEST                                                                                   \
    { .7, .7, .7, .7 }

static problem problems[] = {
    {"ring",
     "awc",
     .1,
     {{.1, -.2, .6, .2},
      {.1233333333333, .0066666666667, .62, .42},
      {.271, .0486666666667, .7628888888889, .4197777777778}},
     {.5879120879121, .3736263736264, .9835164835165, .6785714285714},
     false},
    {"ring",
     "atc",
     .1,
     {{.0333333333333, .1666666666667, .2, .3},
      {.1477777777778, .2677777777778, .3511111111111, .4166666666667},
      {.2324074074074, .3643333333333, .4366666666667, .5095925925926}},
     {.5194116641, .6598255516, .6916367368, .7715067556},
     false},
    {"ring",
     "exact-diffusion",
     .1,
     {{.0666666666667, -.0166666666667, .4, .25},
      {.1461111111111, .1144444444444, .515, .4011111111111},
      {.2635925925926, .2817407407407, .5155185185185, .4633703703704}},
     BEST,
     false},
    {"ring",
     "gradient-tracking",
     .05,
     {{.05, -.1, .3, .1},
      {.0308333333333, .1766666666667, .155, .28},
      {.242625, .1473333333333, .3184166666667, .1856666666667}},
     BEST,
     false},
    {"one-peer-exponential", "gradient-tracking", .02, {{0}}, BEST, false},
    {"star", "exact-diffusion", .1, {{0}}, BEST, false},
    {"ring:direction=right,weights=sender", "push-diging", .1, {{0}}, BEST, false},
    {"star:weights=sender", "push-diging", .02, {{0}}, BEST, false},
};
enum { PROBLEMS = sizeof problems / sizeof problems[0] };

static void known_answers(void) {
    for (int i = 0; i < PROBLEMS; i++)
        for (int floats = 0; floats < 2; floats++) {
            problems[i].floats = floats;
            world_run(RANKS, NULL, solve, &problems[i]);
        }
}

/* Stopped and gone on with in a new object that has x, the states and p: the same bits. */
static void stop_and_go_on(rp_comm *comm, int rank, int world, void *context) {
    (void)world;
    const problem *p = context;
    place whole = {.x = {0}}, parts = {.x = {0}};
    rpi_gossip *through = open_gossip(p, comm, &whole), *first = NULL;
    for (int step = 0; step < 12; step++) {
        set_gradient(p, rank, &whole);
        CHECK_OK(rpi_gossip_start(through, step));
        CHECK_OK(rpi_gossip_finish(through, step, p->rate));
    }
    rpi_gossip_close(through);
    first = open_gossip(p, comm, &parts);
    for (int step = 0; step < 12; step++) {
        if (step == 5) {
            rpi_gossip *second = open_gossip(p, comm, &parts);
            for (int i = 0; i < rpi_gossip_rule_of(first)->states; i++)
                memcpy(rpi_gossip_state(second, i), rpi_gossip_state(first, i), sizeof parts.x);
            *rpi_gossip_push_weight(second) = *rpi_gossip_push_weight(first);
            rpi_gossip_resume(second);
            rpi_gossip_close(first);
            first = second;
        }
        set_gradient(p, rank, &parts);
        CHECK_OK(rpi_gossip_start(first, step));
        CHECK_OK(rpi_gossip_finish(first, step, p->rate));
    }
    rpi_gossip_close(first);
    CHECK(memcmp(whole.x, parts.x, sizeof whole.x) == 0);
}

static void states_are_all_there_is(void) {
    for (int i = 0; i < PROBLEMS; i++) {
        problems[i].floats = false;
        world_run(RANKS, NULL, stop_and_go_on, &problems[i]);
    }
}

static void what_does_not_go_together_is_refused(void) {
    CHECK_OK(rpi_gossip_check("base", "exact-diffusion", 7));
    CHECK_OK(rpi_gossip_check("star:weights=sender", "push-sum", 5));
    CHECK_FAILS(rpi_gossip_check("star:weights=uniform", "atc", 5), INVALID, "biased");
    CHECK_FAILS(rpi_gossip_check("star:weights=uniform", "push-sum", 5), INVALID,
                "weights=sender");
    CHECK_FAILS(rpi_gossip_check("ceca", "atc", 5), UNSUPPORTED, "2 vectors");
    CHECK_FAILS(rpi_gossip_check("ring", "act", 5), INVALID, "did you mean 'atc'");
    CHECK_FAILS(rpi_gossip_check("rng", "atc", 5), INVALID, "did you mean 'ring'");
}

CASES({"known answers", known_answers}, {"states are all there is", states_are_all_there_is},
      {"what does not go together is refused", what_does_not_go_together_is_refused})
