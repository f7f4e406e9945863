/* What one step of data-parallel training asks of a GPU, counted over its stand-in: gradients
 * of eleven tensors that are one all-reduce by q4 with error feedback. Counts, not times. */
#include "comm/device_world.h"

#include <stdio.h>
#include <string.h>

enum { TENSORS = 11, RANKS = 2 };

/* An eighth of a step of 26 MB, so that parts hold several tensors as they do there. */
static const size_t counts[TENSORS] = {294912, 768, 98304, 768, 294912, 3072,
                                       98304,  768, 768,   768, 24576};

static size_t all_of(void) {
    size_t all = 0;
    for (int i = 0; i < TENSORS; i++) all += counts[i];
    return all;
}

typedef struct numbers {
    long kernels, copies, crossed, records, calls;
} numbers;

/* As counted: more of them is a step back. */
enum { AS_CHOSEN_KERNELS = 74, AS_CHOSEN_COPIES = 4, IN_ONE_KERNELS = 34, IN_ONE_COPIES = 2 };

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
    (void)world, (void)context;
    device_rank(rank);
    memory_set(&data, 0x3c + rank);
    memory_set(&residual, 0);
    for (int i = 0; i < TENSORS; at += counts[i], i++) {
        segments[i] = (rp_segment){.data = (float *)data.at + at,
                                   .count = counts[i],
                                   .dtype = RP_F32,
                                   .tensor = (uint32_t)i,
                                   .residual = (float *)residual.at + at};
        CHECK_OK(rp_codec_parse("q4", &segments[i].codec));
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

static numbers count(uint32_t chunk_bytes) {
    rp_comm_options options = RP_COMM_OPTIONS(.transport = "inproc", .connect_timeout_s = 20,
                                              .timeout_s = 60, .chunk_bytes = chunk_bytes);
    control = device_begin();
    world_run(RANKS, &options, step, NULL);
    printf(
        "a rank, a step, chunks of %u bytes: %ld launches, %ld copies (%ld bytes between GPU "
        "and host), %ld events, %ld functions of the host\n",
        chunk_bytes, of_step.kernels, of_step.copies, of_step.crossed, of_step.records,
        of_step.calls);
    return of_step;
}

/* Events and functions of the host depend on what happens when: only their bound is sure. */
static void a_step(void) {
    numbers as_chosen = count(0), in_one = count(64 << 20);
    CHECK_EQ(as_chosen.crossed, 0);
    CHECK_EQ(in_one.crossed, 0);
    CHECK(as_chosen.kernels <= AS_CHOSEN_KERNELS);
    CHECK(as_chosen.copies <= AS_CHOSEN_COPIES);
    CHECK(in_one.kernels <= IN_ONE_KERNELS);
    CHECK(in_one.copies <= IN_ONE_COPIES);
    CHECK(as_chosen.calls <= as_chosen.records);
}

CASES({"a_step", a_step})
