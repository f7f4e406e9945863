/* Ranks that disagree: every one of them fails, and says what each side posted. */
#include "comm/communicator.h"
#include "comm/thread_world.h"

#include <stdbool.h>
#include <stdlib.h>

typedef struct disagreement {
    const char *name;
    rp_status (*run)(rp_comm *comm, bool odd); /* odd: the rank that differs */
    const char *theirs, *ours;                 /* words that the message must hold */
} disagreement;

static float data[8][2000];

static rp_status reduce(rp_comm *comm, size_t count, rp_dtype dtype, const char *codec,
                        const rp_collective_options *options) {
    rp_segment segment = {.data = data[rp_comm_rank(comm)], .count = count, .dtype = dtype};
    CHECK_OK(rp_codec_parse(codec, &segment.codec));
    return rp_all_reduce(comm, &segment, 1, options);
}

static rp_status differ_in_count(rp_comm *comm, bool odd) {
    return reduce(comm, odd ? 1001 : 1000, RP_F32, "q4", NULL);
}
static rp_status differ_in_nothing_or_something(rp_comm *comm, bool odd) {
    return reduce(comm, odd ? 0 : 1000, RP_F32, "fp32", NULL);
}
static rp_status differ_in_dtype(rp_comm *comm, bool odd) {
    return reduce(comm, 1000, odd ? RP_I32 : RP_F32, "fp32", NULL);
}
static rp_status differ_in_bits(rp_comm *comm, bool odd) {
    return reduce(comm, 1000, RP_F32, odd ? "q5" : "q4", NULL);
}
static rp_status differ_in_bucket(rp_comm *comm, bool odd) {
    return reduce(comm, 1000, RP_F32, odd ? "q4:bucket=1024" : "q4", NULL);
}
static rp_status differ_in_rounding(rp_comm *comm, bool odd) {
    return reduce(comm, 1000, RP_F32, odd ? "q4:rounding=stochastic" : "q4", NULL);
}
static rp_status differ_in_reduction(rp_comm *comm, bool odd) {
    rp_collective_options options = {.reduce = odd ? RP_AVG : RP_SUM};
    return reduce(comm, 1000, RP_F32, "fp32", &options);
}
static rp_status differ_in_algorithm(rp_comm *comm, bool odd) {
    rp_collective_options options = {.algorithm = odd ? "ring" : "sra"};
    return reduce(comm, 1000, RP_F32, "fp32", &options);
}
static rp_status differ_in_operation(rp_comm *comm, bool odd) {
    return odd ? rp_barrier(comm) : reduce(comm, 1000, RP_F32, "fp32", NULL);
}
static rp_status differ_in_segments(rp_comm *comm, bool odd) {
    float *x = data[rp_comm_rank(comm)];
    rp_segment two[] = {{.data = x, .count = odd ? 500 : 400, .dtype = RP_F32},
                        {.data = x + 500, .count = odd ? 400 : 500, .dtype = RP_F32}};
    return rp_all_reduce(comm, two, 2, NULL);
}
static rp_status gather_differently(rp_comm *comm, bool odd) {
    static float all[8][16000];
    int rank = rp_comm_rank(comm);
    return rp_all_gather(comm, data[rank], all[rank], odd ? 7 : 8, RP_F32, NULL, NULL);
}
static rp_status scatter_differently(rp_comm *comm, bool odd) {
    static float all[8][16000];
    int rank = rp_comm_rank(comm);
    return rp_reduce_scatter(comm, all[rank], data[rank], odd ? 7 : 8, RP_F32, NULL, NULL);
}

static const disagreement table[] = {
    {"count", differ_in_count, "all-reduce of 1001 f32 with q4:bucket=512",
     "all-reduce of 1000 f32 with q4:bucket=512"},
    {"count 0", differ_in_nothing_or_something, "all-reduce of 0 f32",
     "all-reduce of 1000 f32"},
    {"dtype", differ_in_dtype, "1000 i32", "1000 f32"},
    {"bits", differ_in_bits, "q5:bucket=512", "q4:bucket=512"},
    {"bucket", differ_in_bucket, "q4:bucket=1024", "q4:bucket=512"},
    {"rounding", differ_in_rounding, "rounding", "rounding"},
    {"reduction", differ_in_reduction, "reduction", "reduction"},
    {"algorithm", differ_in_algorithm, "algorithm", "algorithm"},
    {"operation", differ_in_operation, "barrier", "all-reduce of 1000 f32"},
    {"segments", differ_in_segments, "segments", "segments"},
    {"all-gather", gather_differently, "all-gather", "f32"},
    {"reduce-scatter", scatter_differently, "reduce-scatter", "f32"},
};

static void disagree(rp_comm *comm, int rank, int world, void *context) {
    const disagreement *d = context;
    CHECK_OK(rp_barrier(comm));
    world_meet(); /* a failure may overtake the end of the operation before */
    rp_status status = d->run(comm, rank == world - 1);
    const char *message = rp_last_error()->message;
    CHECK_MSG(status == RP_MISMATCH, "%s, rank %d of %d: %s (%s)", d->name, rank, world,
              rp_status_name(status), message);
    CHECK_MSG(strstr(message, d->theirs) && strstr(message, d->ours), "%s: '%s'", d->name,
              message);
    char first[512];
    snprintf(first, sizeof first, "%s", message);
    CHECK_EQ(rp_barrier(comm), RP_MISMATCH); /* refused with the same failure */
    CHECK(strcmp(rp_last_error()->message, first) == 0);
}

static void every_rank_fails_and_says_what_was_posted(void) {
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        for (int world = 2; world <= 4; world++)
            world_run(world, NULL, disagree, (void *)(uintptr_t)&table[i]);
}

static void send_differently(rp_comm *comm, int rank, int world, void *context) {
    (void)context, (void)world;
    rp_status status = rank == 0 ? rp_send(comm, data[0], 100, RP_F32, 1)
                                 : rp_recv(comm, data[1], 99, RP_F32, 0);
    CHECK_EQ(status, RP_MISMATCH);
    CHECK(strstr(rp_last_error()->message, "100 f32") &&
          strstr(rp_last_error()->message, "99 f32"));
}

static void sends_and_receives_must_agree(void) {
    world_run(2, NULL, send_differently, NULL);
}

/* A rank that believes to be in another epoch, or in another communicator. */
static void stray(rp_comm *comm, int rank, int world, void *context) {
    const char *what = context;
    CHECK_OK(rp_barrier(comm));
    world_meet();
    if (rank == world - 1 && strcmp(what, "epoch") == 0) comm->epoch = 7;
    if (rank == world - 1 && strcmp(what, "communicator") == 0) comm->id ^= 1;
    CHECK_EQ(rp_barrier(comm), RP_MISMATCH);
    CHECK_MSG(strstr(rp_last_error()->message, what), "%s", rp_last_error()->message);
}

static void frames_of_other_worlds_are_refused(void) {
    for (int world = 2; world <= 4; world++) {
        world_run(world, NULL, stray, "epoch");
        world_run(world, NULL, stray, "communicator");
    }
}

static void leave_early(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    rp_segment segment = {.data = data[rank], .count = 1000, .dtype = RP_F32};
    rp_request *request = NULL;
    if (rank == world - 1) {
        CHECK_OK(rp_all_reduce_start(comm, &segment, 1, NULL, &request));
        return; /* destroys the communicator with the request in flight */
    }
    CHECK_OK(rp_barrier_start(comm, &request));
    CHECK(rp_request_wait(&request) != RP_OK);
    CHECK_MSG(strstr(rp_last_error()->message, "rank") != NULL, "%s", rp_last_error()->message);
}

static void destroying_in_mid_operation_fails_the_others(void) {
    for (int world = 2; world <= 4; world++) world_run(world, NULL, leave_early, NULL);
}

static void give_up(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    CHECK_OK(rp_barrier(comm));
    world_meet();
    if (rank == world - 1) rp_comm_abort(comm, RP_IO, "cannot read weights.bin");
    rp_status status = rp_barrier(comm);
    CHECK_EQ(status, RP_IO);
    char wanted[64];
    snprintf(wanted, sizeof wanted, "rank %d gave up: cannot read weights.bin", world - 1);
    CHECK_MSG(strstr(rp_last_error()->message, wanted), "%s", rp_last_error()->message);
}

static void a_rank_may_give_up_for_all(void) {
    for (int world = 1; world <= 4; world++) world_run(world, NULL, give_up, NULL);
}

CASES({"every rank fails and says what was posted", every_rank_fails_and_says_what_was_posted},
      {"sends and receives must agree", sends_and_receives_must_agree},
      {"frames of other worlds are refused", frames_of_other_worlds_are_refused},
      {"destroying in mid-operation fails the others",
       destroying_in_mid_operation_fails_the_others},
      {"a rank may give up for all", a_rank_may_give_up_for_all})
