/* What one step of data-parallel training asks of a GPU, counted over its stand-in: gradients
 * of eleven tensors, 26 MB, that are one all-reduce among two ranks. Counts, not times. */
#include "comm/device/device.h"
#include "comm/device_world.h"

#include <stdio.h>
#include <string.h>

enum { TENSORS = 11, RANKS = 2 };

static const size_t counts[TENSORS] = {2359296, 6144, 786432, 6144, 2359296, 24576,
                                       786432,  6144, 6144,   6144, 196608};

static size_t all_of(void) {
    size_t all = 0;
    for (int i = 0; i < TENSORS; i++) all += counts[i];
    return all;
}

typedef struct numbers {
    long kernels, copies, crossed, records, calls;
} numbers;

/* A row for each way of making a step, with bounds: more is a step back. How many events and
 * functions of the host there are depends on what happens when, up to theirs. */
static const struct way {
    const char *codec;
    bool feedback;
    rp_memory memory; /* for which the communicator cuts chunks */
    uint32_t chunk_bytes;
    numbers most;
} ways[] = {
    {"q4", true, RP_MEMORY_CUDA, 0, {15, 15, 0, 16, 20}},
    {"q4", false, RP_MEMORY_CUDA, 0, {15, 15, 0, 16, 20}},
    {"q4", true, RP_MEMORY_HOST, 0, {230, 15, 0, 200, 200}},
    {"q8", true, RP_MEMORY_CUDA, 0, {30, 15, 0, 32, 32}},
    {"fp32", false, RP_MEMORY_CUDA, 0, {0, 180, 80000000, 140, 140}},
    {"fp32", false, RP_MEMORY_HOST, 0, {0, 1000, 80000000, 900, 900}},
};

static stand_in *control;
static numbers of_step;

static numbers now(void) {
    return (numbers){atomic_load(&control->kernels), atomic_load(&control->copies),
                     atomic_load(&control->crossed), atomic_load(&control->records),
                     atomic_load(&control->calls)};
}

static void step(rp_comm *comm, int rank, int world, void *context) {
    memory_piece data = memory_take(true, all_of() * sizeof(float));
    memory_piece residual = memory_take(true, all_of() * sizeof(float));
    rp_segment segments[TENSORS] = {{0}};
    rp_request *request = NULL;
    size_t at = 0;
    const struct way *way = context;
    (void)world;
    device_rank(rank);
    memory_set(&data, 0x3c + rank);
    memory_set(&residual, 0);
    for (int i = 0; i < TENSORS; at += counts[i], i++) {
        segments[i] = (rp_segment){.data = (float *)data.at + at,
                                   .count = counts[i],
                                   .dtype = RP_F32,
                                   .tensor = (uint32_t)i};
        if (way->feedback) segments[i].residual = (float *)residual.at + at;
        CHECK_OK(rp_codec_parse(way->codec, &segments[i].codec));
    }
    rp_collective_options options =
        RP_COLLECTIVE_OPTIONS(.reduce = RP_AVG, .memory = RP_MEMORY_CUDA);
    world_meet();
    numbers before = now();
    world_meet();
    CHECK_OK(rp_all_reduce_start(comm, segments, TENSORS, &options, &request));
    CHECK_OK(rp_request_wait(&request));
    world_meet();
    numbers after = now();
    if (rank == 0)
        of_step = (numbers){
            (after.kernels - before.kernels) / RANKS, (after.copies - before.copies) / RANKS,
            (after.crossed - before.crossed) / RANKS, (after.records - before.records) / RANKS,
            (after.calls - before.calls) / RANKS};
    world_meet();
    memory_give(&data);
    memory_give(&residual);
}

static void check(const char *what, long number, long most) {
    if (number > most) printf("%s: %ld, more than %ld\n", what, number, most);
    CHECK(number <= most);
}

static void count(const struct way *way) {
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = "inproc", .connect_timeout_s = 20, .timeout_s = 60,
                        .chunk_bytes = way->chunk_bytes, .memory = way->memory);
    struct way own = *way;
    control = device_begin();
    world_run(RANKS, &options, step, &own);
    printf("a rank, a step, %s%s, chunks for %s: %ld launches, %ld copies (%ld bytes between "
           "GPU and host), %ld events, %ld functions of the host\n",
           way->codec, way->feedback ? " with feedback" : "",
           way->memory == RP_MEMORY_CUDA ? "GPUs" : "hosts", of_step.kernels, of_step.copies,
           of_step.crossed, of_step.records, of_step.calls);
    check("launches", of_step.kernels, way->most.kernels);
    check("copies", of_step.copies, way->most.copies);
    check("bytes", of_step.crossed, way->most.crossed);
    check("events", of_step.records, way->most.records);
    check("functions", of_step.calls, way->most.calls);
}

static void a_step(void) {
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) count(&ways[i]);
}

/* ---- launches of a lane, of no GPU at all ---- */

static int launches;

static int count_launch(const rpi_device_call *calls, int count, void *stream) {
    (void)calls, (void)count, (void)stream;
    launches++;
    return 0;
}

static int count_copy(void *to, const void *from, size_t bytes, void *stream) {
    (void)to, (void)from, (void)bytes, (void)stream;
    launches++;
    return 0;
}

/* Behind a copy of 10 bytes from 0 to 100; add a row: does the second wait for the first? Only
 * where one of the two writes what the other reads or writes. */
static const struct {
    int from, to, bytes;
    bool waits;
} seconds[] = {
    {0, 200, 10, false},  {5, 200, 10, false},   {110, 200, 10, false}, {109, 200, 10, true},
    {90, 200, 10, false}, {91, 200, 10, true},   {100, 200, 10, true},  {95, 200, 40, true},
    {103, 200, 2, true},  {200, 110, 10, false}, {200, 109, 10, true},  {200, 90, 10, false},
    {200, 91, 10, true},  {200, 100, 10, true},  {200, 10, 10, false},  {200, 9, 10, true},
    {20, 0, 10, true},    {200, 300, 10, false},
};

static void copies_that_touch_are_launched_in_turn(void) {
    static unsigned char memory[512];
    static const rpi_cuda_library cuda = {.encode_all = count_launch, .copy = count_copy};
    for (size_t i = 0; i < sizeof seconds / sizeof seconds[0]; i++) {
        rpi_device_call calls[RPI_LIST_MOST];
        rpi_device device = {.cuda = &cuda, .lanes = {{.calls = calls}}};
        rpi_transfer transfer = {.device = &device};
        launches = 0;
        CHECK_OK(rpi_lane_copy(&transfer, RPI_LANE_FROM, memory + 100, memory, 10));
        CHECK_OK(rpi_lane_copy(&transfer, RPI_LANE_FROM, memory + seconds[i].to,
                               memory + seconds[i].from, (size_t)seconds[i].bytes));
        CHECK_MSG(launches == seconds[i].waits, "row %zu: %d launches", i, launches);
        CHECK_EQ(device.lanes[RPI_LANE_FROM].count, seconds[i].waits ? 1 : 2);
    }
}

/* A list that is full goes; a long copy is one of its own, behind what is listed. */
static void long_copies_are_no_part_of_a_list(void) {
    static unsigned char memory[4 * 65536];
    static const rpi_cuda_library cuda = {.encode_all = count_launch, .copy = count_copy};
    rpi_device_call calls[RPI_LIST_MOST];
    rpi_device device = {.cuda = &cuda, .lanes = {{.calls = calls}}};
    rpi_transfer transfer = {.device = &device};
    launches = 0;
    for (int k = 0; k <= RPI_LIST_MOST; k++)
        CHECK_OK(rpi_lane_copy(&transfer, RPI_LANE_FROM, memory + 65536 + k, memory, 1));
    CHECK_EQ(launches, 1);
    CHECK_EQ(device.lanes[RPI_LANE_FROM].count, 1);
    CHECK_OK(rpi_lane_copy(&transfer, RPI_LANE_FROM, memory + 2 * 65536, memory, 64 * 1024));
    CHECK_EQ(device.lanes[RPI_LANE_FROM].count, 2);
    CHECK_OK(
        rpi_lane_copy(&transfer, RPI_LANE_FROM, memory + 2 * 65536, memory, 64 * 1024 + 1));
    CHECK_EQ(device.lanes[RPI_LANE_FROM].count, 0);
    CHECK_EQ(launches, 3); /* what was listed, and the long one */
}

CASES({"copies_that_touch_are_launched_in_turn", copies_that_touch_are_launched_in_turn},
      {"long_copies_are_no_part_of_a_list", long_copies_are_no_part_of_a_list},
      {"a_step", a_step})
