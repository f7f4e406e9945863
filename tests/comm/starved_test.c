/* Memory that runs out at any allocation of any collective: the rank says so, the others hear
 * of it, nothing hangs and nothing leaks. */
#include "comm/thread_world.h"

#include "base/memory.h"

#include <stdbool.h>
#include <stdlib.h>

enum { WORLD = 3, COUNT = 20000 };

/* Algorithms are named: to choose one takes hundreds of allocations more. */
typedef rp_status (*operation)(rp_comm *comm, int32_t *in, int32_t *out);

static void blocks_of(int32_t *data, rp_block *blocks) {
    for (int r = 0; r < WORLD; r++)
        blocks[r] = (rp_block){.data = data + r * COUNT, .count = COUNT};
}

static rp_status scaled_all_reduce(rp_comm *comm, int32_t *in, int32_t *out) {
    (void)out;
    rp_collective_options options =
        RP_COLLECTIVE_OPTIONS(.algorithm = "sra", .reduce = RP_PREMUL_SUM, .factor = 2);
    rp_segment segment = {.data = in, .count = COUNT, .dtype = RP_BF16};
    return rp_all_reduce(comm, &segment, 1, &options);
}

static rp_status scaled_reduce(rp_comm *comm, int32_t *in, int32_t *out) {
    rp_collective_options options =
        RP_COLLECTIVE_OPTIONS(.algorithm = "scatter", .reduce = RP_PREMUL_SUM, .factor = 2,
                              .root = 1);
    return rp_reduce(comm, in, out, COUNT, RP_F32, &options);
}

static rp_status reduce_scatter(rp_comm *comm, int32_t *in, int32_t *out) {
    rp_block blocks[WORLD];
    blocks_of(in, blocks);
    rp_collective_options options =
        RP_COLLECTIVE_OPTIONS(.algorithm = "direct", .reduce = RP_MAX);
    return rp_reduce_scatter_v(comm, blocks, out, RP_I32, NULL, &options);
}

static rp_status all_gather(rp_comm *comm, int32_t *in, int32_t *out) {
    rp_block blocks[WORLD];
    blocks_of(out, blocks);
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.algorithm = "ring");
    return rp_all_gather_v(comm, in, blocks, RP_I32, NULL, &options);
}

static rp_status gather(rp_comm *comm, int32_t *in, int32_t *out) {
    rp_block blocks[WORLD];
    blocks_of(out, blocks);
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.root = 1);
    return rp_gather(comm, in, COUNT, blocks, RP_I32, &options);
}

static rp_status scatter(rp_comm *comm, int32_t *in, int32_t *out) {
    rp_block blocks[WORLD];
    blocks_of(in, blocks);
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.root = 1);
    return rp_scatter(comm, blocks, out, COUNT, RP_I32, &options);
}

static rp_status all_to_all(rp_comm *comm, int32_t *in, int32_t *out) {
    rp_block inputs[WORLD], outputs[WORLD];
    blocks_of(in, inputs);
    blocks_of(out, outputs);
    return rp_all_to_all(comm, inputs, outputs, RP_I32, NULL);
}

static const struct {
    const char *name;
    operation run;
} operations[] = {{"scaled all-reduce", scaled_all_reduce},
                  {"scaled reduce", scaled_reduce},
                  {"reduce-scatter", reduce_scatter},
                  {"all-gather", all_gather},
                  {"gather", gather},
                  {"scatter", scatter},
                  {"all-to-all", all_to_all}};

typedef struct job {
    const char *name;
    operation run;
    long n;      /* which allocation of rank 1 fails */
    bool failed; /* one did */
} job;

/* A rank whose call is refused before anything was posted tells the others itself. */
static void starve(rp_comm *comm, int rank, int world, void *context) {
    (void)world;
    job *j = context;
    int32_t *in = calloc(WORLD * COUNT, sizeof *in), *out = calloc(WORLD * COUNT, sizeof *out);
    CHECK_OK(rp_barrier(comm));
    world_meet();
    if (rank == 1) rpi_memory_fail_after(j->n);
    rp_status status = j->run(comm, in, out);
    if (rank == 1) rpi_memory_fail_after(0);
    CHECK_MSG(status == RP_OK || status == RP_NOMEM, "%s, allocation %ld, rank %d: %s", j->name,
              j->n, rank, rp_last_error()->message);
    if (rank == 1) j->failed = status != RP_OK;
    if (rank == 1 && status != RP_OK) rp_comm_abort(comm, status, rp_last_error()->message);
    world_meet();
    CHECK_EQ(rp_barrier(comm), j->failed ? RP_NOMEM : RP_OK);
    free(in);
    free(out);
}

static void running_out_of_memory_is_heard_by_all(void) {
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++) {
        job j = {.name = operations[i].name, .run = operations[i].run, .failed = true};
        for (j.n = 1; j.failed && j.n < 100; j.n++) world_run(WORLD, NULL, starve, &j);
        CHECK_MSG(j.n > 5 && !j.failed, "%s: %ld allocations", j.name, j.n);
    }
}

CASES({"running out of memory is heard by all", running_out_of_memory_is_heard_by_all})
