/* When the progress thread sleeps, and when it does not. Nothing here is timed: each case waits
 * for what must come to pass. */
#include "comm/core/communicator.h"
#include "comm/thread_world.h"
#include "redpoll/window.h"

#include "base/clock.h"

#include <stdbool.h>

enum { LIMIT_S = 30 };

static const rp_comm_options with_thread =
    RP_COMM_OPTIONS(.transport = "inproc", .connect_timeout_s = 20, .progress_thread = 1);

static bool sleeps(rpi_context *context) {
    pthread_mutex_lock(&context->lock);
    bool it_does = context->thread_sleeps;
    pthread_mutex_unlock(&context->lock);
    return it_does;
}

static bool owns_progress(rpi_context *context) {
    pthread_mutex_lock(&context->lock);
    bool it_does = context->owner == RPI_OWNER_THREAD;
    pthread_mutex_unlock(&context->lock);
    return it_does;
}

static bool comes_to_pass(bool (*condition)(rpi_context *context), rpi_context *context) {
    int64_t deadline_ns = rpi_deadline_ns(LIMIT_S);
    while (!condition(context) && rpi_now_ns() < deadline_ns)
        rpi_sleep_until_ns(rpi_now_ns() + 100000);
    return condition(context);
}

/* Nobody waits for the operation, so that the thread has to end it. */
static void sum_unattended(rp_comm *comm) {
    float x[4] = {1, 2, 3, 4};
    rp_segment segment = {.data = x, .count = 4, .dtype = RP_F32};
    rp_request *request = NULL;
    int64_t deadline_ns = rpi_deadline_ns(LIMIT_S);
    REQUIRE_OK(rp_all_reduce_start(comm, &segment, 1, NULL, &request));
    while (!atomic_load(&request->done) && rpi_now_ns() < deadline_ns)
        rpi_sleep_until_ns(rpi_now_ns() + 100000);
    CHECK(atomic_load(&request->done));
    CHECK_OK(rp_request_wait(&request));
}

static void without_work(rp_comm *comm, int rank, int world, void *context) {
    (void)rank, (void)world, (void)context;
    CHECK(comes_to_pass(sleeps, comm->context));
    sum_unattended(comm);
    CHECK(comes_to_pass(sleeps, comm->context));
    world_meet();
}

static void it_sleeps_while_nothing_is_in_flight(void) {
    for (int world = 1; world <= 3; world++) world_run(world, &with_thread, without_work, NULL);
}

static void beside_a_window(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    double x[2] = {0};
    int other = 1 - rank;
    rp_window_setup setup =
        RP_WINDOW_SETUP(.name = "slot", .data = x, .count = 2, .dtype = RP_F64,
                        .sources = &other, .source_count = 1, .destinations = &other,
                        .destination_count = 1);
    rp_window *window = NULL;
    (void)world;
    REQUIRE_OK(rp_window_create(comm, &setup, &window));
    CHECK(comes_to_pass(owns_progress, comm->context));
    CHECK_OK(rp_window_free(&window));
    CHECK(comes_to_pass(sleeps, comm->context));
    world_meet();
}

static void it_serves_windows_until_they_are_gone(void) {
    world_run(2, &with_thread, beside_a_window, NULL);
}

CASES({"it sleeps while nothing is in flight", it_sleeps_while_nothing_is_in_flight},
      {"it serves windows until they are gone", it_serves_windows_until_they_are_gone})
