/* The caller's floating-point environment changes no result, on any rank: sums of subnormals
 * when some ranks flush them, roundings in other directions, exceptions that trap. And it is
 * the caller's again after every call. */
#include "comm/thread_world.h"

#include "base/rng.h"
#include "harness/float_env.h"

#include <pthread.h>
#include <stdlib.h>

enum { RANKS = 3, COUNT = 1237, DEFAULT_ENV = -1 };

typedef struct job {
    const char *codec;
    rp_dtype dtype;
    rp_reduction reduce;
    bool feedback;
} job;

static const job jobs[] = {
    {"fp32", RP_F32, RP_SUM, false},
    {"fp32", RP_F32, RP_PRODUCT, false},
    {"fp32", RP_F32, RP_AVG, false},
    {"fp32", RP_F32, RP_PREMUL_SUM, false},
    {"fp32", RP_F64, RP_AVG, false},
    {"fp32", RP_F16, RP_AVG, false},
    {"fp32", RP_BF16, RP_PREMUL_SUM, false},
    {"bf16", RP_F32, RP_SUM, true},
    {"fp16", RP_F32, RP_SUM, true},
    {"q1", RP_F32, RP_SUM, true},
    {"q4", RP_F32, RP_AVG, true},
    {"q4:bucket=33", RP_BF16, RP_SUM, true},
    {"q8", RP_F16, RP_SUM, false},
    {"q4:rounding=stochastic", RP_F32, RP_SUM, true},
};
enum { JOBS = sizeof jobs / sizeof jobs[0] };

typedef struct outcome {
    unsigned char data[COUNT * 8];
    float residual[COUNT];
    rp_status status;
} outcome;

/* Filled before any environment is set: making them takes arithmetic. */
static unsigned char inputs[JOBS][RANKS][COUNT * 8];
static float feedback[RANKS][COUNT];
static outcome wanted[JOBS][RANKS], got[JOBS][RANKS];

static float any_float(rpi_rng *rng) {
    uint32_t bits = rpi_rng_u32(rng) & 0x807fffffu; /* subnormal */
    float value;
    if (rpi_rng_below(rng, 4) == 0) return rpi_rng_normal(rng);
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void make_inputs(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 0);
    for (int rank = 0; rank < RANKS; rank++)
        for (int i = 0; i < COUNT; i++) feedback[rank][i] = any_float(&rng);
    for (int j = 0; j < JOBS; j++)
        for (int rank = 0; rank < RANKS; rank++)
            for (size_t i = 0; i < COUNT; i++) {
                float value = any_float(&rng);
                double wide = rpi_rng_below(&rng, 2) ? (double)value : 0x1p-1050 * (double)i;
                uint16_t half = jobs[j].dtype == RP_BF16 ? rp_f32_to_bf16(value)
                                                         : (uint16_t)(i * 7 % 0x7c00);
                const void *from = jobs[j].dtype == RP_F32   ? (const void *)&value
                                   : jobs[j].dtype == RP_F64 ? (const void *)&wide
                                                             : (const void *)&half;
                size_t bytes = rp_dtype_bytes(jobs[j].dtype);
                memcpy(inputs[j][rank] + bytes * i, from, bytes);
            }
}

typedef struct world_plan {
    int env, only_rank; /* DEFAULT_ENV; -1: on all ranks */
    outcome (*into)[RANKS];
    bool kept[RANKS];
    double factor[RANKS];
} world_plan;

static rp_status run_job(rp_comm *comm, int rank, const job *j, double factor, outcome *into) {
    rp_codec codec = {0};
    RP_TRY(rp_codec_parse(j->codec, &codec));
    rp_segment segment = {.data = into->data,
                          .count = COUNT,
                          .dtype = j->dtype,
                          .codec = codec,
                          .residual = j->feedback ? into->residual : NULL,
                          .tensor = 4};
    (void)rank;
    return rp_all_reduce(comm, &segment, 1,
                         &(rp_collective_options)RP_COLLECTIVE_OPTIONS(.reduce = j->reduce,
                                                                       .seed = 9, .step = 2,
                                                                       .factor = factor));
}

static void run_jobs(rp_comm *comm, int rank, int world, void *context) {
    (void)world;
    world_plan *plan = context;
    bool hostile = plan->env != DEFAULT_ENV && (plan->only_rank < 0 || plan->only_rank == rank);
    for (int j = 0; j < JOBS; j++) {
        outcome *into = &plan->into[j][rank];
        memcpy(into->data, inputs[j][rank], sizeof into->data);
        memcpy(into->residual, feedback[rank], sizeof into->residual);
        if (hostile) float_env_set(plan->env);
        into->status = run_job(comm, rank, &jobs[j], plan->factor[rank], into);
        if (hostile) plan->kept[rank] &= float_env_is(plan->env);
        float_env_reset();
    }
}

static void run_plan(world_plan *plan, int progress_thread) {
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = "inproc", .progress_thread = progress_thread);
    for (int rank = 0; rank < RANKS; rank++) {
        plan->kept[rank] = true;
        plan->factor[rank] = 0.1 * (rank + 1);
    }
    world_run(RANKS, &options, run_jobs, plan);
}

static void compare(const world_plan *plan) {
    const char *where = plan->only_rank < 0 ? "on all ranks" : "on one rank";
    for (int j = 0; j < JOBS; j++)
        for (int rank = 0; rank < RANKS; rank++) {
            const outcome *a = &wanted[j][rank], *b = &got[j][rank];
            const char *name = float_envs[plan->env].name;
            CHECK_MSG(b->status == RP_OK, "job %d, %s: %s", j, name, rp_status_name(b->status));
            CHECK_MSG(memcmp(a->data, b->data, sizeof a->data) == 0,
                      "job %d (%s), %s %s: rank %d has another result", j, jobs[j].codec, name,
                      where, rank);
            CHECK_MSG(memcmp(a->residual, b->residual, sizeof a->residual) == 0,
                      "job %d (%s), %s %s: rank %d has another residual", j, jobs[j].codec,
                      name, where, rank);
        }
    for (int rank = 0; rank < RANKS; rank++)
        CHECK_MSG(plan->kept[rank], "%s: rank %d has another environment now",
                  float_envs[plan->env].name, rank);
}

static void walk(int progress_thread) {
    make_inputs();
    world_plan reference = {.env = DEFAULT_ENV, .into = wanted};
    run_plan(&reference, progress_thread);
    for (int j = 0; j < JOBS; j++)
        for (int rank = 1; rank < RANKS; rank++)
            CHECK(memcmp(wanted[j][0].data, wanted[j][rank].data, sizeof wanted[j][0].data) ==
                  0);
    for (int env = 0; env < float_env_count(); env++)
        for (int only_rank = -1; only_rank < 2; only_rank++) {
            world_plan plan = {.env = env, .only_rank = only_rank, .into = got};
            run_plan(&plan, progress_thread);
            compare(&plan);
        }
}

static void no_result_depends_on_it(void) {
    walk(0);
}

static void nor_does_one_of_a_progress_thread(void) {
    walk(1);
}

/* ---- everything else that a communicator does, begun in that environment ---- */

typedef struct life {
    int env;
    rp_status status[RANKS];
    bool kept[RANKS];
    float sums[RANKS];
} life;

/* Asynchronous, so that the progress thread computes, which was started from here. */
static rp_status use(rp_comm *comm, float *values) {
    rp_request *request = NULL;
    rp_segment segment = {.data = values, .count = 64, .dtype = RP_F32};
    rp_comm_stats stats;
    rp_completions *completions = NULL;
    uint64_t token;
    size_t count = 0;
    RP_TRY(rp_comm_set_timeout(comm, 77.7));
    RP_TRY(rp_completions_create(&completions));
    RP_TRY(rp_all_reduce_start(comm, &segment, 1, NULL, &request));
    RP_TRY(rp_request_notify(request, completions, 5));
    RP_TRY(rp_completions_wait(completions, 17.3, &token, 1, &count));
    RP_TRY(rp_request_wait_for(request, 12.7));
    RP_TRY(rp_request_free(&request));
    rp_completions_destroy(completions);
    rp_comm_get_stats(comm, &stats);
    int other = rp_comm_rank(comm) ^ 1;
    if (other < 2)
        RP_TRY(rp_comm_rank(comm) == 0 ? rp_send(comm, values, 8, RP_F32, other, 3)
                                       : rp_recv(comm, values, 8, RP_F32, other, 3));
    return rp_barrier(comm);
}

typedef struct rank_of_life {
    life *life;
    int rank, port;
    pthread_t thread;
} rank_of_life;

static void *live(void *context) {
    rank_of_life *self = context;
    life *mine = self->life;
    rp_store store;
    rp_comm *comm = NULL;
    float values[64];
    uint32_t tiny = 0x00000100u + (uint32_t)self->rank; /* a subnormal */
    for (int i = 0; i < 64; i++) memcpy(&values[i], &tiny, sizeof tiny);
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = "tcp", .progress_thread = 1, .connect_timeout_s = 30.3,
                        .timeout_s = 60.6, .link = "10Gbit,3us");
    float_env_set(mine->env);
    rp_status status = rp_store_connect(NULL, self->port, 20.1, &store);
    if (status == RP_OK) {
        status = rp_comm_create(&store, self->rank, RANKS, &options, &comm);
        if (status == RP_OK) status = use(comm, values);
        rp_comm_destroy(comm);
        rp_store_close(&store);
    }
    mine->kept[self->rank] = float_env_is(mine->env);
    float_env_reset();
    mine->status[self->rank] = status;
    mine->sums[self->rank] = values[63];
    return NULL;
}

static void live_in(int env) {
    life world = {.env = env};
    rank_of_life ranks[RANKS];
    rp_store_server *server = NULL;
    int port = 0;
    float_env_set(env); /* the server's thread too begins with it */
    rp_status served = rp_store_serve(NULL, 0, &server, &port);
    float_env_reset();
    REQUIRE_OK(served);
    for (int rank = 0; rank < RANKS; rank++) {
        ranks[rank] = (rank_of_life){.life = &world, .rank = rank, .port = port};
        if (pthread_create(&ranks[rank].thread, NULL, live, &ranks[rank]) != 0) abort();
    }
    for (int rank = 0; rank < RANKS; rank++) pthread_join(ranks[rank].thread, NULL);
    rp_store_server_stop(server);
    for (int rank = 0; rank < RANKS; rank++) {
        uint32_t sum;
        memcpy(&sum, &world.sums[rank], sizeof sum);
        CHECK_MSG(world.status[rank] == RP_OK, "%s: rank %d: %s", float_envs[env].name, rank,
                  rp_status_name(world.status[rank]));
        CHECK_MSG(sum == 3 * 0x100 + 3, "%s: rank %d summed to %08x", float_envs[env].name,
                  rank, sum);
        CHECK_MSG(world.kept[rank], "%s: rank %d has another environment now",
                  float_envs[env].name, rank);
    }
}

static void a_whole_life_in_it(void) {
    for (int env = 0; env < float_env_count(); env++) live_in(env);
}

static void fail_in_it(rp_comm *comm, int rank, int world, void *context) {
    (void)world;
    int env = *(int *)context;
    float value = 1;
    rp_segment segment = {.data = &value, .count = 1, .dtype = RP_F32};
    rp_segment missing = {.count = 9, .dtype = RP_F32};
    rp_request *request = NULL;
    float_env_set(env);
    rp_status refused = rp_all_reduce(comm, &missing, 1, NULL);
    bool kept = float_env_is(env);
    if (rank == 0) rp_comm_abort(comm, RP_IO, "a bad file");
    rp_status failed = rp_all_reduce(comm, &segment, 1, NULL);
    kept &= float_env_is(env);
    rp_status posted = rp_all_reduce_start(comm, &segment, 1, NULL, &request);
    kept &= float_env_is(env);
    rp_status timeout = rp_comm_set_timeout(comm, -1.5);
    kept &= float_env_is(env);
    float_env_reset();
    CHECK_MSG(refused == RP_INVALID && failed == RP_IO && posted == RP_IO &&
                  timeout == RP_INVALID,
              "%s, %s, %s, %s", rp_status_name(refused), rp_status_name(failed),
              rp_status_name(posted), rp_status_name(timeout));
    CHECK_MSG(kept, "%s: rank %d has another environment now", float_envs[env].name, rank);
}

static void a_failure_leaves_it(void) {
    for (int env = 0; env < float_env_count(); env++) world_run(RANKS, NULL, fail_in_it, &env);
}

CASES({"no result depends on it", no_result_depends_on_it},
      {"nor does one of a progress thread", nor_does_one_of_a_progress_thread},
      {"a whole life in it", a_whole_life_in_it}, {"a failure leaves it", a_failure_leaves_it})
