/* Local SGD and its kin: first iterates and limits as the equations have them, what is in
 * flight, and what a checkpoint must hold. f_i(x) = a_i (x - b_i)^2 / 2, a = 1 2 3 4, b = 1 -1
 * 2 .5, four steps of SGD at .1 between two exchanges. */
#include "redpoll/local_sgd.h"

#include "comm/thread_world.h"
#include "plan/local_sgd/outer_rule.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { RANKS = 4, COUNT = 3 };

static const double a[RANKS] = {1, 2, 3, 4}, b[RANKS] = {1, -1, 2, .5};

typedef struct problem {
    const char *outer;
    int nesterov, rounds;
    double first[3][RANKS]; /* after the first exchanges, by rank */
    double limit[RANKS];    /* after a multiple of 3 exchanges */
    bool floats;
} problem;

#define ALL(x)                                                                                 \
    { x, x, x, x }

/* All three limits: sum of (1 - c_i) b_i over sum of (1 - c_i), c_i = (1 - .1 a_i)^4. */
static const double limit = 17085.0 / 25646.0;

static problem problems[] = {
    {.outer = "average",
     .first = {ALL(.427125), ALL(.5803988062), ALL(.6354011116)},
     .limit = ALL(17085.0 / 25646.0)},
    {.outer = "diloco",
     .nesterov = 1,
     .first = {ALL(.56807625), ALL(.8939169984), ALL(.9533516921)},
     .limit = ALL(17085.0 / 25646.0)},
    {.outer = "diloco",
     .nesterov = 0,
     .rounds = 450,
     .first = {ALL(.2989875), ALL(.7328766651), ALL(1.093445702)},
     .limit = ALL(17085.0 / 25646.0)},
    {.outer = "slowmo",
     .first = {ALL(.427125), ALL(.7939613062), ALL(.8954561679)},
     .limit = ALL(17085.0 / 25646.0)},
    {.outer = "noloco",
     .first = {{-.086275, -.086275, .68425, .68425},
               {.6209641891, -.104670804, 1.237384189, .511749196},
               {.9784019064, .3736688307, 1.062050325, .5057674119}},
     .limit = {.8650547422, .3795398376, .8879457377, .4512518735}},
    /* With everything sent it is local SGD with a rate. */
    {.outer = "sparseloco",
     .first = {ALL(.427125), ALL(.5803988062), ALL(.6354011116)},
     .limit = ALL(17085.0 / 25646.0)},
};
enum { PROBLEMS = sizeof problems / sizeof problems[0] };

typedef struct place {
    double x[COUNT];
    float x32[COUNT];
} place;

static double value(const problem *p, const place *at, int i) {
    return p->floats ? (double)at->x32[i] : at->x[i];
}

static void inner_step(int rank, place *at) {
    for (int i = 0; i < COUNT; i++) {
        at->x[i] -= .1 * a[rank] * (at->x[i] - b[rank]);
        at->x32[i] -= .1f * (float)(a[rank] * ((double)at->x32[i] - b[rank]));
    }
}

static void check_x(const problem *p, int rank, const place *at, double wanted, int round) {
    double tolerance = p->floats ? 1e-5 : 1e-9;
    for (int i = 0; i < COUNT; i++)
        CHECK_MSG(fabs(value(p, at, i) - wanted) < tolerance,
                  "%s%s, round %d: rank %d at %.12f, not %.12f", p->outer,
                  p->floats ? " of floats" : "", round, rank, value(p, at, i), wanted);
}

/* (01)(23), (02)(13), (03)(12) and again. */
static int partner_in_turn(void *context, uint64_t round, int rank) {
    (void)context;
    return rank ^ (int)(round % 3 + 1);
}

static rp_local_sgd_options options_of(const char *outer, uint64_t every) {
    rp_local_sgd_options o = RP_LOCAL_SGD_OPTIONS();
    CHECK_OK(rp_local_sgd_defaults(outer, &o));
    o.every = every;
    return o;
}

static void solve(rp_comm *comm, int rank, int world, void *context) {
    (void)world;
    const problem *p = context;
    place at = {.x = {0}};
    rp_local_sgd_options o = options_of(p->outer, 4);
    o.nesterov = p->nesterov;
    o.partner = partner_in_turn;
    rp_segment tensor = {.data = p->floats ? (void *)at.x32 : (void *)at.x,
                         .count = COUNT,
                         .dtype = p->floats ? RP_F32 : RP_F64};
    void *data[] = {tensor.data};
    rp_local_sgd *local = NULL;
    REQUIRE_OK(rp_local_sgd_create(comm, &tensor, 1, &o, &local));
    int rounds = p->rounds ? p->rounds : 99;
    for (int step = 1; step <= rounds * 4; step++) {
        rp_local_sgd_report report = {0};
        inner_step(rank, &at);
        CHECK_OK(rp_local_sgd_step(local, data, .1, &report));
        CHECK_EQ(report.started, step % 4 ? -1 : 0);
        CHECK_EQ(report.finished, step % 4 ? -1 : 0);
        if (step % 4 == 0 && step <= 12)
            check_x(p, rank, &at, p->first[step / 4 - 1][rank], step / 4);
    }
    check_x(p, rank, &at, p->limit[rank], rounds);
    rp_local_sgd_destroy(local);
}

static void known_answers(void) {
    for (int i = 0; i < PROBLEMS; i++)
        for (int floats = 0; floats < 2; floats++) {
            problems[i].floats = floats;
            world_run(RANKS, NULL, solve, &problems[i]);
        }
    CHECK_NEAR(limit, .66618576, 1e-9);
}

static void every_transport(void) {
    static const char *const transports[] = {"shm", "tcp"};
    for (size_t t = 0; t < sizeof transports / sizeof transports[0]; t++)
        for (int i = 0; i < PROBLEMS; i++) {
            rp_comm_options options = RP_COMM_OPTIONS(.transport = transports[t]);
            problems[i].floats = true;
            world_run(RANKS, &options, solve, &problems[i]);
        }
}

/* ---- other worlds, against all ranks computed in a row ---- */

static void expect_of(const char *outer, int world, int rounds, double out[RANKS]) {
    double anchor = 0, momentum = 0;
    for (int round = 0; round < rounds; round++) {
        double mean = 0;
        for (int rank = 0; rank < world; rank++) {
            double x = anchor;
            for (int s = 0; s < 4; s++) x -= .1 * a[rank] * (x - b[rank]);
            mean += (anchor - x) / world;
        }
        if (strcmp(outer, "diloco") == 0) {
            momentum = .9 * momentum + mean;
            anchor -= .7 * (mean + .9 * momentum);
        } else if (strcmp(outer, "slowmo") == 0) {
            momentum = .5 * momentum + mean / .1;
            anchor -= .1 * momentum;
        } else
            anchor -= mean;
        out[round] = anchor;
    }
}

static void small_world(rp_comm *comm, int rank, int world, void *context) {
    const char *outer = context;
    double wanted[RANKS];
    expect_of(outer, world, RANKS, wanted);
    place at = {.x = {0}};
    rp_local_sgd_options o = options_of(outer, 4);
    rp_segment tensor = {.data = at.x, .count = COUNT, .dtype = RP_F64};
    void *data[] = {at.x};
    rp_local_sgd *local = NULL;
    REQUIRE_OK(rp_local_sgd_create(comm, &tensor, 1, &o, &local));
    for (int step = 1; step <= RANKS * 4; step++) {
        inner_step(rank, &at);
        CHECK_OK(rp_local_sgd_step(local, data, .1, NULL));
        if (step % 4) continue;
        CHECK_MSG(fabs(at.x[0] - wanted[step / 4 - 1]) < 1e-12,
                  "%s, %d ranks, round %d: %.15f, not %.15f", outer, world, step / 4, at.x[0],
                  wanted[step / 4 - 1]);
    }
    CHECK_EQ(rp_local_sgd_steps(local), RANKS * 4);
    rp_local_sgd_destroy(local);
}

static void worlds_of_one_to_four(void) {
    static const char *const outers[] = {"average", "slowmo", "diloco", "sparseloco"};
    for (int world = 1; world <= RANKS; world++)
        for (size_t i = 0; i < sizeof outers / sizeof outers[0]; i++)
            world_run(world, NULL, small_world, (void *)outers[i]);
}

/* ---- Streaming DiLoCo ---- */

/* f_i = a_i (y - b_i)^2 / 2 + (5 - a_i) (z - 2 b_i)^2 / 2 + (y - z)^2 / 2: y is one fragment, z
 * the other. */
typedef struct streaming {
    double mixing;
    double agreed[3][2]; /* after steps 2, 4, 6 */
    double limit[2];
    double rank_0[3][2]; /* its parameters then; zeros: not known */
} streaming;

static void coupled_step(int rank, double *y, double *z) {
    double dy = a[rank] * (*y - b[rank]) + *y - *z;
    double dz = (5 - a[rank]) * (*z - 2 * b[rank]) + *z - *y;
    *y -= .1 * dy;
    *z -= .1 * dz;
}

static double agreed(rp_local_sgd *local, size_t tensor) {
    CHECK(strcmp(rp_local_sgd_state_name(local, 0), "anchor") == 0);
    return *(double *)rp_local_sgd_state(local, 0, tensor);
}

static void stream(rp_comm *comm, int rank, int world, void *context) {
    (void)world;
    const streaming *p = context;
    double y = 0, z = 0;
    rp_local_sgd_options o = options_of("diloco", 4);
    o.fragments = 2;
    o.delay = 1;
    o.mixing = p->mixing;
    rp_segment tensors[] = {{.data = &y, .count = 1, .dtype = RP_F64},
                            {.data = &z, .count = 1, .dtype = RP_F64, .tensor = 1}};
    void *data[] = {&y, &z};
    rp_local_sgd *local = NULL;
    REQUIRE_OK(rp_local_sgd_create(comm, tensors, 2, &o, &local));
    for (int step = 1; step <= 1200; step++) {
        coupled_step(rank, &y, &z);
        CHECK_OK(rp_local_sgd_step(local, data, .1, NULL));
        CHECK_EQ(rp_local_sgd_in_flight(local), step % 2 ? step / 2 % 2 : -1);
        if (step % 2 || step > 6) continue;
        const double *wanted = p->agreed[step / 2 - 1], *own = p->rank_0[step / 2 - 1];
        CHECK_NEAR(agreed(local, 0), wanted[0], 1e-10);
        CHECK_NEAR(agreed(local, 1), wanted[1], 1e-10);
        if (rank == 0 && p->rank_0[0][0] != 0) {
            CHECK_NEAR(y, own[0], 1e-9);
            CHECK_NEAR(z, own[1], 1e-9);
        }
    }
    CHECK_NEAR(agreed(local, 0), p->limit[0], 1e-9);
    CHECK_NEAR(agreed(local, 1), p->limit[1], 1e-9);
    rp_local_sgd_destroy(local);
}

static void fragments_in_turn(void) {
    static streaming mixings[] = {
        {0,
         {{.23275, 0}, {.23275, .78606325}, {.7427008785, .78606325}},
         {.7765079991, 1.02589178},
         {{0}}},
        {.5,
         {{.23275, 0}, {.23275, .790701625}, {.7339737593, .790701625}},
         {.7719800018, 1.047433174},
         {{.246375, 1.21}, {.57744375, 1.173665188}, {.7609443356, 1.590220636}}},
    };
    for (int i = 0; i < 2; i++) world_run(RANKS, NULL, stream, &mixings[i]);
}

/* The gradient is always 2, the inner rate 1, the outer optimizer plain SGD at 2. */
typedef struct history {
    uint64_t delay;
    double mixing;
    double first[10]; /* of fragment 0 after steps 0 to 9; 0: not asked */
    double second[10];
    double agreed[2];
} history;

static void run_history(rp_comm *comm, int rank, int world, void *context) {
    (void)rank, (void)world;
    const history *p = context;
    double x[2] = {1, 1};
    rp_local_sgd_options o = options_of("diloco", 6);
    o.fragments = 2;
    o.delay = p->delay;
    o.mixing = p->mixing;
    o.outer_rate = 2;
    o.outer_momentum = 0;
    rp_segment tensors[] = {{.data = &x[0], .count = 1, .dtype = RP_F64},
                            {.data = &x[1], .count = 1, .dtype = RP_F64, .tensor = 1}};
    void *data[] = {&x[0], &x[1]};
    rp_local_sgd *local = NULL;
    REQUIRE_OK(rp_local_sgd_create(comm, tensors, 2, &o, &local));
    for (int step = 1; step < 10; step++) {
        x[0] -= 2;
        x[1] -= 2;
        CHECK_OK(rp_local_sgd_step(local, data, 1, NULL));
        if (p->first[step] != 0) CHECK_NEAR(x[0], p->first[step], 1e-12);
        if (p->second[step] != 0) CHECK_NEAR(x[1], p->second[step], 1e-12);
    }
    if (p->agreed[0] != 0) CHECK_NEAR(agreed(local, 0), p->agreed[0], 1e-12);
    if (p->agreed[1] != 0) CHECK_NEAR(agreed(local, 1), p->agreed[1], 1e-12);
    rp_local_sgd_destroy(local);
}

static void recorded_histories(void) {
    static history histories[] = {
        {1,
         .5,
         {1, -1, -3, -6, -8, -10, -12, -14, -16, -21.5},
         {0, 0, 0, -5, -7, -9, -15, -17, -19, -21},
         {-25, -19}},
        {0, 0, {0, 0, 0, -11, 0, 0, 0, 0, 0, -35}, {0, 0, 0, 0, 0, 0, -23, 0, 0, 0}, {0}},
        {1, 0, {0, 0, 0, -7, 0, 0, 0, 0, 0, -27}, {0, 0, 0, 0, 0, 0, -19, 0, 0, 0}, {0}},
    };
    for (int i = 0; i < 3; i++) world_run(2, NULL, run_history, &histories[i]);
}

/* ---- SparseLoCo ---- */

enum { SPARSE = 64, BUCKET = 8, KEPT = 2, SPARSE_ROUNDS = 20 };

static void pull(int rank, int step, float *x) {
    for (int i = 0; i < SPARSE; i++)
        x[i] -= .1f * (x[i] - (float)sin(1.7 * i + rank + .01 * step));
}

/* What is left of e once the largest of each bucket are sent; these into sent. */
static void take_largest(float *e, float *sent) {
    memset(sent, 0, SPARSE * sizeof *sent);
    for (int first = 0; first < SPARSE; first += BUCKET)
        for (int k = 0; k < KEPT; k++) {
            int best = first;
            for (int i = first; i < first + BUCKET; i++)
                if (fabsf(e[i]) > fabsf(e[best])) best = i;
            sent[best] = e[best];
            e[best] = 0;
        }
}

static void expect_sparse(int world, float out[SPARSE]) {
    static _Thread_local float e[RANKS][SPARSE];
    float anchor[SPARSE] = {0};
    memset(e, 0, sizeof e);
    for (int round = 0; round < SPARSE_ROUNDS; round++) {
        float sum[SPARSE] = {0}, sent[SPARSE];
        for (int rank = 0; rank < world; rank++) {
            float x[SPARSE];
            memcpy(x, anchor, sizeof x);
            for (int s = 0; s < 4; s++) pull(rank, 4 * round + s, x);
            for (int i = 0; i < SPARSE; i++)
                e[rank][i] = .95f * e[rank][i] + (anchor[i] - x[i]);
            take_largest(e[rank], sent);
            for (int i = 0; i < SPARSE; i++) sum[i] += sent[i];
        }
        for (int i = 0; i < SPARSE; i++) anchor[i] -= sum[i] / (float)world;
    }
    memcpy(out, anchor, sizeof anchor);
}

static void sparse(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    float x[SPARSE] = {0}, residual[SPARSE] = {0}, wanted[SPARSE];
    rp_local_sgd_options o = options_of("sparseloco", 4);
    rp_segment tensor = {.data = x, .count = SPARSE, .dtype = RP_F32, .residual = residual};
    REQUIRE_OK(rp_codec_parse("topk:k=2,bucket=8,values=fp32", &tensor.codec));
    void *data[] = {x};
    rp_local_sgd *local = NULL;
    REQUIRE_OK(rp_local_sgd_create(comm, &tensor, 1, &o, &local));
    for (int step = 0; step < 4 * SPARSE_ROUNDS; step++) {
        pull(rank, step, x);
        CHECK_OK(rp_local_sgd_step(local, data, 0, NULL));
    }
    expect_sparse(world, wanted);
    for (int i = 0; i < SPARSE; i++) CHECK_NEAR((double)x[i], (double)wanted[i], 1e-6);
    rp_local_sgd_destroy(local);
}

static void the_largest_entries(void) {
    for (int world = 1; world <= RANKS; world++) world_run(world, NULL, sparse, NULL);
}

/* ---- going on ---- */

enum { TENSORS = 5, LENGTH = 700, STEPS = 37 };

typedef struct run {
    float x[TENSORS][LENGTH], residual[TENSORS][LENGTH];
    rp_local_sgd *local;
} run;

typedef struct resumption {
    const char *outer, *codec;
    uint64_t delay;
    int stop;
} resumption;

static void open_run(const resumption *p, rp_comm *comm, run *r) {
    rp_segment tensors[TENSORS];
    rp_local_sgd_options o = options_of(p->outer, 12);
    o.fragments = 3;
    o.delay = p->delay;
    o.mixing = .25;
    for (int i = 0; i < TENSORS; i++) {
        tensors[i] = (rp_segment){.data = r->x[i],
                                  .count = (size_t)(LENGTH - i),
                                  .dtype = RP_F32,
                                  .tensor = (uint32_t)i};
        if (!p->codec) continue;
        tensors[i].residual = r->residual[i];
        CHECK_OK(rp_codec_parse(p->codec, &tensors[i].codec));
    }
    CHECK_OK(rp_local_sgd_create(comm, tensors, TENSORS, &o, &r->local));
}

static void go(run *r, int rank, int from, int to) {
    void *data[TENSORS];
    for (int i = 0; i < TENSORS; i++) data[i] = r->x[i];
    for (int step = from; step < to; step++) {
        for (int i = 0; i < TENSORS; i++)
            for (int e = 0; e < LENGTH; e++)
                r->x[i][e] -= .1f * (r->x[i][e] - (float)sin(e + rank * i + .1 * step));
        CHECK_OK(rp_local_sgd_step(r->local, data, .1, NULL));
    }
}

/* Into a new object, as a checkpoint would. */
static void move(const resumption *p, rp_comm *comm, run *r) {
    rp_local_sgd *old = r->local;
    open_run(p, comm, r);
    CHECK_OK(rp_local_sgd_settle(old));
    CHECK_OK(rp_local_sgd_resume(r->local, rp_local_sgd_steps(old)));
    CHECK_EQ(rp_local_sgd_in_flight(r->local), rp_local_sgd_in_flight(old));
    CHECK_EQ(rp_local_sgd_state_count(r->local), rp_local_sgd_state_count(old));
    for (int s = 0; s < rp_local_sgd_state_count(old); s++)
        for (size_t i = 0; i < TENSORS; i++) {
            void *from = rp_local_sgd_state(old, s, i),
                 *to = rp_local_sgd_state(r->local, s, i);
            CHECK_EQ(from != NULL, to != NULL);
            if (from && to) memcpy(to, from, (LENGTH - i) * sizeof(float));
        }
    rp_local_sgd_destroy(old);
}

static bool same(const void *one, const void *other, size_t bytes) {
    return memcmp(one, other, bytes) == 0;
}

static void stop_and_go_on(rp_comm *comm, int rank, int world, void *context) {
    (void)world;
    const resumption *p = context;
    run runs[2] = {0}, *whole = &runs[0], *parts = &runs[1];
    open_run(p, comm, whole);
    go(whole, rank, 0, STEPS);
    open_run(p, comm, parts);
    go(parts, rank, 0, p->stop);
    move(p, comm, parts);
    go(parts, rank, p->stop, STEPS);
    CHECK_OK(rp_local_sgd_settle(whole->local)); /* residuals are its until then */
    CHECK_OK(rp_local_sgd_settle(parts->local));
    CHECK_MSG(same(whole->x, parts->x, sizeof whole->x) &&
                  same(whole->residual, parts->residual, sizeof whole->residual),
              "%s, %s, delay %d, stopped after %d: rank %d went on otherwise", p->outer,
              p->codec ? p->codec : "exact", (int)p->delay, p->stop, rank);
    rp_local_sgd_destroy(whole->local);
    rp_local_sgd_destroy(parts->local);
}

static void states_are_all_there_is(void) {
    for (int kind = 0; rpi_outer_rule_at(kind); kind++)
        for (int stop = 12; stop <= 16; stop++) {
            resumption p = {.outer = rpi_outer_rule_at(kind)->name, .stop = stop};
            p.delay = stop % 2 ? 2 : 3;
            p.codec = stop == 12 ? NULL : stop == 13 ? "topk:k=4,bucket=64" : "q4:bucket=64";
            world_run(3, NULL, stop_and_go_on, &p);
        }
}

/* In the middle of a delay, too: as if nothing had been before. */
static void start_over(rp_comm *comm, int rank, int world, void *context) {
    (void)world;
    const resumption *p = context;
    run runs[2] = {0}, *r = &runs[0], *again = &runs[1];
    void *data[TENSORS];
    open_run(p, comm, r);
    go(r, rank, 0, p->stop);
    memset(r->x, 0, sizeof r->x);
    for (int i = 0; i < TENSORS; i++) data[i] = r->x[i];
    CHECK_OK(rp_local_sgd_restart(r->local, data, 11));
    open_run(p, comm, again);
    for (int i = 0; i < TENSORS; i++) data[i] = again->x[i];
    CHECK_OK(rp_local_sgd_restart(again->local, data, 11));
    go(r, rank, 11, STEPS);
    go(again, rank, 11, STEPS);
    CHECK_MSG(same(r->x, again->x, sizeof r->x), "%s", p->outer);
    rp_local_sgd_destroy(r->local);
    rp_local_sgd_destroy(again->local);
}

static void begins_anew(void) {
    for (int kind = 0; rpi_outer_rule_at(kind); kind++) {
        resumption p = {.outer = rpi_outer_rule_at(kind)->name, .stop = 7, .delay = 2};
        world_run(2, NULL, start_over, &p);
    }
}

/* ---- with a codec, all ranks hold the same ---- */

static void compressed(rp_comm *comm, int rank, int world, void *context) {
    const resumption *p = context;
    run runs[1] = {0}, *r = runs;
    static _Thread_local float all[RANKS * LENGTH];
    open_run(p, comm, r);
    go(r, rank, 0, 24);
    for (int i = 0; i < TENSORS; i++) {
        CHECK_OK(rp_all_gather(comm, rp_local_sgd_state(r->local, 0, (size_t)i), all,
                               (size_t)(LENGTH - i), RP_F32, NULL, NULL));
        for (int other = 1; other < world; other++)
            CHECK(memcmp(all, all + other * (LENGTH - i), (size_t)(LENGTH - i) * sizeof *all) ==
                  0);
    }
    rp_local_sgd_destroy(r->local);
}

static void what_is_agreed_is_equal(void) {
    static const char *const outers[] = {"average", "slowmo", "diloco", "sparseloco"};
    static const char *const codecs[] = {"q4:bucket=64", "bf16", "topk:k=8,bucket=64"};
    for (size_t i = 0; i < sizeof outers / sizeof outers[0]; i++)
        for (size_t c = 0; c < sizeof codecs / sizeof codecs[0]; c++) {
            resumption p = {.outer = outers[i], .codec = codecs[c], .delay = 1};
            world_run(RANKS, NULL, compressed, &p);
        }
}

/* ---- partners ---- */

static void partners_are_matchings(void) {
    int order[9];
    for (int world = 1; world <= 9; world++)
        for (uint64_t round = 0; round < 50; round++) {
            int alone = 0;
            for (int rank = 0; rank < world; rank++) {
                int other = rpi_outer_partner(7, round, rank, world, order);
                CHECK(other >= 0 && other < world);
                CHECK_EQ(rpi_outer_partner(7, round, other, world, order), rank);
                alone += other == rank;
            }
            CHECK_EQ(alone, world % 2);
        }
}

/* ---- the momentum's fit ---- */

static void one_way(rp_comm *comm, int rank, int world, void *context) {
    (void)rank, (void)world;
    double x = 0, turn = context ? -1 : 1, direction = 1;
    bool warned = false;
    rp_local_sgd_options o = options_of("diloco", 1);
    rp_segment tensor = {.data = &x, .count = 1, .dtype = RP_F64};
    void *data[] = {&x};
    rp_local_sgd *local = NULL;
    REQUIRE_OK(rp_local_sgd_create(comm, &tensor, 1, &o, &local));
    for (int step = 0; step < 30; step++) {
        rp_local_sgd_report report;
        x += direction;
        direction *= turn;
        CHECK_OK(rp_local_sgd_step(local, data, .1, &report));
        CHECK_NEAR(report.gradient_norm, 1, 1e-9);
        if (step) CHECK_NEAR(report.autocorrelation, turn, 1e-6);
        if (!report.warning) continue;
        CHECK(!warned && strstr(report.warning, context ? "overshoot" : "take 0.5 or less"));
        warned = true;
    }
    CHECK(warned);
    rp_local_sgd_destroy(local);
}

static void a_momentum_that_does_not_fit_is_told(void) {
    static int turns;
    world_run(2, NULL, one_way, NULL);
    world_run(2, NULL, one_way, &turns);
}

/* ---- what cannot be ---- */

#define REFUSED(part, ...)                                                                     \
    do {                                                                                       \
        rp_local_sgd_options o = options_of("diloco", 100);                                    \
        __VA_ARGS__;                                                                           \
        CHECK_FAILS(rp_local_sgd_check(&o, 10), INVALID, part);                                \
    } while (0)

static void what_cannot_be_is_refused(void) {
    rp_local_sgd_options options = RP_LOCAL_SGD_OPTIONS();
    CHECK_FAILS(rp_local_sgd_defaults("dilco", &options), INVALID, "did you mean 'diloco'");
    REFUSED("every is 0", o.every = 0);
    REFUSED("divides every", o.fragments = 3);
    REFUSED("divides every", o.fragments = 0);
    REFUSED("20 fragments of 10 tensors", o.fragments = 20);
    REFUSED("less than every / fragments", o.delay = 100);
    REFUSED("in windows of 25", o.fragments = 4; o.delay = 25);
    REFUSED("mixing is 1.5", o.mixing = 1.5);
    REFUSED("mixing is nan", o.mixing = NAN);
    REFUSED("outer rate of 0", o.outer_rate = 0);
    REFUSED("outer rate of inf", o.outer_rate = INFINITY);
    REFUSED("outer momentum of 1", o.outer_momentum = 1);
    REFUSED("residual decay of 2", o.residual_decay = 2);
    REFUSED("take diloco", o.outer = "average");
    REFUSED("no outer momentum", o.outer = "sparseloco");
    REFUSED("drift apart", o.outer = "noloco");
    REFUSED("= 0.38", o.outer = "noloco"; o.consensus_rate = .7);
    static const uint32_t gap[10] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 2};
    REFUSED("no tensor is in fragment 1", o.fragments = 4; o.fragment_of = gap);
    REFUSED("tensor 9 is in fragment 2", o.fragments = 2; o.fragment_of = gap);
    options = options_of("diloco", 100);
    options.fragments = 4;
    options.delay = 24;
    CHECK_OK(rp_local_sgd_check(&options, 10));
}

static void refuse_tensors(rp_comm *comm, int rank, int world, void *context) {
    (void)rank, (void)world, (void)context;
    float x[64] = {0};
    rp_local_sgd *local = NULL;
    rp_local_sgd_options o = options_of("sparseloco", 1), slow = options_of("slowmo", 1);
    rp_segment half = {.data = x, .count = 64, .dtype = RP_F16};
    rp_segment kept = {.data = x, .count = 64, .dtype = RP_F32};
    void *data[] = {x};
    CHECK_FAILS(rp_local_sgd_create(comm, &half, 1, &o, &local), UNSUPPORTED, "f16");
    REQUIRE_OK(rp_codec_parse("q4", &kept.codec));
    CHECK_FAILS(rp_local_sgd_create(comm, &kept, 1, &o, &local), INVALID, "residuals");
    kept.dtype = RP_F64;
    CHECK_FAILS(rp_local_sgd_create(comm, &kept, 1, &o, &local), UNSUPPORTED, "q4");
    kept = (rp_segment){.data = x, .count = 64, .dtype = RP_F32};
    REQUIRE_OK(rp_local_sgd_create(comm, &kept, 1, &slow, &local));
    CHECK_FAILS(rp_local_sgd_step(local, data, 0, NULL), INVALID, "learning rate");
    CHECK_FAILS(rp_local_sgd_step(local, data, 1, NULL), STATE, "destroy");
    rp_local_sgd_destroy(local);
}

static void tensors_that_do_not_do_are_refused(void) {
    world_run(2, NULL, refuse_tensors, NULL);
}

CASES({"known answers", known_answers}, {"every transport", every_transport},
      {"worlds of one to four", worlds_of_one_to_four},
      {"fragments in turn", fragments_in_turn}, {"recorded histories", recorded_histories},
      {"the largest entries", the_largest_entries},
      {"states are all there is", states_are_all_there_is}, {"begins anew", begins_anew},
      {"what is agreed is equal", what_is_agreed_is_equal},
      {"partners are matchings", partners_are_matchings},
      {"a momentum that does not fit is told", a_momentum_that_does_not_fit_is_told},
      {"what cannot be is refused", what_cannot_be_is_refused},
      {"tensors that do not do are refused", tensors_that_do_not_do_are_refused})
