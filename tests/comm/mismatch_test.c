/* Ranks that disagree: every one of them fails, and says what each side posted. */
#include "base/clock.h"
#include "comm/core/communicator.h"
#include "comm/core/progress_owner.h"
#include "comm/protocol/open_close.h"
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
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.reduce = odd ? RP_AVG : RP_SUM);
    return reduce(comm, 1000, RP_F32, "fp32", &options);
}
static rp_status differ_in_maximum(rp_comm *comm, bool odd) {
    static float out[8][2000 / 8];
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.reduce = odd ? RP_MAX : RP_MIN);
    int rank = rp_comm_rank(comm);
    return rp_reduce_scatter(comm, data[rank], out[rank], 2000 / 8, RP_F32, NULL, &options);
}
static rp_status differ_in_root(rp_comm *comm, bool odd) {
    static float out[8][1000];
    rp_collective_options options =
        RP_COLLECTIVE_OPTIONS(.algorithm = "scatter", .root = odd ? 1 : 0);
    int rank = rp_comm_rank(comm);
    return rp_reduce(comm, data[rank], out[rank], 1000, RP_F32, &options);
}
static rp_status differ_in_algorithm(rp_comm *comm, bool odd) {
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.algorithm = odd ? "ring" : "sra");
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
/* Everything is alike but what the operation is called. */
static rp_status reduce_as(rp_comm *comm, uint64_t key, uint64_t step, uint32_t tensor,
                           uint64_t first) {
    rp_segment segment = {.data = data[rp_comm_rank(comm)],
                          .count = 1000,
                          .dtype = RP_F32,
                          .tensor = tensor,
                          .first = first};
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.key = key, .step = step);
    return rp_all_reduce(comm, &segment, 1, &options);
}
static rp_status differ_in_key(rp_comm *comm, bool odd) {
    return reduce_as(comm, odd ? 8 : 7, 0, 0, 0);
}
static rp_status differ_in_having_a_key(rp_comm *comm, bool odd) {
    return reduce_as(comm, odd ? 8 : 0, 0, 0, 0);
}
static rp_status differ_in_high_bits_of_the_key(rp_comm *comm, bool odd) {
    return reduce_as(comm, odd ? 7 + (UINT64_C(1) << 40) : 7, 0, 0, 0);
}
static rp_status differ_in_step(rp_comm *comm, bool odd) {
    return reduce_as(comm, 0, odd ? 4 : 3, 0, 0);
}
static rp_status differ_in_tensor(rp_comm *comm, bool odd) {
    return reduce_as(comm, 0, 3, odd ? 12 : 11, 0);
}
static rp_status differ_in_first(rp_comm *comm, bool odd) {
    return reduce_as(comm, 0, 3, 11, odd ? 1000 : 0);
}
static rp_status differ_in_seed(rp_comm *comm, bool odd) {
    return reduce(comm, 1000, RP_F32, "fp32",
                  &(rp_collective_options)RP_COLLECTIVE_OPTIONS(.seed = odd ? 2 : 1));
}
static rp_status gather_in_another_order(rp_comm *comm, bool odd) {
    static float all[8][16000];
    int rank = rp_comm_rank(comm);
    return rp_all_gather(comm, data[rank], all[rank], 8, RP_F32, NULL,
                         &(rp_collective_options)RP_COLLECTIVE_OPTIONS(.key = odd ? 2 : 1));
}
static rp_status scatter_differently(rp_comm *comm, bool odd) {
    static float all[8][16000];
    int rank = rp_comm_rank(comm);
    return rp_reduce_scatter(comm, all[rank], data[rank], odd ? 7 : 8, RP_F32, NULL, NULL);
}

/* Two segments with owners, the second of which differs. */
static rp_status owned(rp_comm *comm, bool gathers, const rp_owned_segment *second,
                       const rp_collective_options *options) {
    float *x = data[rp_comm_rank(comm)];
    rp_owned_segment segments[] = {{.segment = {.data = x, .count = 500, .dtype = RP_F32}},
                                   *second};
    segments[1].segment.data = x + 500;
    segments[1].segment.dtype = RP_F32;
    return gathers ? rp_all_gather_segments(comm, segments, 2, options)
                   : rp_reduce_scatter_segments(comm, segments, 2, options);
}
static rp_status scatter_to_another_owner(rp_comm *comm, bool odd) {
    rp_owned_segment second = {.segment = {.count = 400}, .owner = odd};
    return owned(comm, false, &second, NULL);
}
static rp_status gather_from_another_owner(rp_comm *comm, bool odd) {
    rp_owned_segment second = {.segment = {.count = 400}, .owner = odd};
    return owned(comm, true, &second, NULL);
}
static rp_status scatter_segments_of_another_codec(rp_comm *comm, bool odd) {
    rp_owned_segment second = {.segment = {.count = 400}, .owner = 1};
    CHECK_OK(rp_codec_parse(odd ? "q4" : "q5", &second.segment.codec));
    return owned(comm, false, &second, NULL);
}
static rp_status gather_segments_of_another_length(rp_comm *comm, bool odd) {
    rp_owned_segment second = {.segment = {.count = odd ? 0 : 400}, .owner = 1};
    return owned(comm, true, &second, NULL);
}
static rp_status gather_another_tensor(rp_comm *comm, bool odd) {
    rp_owned_segment second = {.segment = {.count = 400, .tensor = odd ? 3 : 2}, .owner = 1};
    return owned(comm, true, &second, NULL);
}
static rp_status scatter_segments_by_another_key(rp_comm *comm, bool odd) {
    rp_owned_segment second = {.segment = {.count = 400}, .owner = 1};
    return owned(comm, false, &second,
                 &(rp_collective_options)RP_COLLECTIVE_OPTIONS(.key = odd ? 12 : 11));
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
    {"reduction", differ_in_reduction, "all-reduce (avg) of 1000 f32",
     "all-reduce of 1000 f32"},
    {"maximum", differ_in_maximum, "reduce-scatter (max) of", "reduce-scatter (min) of"},
    {"root", differ_in_root, "reduce of 1000 f32", "root "},
    {"algorithm", differ_in_algorithm, "algorithm ", "they differ in"},
    {"operation", differ_in_operation, "barrier", "all-reduce of 1000 f32"},
    {"segments", differ_in_segments, "segments", "segments"},
    {"all-gather", gather_differently, "all-gather", "f32"},
    {"reduce-scatter", scatter_differently, "reduce-scatter", "f32"},
    {"key", differ_in_key, "with key 8", "with key 7"},
    {"a key or none", differ_in_having_a_key, "with key 8", "without a key"},
    {"a long key", differ_in_high_bits_of_the_key, "they differ in", "key"},
    {"step", differ_in_step, "of step 4, tensor 0", "of step 3, tensor 0"},
    {"tensor", differ_in_tensor, "of step 3, tensor 12", "of step 3, tensor 11"},
    {"first", differ_in_first, "they differ in", "segments"},
    {"seed", differ_in_seed, "they differ in", "seed"},
    {"owner of a sum", scatter_to_another_owner, "reduce-scatter of 900 f32", "owners"},
    {"owner of what is gathered", gather_from_another_owner, "all-gather of 900 f32", "owners"},
    {"codec of a segment", scatter_segments_of_another_codec, "they differ in", "codecs"},
    {"length of a segment", gather_segments_of_another_length, "all-gather of 500 f32",
     "all-gather of 900 f32"},
    {"tensor of a segment", gather_another_tensor, "they differ in", "segments"},
    {"key of segments", scatter_segments_by_another_key, "with key 12", "with key 11"},
    {"all-gather's key", gather_in_another_order, "all-gather", "key 2"},
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

/* Two operations of one shape that each rank posts in an order of its own, as threads of an
 * engine may: all ranks hear of it, and no sum is wrong without a word. */
typedef rp_status (*starter)(rp_comm *comm, const rp_segment *segment,
                             const rp_collective_options *options, rp_request **request);

static rp_status start_all_reduce(rp_comm *comm, const rp_segment *segment,
                                  const rp_collective_options *options, rp_request **request) {
    return rp_all_reduce_start(comm, segment, 1, options, request);
}
static rp_status start_reduce_scatter(rp_comm *comm, const rp_segment *segment,
                                      const rp_collective_options *options,
                                      rp_request **request) {
    rp_owned_segment owned = {.segment = *segment, .owner = 1};
    return rp_reduce_scatter_segments_start(comm, &owned, 1, options, request);
}
static rp_status start_all_gather(rp_comm *comm, const rp_segment *segment,
                                  const rp_collective_options *options, rp_request **request) {
    rp_owned_segment owned = {.segment = *segment, .owner = 1};
    return rp_all_gather_segments_start(comm, &owned, 1, options, request);
}

typedef struct exchange {
    starter start;
    bool by_key; /* else by tensor */
} exchange;

static void exchange_orders(rp_comm *comm, int rank, int world, void *context) {
    const exchange *e = context;
    const bool by_key = e->by_key;
    float x[2] = {1, 100};
    rp_request *requests[2] = {NULL};
    int mismatches = 0;
    CHECK_OK(rp_barrier(comm));
    world_meet();
    for (int k = 0; k < 2; k++) {
        int i = rank == world - 1 ? 1 - k : k;
        rp_segment segment = {.data = &x[i], .count = 1, .dtype = RP_F32};
        segment.tensor = by_key ? 0 : (uint32_t)i + 1;
        rp_collective_options options =
            RP_COLLECTIVE_OPTIONS(.key = by_key ? (uint64_t)i + 1 : 0);
        (void)e->start(comm, &segment, &options, &requests[i]);
        if (!requests[i]) mismatches += rp_last_error()->status == RP_MISMATCH;
    }
    for (int i = 0; i < 2; i++) {
        if (!requests[i]) continue;
        rp_status status = rp_request_wait(&requests[i]);
        CHECK_MSG(status == RP_MISMATCH, "rank %d: %s, %g", rank, rp_status_name(status), x[i]);
        mismatches += status == RP_MISMATCH;
    }
    CHECK_EQ(mismatches, 2);
    CHECK_EQ(rp_comm_status(comm), RP_MISMATCH);
    const char *message = rp_last_error()->message, *what = by_key ? "key" : "tensor";
    char first[32], second[32];
    snprintf(first, sizeof first, "%s 1", what);
    snprintf(second, sizeof second, "%s 2", what);
    CHECK_MSG(strstr(message, first) && strstr(message, second), "%s", message);
    world_meet();
}

static void another_order_is_noticed(void) {
    static const exchange exchanges[] = {
        {start_all_reduce, false},    {start_all_reduce, true}, {start_reduce_scatter, false},
        {start_reduce_scatter, true}, {start_all_gather, true}, {start_all_gather, false}};
    for (int world = 2; world <= 5; world++)
        for (size_t i = 0; i < sizeof exchanges / sizeof exchanges[0]; i++)
            world_run(world, NULL, exchange_orders, (void *)(uintptr_t)&exchanges[i]);
}

static void send_differently(rp_comm *comm, int rank, int world, void *context) {
    (void)context, (void)world;
    rp_status status = rank == 0 ? rp_send(comm, data[0], 100, RP_F32, 1, 0)
                                 : rp_recv(comm, data[1], 99, RP_F32, 0, 0);
    CHECK_EQ(status, RP_MISMATCH);
    CHECK(strstr(rp_last_error()->message, "100 f32") &&
          strstr(rp_last_error()->message, "99 f32"));
}

static void sends_and_receives_must_agree(void) {
    world_run(2, NULL, send_differently, NULL);
}

/* ---- blocks: only the two that share one can disagree about it ---- */

static rp_status gather_blocks(rp_comm *comm, bool odd) {
    rp_block outputs[8];
    for (int r = 0; r < 8; r++) outputs[r] = (rp_block){.data = data[r], .count = 120};
    return rp_gather(comm, data[rp_comm_rank(comm)], odd ? 100 : 120, outputs, RP_F32, NULL);
}
static rp_status scatter_blocks(rp_comm *comm, bool odd) {
    static float out[8][200];
    rp_block inputs[8];
    for (int r = 0; r < 8; r++) inputs[r] = (rp_block){.data = data[r], .count = 120};
    return rp_scatter(comm, inputs, out[rp_comm_rank(comm)], odd ? 150 : 120, RP_F32, NULL);
}
/* The odd one sends to rank 0 what takes another number of chunks than is expected. */
static rp_status exchange_blocks(rp_comm *comm, bool odd) {
    static float in[8][300000], out[8][8][120];
    rp_block inputs[8], outputs[8];
    for (int r = 0; r < 8; r++) {
        inputs[r] = (rp_block){.data = in[rp_comm_rank(comm)], .count = 120};
        outputs[r] = (rp_block){.data = out[rp_comm_rank(comm)][r], .count = 120};
    }
    if (odd) inputs[0].count = 300000;
    return rp_all_to_all(comm, inputs, outputs, RP_F32, NULL);
}
static rp_status exchange_dtypes(rp_comm *comm, bool odd) {
    rp_block empty[8] = {{0}};
    return rp_all_to_all(comm, empty, empty, odd ? RP_F32 : RP_I32, NULL);
}
static rp_status gather_or_scatter(rp_comm *comm, bool odd) {
    return odd ? gather_blocks(comm, false) : scatter_blocks(comm, false);
}

static const disagreement blocks[] = {
    {"gather", gather_blocks, "gather 2: rank", "sends 100 f32 to rank 0, which expects 120"},
    {"scatter", scatter_blocks, "scatter 2: rank 0 sends 120 f32", "which expects 150"},
    {"all-to-all", exchange_blocks, "all-to-all 2: rank",
     "sends 300000 f32 to rank 0, which expects 120"},
    {"dtypes", exchange_dtypes, "all-to-all of f32", "all-to-all of i32"},
    {"gather or scatter", gather_or_scatter, "operation 2: rank", "er of f32"},
};

/* Who has sent its blocks is done, and hears of it in its next operation. */
static void disagree_on_blocks(rp_comm *comm, int rank, int world, void *context) {
    const disagreement *d = context;
    CHECK_OK(rp_barrier(comm));
    world_meet();
    rp_status status = d->run(comm, rank == world - 1);
    if (status == RP_OK) status = rp_barrier(comm);
    const char *message = rp_last_error()->message;
    CHECK_MSG(status == RP_MISMATCH, "%s, rank %d of %d: %s (%s)", d->name, rank, world,
              rp_status_name(status), message);
    CHECK_MSG(strstr(message, d->theirs) && strstr(message, d->ours), "%s: '%s'", d->name,
              message);
}

static void disagreements_on_blocks_name_the_pair(void) {
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        for (int world = 2; world <= 4; world++)
            world_run(world, NULL, disagree_on_blocks, (void *)(uintptr_t)&blocks[i]);
}

/* Each is the root for itself, and nobody sends. */
static void gather_at_home(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    rp_block outputs[8];
    for (int r = 0; r < world; r++) outputs[r] = (rp_block){.data = data[r], .count = 10};
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.root = rank);
    CHECK_EQ(rp_gather(comm, data[rank], 10, outputs, RP_F32, &options), RP_TIMEOUT);
    const char *message = rp_last_error()->message;
    CHECK_MSG(strstr(message, "gather 1"), "'%s'", message);
    /* On a machine that is busy a late heartbeat is the first thing to say. */
    CHECK_MSG(strstr(message, "do all ranks name root") || strstr(message, "no heartbeat"),
              "'%s'", message);
}

static void a_timeout_asks_for_the_root(void) {
    rp_comm_options options = RP_COMM_OPTIONS(.transport = "inproc", .timeout_s = 1);
    world_run(2, &options, gather_at_home, NULL);
}

/* A rank that believes to be in another epoch, or in another communicator. */
static void stray(rp_comm *comm, int rank, int world, void *context) {
    const char *what = context;
    CHECK_OK(rp_barrier(comm));
    world_meet();
    if (rank == world - 1) {
        rpi_progress_acquire(comm->context);
        (void)rpi_context_remove(comm);
        if (strcmp(what, "epoch") == 0) comm->epoch = comm->context->world_epoch = 7;
        comm->context->has_had_world = false; /* that other one it has never heard of */
        if (strcmp(what, "communicator") == 0) comm->id ^= 1;
        CHECK_OK(rpi_context_add(comm));
        rpi_progress_release(comm->context);
    }
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
    CHECK_OK(rp_comm_status(comm));
    world_meet();
    if (rank == world - 1) rp_comm_abort(comm, RP_IO, "cannot read weights.bin");
    rp_status status = rp_barrier(comm);
    CHECK_EQ(status, RP_IO);
    char wanted[64];
    snprintf(wanted, sizeof wanted, "rank %d gave up: cannot read weights.bin", world - 1);
    CHECK_MSG(strstr(rp_last_error()->message, wanted), "%s", rp_last_error()->message);
    CHECK_EQ(rp_comm_status(comm), RP_IO);
    CHECK_MSG(strstr(rp_last_error()->message, wanted), "%s", rp_last_error()->message);
}

static void hear_of_it(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    CHECK_OK(rp_barrier(comm));
    world_meet(); /* the last rank may be through the barrier while others are still in it */
    if (rank == world - 1) rp_comm_abort(comm, RP_IO, "cannot read weights.bin");
    while (rp_comm_status(comm) == RP_OK)
        rpi_sleep_until_ns(rpi_now_ns() + RPI_SECOND_NS / 1000);
    CHECK_EQ(rp_comm_status(comm), RP_IO);
    CHECK_EQ(rp_comm_status(NULL), RP_INVALID);
    world_meet();
}

static void a_failure_is_heard_of_without_an_operation(void) {
    for (int world = 1; world <= 4; world++) world_run(world, NULL, hear_of_it, NULL);
}

static void a_rank_may_give_up_for_all(void) {
    for (int world = 1; world <= 4; world++) world_run(world, NULL, give_up, NULL);
}

CASES({"every rank fails and says what was posted", every_rank_fails_and_says_what_was_posted},
      {"disagreements on blocks name the pair", disagreements_on_blocks_name_the_pair},
      {"a timeout asks for the root", a_timeout_asks_for_the_root},
      {"another order is noticed", another_order_is_noticed},
      {"sends and receives must agree", sends_and_receives_must_agree},
      {"frames of other worlds are refused", frames_of_other_worlds_are_refused},
      {"destroying in mid-operation fails the others",
       destroying_in_mid_operation_fails_the_others},
      {"a failure is heard of without an operation",
       a_failure_is_heard_of_without_an_operation},
      {"a rank may give up for all", a_rank_may_give_up_for_all})
