/* What is urgent does not wait for what is not. Nothing here is timed: each case counts, or
 * shows an order in which things must come to pass. */
#include "comm/thread_world.h"

#include "base/clock.h"
#include "base/memory.h"
#include "comm/core/communicator.h"
#include "redpoll/redpoll.h"

enum { LIMIT_S = 60 };

static rp_comm *make_group(rp_comm *comm, const int *ranks, int count, const char *name) {
    rp_comm_options options = RP_COMM_OPTIONS(.name = name);
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
        rp_comm_options options =
            RP_COMM_OPTIONS(.transport = transports[i], .timeout_s = LIMIT_S);
        world_run(2, &options, busy_reader, NULL);
    }
}

/* ---- which operations go first ---- */

enum { LARGE = 1 << 20, SMALL = 1024, AHEAD = 6 };

typedef struct posted {
    float *values[AHEAD];
    rp_request *requests[AHEAD];
} posted;

static void post_large(rp_comm *comm, posted *p, int count) {
    for (int i = 0; i < count; i++) {
        CHECK_OK(rpi_alloc_array(LARGE, sizeof(float), "values", &p->values[i]));
        p->requests[i] = start_sum(comm, p->values[i], LARGE);
    }
}

static int count_done(const posted *p, int count) {
    int done = 0;
    for (int i = 0; i < count; i++) done += atomic_load(&p->requests[i]->done);
    return done;
}

static void finish_large(posted *p, int count) {
    for (int i = 0; i < count; i++) {
        CHECK_OK(rp_request_wait(&p->requests[i]));
        rpi_free(p->values[i]);
    }
}

/* What is posted last on both ranks before either of them waits is done first. */
static void pass_large_ones(rp_comm *large, rp_comm *last, size_t count) {
    posted p = {0};
    float *values = NULL;
    CHECK_OK(rpi_alloc_array(count, sizeof *values, "values", &values));
    post_large(large, &p, AHEAD);
    rp_request *request = start_sum(last, values, count);
    world_meet();
    CHECK_OK(rp_request_wait(&request));
    CHECK_EQ(count_done(&p, AHEAD), 0);
    finish_large(&p, AHEAD);
    rpi_free(values);
}

static void small_behind_large(rp_comm *comm, int rank, int world, void *context) {
    (void)rank, (void)world, (void)context;
    pass_large_ones(comm, comm, SMALL);
}

static void a_short_operation_does_not_wait_for_four_long_ones(void) {
    rp_comm_options options = RP_COMM_OPTIONS(.transport = "inproc", .timeout_s = LIMIT_S);
    world_run(2, &options, small_behind_large, NULL);
    options.transport = "shm";
    world_run(2, &options, small_behind_large, NULL);
}

static rp_comm *make_of_priority(rp_comm *comm, const char *name, rp_priority priority) {
    static const int both[] = {0, 1};
    rp_comm_options options = RP_COMM_OPTIONS(.name = name, .priority = priority);
    rp_comm *group = NULL;
    CHECK_OK(rp_comm_group(comm, both, 2, &options, &group));
    return group;
}

static void urgent_behind_bulk(rp_comm *comm, int rank, int world, void *context) {
    rp_comm *bulk = make_of_priority(comm, "bulk", RP_PRIORITY_BULK);
    rp_comm *urgent = make_of_priority(comm, "urgent", RP_PRIORITY_URGENT);
    (void)rank, (void)world, (void)context;
    pass_large_ones(bulk, urgent, SMALL);
    pass_large_ones(bulk, urgent, 16 * SMALL);
    pass_large_ones(bulk, comm, SMALL);
    rp_comm_destroy(urgent);
    rp_comm_destroy(bulk);
}

static void what_is_urgent_passes_bulk(void) {
    static const char *const transports[] = {"inproc", "shm", "tcp"};
    for (size_t i = 0; i < sizeof transports / sizeof *transports; i++) {
        rp_comm_options options =
            RP_COMM_OPTIONS(.transport = transports[i], .timeout_s = LIMIT_S);
        world_run(2, &options, urgent_behind_bulk, NULL);
    }
}

static void normal_beside_normal(rp_comm *comm, int rank, int world, void *context) {
    rp_comm *other = make_of_priority(comm, "other", RP_PRIORITY_NORMAL);
    (void)rank, (void)world, (void)context;
    pass_large_ones(other, comm, 32 * SMALL);
    pass_large_ones(comm, other, 32 * SMALL);
    rp_comm_destroy(other);
}

/* Neither fills the links so that the other has to wait until it is done. */
static void communicators_of_one_priority_take_turns(void) {
    static const char *const transports[] = {"inproc", "shm", "tcp"};
    for (size_t i = 0; i < sizeof transports / sizeof *transports; i++) {
        rp_comm_options options =
            RP_COMM_OPTIONS(.transport = transports[i], .timeout_s = LIMIT_S);
        world_run(2, &options, normal_beside_normal, NULL);
    }
}

/* On a link that takes a second for what is ahead. */
static void on_a_slow_link(rp_comm *comm, int rank, int world, void *context) {
    rp_comm *bulk = make_of_priority(comm, "bulk", RP_PRIORITY_BULK);
    (void)rank, (void)world, (void)context;
    pass_large_ones(bulk, comm, SMALL);
    rp_comm_destroy(bulk);
}

static void what_is_short_passes_bulk_on_a_slow_link(void) {
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = "inproc", .link = "50MB,50us", .timeout_s = LIMIT_S);
    world_run(2, &options, on_a_slow_link, NULL);
}

/* ---- whose priority it is ---- */

static void check_inheritance(rp_comm *comm, int rank, int world, void *context) {
    rp_comm *child = make_of_priority(comm, "as the parent", RP_PRIORITY_DEFAULT);
    rp_comm *grandchild = make_of_priority(child, "of its own", RP_PRIORITY_NORMAL);
    rp_comm *split = NULL;
    (void)world, (void)context;
    CHECK_OK(rp_comm_split(grandchild, 0, rank, NULL, &split));
    CHECK_EQ(comm->priority, RP_PRIORITY_BULK);
    CHECK_EQ(child->priority, RP_PRIORITY_BULK);
    CHECK_EQ(grandchild->priority, RP_PRIORITY_NORMAL);
    CHECK_EQ(split->priority, RP_PRIORITY_NORMAL);
    rp_comm_destroy(split);
    rp_comm_destroy(grandchild);
    rp_comm_destroy(child);
}

static void groups_inherit_the_priority(void) {
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = "inproc", .priority = RP_PRIORITY_BULK);
    world_run(2, &options, check_inheritance, NULL);
}

typedef struct kind_row {
    rp_priority priority;
    size_t count;
    rp_dtype dtype;
    rpi_urgency urgency;
} kind_row;

/* A row for each kind of operation: what it is, and how urgent. */
static const kind_row kinds[] = {
    {RP_PRIORITY_NORMAL, 0, RP_F32, RPI_URGENT},
    {RP_PRIORITY_NORMAL, 4096, RP_F32, RPI_URGENT},
    {RP_PRIORITY_NORMAL, 4097, RP_F32, RPI_NORMAL},
    {RP_PRIORITY_NORMAL, 16384, RP_U8, RPI_URGENT},
    {RP_PRIORITY_NORMAL, 2049, RP_F64, RPI_NORMAL},
    {RP_PRIORITY_BULK, 1, RP_F32, RPI_BULK},
    {RP_PRIORITY_URGENT, 1 << 20, RP_F32, RPI_URGENT},
};

static void check_kinds(rp_comm *comm, int rank, int world, void *context) {
    void *values = NULL;
    (void)rank, (void)world, (void)context;
    CHECK_OK(rpi_alloc((size_t)8 << 20, "values", &values));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        rp_comm *group = make_of_priority(comm, "row", kinds[i].priority);
        rp_request *request = NULL;
        rp_segment segment = {.data = values, .count = kinds[i].count, .dtype = kinds[i].dtype};
        CHECK_OK(rp_all_reduce_start(group, &segment, 1, NULL, &request));
        CHECK_MSG(request->urgency == kinds[i].urgency, "row %zu", i);
        CHECK_OK(rp_request_wait(&request));
        rp_comm_destroy(group);
    }
    rpi_free(values);
}

static void operations_are_as_urgent_as_the_table_says(void) {
    rp_comm_options options = RP_COMM_OPTIONS(.transport = "inproc", .timeout_s = LIMIT_S);
    world_run(2, &options, check_kinds, NULL);
}

CASES({"a busy rank reads past what it cannot take",
       a_busy_rank_reads_past_what_it_cannot_take},
      {"a short operation does not wait for four long ones",
       a_short_operation_does_not_wait_for_four_long_ones},
      {"what is urgent passes bulk", what_is_urgent_passes_bulk},
      {"communicators of one priority take turns", communicators_of_one_priority_take_turns},
      {"what is short passes bulk on a slow link", what_is_short_passes_bulk_on_a_slow_link},
      {"groups inherit the priority", groups_inherit_the_priority},
      {"operations are as urgent as the table says",
       operations_are_as_urgent_as_the_table_says})
