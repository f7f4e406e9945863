/* Many communicators on one store: one after the other, and alive at once. */
#include "redpoll/comm.h"

#include "harness/ranks.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

enum { IN_A_ROW = 200, AT_ONCE = 20, COUNT = 3000 };

static rp_comm *open_comm(const rp_store *store, int number, uint32_t epoch) {
    char name[32];
    snprintf(name, sizeof name, "group %d", number);
    rp_comm_options options =
        RP_COMM_OPTIONS(.name = name, .transport = ranks_argument(),
                        .progress_thread = number % 2, .connect_timeout_s = 30, .epoch = epoch);
    rp_comm *comm = NULL;
    if (rp_comm_create(store, ranks_rank(), ranks_world(), &options, &comm) != RP_OK)
        ranks_die();
    return comm;
}

static rp_request *start(rp_comm *comm, float *data, float value) {
    rp_request *request = NULL;
    for (int i = 0; i < COUNT; i++) data[i] = value;
    rp_segment segment = {.data = data, .count = COUNT, .dtype = RP_F32};
    CHECK_OK(rp_all_reduce_start(comm, &segment, 1, NULL, &request));
    return request;
}

static void finish(rp_request *request, const float *data, float value) {
    int wrong = 0;
    CHECK_OK(rp_request_wait(&request));
    for (int i = 0; i < COUNT; i++) wrong += data[i] != value * (float)ranks_world();
    CHECK_EQ(wrong, 0);
}

/* Memory shared with other ranks that is still mapped. */
static int shared_mappings(void) {
    FILE *file = fopen("/proc/self/maps", "r");
    char line[512];
    int count = 0;
    while (file && fgets(line, sizeof line, file)) count += strstr(line, "memfd:") != NULL;
    if (file) fclose(file);
    return count;
}

static void one_after_the_other(const rp_store *store, int first, int count) {
    static float data[COUNT];
    for (int i = first; i < first + count; i++) {
        /* Names and epochs come back. */
        rp_comm *comm = open_comm(store, i % 7, (uint32_t)i % 3);
        finish(start(comm, data, (float)i), data, (float)i);
        rp_comm_destroy(comm);
    }
}

static void in_a_row(void) {
    rp_store store = {0};
    REQUIRE_OK(ranks_store(&store));
    one_after_the_other(&store, 0, 20);
    int threads = check_threads(), descriptors = check_descriptors();
    size_t memory = mallinfo2().uordblks;
    one_after_the_other(&store, 20, IN_A_ROW);
    CHECK_EQ(check_settled_threads(threads), threads);
    CHECK_EQ(check_descriptors(), descriptors);
    CHECK_EQ(shared_mappings(), 0);
    size_t now = mallinfo2().uordblks;
    /* Less than the smallest allocation for each communicator: the allocator's own. */
    CHECK_MSG(now < memory + 16 * IN_A_ROW, "%zu bytes more than before", now - memory);
    rp_store_close(&store);
}

static void at_once(void) {
    static float data[AT_ONCE][COUNT];
    rp_comm *comms[AT_ONCE];
    rp_request *requests[AT_ONCE];
    rp_store store = {0};
    REQUIRE_OK(ranks_store(&store));
    int threads = check_threads(), descriptors = check_descriptors();
    for (int i = 0; i < AT_ONCE; i++) comms[i] = open_comm(&store, i, 0);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < AT_ONCE; i++)
            requests[i] = start(comms[i], data[i], (float)(i + round));
        /* Each rank waits in an order of its own: who waits in one drives that one only. */
        for (int k = 0; k < AT_ONCE; k++) {
            int i = (k + 7 * round) % AT_ONCE;
            finish(requests[i], data[i], (float)(i + round));
        }
    }
    for (int i = 0; i < AT_ONCE; i++) rp_comm_destroy(comms[(i + 5) % AT_ONCE]);
    CHECK_EQ(check_settled_threads(threads), threads);
    CHECK_EQ(check_descriptors(), descriptors);
    CHECK_EQ(shared_mappings(), 0);
    rp_store_close(&store);
}

static void run(const char *function, const char *transport, int count) {
    ranks *world = ranks_start(function, count, &(ranks_options){.argument = transport});
    CHECK(ranks_finish(world, 120));
    ranks_check_passed(world);
    ranks_free(world);
}

static void nothing_stays_behind(void) {
    run("in_a_row", "shm", 2);
    run("in_a_row", "tcp", 3);
}

static void many_work_at_once(void) {
    run("at_once", "shm", 3);
    run("at_once", "tcp", 2);
}

static const ranks_function functions[] = {{"in_a_row", in_a_row}, {"at_once", at_once}};
static const check_case cases[] = {{"nothing stays behind", nothing_stays_behind},
                                   {"many work at once", many_work_at_once}};
RANKS_MAIN(functions, cases)
