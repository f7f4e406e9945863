/* Sorting numbers that are spread over the ranks: each number goes to the rank that holds its
 * range, by one all-to-all for how many and one for the numbers themselves.
 *
 *     cc all_to_all.c $(pkg-config --cflags --libs redpoll) -o all_to_all
 *     redpoll run -n 3 ./all_to_all            also under torchrun --no-python, mpirun, srun
 */
#include <redpoll/redpoll.h>

#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 100000 }; /* numbers of each rank at the start */

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

/* Any numbers that differ from rank to rank. */
static void fill(uint32_t *numbers, int rank) {
    uint32_t state = 12345u + (uint32_t)rank;
    for (int i = 0; i < COUNT; i++) numbers[i] = state = state * 1664525u + 1013904223u;
}

static int by_value(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The rank whose range holds the number. */
static int owner(uint32_t number, int world) {
    return (int)((uint64_t)number * (uint64_t)world >> 32);
}

/* One block a rank, cut from `base` one behind the other. */
static void cut(uint32_t *base, const int64_t *counts, int world, rp_block *out_blocks) {
    for (int r = 0; r < world; r++) {
        out_blocks[r] = (rp_block){base, (size_t)counts[r]};
        base += counts[r];
    }
}

/* counts[r] goes to rank r; out_counts[r] comes from it. */
static void exchange_counts(rp_comm *comm, int64_t *counts, int64_t *out_counts) {
    int world = rp_comm_world(comm);
    rp_block *out = room((size_t)world, sizeof *out), *in = room((size_t)world, sizeof *in);
    for (int r = 0; r < world; r++) {
        out[r] = (rp_block){&counts[r], 1};
        in[r] = (rp_block){&out_counts[r], 1};
    }
    must(rp_all_to_all(comm, out, in, RP_I64, NULL));
    free(out);
    free(in);
}

int main(void) {
    static uint32_t numbers[COUNT];
    rp_comm *comm;
    must(rp_comm_join(NULL, &comm));
    int rank = rp_comm_rank(comm), world = rp_comm_world(comm);
    int64_t *leaving = room((size_t)world, sizeof *leaving),
            *coming = room((size_t)world, sizeof *coming), total = 0;

    /* Sorted numbers are in the order of their owners. */
    fill(numbers, rank);
    qsort(numbers, COUNT, sizeof *numbers, by_value);
    for (int i = 0; i < COUNT; i++) leaving[owner(numbers[i], world)]++;
    exchange_counts(comm, leaving, coming);

    for (int r = 0; r < world; r++) total += coming[r];
    uint32_t *mine = room((size_t)total, sizeof *mine);
    rp_block *out = room((size_t)world, sizeof *out), *in = room((size_t)world, sizeof *in);
    cut(numbers, leaving, world, out);
    cut(mine, coming, world, in);
    must(rp_all_to_all(comm, out, in, RP_U32, NULL));
    qsort(mine, (size_t)total, sizeof *mine, by_value);

    int right =
        total == 0 || (owner(mine[0], world) == rank && owner(mine[total - 1], world) == rank);
    printf("rank %d of %d holds %lld numbers, from %u to %u\n", rank, world, (long long)total,
           total ? mine[0] : 0, total ? mine[total - 1] : 0);
    if (!right) fprintf(stderr, "rank %d holds numbers of others\n", rank);
    rp_comm_destroy(comm);
    free(leaving);
    free(coming);
    free(mine);
    free(out);
    free(in);
    return right ? 0 : 1;
}
