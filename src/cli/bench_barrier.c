/* `redpoll bench barrier`: no rank leaves before the last one has come. */
#include "cli/bench_collective.h"
#include "cli/commands.h"

static const rpi_option options[] = {
    RPI_BENCH_OPTIONS,
    {0},
};

static rp_status start(const rpi_bench_call *call, rp_request *requests[2]) {
    return rp_barrier_start(call->comm, &requests[0]);
}

static const rpi_bench_kind kind = {
    .command = &rpi_command_bench_barrier,
    .collective = RPI_BARRIER,
    .start = start,
};

static int run(int argc, char **argv) {
    return rpi_bench_run(&kind, argc, argv);
}

const rpi_command rpi_command_bench_barrier = {
    .name = "bench barrier",
    .summary = "time a barrier",
    .about = RPI_BENCH_ABOUT("Times a barrier: no rank leaves before the last one has come."),
    .examples = "  redpoll bench barrier -n 4 --iters 1000\n",
    .options = options,
    .bench = &kind,
    .run = run,
};
