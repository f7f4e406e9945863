/* `redpoll bench all-to-all`: rank r gets everybody's block r. */
#include "cli/bench_collective.h"
#include "cli/commands.h"

static const rpi_option options[] = {
    RPI_BENCH_VECTOR_OPTIONS("1M"),
    RPI_BENCH_ALGORITHM_OPTION,
    {0},
};

static rpi_bench_source source(const rpi_bench_call *call, int block) {
    return (rpi_bench_source){block, call->rank};
}

static rp_status start(const rpi_bench_call *call, rp_request *requests[2]) {
    return rp_all_to_all_start(call->comm, call->inputs, call->outputs, call->dtype,
                               &call->options, &requests[0]);
}

static const rpi_bench_kind kind = {
    .command = &rpi_command_bench_all_to_all,
    .collective = RPI_ALL_TO_ALL,
    .gives = RPI_BLOCKS_EACH,
    .gets = RPI_BLOCKS_EACH,
    .bus_factor = rpi_bus_others,
    .source = source,
    .start = start,
};

static int run(int argc, char **argv) {
    return rpi_bench_run(&kind, argc, argv);
}

const rpi_command rpi_command_bench_all_to_all = {
    .name = "bench all-to-all",
    .summary = "time an all-to-all",
    .about = RPI_BENCH_ABOUT("Times an all-to-all: rank r gets everybody's block r."),
    .notes = RPI_BENCH_NOTES,
    .examples = "  redpoll bench all-to-all -n 4 --sizes 64KiB,1MiB\n",
    .options = options,
    .bench = &kind,
    .run = run,
};
