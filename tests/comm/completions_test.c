/* Waiting for a while, freeing, and queues of completed requests. */
#include "comm/thread_world.h"

#include "base/log.h"
#include "base/memory.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { COUNT = 20000, OPERATIONS = 40 };

static const rp_comm_options threaded =
    RP_COMM_OPTIONS(.transport = "inproc", .progress_thread = 1);

static void pause_ms(int milliseconds) {
    struct timespec span = {.tv_nsec = milliseconds * 1000000L};
    nanosleep(&span, NULL);
}

static void start(rp_comm *comm, int32_t *data, rp_request **request) {
    for (size_t i = 0; i < COUNT; i++) data[i] = rp_comm_rank(comm);
    rp_segment segment = {.data = data, .count = COUNT, .dtype = RP_I32};
    CHECK_OK(rp_all_reduce_start(comm, &segment, 1, NULL, request));
}

static void check_sum(const int32_t *data, int world) {
    size_t wrong = 0;
    for (size_t i = 0; i < COUNT; i++) wrong += data[i] != world * (world - 1) / 2;
    CHECK_EQ(wrong, 0);
}

/* ---- waiting for a while ---- */

/* Rank 1 comes late: rank 0 looks, waits too shortly, and then long enough. */
static void late(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    static int32_t data[2][COUNT];
    rp_request *request = NULL;
    CHECK_OK(rp_barrier(comm));
    if (rank == 1) world_meet();
    start(comm, data[rank], &request);
    if (rank == 0) {
        CHECK_EQ(rp_request_wait_for(request, 0), RP_PENDING);
        CHECK_EQ(rp_request_wait_for(request, 0.02), RP_PENDING);
        CHECK_FAILS(rp_request_free(&request), INVALID, "all-reduce 2 is still running");
        CHECK(request != NULL);
        CHECK_EQ(rp_request_source(request), -1);
        world_meet();
    }
    rp_status status;
    while ((status = rp_request_wait_for(request, rank ? -1 : 0.5)) == RP_PENDING) {
    }
    CHECK_EQ(status, RP_OK);
    CHECK_EQ(rp_request_wait_for(request, 0), RP_OK);
    CHECK_EQ(rp_request_source(request), -1);
    check_sum(data[rank], world);
    CHECK_OK(rp_request_free(&request));
    CHECK(request == NULL);
    CHECK_OK(rp_request_free(&request));
}

static void a_wait_may_be_short(void) {
    world_run(2, NULL, late, NULL);
    world_run(2, &threaded, late, NULL);
}

typedef struct short_waiter {
    rp_request *request;
    pthread_t thread;
} short_waiter;

static void *short_waits(void *context) {
    short_waiter *waiter = context;
    rp_status status;
    while ((status = rp_request_wait_for(waiter->request, 0.001)) == RP_PENDING) {
    }
    CHECK_EQ(status, RP_OK);
    return NULL;
}

static void several_wait(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    static int32_t data[3][COUNT];
    for (int round = 0; round < 10; round++) {
        short_waiter waiters[3] = {0};
        rp_request *request = NULL;
        if (rank == round % world) pause_ms(3);
        start(comm, data[rank], &request);
        for (int w = 0; w < 3; w++) {
            waiters[w].request = request;
            pthread_create(&waiters[w].thread, NULL, short_waits, &waiters[w]);
        }
        for (int w = 0; w < 3; w++) pthread_join(waiters[w].thread, NULL);
        check_sum(data[rank], world);
        CHECK_OK(rp_request_free(&request));
    }
}

static void several_threads_may_wait_for_one_request(void) {
    world_run(3, NULL, several_wait, NULL);
    world_run(3, &threaded, several_wait, NULL);
}

/* Short waits, one after the other, add up to the timeout of the operation. */
static void short_waits_time_out(rp_comm *comm, int rank, int world, void *context) {
    (void)world, (void)context;
    float x = 0;
    rp_request *request = NULL;
    CHECK_OK(rp_recv_start(comm, &x, 1, RP_F32, 1 - rank, 0, &request));
    rp_status status;
    while ((status = rp_request_wait_for(request, 0.005)) == RP_PENDING) {
    }
    CHECK_EQ(status, RP_TIMEOUT);
    CHECK(strstr(rp_last_error()->message, "receive from rank") != NULL);
    CHECK_OK(rp_request_free(&request));
}

static void short_waits_add_up_to_a_timeout(void) {
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = "inproc", .timeout_s = 0.4, .strict_timeout = 1);
    world_run(2, &options, short_waits_time_out, NULL);
}

static void *shorten(void *context) {
    pause_ms(100);
    CHECK_OK(rp_comm_set_timeout(context, 0.2));
    return NULL;
}

/* Both wait for each other; rank 0 sleeps with ten minutes before it. */
static void lose_patience(rp_comm *comm, int rank, int world, void *context) {
    (void)world, (void)context;
    float x = 0;
    pthread_t thread;
    CHECK_FAILS(rp_comm_set_timeout(comm, 0), INVALID, "above 0");
    CHECK_FAILS(rp_comm_set_timeout(comm, NAN), INVALID, "above 0");
    if (rank == 0) pthread_create(&thread, NULL, shorten, comm);
    CHECK_EQ(rp_recv(comm, &x, 1, RP_F32, 1 - rank, 0), RP_TIMEOUT);
    if (rank == 0) pthread_join(thread, NULL);
}

static void the_timeout_may_change_while_somebody_waits(void) {
    rp_comm_options options = RP_COMM_OPTIONS(.transport = "inproc", .strict_timeout = 1);
    world_run(2, &options, lose_patience, NULL);
    options.progress_thread = 1;
    world_run(2, &options, lose_patience, NULL);
}

/* ---- queues ---- */

static size_t collect(rp_completions *queue, bool *seen, size_t wanted) {
    size_t got = 0;
    while (got < wanted) {
        uint64_t tokens[3];
        size_t count = 0;
        CHECK_OK(rp_completions_wait(queue, 20, tokens, 3, &count));
        if (!count) return got;
        for (size_t i = 0; i < count; i++) {
            CHECK(tokens[i] >= 100 && tokens[i] < 100 + OPERATIONS && !seen[tokens[i] - 100]);
            seen[tokens[i] - 100] = true;
        }
        got += count;
    }
    return got;
}

/* Nobody waits for a request: the queue alone tells that it is complete. */
static void tell(rp_comm *comm, int rank, int world, void *context) {
    (void)context, (void)rank;
    rp_completions *queue = NULL;
    rp_request *requests[OPERATIONS];
    bool seen[OPERATIONS] = {false};
    int32_t *data = calloc((size_t)OPERATIONS * COUNT, sizeof *data);
    CHECK_OK(rp_completions_create(&queue));
    for (int o = 0; o < OPERATIONS; o++) {
        start(comm, data + o * COUNT, &requests[o]);
        if (o % 7 == 0) CHECK_OK(rp_request_wait_for(requests[o], -1)); /* complete already */
        CHECK_OK(rp_request_notify(requests[o], queue, 100 + (uint64_t)o));
    }
    CHECK_EQ(collect(queue, seen, OPERATIONS), OPERATIONS);
    for (int o = 0; o < OPERATIONS; o++) {
        CHECK_OK(rp_request_free(&requests[o]));
        check_sum(data + o * COUNT, world);
    }
    uint64_t token;
    size_t count = 1;
    CHECK_OK(rp_completions_wait(queue, 0, &token, 1, &count));
    CHECK_EQ(count, 0);
    rp_completions_destroy(queue);
    free(data);
}

static void a_queue_tells_of_every_request_once(void) {
    for (int world = 1; world <= 3; world++) world_run(world, &threaded, tell, NULL);
}

/* What is cancelled is complete as well; its token comes from the communicator's end. */
static void cancelled_requests_are_told(void) {
    rp_store store = {0};
    rp_completions *queue = NULL;
    rp_comm *comm = NULL;
    REQUIRE_OK(rp_store_open_local(&store));
    REQUIRE_OK(rp_completions_create(&queue));
    REQUIRE_OK(rp_comm_create(NULL, 0, 1, &threaded, &comm));
    rp_request *request = NULL;
    uint64_t token = 0;
    size_t count = 0;
    REQUIRE_OK(rp_barrier_start(comm, &request));
    CHECK_OK(rp_request_notify(request, queue, 7));
    CHECK_FAILS(rp_request_notify(request, queue, 8), INVALID, "already");
    rp_comm_destroy(comm);
    CHECK_OK(rp_completions_wait(queue, 1, &token, 1, &count));
    CHECK_EQ(count, 1);
    CHECK_EQ(token, 7);
    rp_completions_destroy(queue);
    rp_store_close(&store);
}

static void *wait_for_a_call(void *context) {
    uint64_t token;
    size_t count = 1;
    CHECK_OK(rp_completions_wait(context, -1, &token, 1, &count));
    CHECK_EQ(count, 0);
    return NULL;
}

static void a_queue_can_be_woken_and_closed(void) {
    rp_completions *queue = NULL;
    pthread_t thread;
    REQUIRE_OK(rp_completions_create(&queue));
    pthread_create(&thread, NULL, wait_for_a_call, queue);
    rp_completions_wake(queue);
    pthread_join(thread, NULL);
    rp_completions_wake(queue); /* nobody is there: the next wait returns at once */
    wait_for_a_call(queue);
    rp_completions_destroy(queue);
    rp_completions_destroy(NULL);
}

static void a_queue_needs_somebody_who_drives(void) {
    rp_completions *queue = NULL;
    rp_comm *comm = NULL;
    rp_request *request = NULL;
    REQUIRE_OK(rp_completions_create(&queue));
    REQUIRE_OK(rp_comm_create(NULL, 0, 1, NULL, &comm));
    REQUIRE_OK(rp_barrier_start(comm, &request));
    CHECK_FAILS(rp_request_notify(request, queue, 1), INVALID, "no progress thread");
    CHECK_OK(rp_request_wait(&request));
    rp_comm_destroy(comm);
    rp_completions_destroy(queue);
}

static rp_status fill_queue(long n) {
    rp_completions *queue = NULL;
    rp_comm *comm = NULL;
    rp_request *request = NULL;
    CHECK_OK(rp_comm_create(NULL, 0, 1, &threaded, &comm));
    CHECK_OK(rp_barrier_start(comm, &request));
    rpi_memory_fail_after(n);
    rp_status status = rp_completions_create(&queue);
    if (status == RP_OK) status = rp_request_notify(request, queue, 1);
    long allocations = rpi_memory_fail_after(0);
    if (n == 0) CHECK_EQ(allocations, 2);
    CHECK_OK(rp_request_wait(&request));
    rp_comm_destroy(comm);
    rp_completions_destroy(queue);
    return status;
}

static void a_queue_may_find_no_memory(void) {
    CHECK_OK(fill_queue(0));
    for (long n = 1; n <= 2; n++) CHECK_EQ(fill_queue(n), RP_NOMEM);
}

static void be_woken(rp_comm *comm, int rank, int world, void *context) {
    int32_t word = 0;
    (void)world;
    if (rank == 1) {
        pause_ms(5); /* the other sleeps by then, most times */
        CHECK_OK(rp_send(comm, &word, 1, RP_I32, 0, 0));
        return;
    }
    rp_request *request = NULL;
    uint64_t token = 0;
    size_t count = 0;
    CHECK_OK(rp_recv_start(comm, &word, 1, RP_I32, 1, 0, &request));
    CHECK_OK(rp_request_notify(request, context, 7));
    CHECK_OK(rp_completions_wait(context, -1, &token, 1, &count));
    CHECK(count == 1 && token == 7);
    CHECK_OK(rp_request_wait(&request));
}

static void a_token_wakes_who_waits_for_it(void) {
    rp_completions *queue = NULL;
    REQUIRE_OK(rp_completions_create(&queue));
    alarm(60); /* ends the test where the wait does not */
    for (int i = 0; i < 3; i++) world_run(2, &threaded, be_woken, queue);
    alarm(0);
    rp_completions_destroy(queue);
}

/* ---- the log ---- */

static void heard(void *context, rp_log_level level, const char *line) {
    (void)line;
    *(int *)context += level == RP_LOG_WARNING;
}

static void expect_line(rp_completions *queue, const char *expected) {
    char line[RP_LOG_LINE];
    rp_log_level level = RP_LOG_DEBUG;
    CHECK_EQ(rp_completions_take_line(queue, &level, line, sizeof line), RP_OK);
    CHECK_EQ(level, RP_LOG_WARNING);
    CHECK_MSG(strcmp(line, expected) == 0, "'%s', not '%s'", line, expected);
}

static void expect_no_line(rp_completions *queue) {
    char line[8];
    rp_log_level level;
    CHECK_EQ(rp_completions_take_line(queue, &level, line, sizeof line), RP_PENDING);
}

static void *write_later(void *context) {
    (void)context;
    pause_ms(20);
    rpi_log(RP_LOG_WARNING, "%s", "late");
    return NULL;
}

static void a_queue_may_keep_the_log(void) {
    rp_completions *queue = NULL;
    pthread_t writer;
    size_t count = 1;
    REQUIRE_OK(rp_completions_create(&queue));
    expect_no_line(queue);
    CHECK_OK(rp_completions_keep_log(queue));
    CHECK_OK(rp_completions_keep_log(queue));
    rpi_log(RP_LOG_WARNING, "line %d", 1);
    rpi_log(RP_LOG_WARNING, "line %d", 2);
    CHECK_OK(rp_completions_wait(queue, -1, NULL, 0, &count)); /* returns: there are lines */
    CHECK_EQ(count, 0);
    expect_line(queue, "line 1");
    expect_line(queue, "line 2");
    expect_no_line(queue);
    REQUIRE(pthread_create(&writer, NULL, write_later, NULL) == 0);
    CHECK_OK(rp_completions_wait(queue, -1, NULL, 0, &count));
    expect_line(queue, "late");
    pthread_join(writer, NULL);
    rp_completions_destroy(queue);
}

static void what_nobody_takes_is_counted(void) {
    rp_completions *queue = NULL;
    REQUIRE_OK(rp_completions_create(&queue));
    CHECK_OK(rp_completions_keep_log(queue));
    for (int i = 0; i < 40; i++) rpi_log(RP_LOG_WARNING, "line %d", i);
    for (int i = 0; i < 32; i++) {
        char expected[16];
        snprintf(expected, sizeof expected, "line %d", i);
        expect_line(queue, expected);
    }
    expect_line(queue, "8 more lines of the log were not kept");
    expect_no_line(queue);
    rp_completions_destroy(queue);
}

/* The queue that is destroyed leaves another sink alone. */
static void the_log_goes_where_it_was_last_sent(void) {
    rp_completions *first = NULL, *second = NULL;
    int lines = 0;
    REQUIRE_OK(rp_completions_create(&first));
    REQUIRE_OK(rp_completions_create(&second));
    CHECK_OK(rp_completions_keep_log(first));
    CHECK_OK(rp_completions_keep_log(second));
    rp_completions_destroy(first);
    rpi_log(RP_LOG_WARNING, "%s", "to the second");
    expect_line(second, "to the second");
    rp_log_set_sink(heard, &lines);
    rp_completions_destroy(second);
    rpi_log(RP_LOG_WARNING, "%s", "to the sink");
    CHECK_EQ(lines, 1);
    rp_log_set_sink(NULL, NULL);
}

CASES({"a token wakes who waits for it", a_token_wakes_who_waits_for_it},
      {"a wait may be short", a_wait_may_be_short},
      {"several threads may wait for one request", several_threads_may_wait_for_one_request},
      {"short waits add up to a timeout", short_waits_add_up_to_a_timeout},
      {"the timeout may change while somebody waits",
       the_timeout_may_change_while_somebody_waits},
      {"a queue tells of every request once", a_queue_tells_of_every_request_once},
      {"cancelled requests are told", cancelled_requests_are_told},
      {"a queue can be woken and closed", a_queue_can_be_woken_and_closed},
      {"a queue needs somebody who drives", a_queue_needs_somebody_who_drives},
      {"a queue may find no memory", a_queue_may_find_no_memory},
      {"a queue may keep the log", a_queue_may_keep_the_log},
      {"what nobody takes is counted", what_nobody_takes_is_counted},
      {"the log goes where it was last sent", the_log_goes_where_it_was_last_sent})
