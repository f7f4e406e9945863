/* What a world of 64 ranks costs each of them, by counts. */
#include "base/clock.h"
#include "harness/check.h"
#include "redpoll/comm.h"

#include <pthread.h>
#include <stdbool.h>

enum { WORLD = 64 };

/* A store that counts what one rank asks of it. */
typedef struct member {
    rp_store store;
    rp_store_ops ops;
    int rank, requests;
    long resident; /* MiB of the process, when all have worked */
} member;

static long resident_mib(void) {
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%ld %ld", &pages, &resident) != 2) resident = 0;
    if (file) fclose(file);
    return resident * 4096 / (1 << 20);
}

static rp_status counted_set(void *context, const char *key, const void *value, size_t bytes) {
    member *self = context;
    self->requests++;
    return self->store.ops->set(self->store.context, key, value, bytes);
}

static rp_status counted_get(void *context, const char *key, double timeout_s, void *value,
                             size_t capacity, size_t *bytes) {
    member *self = context;
    self->requests++;
    return self->store.ops->get(self->store.context, key, timeout_s, value, capacity, bytes);
}

static rp_status counted_add(void *context, const char *key, int64_t amount, int64_t *result) {
    member *self = context;
    self->requests++;
    return self->store.ops->add(self->store.context, key, amount, result);
}

static rp_status counted_remove(void *context, const char *key) {
    member *self = context;
    self->requests++;
    return self->store.ops->remove(self->store.context, key);
}

static rp_status counted_get_page(void *context, const char *prefix, int first, int count,
                                  double timeout_s, void *values, size_t capacity,
                                  size_t *sizes, int *got) {
    member *self = context;
    self->requests++;
    return self->store.ops->get_page(self->store.context, prefix, first, count, timeout_s,
                                     values, capacity, sizes, got);
}

static void *live(void *context) {
    member *self = context;
    rp_store counted = {.ops = &self->ops, .context = self};
    rp_comm *comm = NULL;
    float value = (float)(self->rank + 1);
    rp_segment segment = {.data = &value, .count = 1, .dtype = RP_F32};
    CHECK_OK(rp_comm_create(&counted, self->rank, WORLD, NULL, &comm));
    if (!comm) return NULL;
    CHECK_OK(rp_barrier(comm));
    CHECK_OK(rp_all_reduce(comm, &segment, 1, NULL));
    CHECK_EQ(value, WORLD * (WORLD + 1) / 2);
    CHECK_OK(rp_barrier(comm));
    self->resident = resident_mib();
    CHECK_OK(rp_barrier(comm));
    rp_comm_destroy(comm);
    return NULL;
}

static member members[WORLD];

/* Most requests of a rank to join, work and leave. */
static int most_requests(bool pages) {
    pthread_t threads[WORLD];
    rp_store store = {0};
    int most = 0;
    CHECK_OK(rp_store_open_local(&store));
    for (int rank = 0; rank < WORLD; rank++) {
        members[rank] = (member){.store = store,
                                 .rank = rank,
                                 .ops = {.set = counted_set,
                                         .get = counted_get,
                                         .add = counted_add,
                                         .remove = counted_remove,
                                         .get_page = pages ? counted_get_page : NULL}};
        CHECK_EQ(pthread_create(&threads[rank], NULL, live, &members[rank]), 0);
    }
    for (int rank = 0; rank < WORLD; rank++) pthread_join(threads[rank], NULL);
    for (int rank = 0; rank < WORLD; rank++)
        if (members[rank].requests > most) most = members[rank].requests;
    rp_store_close(&store);
    return most;
}

/* What others say is read by the page. A busy machine, on which ranks start one after the
 * other, costs a look or two every 0.2 s; asking rank by rank would be 126 and more. */
static void joining_asks_the_store_a_few_times(void) {
    long before = resident_mib();
    int requests = most_requests(true);
    long grown = members[0].resident - before;
    CHECK_MSG(requests <= WORLD, "%d requests", requests);
    /* 2016 links, whose buffers of 4 MiB cost memory only where they are used. */
    CHECK_MSG(grown < 1024, "%ld MiB", grown);
}

/* A store of the caller's that has no pages serves all the same. */
static void a_store_without_pages_will_do(void) {
    int requests = most_requests(false);
    CHECK_MSG(requests >= 2 * WORLD - 2, "%d requests", requests);
}

CASES({"joining_asks_the_store_a_few_times", joining_asks_the_store_a_few_times},
      {"a_store_without_pages_will_do", a_store_without_pages_will_do})
