/* Blocks to and from a root, and blocks to everybody: uneven, empty, long, in place. */
#include "comm/block_world.h"

#include "plan/plan.h"

#include <stdlib.h>

static const int worlds[] = {1, 2, 3, 5, 7};
static const rp_dtype dtypes[] = {RP_U8, RP_BF16, RP_F32, RP_C128};
static const block_count patterns[] = {blocks_uneven, blocks_empty, blocks_long};

typedef struct job {
    rp_comm *comm;
    const char *algorithm;
    int rank, world, root;
    rp_dtype dtype;
    block_count count;
    bool in_place;
} job;

static void make_blocks(rp_block *blocks, const job *j, bool room) {
    for (int r = 0; r < j->world; r++) {
        blocks[r].count = room ? j->count(r, j->root) : j->count(j->root, r);
        blocks[r].data = room ? block_room(blocks[r].count, j->dtype)
                              : block_make(j->root, r, blocks[r].count, j->dtype);
    }
}

static void free_blocks(rp_block *blocks, int world) {
    for (int r = 0; r < world; r++) free(blocks[r].data);
}

static void gather(const job *j) {
    bool is_root = j->rank == j->root;
    size_t count = j->count(j->rank, j->root);
    rp_block outputs[MOST_BLOCKS] = {{0}};
    if (is_root) make_blocks(outputs, j, true);
    void *input = block_make(j->rank, j->root, count, j->dtype), *from = input;
    if (is_root && j->in_place && count) {
        from = outputs[j->root].data;
        memcpy(from, input, count * rp_dtype_bytes(j->dtype));
    }
    rp_collective_options options =
        RP_COLLECTIVE_OPTIONS(.root = j->root, .algorithm = j->algorithm);
    CHECK_OK(rp_gather(j->comm, from, count, is_root ? outputs : NULL, j->dtype, &options));
    for (int r = 0; is_root && r < j->world; r++)
        CHECK_MSG(block_is(outputs[r].data, r, j->root, outputs[r].count, j->dtype),
                  "root %d of %d: block %d of %zu %s", j->root, j->world, r, outputs[r].count,
                  rp_dtype_name(j->dtype));
    CHECK(block_is(input, j->rank, j->root, count, j->dtype));
    free_blocks(outputs, j->world);
    free(input);
}

static void scatter(const job *j) {
    bool is_root = j->rank == j->root;
    size_t count = j->count(j->root, j->rank);
    rp_block inputs[MOST_BLOCKS] = {{0}};
    if (is_root) make_blocks(inputs, j, false);
    void *room = block_room(count, j->dtype);
    void *output = is_root && j->in_place ? inputs[j->root].data : room;
    rp_collective_options options =
        RP_COLLECTIVE_OPTIONS(.root = j->root, .algorithm = j->algorithm);
    CHECK_OK(rp_scatter(j->comm, is_root ? inputs : NULL, output, count, j->dtype, &options));
    CHECK_MSG(block_is(output, j->root, j->rank, count, j->dtype),
              "root %d of %d, rank %d: %zu %s", j->root, j->world, j->rank, count,
              rp_dtype_name(j->dtype));
    free_blocks(inputs, j->world);
    free(room);
}

/* The block of every rank is as long as that from it to rank 0. */
static void gather_everywhere(const job *j) {
    rp_block outputs[MOST_BLOCKS];
    for (int r = 0; r < j->world; r++) {
        outputs[r].count = j->count(r, 0);
        outputs[r].data = block_room(outputs[r].count, j->dtype);
    }
    size_t count = outputs[j->rank].count;
    void *own = block_make(j->rank, 0, count, j->dtype), *input = own;
    if (j->in_place && count) {
        input = outputs[j->rank].data;
        memcpy(input, own, count * rp_dtype_bytes(j->dtype));
    }
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.algorithm = j->algorithm);
    CHECK_OK(rp_all_gather_v(j->comm, input, outputs, j->dtype, NULL, &options));
    for (int r = 0; r < j->world; r++)
        CHECK_MSG(block_is(outputs[r].data, r, 0, outputs[r].count, j->dtype),
                  "%s: rank %d of %d: block %d of %zu %s", j->algorithm, j->rank, j->world, r,
                  outputs[r].count, rp_dtype_name(j->dtype));
    free_blocks(outputs, j->world);
    free(own);
}

static void walk(rp_comm *comm, int rank, int world, void *context) {
    const rpi_algorithm *algorithm = context;
    job j = {.comm = comm, .rank = rank, .world = world, .algorithm = algorithm->name};
    int roots = rpi_collective_has_root(algorithm->collective) ? world : 1;
    for (size_t p = 0; p < 3; p++)
        for (size_t d = 0; d < 4; d++)
            for (int variant = 0; variant < 2 * roots; variant++) {
                j.count = patterns[p];
                j.dtype = dtypes[d];
                j.in_place = variant % 2;
                j.root = variant / 2;
                if (p == 2 && (d != 2 || variant % 3)) continue; /* long ones take long */
                switch (algorithm->collective) {
                case RPI_GATHER: gather(&j); break;
                case RPI_SCATTER: scatter(&j); break;
                default: gather_everywhere(&j);
                }
            }
}

static void each_algorithm(rpi_collective collective) {
    static const rp_comm_options small =
        RP_COMM_OPTIONS(.transport = "inproc", .chunk_bytes = 8192, .chunks_in_flight = 3);
    for (int a = 0; rpi_algorithm_at(a); a++) {
        void *algorithm = (void *)(uintptr_t)rpi_algorithm_at(a);
        if (rpi_algorithm_at(a)->collective != collective) continue;
        for (int w = 0; w < 5; w++)
            if (rpi_algorithm_fits(rpi_algorithm_at(a), worlds[w]))
                world_run(worlds[w], NULL, walk, algorithm);
        world_run(3, &small, walk, algorithm);
    }
}

static void gathers_give_the_root_every_block(void) {
    each_algorithm(RPI_GATHER);
}

static void scatters_give_each_rank_its_block(void) {
    each_algorithm(RPI_SCATTER);
}

static void all_gathers_write_every_block(void) {
    each_algorithm(RPI_ALL_GATHER);
}

/* ---- misuse ---- */

static void misuse(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    float x[8] = {0};
    rp_block blocks[MOST_BLOCKS] = {{0}}, empty[MOST_BLOCKS] = {{0}};
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.root = rank),
                          nobody = RP_COLLECTIVE_OPTIONS(.root = world);
    for (int r = 0; r < world; r++) blocks[r] = (rp_block){.data = x, .count = 1};
    CHECK_FAILS(rp_gather(comm, x, 1, NULL, RP_F32, &options), INVALID, "outputs is NULL");
    CHECK_FAILS(rp_gather(comm, x, 2, blocks, RP_F32, &options), INVALID, "for itself");
    CHECK_FAILS(rp_gather(comm, NULL, 1, blocks, RP_F32, &options), INVALID, "no data");
    CHECK_FAILS(rp_scatter(comm, NULL, x, 1, RP_F32, &options), INVALID, "inputs is NULL");
    CHECK_FAILS(rp_scatter(comm, blocks, x, 2, RP_F32, &options), INVALID, "for itself");
    CHECK_FAILS(rp_gather(comm, x, 1, blocks, RP_F32, &nobody), INVALID, "root");
    CHECK_FAILS(rp_gather(comm, x, 1, blocks, (rp_dtype)99, &options), INVALID, "no dtype");
    CHECK_FAILS(rp_all_gather_v(comm, x, NULL, RP_F32, NULL, NULL), INVALID, "outputs is NULL");
    CHECK_FAILS(rp_reduce_scatter_v(comm, NULL, x, RP_F32, NULL, NULL), INVALID, "inputs");
    CHECK_FAILS(rp_reduce(comm, NULL, x, 1, RP_F32, NULL), INVALID, "input");
    CHECK_FAILS(rp_reduce(comm, x, NULL, 1, RP_F32, &options), INVALID, "output");
    blocks[world - 1].data = NULL;
    CHECK_FAILS(rp_scatter(comm, blocks, x, 1, RP_F32, &options), INVALID, "no data");
    options.algorithm = "rung";
    CHECK_FAILS(rp_gather(comm, x, 0, empty, RP_F32, &options), NOT_FOUND, "rung");
    CHECK_OK(rp_barrier(comm)); /* nothing of that did any harm */
}

static void misuse_is_refused_in_words(void) {
    for (int world = 1; world <= 3; world++) world_run(world, NULL, misuse, NULL);
}

CASES({"gathers give the root every block", gathers_give_the_root_every_block},
      {"scatters give each rank its block", scatters_give_each_rank_its_block},
      {"all-gathers write every block", all_gathers_write_every_block},
      {"misuse is refused in words", misuse_is_refused_in_words})
