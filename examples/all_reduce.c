/* All-reduce with four bits an element, and how far the result is from the exact one.
 *
 *     cc all_reduce.c $(pkg-config --cflags --libs redpoll) -o all_reduce
 *     redpoll run -n 3 ./all_reduce            also under torchrun --no-python, mpirun, srun
 */
#include <redpoll/redpoll.h>

#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 1 << 20 };

/* Say what went wrong and end: all other ranks then end too, with this rank's name. */
static void must(rp_status status) {
    if (status == RP_OK) return;
    fprintf(stderr, "%s\n", rp_last_error()->message);
    exit(1);
}

/* Any numbers that differ from rank to rank. */
static void fill(float *values, int rank) {
    unsigned state = 12345u + (unsigned)rank;
    for (int i = 0; i < COUNT; i++) {
        state = state * 1664525u + 1013904223u;
        values[i] = (float)(state >> 8) / (1 << 23) - 1;
    }
}

int main(void) {
    static float exact[COUNT], lossy[COUNT];
    rp_comm *comm;
    rp_codec q4;
    must(rp_comm_join(NULL, &comm));
    must(rp_codec_parse("q4", &q4));

    fill(exact, rp_comm_rank(comm));
    fill(lossy, rp_comm_rank(comm));
    rp_segment whole = {.data = exact, .count = COUNT, .dtype = RP_F32};
    rp_segment packed = {.data = lossy, .count = COUNT, .dtype = RP_F32, .codec = q4};
    must(rp_all_reduce(comm, &whole, 1, NULL));
    must(rp_all_reduce(comm, &packed, 1, NULL));

    double wrong = 0, right = 0;
    for (int i = 0; i < COUNT; i++) {
        wrong += ((double)lossy[i] - exact[i]) * ((double)lossy[i] - exact[i]);
        right += (double)exact[i] * exact[i];
    }
    rp_comm_stats stats;
    rp_comm_get_stats(comm, &stats);
    printf("rank %d of %d by %s: squared error of the 4-bit sum %.4f of its square, %.1f MB "
           "sent\n",
           rp_comm_rank(comm), rp_comm_world(comm), rp_comm_transport(comm),
           right > 0 ? wrong / right : 0, (double)stats.wire_bytes_sent / 1e6);
    rp_comm_destroy(comm);
    return 0;
}
