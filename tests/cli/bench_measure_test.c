/* The harness must notice what is wrong: kinds that lie, on ranks that are threads. */
#include "cli/bench_collective.h"

#include "base/memory.h"
#include "base/status.h"
#include "comm/thread_world.h"

enum { COUNT = 3000, WRONG_RANK = 1 };

static rpi_bench_source gathered(const rpi_bench_call *call, int block) {
    (void)call;
    return (rpi_bench_source){block, 0};
}

/* Blocks in the wrong order. */
static rpi_bench_source turned(const rpi_bench_call *call, int block) {
    return (rpi_bench_source){(block + 1) % call->world, 0};
}

static rpi_bench_source summed(const rpi_bench_call *call, int block) {
    (void)call;
    return (rpi_bench_source){RPI_BENCH_EVERYBODY, block};
}

static rp_status gather(const rpi_bench_call *call, rp_request *requests[2]) {
    return rp_all_gather_start(call->comm, call->input, call->output, call->count, call->dtype,
                               &call->codec, &call->options, &requests[0]);
}

static rp_status sum(const rpi_bench_call *call, rp_request *requests[2]) {
    rp_segment segment = {
        .data = call->output, .count = call->count, .dtype = call->dtype, .codec = call->codec};
    return rp_all_reduce_start(call->comm, &segment, 1, &call->options, &requests[0]);
}

/* Right, but for the lowest bit of one byte of one rank. */
static rp_status flip(rp_status status, const rpi_bench_call *call, rp_request **request,
                      size_t at) {
    if (status == RP_OK) status = rp_request_wait(request);
    if (call->rank == WRONG_RANK) ((unsigned char *)call->output)[at] ^= 1;
    return status;
}

/* In the share of the elements that rank WRONG_RANK checks itself. */
static rp_status gather_and_flip(const rpi_bench_call *call, rp_request *requests[2]) {
    size_t at = call->count / 2 * rp_dtype_bytes(call->dtype);
    return flip(gather(call, requests), call, &requests[0], at);
}

/* In the share of rank 0, who holds the right one: only the replicas tell. */
static rp_status gather_and_flip_first(const rpi_bench_call *call, rp_request *requests[2]) {
    return flip(gather(call, requests), call, &requests[0], 0);
}

static rp_status gather_and_scribble(const rpi_bench_call *call, rp_request *requests[2]) {
    rp_status status = gather(call, requests);
    if (status == RP_OK) status = rp_request_wait(&requests[0]);
    if (call->rank == WRONG_RANK) ((unsigned char *)(uintptr_t)call->input)[0] ^= 1;
    return status;
}

/* Wrong only where the input lies in the output. */
static rp_status gather_and_flip_in_place(const rpi_bench_call *call, rp_request *requests[2]) {
    const unsigned char *output = call->output, *input = call->input;
    size_t bytes = (size_t)call->world * call->count * rp_dtype_bytes(call->dtype);
    bool in_place = input >= output && input < output + bytes;
    rp_status status = gather(call, requests);
    size_t at = call->count / 2 * rp_dtype_bytes(call->dtype);
    return in_place ? flip(status, call, &requests[0], at) : status;
}

static rp_status sum_and_forget(const rpi_bench_call *call, rp_request *requests[2]) {
    rp_status status = sum(call, requests);
    if (status == RP_OK) status = rp_request_wait(&requests[0]);
    memset(call->output, 0, call->count * rp_dtype_bytes(call->dtype));
    return status;
}

static rp_status nothing(const rpi_bench_call *call, rp_request *requests[2]) {
    (void)call, (void)requests;
    return RP_OK;
}

static const rpi_command command = {.name = "bench test"};
#define GATHERS                                                                                \
    .command = &command, .collective = RPI_ALL_GATHER, .gives = RPI_BLOCKS_ONE,                \
    .gets = RPI_BLOCKS_EACH, .replicates = true, .has_codec = true
#define SUMS                                                                                   \
    .command = &command, .collective = RPI_ALL_REDUCE, .gives = RPI_BLOCKS_ONE,                \
    .gets = RPI_BLOCKS_ONE, .in_place = true, .replicates = true, .reduces = true,             \
    .has_codec = true

typedef struct test {
    const char *name;
    rpi_bench_kind kind;
    rp_dtype dtype;
    const char *codec;
    bool correct, replicas_equal;
} test;

static const test tests[] = {
    {"gather", {GATHERS, .source = gathered, .start = gather}, RP_F32, "fp32", true, true},
    {"gather i8", {GATHERS, .source = gathered, .start = gather}, RP_I8, "fp32", true, true},
    {"gather q4", {GATHERS, .source = gathered, .start = gather}, RP_F32, "q4", true, true},
    {"sum", {SUMS, .source = summed, .start = sum}, RP_BF16, "fp32", true, true},
    {"sum c64", {SUMS, .source = summed, .start = sum}, RP_C64, "fp32", true, true},
    {"sum q4", {SUMS, .source = summed, .start = sum}, RP_F32, "q4", true, true},
    {"turned", {GATHERS, .source = turned, .start = gather}, RP_F32, "fp32", false, true},
    {"turned q4", {GATHERS, .source = turned, .start = gather}, RP_F32, "q4", false, true},
    {"flip",
     {GATHERS, .source = gathered, .start = gather_and_flip},
     RP_I64,
     "fp32",
     false,
     false},
    {"flip f16",
     {GATHERS, .source = gathered, .start = gather_and_flip},
     RP_F16,
     "fp32",
     false,
     false},
    {"flip first",
     {GATHERS, .source = gathered, .start = gather_and_flip_first},
     RP_F32,
     "fp32",
     true,
     false},
    {"scribble",
     {GATHERS, .source = gathered, .start = gather_and_scribble},
     RP_U16,
     "fp32",
     false,
     true},
    {"forget", {SUMS, .source = summed, .start = sum_and_forget}, RP_F32, "fp32", false, true},
    {"forget q8", {SUMS, .source = summed, .start = sum_and_forget}, RP_F32, "q8", false, true},
    {"both places",
     {GATHERS, .either_place = true, .source = gathered, .start = gather},
     RP_F32,
     "fp32",
     true,
     true},
    {"both places q4",
     {GATHERS, .either_place = true, .source = gathered, .start = gather},
     RP_F32,
     "q4",
     true,
     true},
    {"flip in place",
     {GATHERS, .either_place = true, .source = gathered, .start = gather_and_flip_in_place},
     RP_I64,
     "fp32",
     false,
     false},
    {"poison", {GATHERS, .source = gathered, .start = nothing}, RP_F32, "fp32", false, true},
};
enum { TESTS = sizeof tests / sizeof tests[0] };

static void measure(rp_comm *comm, int rank, int world, void *context) {
    const test *t = context;
    rpi_bench bench = {
        .kind = &t->kind, .comm = comm, .dtype = t->dtype, .iters = 2, .seed = 1};
    rpi_bench_row row = {0};
    (void)rank;
    CHECK_OK(rp_codec_parse(t->codec, &bench.codec));
    REQUIRE_OK(rpi_bench_measure(&bench, COUNT, &row));
    CHECK_MSG(row.correct == t->correct, "%s, world %d: %s, error %g", t->name, world,
              row.correct ? "correct" : "wrong", row.error);
    CHECK_MSG(row.replicas_equal == t->replicas_equal, "%s, world %d: replicas %s", t->name,
              world, row.replicas_equal ? "equal" : "differ");
    CHECK((row.in_place_time_s > 0) == (t->kind.either_place || t->kind.in_place));
    CHECK(row.count == COUNT && row.algorithm && row.time_min_s <= row.time_s &&
          row.time_s <= row.time_max_s);
}

static void every_lie_is_found(void) {
    for (int t = 0; t < TESTS; t++)
        for (int world = 2; world <= 3; world++)
            world_run(world, NULL, measure, (void *)(uintptr_t)&tests[t]);
}

static void a_size_is_that_of_the_largest_buffer(void) {
    const rpi_bench_kind *gathers = &tests[0].kind, *sums = &tests[3].kind;
    CHECK_EQ(rpi_bench_count(sums, RP_F32, 4, 4096), 1024);
    CHECK_EQ(rpi_bench_count(gathers, RP_F32, 4, 4096), 256);
    CHECK_EQ(rpi_bench_count(gathers, RP_F32, 3, 4096), 341);
    CHECK_EQ(rpi_bench_count(gathers, RP_C128, 3, 1), 1);
    CHECK_EQ(rpi_bench_count(gathers, RP_C128, 3, 0), 0);
}

static void memory_may_end(void) {
    rp_status status = RP_NOMEM;
    long n = 0;
    while (status == RP_NOMEM && n < 1000) {
        rp_comm *comm = NULL;
        rpi_bench_row row;
        REQUIRE_OK(rp_comm_create(NULL, 0, 1, NULL, &comm));
        rpi_bench bench = {.kind = &tests[0].kind, .comm = comm, .dtype = RP_F32, .iters = 1};
        (void)rpi_memory_fail_after(++n);
        status = rpi_bench_measure(&bench, 10, &row);
        (void)rpi_memory_fail_after(0);
        rp_comm_destroy(comm);
    }
    CHECK_OK(status);
    CHECK(n > 8);
}

CASES({"every_lie_is_found", every_lie_is_found},
      {"a_size_is_that_of_the_largest_buffer", a_size_is_that_of_the_largest_buffer},
      {"memory_may_end", memory_may_end})
