/* The root deals out rows of different lengths, every rank sums what it got, and the root
 * gathers the sums.
 *
 *     cc gather_and_scatter.c $(pkg-config --cflags --libs redpoll) -o gather_and_scatter
 *     redpoll run -n 3 ./gather_and_scatter    also under torchrun --no-python, mpirun, srun
 */
#include <redpoll/redpoll.h>

#include <stdio.h>
#include <stdlib.h>

enum { ROOT = 0, SHORTEST = 1000 };

/* Say what went wrong and end: all other ranks then end too, with this rank's name. */
static void must(rp_status status) {
    if (status == RP_OK) return;
    fprintf(stderr, "%s\n", rp_last_error()->message);
    exit(1);
}

/* Memory, or the end. */
static void *room(size_t count, size_t bytes) {
    void *memory = calloc(count ? count : 1, bytes);
    if (memory) return memory;
    fprintf(stderr, "out of memory\n");
    exit(1);
}

/* Rank r gets r * SHORTEST elements: blocks may differ, and may be empty. */
static size_t length_of(int rank) {
    return (size_t)rank * SHORTEST;
}

/* All blocks one behind the other in one array, which the caller frees. */
static int64_t *number_all(rp_block *blocks, int world) {
    size_t total = 0;
    for (int r = 0; r < world; r++) total += length_of(r);
    int64_t *numbers = room(total, sizeof *numbers), *next = numbers;
    for (size_t i = 0; i < total; i++) numbers[i] = (int64_t)i;
    for (int r = 0; r < world; r++) {
        blocks[r] = (rp_block){next, length_of(r)};
        next += length_of(r);
    }
    return numbers;
}

int main(void) {
    rp_comm *comm;
    must(rp_comm_join(NULL, &comm));
    int rank = rp_comm_rank(comm), world = rp_comm_world(comm);
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.root = ROOT);

    /* Only the root has blocks; each rank knows how long its own is. */
    rp_block *blocks = room((size_t)world, sizeof *blocks);
    int64_t *all = rank == ROOT ? number_all(blocks, world) : NULL;
    int64_t *mine = room(length_of(rank), sizeof *mine), sum = 0;
    must(rp_scatter(comm, rank == ROOT ? blocks : NULL, mine, length_of(rank), RP_I64,
                    &options));
    for (size_t i = 0; i < length_of(rank); i++) sum += mine[i];

    int64_t *sums = room((size_t)world, sizeof *sums), total = 0;
    for (int r = 0; r < world; r++) blocks[r] = (rp_block){&sums[r], 1};
    must(rp_gather(comm, &sum, 1, rank == ROOT ? blocks : NULL, RP_I64, &options));

    for (int r = 0; rank == ROOT && r < world; r++) {
        printf("rank %d summed %zu numbers to %lld\n", r, length_of(r), (long long)sums[r]);
        total += sums[r];
    }
    int64_t count = (int64_t)SHORTEST * world * (world - 1) / 2;
    int right = rank != ROOT || total == count * (count - 1) / 2;
    if (!right) fprintf(stderr, "the sums do not add up\n");
    rp_comm_destroy(comm);
    free(all);
    free(mine);
    free(sums);
    free(blocks);
    return right ? 0 : 1;
}
