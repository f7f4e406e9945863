/* A communicator that one rank ends: what was in flight is over there when the call returns, in
 * every kind of operation, and soon on the other ranks. */
#include "redpoll/comm.h"
#include "redpoll/window.h"

#include "base/clock.h"
#include "comm/thread_world.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

enum { COUNT = 1 << 20, MOST = 4 };

static const rp_comm_options over_tcp =
    RP_COMM_OPTIONS(.transport = "tcp", .connect_timeout_s = 60);
static const rp_comm_options over_shm =
    RP_COMM_OPTIONS(.transport = "shm", .connect_timeout_s = 60);
static const rp_comm_options with_thread =
    RP_COMM_OPTIONS(.transport = "shm", .progress_thread = 1);
static const rp_comm_options *const worlds[] = {NULL, &over_shm, &over_tcp, &with_thread};
enum { WORLDS = sizeof worlds / sizeof worlds[0] };

/* What a rank has in flight, each with a buffer of its own. One row a kind of operation. */
typedef rp_status start_function(rp_comm *comm, float *data, rp_request **request);

static rp_status all_reduce(rp_comm *comm, float *data, rp_request **request) {
    rp_segment segment = {.data = data, .count = COUNT, .dtype = RP_F32};
    return rp_all_reduce_start(comm, &segment, 1, NULL, request);
}
static rp_status lossy_all_reduce(rp_comm *comm, float *data, rp_request **request) {
    rp_segment segment = {.data = data, .count = COUNT, .dtype = RP_F32};
    CHECK_OK(rp_codec_parse("q4", &segment.codec));
    return rp_all_reduce_start(comm, &segment, 1, NULL, request);
}
static rp_status broadcast(rp_comm *comm, float *data, rp_request **request) {
    return rp_broadcast_start(comm, data, COUNT, RP_F32, NULL, request);
}
static rp_status send_to_next(rp_comm *comm, float *data, rp_request **request) {
    int next = (rp_comm_rank(comm) + 1) % rp_comm_world(comm);
    return rp_send_start(comm, data, COUNT, RP_F32, next, 7, request);
}
static rp_status receive_from_next(rp_comm *comm, float *data, rp_request **request) {
    int next = (rp_comm_rank(comm) + 1) % rp_comm_world(comm);
    return rp_recv_start(comm, data, COUNT, RP_F32, next, 8, request);
}
static rp_status receive_from_any(rp_comm *comm, float *data, rp_request **request) {
    return rp_recv_any_start(comm, data, COUNT, RP_F32, 9, request);
}
static rp_status neighbors(rp_comm *comm, float *data, rp_request **request) {
    int world = rp_comm_world(comm), rank = rp_comm_rank(comm);
    rp_neighbor source = {(rank + world - 1) % world, 0.5}, target = {(rank + 1) % world, 1};
    rp_neighbors ring = {.self_weight = 0.5,
                         .sources = &source,
                         .destinations = &target,
                         .source_count = 1,
                         .destination_count = 1};
    rp_segment segment = {.data = data, .count = COUNT, .dtype = RP_F32};
    return rp_neighbor_all_reduce_start(comm, &segment, NULL, 1, &ring, NULL, request);
}

static start_function *const kinds[] = {all_reduce,   lossy_all_reduce,  broadcast,
                                        send_to_next, receive_from_next, receive_from_any,
                                        neighbors};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* Buffers are freed as soon as the call is back: a sanitizer sees who touches them then. */
static void check_ended(rp_request **requests, float **data, bool here) {
    int cancelled = 0;
    for (int k = 0; k < KINDS; k++) {
        if (!requests[k]) continue;
        if (here) CHECK(rp_request_test(requests[k]) != RP_PENDING);
        rp_status status = rp_request_wait(&requests[k]);
        bool is_fine = status == RP_OK || status == RP_CANCELLED;
        CHECK_MSG(is_fine, "kind %d: %s (%s)", k, rp_status_name(status),
                  rp_last_error()->message);
        if (status == RP_OK) continue;
        cancelled++;
        CHECK_MSG(strstr(rp_last_error()->message, "rank 1 revoked communicator 'tp'"), "%s",
                  rp_last_error()->message);
    }
    if (here) CHECK_MSG(cancelled >= 2, "%d were", cancelled); /* nobody sends for two kinds */
    if (here) return;
    for (int k = 0; k < KINDS; k++) free(data[k]);
}

static rp_comm *make_group(rp_comm *comm, int world) {
    static const int ranks[] = {0, 1, 2, 3};
    rp_comm *group = NULL;
    rp_comm_options options = RP_COMM_OPTIONS(.name = "tp", .connect_timeout_s = 60);
    CHECK_OK(rp_comm_group(comm, ranks, world, &options, &group));
    return group;
}

static void check_sum(rp_comm *comm) {
    float x[2] = {1, 2};
    rp_segment segment = {.data = x, .count = 2, .dtype = RP_F32};
    CHECK_OK(rp_all_reduce(comm, &segment, 1, NULL));
    CHECK(x[0] == (float)rp_comm_world(comm) && x[1] == 2 * x[0]);
}

static void revoke_one(rp_comm *comm, int rank, int world, void *context) {
    const int *before = context;
    for (int round = 0; round < 3; round++) {
        rp_comm *group = make_group(comm, world);
        rp_request *requests[KINDS] = {NULL};
        float *data[KINDS];
        world_meet(); /* the last of all may not know yet that it is made */
        for (int k = 0; k < KINDS; k++) {
            data[k] = calloc(COUNT, sizeof(float));
            /* Others may have heard of the end already. */
            (void)kinds[(k + round) % KINDS](group, data[k], &requests[k]);
        }
        for (int i = 0; i < *before * round; i++) (void)rp_request_test(requests[i % KINDS]);
        if (rank == 1) {
            REQUIRE_OK(rp_comm_revoke(group));
            for (int k = 0; k < KINDS; k++) free(data[k]);
            check_ended(requests, data, true);
            CHECK_FAILS(rp_barrier(group), CANCELLED, "revoked");
            CHECK_OK(rp_comm_revoke(group)); /* again: nothing is left to end */
            CHECK_EQ(rp_comm_status(group), RP_CANCELLED);
        } else {
            check_ended(requests, data, false);
        }
        check_sum(comm);
        /* Before the old one is destroyed, or behind it. */
        rp_comm *again = round % 2 ? make_group(comm, world) : NULL;
        rp_comm_destroy(group);
        if (!again) again = make_group(comm, world);
        check_sum(again);
        rp_comm_destroy(again);
    }
    check_sum(comm);
}

static void requests_of_all_kinds_end(void) {
    for (int w = 0; w < WORLDS; w++)
        for (int world = 2; world <= MOST; world++)
            world_run(world, worlds[w], revoke_one, &(int){w % 2 ? 0 : 20});
}

/* While another thread waits for one of them. */
typedef struct waiter {
    rp_request *request;
    rp_status status;
} waiter;

static void *wait_for_it(void *context) {
    waiter *w = context;
    w->status = rp_request_wait(&w->request);
    return NULL;
}

static void revoke_under_a_waiter(rp_comm *comm, int rank, int world, void *context) {
    rp_comm *group = make_group(comm, world);
    float x[8];
    waiter w = {.request = NULL};
    pthread_t thread;
    (void)context;
    world_meet(); /* the last of all may not know yet that it is made */
    if (rank == 1) {
        CHECK_OK(rp_recv_start(group, x, 8, RP_F32, 0, 1, &w.request));
        REQUIRE(pthread_create(&thread, NULL, wait_for_it, &w) == 0);
        while (rp_comm_status(comm) == RP_OK && rpi_now_ns() % 64 != 0) {
        }
        CHECK_OK(rp_comm_revoke(group));
        pthread_join(thread, NULL);
        CHECK_EQ(w.status, RP_CANCELLED);
    } else {
        CHECK_FAILS(rp_barrier(group), CANCELLED, "rank 1 revoked");
    }
    rp_comm_destroy(group);
    check_sum(comm);
}

static void a_waiter_comes_back(void) {
    for (int w = 0; w < WORLDS; w++)
        for (int i = 0; i < 5; i++) world_run(3, worlds[w], revoke_under_a_waiter, NULL);
}

/* While it is being made: others, who come later, hear of it. */
static void revoke_in_the_making(rp_comm *comm, int rank, int world, void *context) {
    const int *who = context;
    static const int ranks[] = {0, 1, 2};
    rp_comm_options options =
        RP_COMM_OPTIONS(.name = "tp", .connect_timeout_s = 60, .timeout_s = 60);
    rp_comm *group = NULL;
    rp_request *request = NULL;
    CHECK_OK(rp_comm_group_start(comm, ranks, world, &options, &group, &request));
    if (rank == *who) CHECK_OK(rp_comm_revoke(group));
    rp_status status = rp_request_wait(&request);
    /* Perhaps it was made before that. */
    CHECK_MSG(status == RP_OK || status == RP_CANCELLED || status == RP_PEER, "%s: %s",
              rp_status_name(status), rp_last_error()->message);
    rp_comm_destroy(group);
    check_sum(comm);
    world_meet();
    group = make_group(comm, world);
    check_sum(group);
    rp_comm_destroy(group);
}

static void one_that_is_being_made(void) {
    for (int w = 0; w < WORLDS; w++) {
        for (int who = 0; who < 3; who++) /* 0 numbers it */
            world_run(3, worlds[w], revoke_in_the_making, &who);
    }
}

CASES({"requests of all kinds end", requests_of_all_kinds_end},
      {"a waiter comes back", a_waiter_comes_back},
      {"one that is being made", one_that_is_being_made})
