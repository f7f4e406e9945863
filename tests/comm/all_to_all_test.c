/* A block from every rank for every rank, of any length. */
#include "comm/block_world.h"

#include "plan/plan.h"

#include <stdlib.h>

static const int worlds[] = {1, 2, 3, 5, 7};
static const rp_dtype dtypes[] = {RP_I8, RP_F16, RP_I32, RP_C128};

static void make_blocks(int rank, int world, block_count count, rp_dtype dtype,
                        rp_block *inputs, rp_block *outputs) {
    for (int r = 0; r < world; r++) {
        inputs[r].count = count(rank, r);
        inputs[r].data = block_make(rank, r, inputs[r].count, dtype);
        outputs[r].count = count(r, rank);
        outputs[r].data = block_room(outputs[r].count, dtype);
    }
}

static void free_blocks(int world, rp_block *inputs, rp_block *outputs) {
    for (int r = 0; r < world; r++) {
        free(inputs[r].data);
        free(outputs[r].data);
    }
}

static void check_outputs(int rank, int world, rp_dtype dtype, const rp_block *outputs) {
    for (int r = 0; r < world; r++)
        CHECK_MSG(block_is(outputs[r].data, r, rank, outputs[r].count, dtype),
                  "rank %d of %d: %zu %s from rank %d", rank, world, outputs[r].count,
                  rp_dtype_name(dtype), r);
}

static void exchange(rp_comm *comm, block_count count, rp_dtype dtype, const char *algorithm) {
    int rank = rp_comm_rank(comm), world = rp_comm_world(comm);
    rp_block inputs[MOST_BLOCKS], outputs[MOST_BLOCKS];
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.algorithm = algorithm);
    make_blocks(rank, world, count, dtype, inputs, outputs);
    CHECK_OK(rp_all_to_all(comm, inputs, outputs, dtype, &options));
    check_outputs(rank, world, dtype, outputs);
    for (int r = 0; r < world; r++)
        CHECK(block_is(inputs[r].data, rank, r, inputs[r].count, dtype));
    free_blocks(world, inputs, outputs);
}

static void walk(rp_comm *comm, int rank, int world, void *context) {
    const char *algorithm = context;
    (void)rank, (void)world;
    for (int d = 0; d < 4; d++) {
        exchange(comm, blocks_uneven, dtypes[d], algorithm);
        exchange(comm, blocks_empty, dtypes[d], algorithm);
    }
    exchange(comm, blocks_long, RP_F32, algorithm);
}

static void every_rank_gets_its_block_of_every_other(void) {
    static const rp_comm_options small =
        RP_COMM_OPTIONS(.transport = "inproc", .chunk_bytes = 8192, .chunks_in_flight = 3);
    static const rp_comm_options threaded =
        RP_COMM_OPTIONS(.transport = "inproc", .progress_thread = 1);
    for (int a = 0; rpi_algorithm_at(a); a++) {
        void *name = (void *)(uintptr_t)rpi_algorithm_at(a)->name;
        if (rpi_algorithm_at(a)->collective != RPI_ALL_TO_ALL) continue;
        for (int w = 0; w < 5; w++) world_run(worlds[w], NULL, walk, name);
        world_run(4, &small, walk, name);
        world_run(3, &threaded, walk, name);
    }
}

/* A rank's own two blocks may be one. */
static void share_own_block(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    rp_block inputs[MOST_BLOCKS] = {{0}}, outputs[MOST_BLOCKS] = {{0}};
    make_blocks(rank, world, blocks_uneven, RP_I32, inputs, outputs);
    free(outputs[rank].data);
    outputs[rank] = inputs[rank];
    CHECK_OK(rp_all_to_all(comm, inputs, outputs, RP_I32, NULL));
    check_outputs(rank, world, RP_I32, outputs);
    outputs[rank].data = NULL;
    free_blocks(world, inputs, outputs);
}

static void own_blocks_may_be_one(void) {
    for (int w = 0; w < 5; w++) world_run(worlds[w], NULL, share_own_block, NULL);
}

/* ---- several at once ---- */

enum { IN_FLIGHT = 12, COUNT = 3000 };

typedef struct flight {
    rp_request *requests[IN_FLIGHT];
    rp_block inputs[IN_FLIGHT][MOST_BLOCKS], outputs[IN_FLIGHT][MOST_BLOCKS];
    int32_t sums[IN_FLIGHT][COUNT], reduced[IN_FLIGHT][COUNT];
} flight;

static void post(rp_comm *comm, flight *f, int k) {
    int rank = rp_comm_rank(comm), world = rp_comm_world(comm);
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.root = k % world, .reduce = RP_MAX);
    rp_segment segment = {.data = f->sums[k], .count = COUNT, .dtype = RP_I32};
    for (int i = 0; i < COUNT; i++) f->sums[k][i] = (rank + k) % world * 10 + i;
    switch (k % 3) {
    case 0:
        make_blocks(rank, world, k % 2 ? blocks_uneven : blocks_long, RP_I32, f->inputs[k],
                    f->outputs[k]);
        CHECK_OK(rp_all_to_all_start(comm, f->inputs[k], f->outputs[k], RP_I32, NULL,
                                     &f->requests[k]));
        break;
    case 1: CHECK_OK(rp_all_reduce_start(comm, &segment, 1, &options, &f->requests[k])); break;
    default:
        CHECK_OK(rp_reduce_start(comm, f->sums[k], f->reduced[k], COUNT, RP_I32, &options,
                                 &f->requests[k]));
    }
}

static void check_flight(rp_comm *comm, flight *f, int k) {
    int rank = rp_comm_rank(comm), world = rp_comm_world(comm);
    const int32_t *got = k % 3 == 1 ? f->sums[k] : f->reduced[k];
    if (k % 3 == 0) {
        check_outputs(rank, world, RP_I32, f->outputs[k]);
        free_blocks(world, f->inputs[k], f->outputs[k]);
    } else if (k % 3 == 1 || rank == k % world) {
        for (int i = 0; i < COUNT; i++) CHECK_EQ(got[i], (world - 1) * 10 + i);
    }
}

/* Ranks wait in different orders. */
static void overlap(rp_comm *comm, int rank, int world, void *context) {
    (void)world, (void)context;
    flight *f = calloc(1, sizeof *f);
    for (int k = 0; k < IN_FLIGHT; k++) post(comm, f, k);
    for (int k = 0; k < IN_FLIGHT; k++) {
        int which = (rank % 2 ? IN_FLIGHT - 1 - k : 5 * k) % IN_FLIGHT;
        CHECK_OK(rp_request_wait(&f->requests[which]));
        check_flight(comm, f, which);
    }
    free(f);
}

static void different_collectives_move_at_once(void) {
    static const rp_comm_options threaded =
        RP_COMM_OPTIONS(.transport = "inproc", .progress_thread = 1);
    for (int w = 0; w < 5; w++) world_run(worlds[w], NULL, overlap, NULL);
    world_run(3, &threaded, overlap, NULL);
}

/* A rank with little to do is done, and gone, while others still exchange. */
static void leave_before_the_end(rp_comm *comm, int rank, int world, void *context) {
    (void)rank, (void)world, (void)context;
    exchange(comm, blocks_long, RP_C128, NULL);
}

static void ranks_that_are_done_may_leave(void) {
    static const rp_comm_options small =
        RP_COMM_OPTIONS(.transport = "inproc", .chunk_bytes = 65536);
    for (int round = 0; round < 5; round++) world_run(5, &small, leave_before_the_end, NULL);
}

CASES({"every rank gets its block of every other", every_rank_gets_its_block_of_every_other},
      {"own blocks may be one", own_blocks_may_be_one},
      {"different collectives move at once", different_collectives_move_at_once},
      {"ranks that are done may leave", ranks_that_are_done_may_leave})
