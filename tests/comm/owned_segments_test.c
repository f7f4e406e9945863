/* Reduce-scatter and all-gather of lists of segments with owners: to the bit what one thread
 * computes, for every list, world, transport and place. */
#include "comm/owned_list.h"
#include "comm/serial.h"
#include "comm/thread_world.h"

#include <stdlib.h>

static const int worlds[] = {1, 2, 3, 7};
enum { WORLDS = sizeof worlds / sizeof worlds[0] };
static const char *const transports[] = {"inproc", "shm", "tcp"};
enum { TRANSPORTS = sizeof transports / sizeof transports[0] };

static unsigned char expected[OWNED_RANKS][8 * OWNED_ELEMENTS];

static rp_collective_options options_of(rp_reduction reduction, int rank) {
    return (
        rp_collective_options)RP_COLLECTIVE_OPTIONS(.algorithm = "direct", .reduce = reduction,
                                                    .seed = 5, .step = 9,
                                                    .factor = serial_factor(rank), .key = 77);
}

static void check_segment(const owned_list *list, int i, int rank, int world, const char *what,
                          const void *got) {
    const owned_row *row = &list->rows[i];
    size_t at = serial_differs(row->dtype, expected[rank], got, row->count);
    CHECK_MSG(at == row->count, "%s, world %d, rank %d: %s of segment %d differs at %zu of %zu",
              list->name, world, rank, what, i, at, row->count);
}

/* ---- reduce-scatter ---- */

static void check_reduced(const owned_list *list, int rank, int world, rp_reduction reduction,
                          const rp_collective_options *options, const owned_memory *memory) {
    for (int i = 0; i < (int)list->count; i++) {
        bool is_owner = list->rows[i].owner % world == rank;
        owned_fill(list, i, rank, expected[rank]);
        if (!is_owner || memory->own[i])
            check_segment(list, i, rank, world, "the input", memory->data[i]);
        if (!is_owner) continue;
        owned_reduced(list, i, world, reduction, options, expected[rank]);
        check_segment(list, i, rank, world, "the sum",
                      memory->own[i] ? memory->own[i] : memory->data[i]);
    }
}

static void reduce(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    for (int n = 0; n < owned_list_count; n++)
        for (int reduction = RP_SUM; reduction <= RP_PREMUL_SUM; reduction++) {
            const owned_list *list = &owned_lists[n];
            if (!owned_list_takes(list, (rp_reduction)reduction)) continue;
            rp_collective_options options = options_of((rp_reduction)reduction, rank);
            owned_memory memory;
            owned_take(list, rank, world, (n + reduction) % 2, false, &memory);
            CHECK_OK(rp_reduce_scatter_segments(comm, list->count ? memory.segments : NULL,
                                                list->count, &options));
            check_reduced(list, rank, world, (rp_reduction)reduction, &options, &memory);
            owned_give(list, &memory);
        }
}

/* ---- all-gather ---- */

static void check_gathered(const owned_list *list, int rank, int world,
                           const rp_collective_options *options, const owned_memory *memory) {
    static float residuals[OWNED_RANKS][OWNED_ELEMENTS];
    for (int i = 0; i < (int)list->count; i++) {
        const owned_row *row = &list->rows[i];
        float *residual = memory->residuals[i] ? residuals[rank] : NULL;
        if (memory->own[i]) {
            owned_fill(list, i, rank, expected[rank]);
            check_segment(list, i, rank, world, "what its owner has", memory->own[i]);
        }
        if (residual) memset(residual, 0, row->count * sizeof *residual);
        owned_gathered(list, i, world, options, expected[rank], residual);
        check_segment(list, i, rank, world, "what was gathered", memory->data[i]);
        if (!residual) continue;
        bool is_owner = row->owner % world == rank;
        for (size_t k = 0; k < row->count && !is_owner; k++) residual[k] = 0;
        CHECK_MSG(memcmp(residual, memory->residuals[i], row->count * sizeof *residual) == 0,
                  "%s, world %d, rank %d: residual of segment %d", list->name, world, rank, i);
    }
}

static void gather(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    for (int n = 0; n < owned_list_count; n++)
        for (int way = 0; way < 4; way++) {
            const owned_list *list = &owned_lists[n];
            rp_collective_options options = options_of(RP_SUM, rank);
            owned_memory memory;
            owned_take(list, rank, world, way % 2, way / 2, &memory);
            for (int i = 0; i < (int)list->count; i++) {
                size_t bytes = list->rows[i].count * rp_dtype_bytes(list->rows[i].dtype);
                if (list->rows[i].owner % world != rank) memset(memory.data[i], 0xdd, bytes);
                if (!memory.own[i]) continue;
                memcpy(memory.own[i], memory.data[i], bytes);
                memset(memory.data[i], 0xdd, bytes);
            }
            CHECK_OK(rp_all_gather_segments(comm, list->count ? memory.segments : NULL,
                                            list->count, &options));
            check_gathered(list, rank, world, &options, &memory);
            owned_give(list, &memory);
        }
}

/* ---- everywhere ---- */

static void everywhere(world_function function) {
    for (int t = 0; t < TRANSPORTS; t++)
        for (int w = 0; w < WORLDS; w++) {
            rp_comm_options options =
                RP_COMM_OPTIONS(.transport = transports[t], .connect_timeout_s = 60,
                                .chunk_bytes = (t + w) % 2 ? 20000 : 0,
                                .progress_thread = (t + w) % 3 == 0);
            world_run(worlds[w], &options, function, NULL);
        }
}

static void sums_have_the_bits_of_one_thread(void) {
    everywhere(reduce);
}

static void what_is_gathered_has_the_bits_of_one_thread(void) {
    everywhere(gather);
}

/* Memory that only the owner's side of a call may touch: an address of nothing elsewhere. */
static void gather_beside_nothing(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    float x[100] = {0}, own[100], residual[100] = {0};
    bool is_owner = rank == world - 1;
    void *nothing = (void *)(uintptr_t)64;
    for (int i = 0; i < 100; i++) own[i] = (float)i;
    for (int lossy = 0; lossy < 2; lossy++) {
        rp_owned_segment segment = {.segment = {.data = x, .count = 100, .dtype = RP_F32},
                                    .owner = world - 1};
        segment.own = is_owner ? own : nothing;
        segment.segment.residual = is_owner ? residual : nothing;
        CHECK_OK(rp_codec_parse(lossy ? "q8" : "fp32", &segment.segment.codec));
        CHECK_OK(rp_all_gather_segments(comm, &segment, 1, NULL));
        CHECK_NEAR(x[99], 99, 1e-4);
        segment.segment.residual = NULL;
        for (int i = 0; i < 100; i++) x[i] = 2;
        CHECK_OK(rp_reduce_scatter_segments(comm, &segment, 1, NULL));
        CHECK_NEAR(is_owner ? own[99] / (float)world : x[99], 2, 1e-4);
        for (int i = 0; i < 100; i++) own[i] = (float)i;
    }
}

static void memory_of_owners_is_theirs_alone(void) {
    for (int w = 0; w < WORLDS; w++) world_run(worlds[w], NULL, gather_beside_nothing, NULL);
}

/* ---- one operation in place of many ---- */

/* A unit of a model: many tensors, each cut unevenly among all ranks, as FSDP cuts them. */
enum { TENSORS = 60, MOST_WORLD = 3, LENGTH = 997 };

static float unit[MOST_WORLD][TENSORS][LENGTH], sums[MOST_WORLD][TENSORS][LENGTH];

static size_t begin_of(int rank, int world) {
    return (size_t)rank * LENGTH / (size_t)world;
}

static size_t list_unit(int rank, int world, rp_owned_segment *segments) {
    size_t count = 0;
    for (int t = 0; t < TENSORS; t++)
        for (int owner = 0; owner < world; owner++) {
            size_t begin = begin_of(owner, world), end = begin_of(owner + 1, world);
            segments[count++] = (rp_owned_segment){.segment = {.data = &unit[rank][t][begin],
                                                               .count = end - begin,
                                                               .dtype = RP_F32,
                                                               .tensor = (uint32_t)t,
                                                               .first = begin},
                                                   .owner = owner,
                                                   .own = &sums[rank][t][begin]};
        }
    return count;
}

static void reduce_and_gather_unit(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    rp_owned_segment segments[TENSORS * MOST_WORLD];
    size_t count = list_unit(rank, world, segments);
    for (int t = 0; t < TENSORS; t++)
        for (int i = 0; i < LENGTH; i++) unit[rank][t][i] = (float)((rank + 1) * (t + i));
    CHECK_OK(rp_reduce_scatter_segments(comm, segments, count, NULL));
    CHECK_OK(rp_all_gather_segments(comm, segments, count, NULL)); /* each from `own` */
    rp_comm_stats stats;
    rp_comm_get_stats(comm, &stats);
    CHECK_EQ(stats.operations, 2);
    int times = world * (world + 1) / 2;
    for (int t = 0; t < TENSORS; t++)
        for (int i = 0; i < LENGTH; i++)
            CHECK_MSG(unit[rank][t][i] == (float)(times * (t + i)), "tensor %d, element %d", t,
                      i);
}

static void a_unit_of_a_model_is_one_operation(void) {
    for (int world = 1; world <= MOST_WORLD; world++)
        world_run(world, NULL, reduce_and_gather_unit, NULL);
}

CASES({"sums have the bits of one thread", sums_have_the_bits_of_one_thread},
      {"what is gathered has the bits of one thread",
       what_is_gathered_has_the_bits_of_one_thread},
      {"memory of owners is theirs alone", memory_of_owners_is_theirs_alone},
      {"a unit of a model is one operation", a_unit_of_a_model_is_one_operation})
