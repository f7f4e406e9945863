/* Random operations on windows (window_program.h): ranks as threads, over every transport. */
#include "comm/thread_world.h"
#include "comm/window_program.h"

static void run_part(rp_comm *comm, int rank, int world, void *context) {
    (void)rank;
    (void)world;
    window_program_run(comm, context);
}

static void run_over(const rp_comm_options *options, int seed) {
    static const int worlds[] = {2, 3, 5, 8};
    for (int i = 0; i < 4; i++) {
        int world = worlds[i];
        uint64_t own = check_seed() + (uint64_t)(100 * seed + world);
        window_program program = {.seed = own,
                                  .operations = (check_long() ? 100000 : 2000) / world,
                                  .pauses_us = 500};
        world_run(world, options, run_part, &program);
        if (check_failures()) return;
    }
}

static void threads(void) {
    run_over(NULL, 1);
}
static void over_shm(void) {
    run_over(&(rp_comm_options)RP_COMM_OPTIONS(.transport = "shm", .connect_timeout_s = 20), 2);
}
static void over_tcp(void) {
    run_over(&(rp_comm_options)RP_COMM_OPTIONS(.transport = "tcp", .connect_timeout_s = 20), 3);
}
static void over_a_slow_link(void) {
    run_over(&(rp_comm_options)RP_COMM_OPTIONS(.link = "200Mbit,1ms", .connect_timeout_s = 20),
             4);
}

CASES({"threads", threads}, {"over shm", over_shm}, {"over tcp", over_tcp},
      {"over a slow link", over_a_slow_link})
