/* What is urgent does not wait for what is not. Nothing here is timed: each case counts, or
 * shows an order in which things must come to pass. */
#include "comm/thread_world.h"

#include "base/clock.h"
#include "redpoll/redpoll.h"

enum { LIMIT_S = 60 };

static rp_comm *make_group(rp_comm *comm, const int *ranks, int count, const char *name) {
    rp_comm_options options = {.name = name};
    rp_comm *group = NULL;
    CHECK_OK(rp_comm_group(comm, ranks, count, &options, &group));
    return group;
}

static rp_request *start_sum(rp_comm *comm, float *data, size_t count) {
    rp_request *request = NULL;
    rp_segment segment = {.data = data, .count = count, .dtype = RP_F32};
    CHECK_OK(rp_all_reduce_start(comm, &segment, 1, NULL, &request));
    return request;
}

/* Something has moved in each of the iterations: nobody comes to sleep. */
static void keep_busy_until(rp_comm *solo, const volatile double *value) {
    int64_t deadline_ns = rpi_deadline_ns(LIMIT_S);
    float one[4] = {1, 1, 1, 1};
    rp_segment segment = {.data = one, .count = 4, .dtype = RP_F32};
    while (*value == 0 && rpi_now_ns() < deadline_ns)
        CHECK_OK(rp_all_reduce(solo, &segment, 1, NULL));
}

/* Rank 0 is ahead in `first`, so that its frame stands before the message that rank 1 waits
 * for; rank 1 has no idle moment. */
static void busy_reader(rp_comm *comm, int rank, int world, void *context) {
    static const int both[] = {0, 1};
    float sums[64] = {1};
    volatile double message = 0;
    double sent = 3;
    rp_request *receive = NULL, *sum = NULL;
    (void)world, (void)context;
    rp_comm *first = make_group(comm, both, 2, "first"),
            *then = make_group(comm, both, 2, "then");
    rp_comm *solo = make_group(comm, &rank, 1, rank ? "solo of 1" : "solo of 0");
    if (rank == 0) {
        sum = start_sum(first, sums, 64);
        world_meet();
        CHECK_OK(rp_send(then, &sent, 1, RP_F64, 1, 7));
    } else {
        world_meet();
        CHECK_OK(rp_recv_start(then, (double *)&message, 1, RP_F64, 0, 7, &receive));
        keep_busy_until(solo, &message);
        CHECK_MSG(message == 3, "the message stood behind a frame that nobody has asked for");
        sum = start_sum(first, sums, 64);
        CHECK_OK(rp_request_wait(&receive));
    }
    CHECK_OK(rp_request_wait(&sum));
    rp_comm_destroy(solo);
    rp_comm_destroy(then);
    rp_comm_destroy(first);
}

static void a_busy_rank_reads_past_what_it_cannot_take(void) {
    static const char *const transports[] = {"inproc", "shm", "tcp"};
    for (size_t i = 0; i < sizeof transports / sizeof *transports; i++) {
        rp_comm_options options = {.transport = transports[i], .timeout_s = LIMIT_S};
        world_run(2, &options, busy_reader, NULL);
    }
}

CASES({"a busy rank reads past what it cannot take",
       a_busy_rank_reads_past_what_it_cannot_take})
