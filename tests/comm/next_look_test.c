/* When a rank that waits looks at its deadlines again: never too late, and never so soon that
 * it does nothing else. */
#include "comm/core/communicator.h"
#include "comm/core/progress_owner.h"
#include "comm/run/executor.h"
#include "comm/thread_world.h"

#include "base/clock.h"

enum { TIMEOUT_S = 100, LONG_AGO_S = 1000 };

/* Rank 0 has received nothing for `still_s`. */
static void check_next(rp_comm *comm, int still_s, bool warned) {
    int64_t before = rpi_now_ns(), progress_ns = comm->progress_ns;
    comm->progress_ns = before - still_s * RPI_SECOND_NS;
    comm->warned_ns = warned ? before : 0;
    int64_t next = rpi_deadline_next_ns(comm);
    CHECK_MSG(next > before, "still for %d s: %lld ns ago", still_s,
              (long long)(before - next));
    CHECK(next <= rpi_now_ns() + TIMEOUT_S * RPI_SECOND_NS);
    comm->progress_ns = progress_ns;
    comm->warned_ns = 0;
}

static void wait_for_one(rp_comm *comm, int rank, int world, void *context) {
    float x = 0;
    rp_request *request = NULL;
    (void)world, (void)context;
    world_meet();
    if (rank == 0) {
        rpi_progress_acquire(comm->context);
        CHECK_EQ(rpi_deadline_next_ns(comm), RPI_NEVER_NS);
        rpi_progress_release(comm->context);
        CHECK_OK(rp_recv_start(comm, &x, 1, RP_F32, 1, 0, &request));
        CHECK_EQ(rp_request_test(request), RP_PENDING);
        rpi_progress_acquire(comm->context);
        for (int warned = 0; warned < 2; warned++) {
            check_next(comm, 0, warned);
            check_next(comm, TIMEOUT_S / 2, warned);
            check_next(comm, LONG_AGO_S, warned);
        }
        rpi_progress_release(comm->context);
    }
    world_meet();
    if (rank == 1) CHECK_OK(rp_send(comm, &x, 1, RP_F32, 0, 0));
    if (request) CHECK_OK(rp_request_wait(&request));
}

static void it_looks_again_in_time(void) {
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = "inproc", .timeout_s = TIMEOUT_S, .warn_after_s = 10);
    world_run(2, &options, wait_for_one, NULL);
}

CASES({"it looks again in time", it_looks_again_in_time})
