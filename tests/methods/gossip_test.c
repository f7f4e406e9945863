/* Decentralised least squares through the exchange itself: first iterates and limits as the
 * equations have them. f_i(x) = a_i (x - b_i)^2 / 2, a = 1 2 3 4, b = 1 -1 2 .5: the optimum of
 * all is 0.7. */
#include "redpoll/gossip.h"

#include "comm/thread_world.h"

#include <math.h>
#include <stdbool.h>
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

static rp_gossip *open_gossip(const problem *p, rp_comm *comm, place *at) {
    rp_gossip *gossip = NULL;
    rp_gossip_setup setup =
        RP_GOSSIP_SETUP(.topology = p->topology, .algorithm = p->algorithm,
                        .dtype = p->floats ? RP_F32 : RP_F64, .count = COUNT,
                        .x = p->floats ? (void *)at->x32 : (void *)at->x,
                        .gradient = p->floats ? (void *)at->gradient32 : (void *)at->gradient,
                        .gamma = strcmp(p->algorithm, "choco") == 0 ? .5 : 0);
    CHECK_OK(rp_gossip_create(comm, &setup, &gossip));
    return gossip;
}

static void take_step(const problem *p, rp_gossip *gossip, int rank, int step, place *at) {
    rp_gossip_info info;
    rp_request *request = NULL;
    rp_gossip_get_info(gossip, &info);
    if (info.early) CHECK_OK(rp_gossip_post(gossip, step, 0, &request));
    set_gradient(p, rank, at);
    if (!info.early) CHECK_OK(rp_gossip_post(gossip, step, p->rate, &request));
    CHECK_OK(rp_request_wait(&request));
    CHECK_OK(rp_gossip_apply(gossip, p->rate));
}

static void solve(rp_comm *comm, int rank, int world, void *context) {
    enum { STEPS = 900 };
    (void)world;
    const problem *p = context;
    place at = {.x = {0}};
    rp_gossip *gossip = open_gossip(p, comm, &at);
    for (int step = 0; gossip && step < STEPS; step++) {
        take_step(p, gossip, rank, step, &at);
        if (step < 3 && p->first[0][0] != 0)
            check_x(p, rank, &at, p->first[step][rank], "iterate", step);
    }
    check_x(p, rank, &at, p->limit[rank], "limit", STEPS);
    rp_gossip_destroy(gossip);
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
    {"ring",
     "choco",
     .1,
     {{.0666666666667, -.0166666666667, .4, .25},
      {.1294444444444, .0311111111111, .6094444444444, .4066666666667},
      {.1891481481481, .0904444444444, .7292222222222, .5031851851852}},
     {.4667683960665, .3580874872838, .9750762970498, .7229569345541},
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
    rp_gossip *through = open_gossip(p, comm, &whole), *first = NULL;
    for (int step = 0; step < 12; step++) take_step(p, through, rank, step, &whole);
    rp_gossip_destroy(through);
    first = open_gossip(p, comm, &parts);
    for (int step = 0; step < 12; step++) {
        if (step == 5) {
            rp_gossip *second = open_gossip(p, comm, &parts);
            for (int i = 0; rp_gossip_state(first, i); i++)
                memcpy(rp_gossip_state(second, i), rp_gossip_state(first, i), sizeof parts.x);
            CHECK_OK(rp_gossip_resume(second, rp_gossip_push_weight(first)));
            rp_gossip_destroy(first);
            first = second;
        }
        take_step(p, first, rank, step, &parts);
    }
    rp_gossip_destroy(first);
    CHECK(memcmp(whole.x, parts.x, sizeof whole.x) == 0);
}

static void states_are_all_there_is(void) {
    for (int i = 0; i < PROBLEMS; i++) {
        problems[i].floats = false;
        world_run(RANKS, NULL, stop_and_go_on, &problems[i]);
    }
}

/* Alone every algorithm takes the own step, as gradient descent does, whatever it sends. */
static void alone_a_rank_takes_its_own_step(void) {
    static const char *const names[] = {"awc", "atc", "exact-diffusion", "choco",
                                        "gradient-tracking"};
    rp_comm *comm = NULL;
    REQUIRE_OK(rp_comm_create(NULL, 0, 1, NULL, &comm));
    for (int i = 0; i < 5; i++) {
        problem p = {.topology = "ring", .algorithm = names[i], .rate = .1};
        place at = {.x = {1, 1, 1}};
        rp_gossip *gossip = open_gossip(&p, comm, &at);
        rp_request *request = NULL;
        CHECK_FAILS(rp_gossip_alone(gossip, .1), STATE, "nothing was posted");
        set_gradient(&p, 1, &at);
        CHECK_OK(rp_gossip_post(gossip, 0, .1, &request));
        CHECK_OK(rp_request_wait(&request));
        set_gradient(&p, 1, &at); /* what has come lies there; early rules read it again */
        CHECK_OK(rp_gossip_alone(gossip, .1));
        for (int e = 0; e < COUNT; e++)
            CHECK_MSG(fabs(at.x[e] - .6) < 1e-12, "%s: %g", names[i], at.x[e]);
        rp_gossip_destroy(gossip);
    }
    rp_comm_destroy(comm);
}

static void what_does_not_go_together_is_refused(void) {
    CHECK_OK(rp_gossip_check("base", "exact-diffusion", 8, NULL));
    CHECK_FAILS(
        rp_gossip_check("base", "exact-diffusion", 7, NULL), INVALID,
        "exact-diffusion over topology base with 7 ranks diverges: what they differ by "
        "grows 1.009 times in each step, at any learning rate; it needs one that is "
        "symmetric and stays the same; take torus, ring, exponential:symmetric=on or star");
    CHECK_FAILS(rp_gossip_check("ring:direction=left", "gradient-tracking", 11, NULL), INVALID,
                "with 11 ranks diverges at usual learning rates");
    for (int ranks = 1; ranks <= 33; ranks++)
        CHECK_OK(rp_gossip_check(NULL, "exact-diffusion", ranks, NULL));
    CHECK_OK(rp_gossip_check("star:weights=sender", "push-sum", 5, NULL));
    CHECK_FAILS(rp_gossip_check("star:weights=uniform", "atc", 5, NULL), INVALID, "biased");
    CHECK_FAILS(rp_gossip_check("star:weights=uniform", "push-sum", 5, NULL), INVALID,
                "weights=sender");
    CHECK_FAILS(rp_gossip_check("ceca", "atc", 5, NULL), UNSUPPORTED, "2 vectors");
    CHECK_FAILS(rp_gossip_check("base", "choco", 5, NULL), INVALID, "take torus, ring");
    CHECK_FAILS(rp_gossip_check("equi", "choco", 5, NULL), INVALID, "from round to round");
    for (int ranks = 1; ranks <= 33; ranks++)
        CHECK_OK(rp_gossip_check(NULL, "choco", ranks, NULL));
    CHECK_FAILS(rp_gossip_check("ring", "act", 5, NULL), INVALID, "did you mean 'atc'");
    CHECK_FAILS(rp_gossip_check("rng", "atc", 5, NULL), INVALID, "did you mean 'ring'");
}

/* Vectors of memory beside x and the gradient: what an algorithm keeps, and what it receives
 * under the computation or has sent and needs again; averages lie where gradients were. */
static void memory_is_no_more_than_an_algorithm_needs(void) {
    static const struct {
        const char *algorithm;
        int early, exchanged, states, pushes, held;
    } all[] = {{"awc", 1, 1, 0, 0, 1},
               {"atc", 0, 1, 0, 0, 0},
               {"exact-diffusion", 0, 1, 1, 0, 2},
               {"choco", 0, 1, 2, 0, 3},
               {"gradient-tracking", 0, 2, 2, 0, 3},
               {"push-sum", 0, 1, 1, 1, 1},
               {"push-diging", 0, 2, 3, 1, 4}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        rp_gossip_info info;
        CHECK_OK(rp_gossip_check(NULL, all[i].algorithm, 4, &info));
        CHECK(info.early == all[i].early && info.exchanged == all[i].exchanged);
        CHECK(info.states == all[i].states && info.pushes == all[i].pushes);
        CHECK_MSG(info.held == all[i].held, "%s holds %d vectors", all[i].algorithm, info.held);
    }
}

static void wrong_calls_say_what_is_wrong(void) {
    enum { TWO = 2 };
    rp_comm *comm = NULL;
    rp_gossip *gossip = NULL;
    rp_request *request = NULL;
    float x[TWO] = {1, 2}, gradient[TWO] = {0};
    rp_segment layout = {.count = 1, .dtype = RP_F32};
    rp_gossip_setup setup =
        RP_GOSSIP_SETUP(.count = TWO, .x = x, .gradient = gradient, .dtype = RP_BF16);
    CHECK_OK(rp_comm_create(NULL, 0, 1, NULL, &comm));
    CHECK_FAILS(rp_gossip_create(NULL, &setup, &gossip), INVALID, "comm is NULL");
    CHECK_FAILS(rp_gossip_create(comm, &setup, &gossip), INVALID, "f32 and f64");
    setup.dtype = RP_F32;
    setup.x = NULL;
    CHECK_FAILS(rp_gossip_create(comm, &setup, &gossip), INVALID, "x is NULL");
    setup.x = x;
    setup.layouts[0] = &layout;
    setup.layout_counts[0] = 1;
    CHECK_FAILS(rp_gossip_create(comm, &setup, &gossip), INVALID, "of 1 elements");
    setup.layouts[0] = NULL;
    setup.gamma = .5;
    CHECK_FAILS(rp_gossip_create(comm, &setup, &gossip), INVALID, "atc has none; choco does");
    setup.algorithm = "choco";
    setup.gamma = 1.5;
    CHECK_FAILS(rp_gossip_create(comm, &setup, &gossip), INVALID, "gamma is 1.5; above 0");
    setup.algorithm = NULL;
    setup.gamma = 0;
    CHECK_OK(rp_gossip_create(comm, &setup, &gossip));
    CHECK_FAILS(rp_gossip_apply(gossip, 1), STATE, "nothing was posted");
    CHECK_FAILS(rp_gossip_resume(gossip, 0), INVALID, "above 0");
    CHECK_FAILS(rp_gossip_post(gossip, -1, 1, &request), INVALID, "step is -1");
    CHECK_OK(rp_gossip_post(gossip, 0, 1, &request));
    CHECK_OK(rp_request_wait(&request));
    CHECK_FAILS(rp_gossip_post(gossip, 1, 1, &request), STATE, "not applied");
    rp_gossip_destroy(gossip);
    rp_comm_destroy(comm);
}

CASES({"known answers", known_answers}, {"states are all there is", states_are_all_there_is},
      {"alone a rank takes its own step", alone_a_rank_takes_its_own_step},
      {"what does not go together is refused", what_does_not_go_together_is_refused},
      {"memory is no more than an algorithm needs", memory_is_no_more_than_an_algorithm_needs},
      {"wrong calls say what is wrong", wrong_calls_say_what_is_wrong})
