/* `redpoll bench broadcast`: every rank gets the root's vector. */
#include "cli/bench_collective.h"
#include "cli/commands.h"

static const rpi_option options[] = {
    RPI_BENCH_VECTOR_OPTIONS("1M"),
    RPI_BENCH_ROOT_OPTION,
    RPI_BENCH_ALGORITHM_OPTION,
    {0},
};

static rpi_bench_source source(const rpi_bench_call *call, int block) {
    return (rpi_bench_source){call->root, block};
}

static rp_status start(const rpi_bench_call *call, rp_request *requests[2]) {
    return rp_broadcast_start(call->comm, call->output, call->count, call->dtype,
                              &call->options, &requests[0]);
}

static const rpi_bench_kind kind = {
    .command = &rpi_command_bench_broadcast,
    .collective = RPI_BROADCAST,
    .gives = RPI_BLOCKS_ONE,
    .gets = RPI_BLOCKS_ONE,
    .in_place = true,
    .has_root = true,
    .replicates = true,
    .bus_factor = rpi_bus_one,
    .source = source,
    .start = start,
};

static int run(int argc, char **argv) {
    return rpi_bench_run(&kind, argc, argv);
}

const rpi_command rpi_command_bench_broadcast = {
    .name = "bench broadcast",
    .summary = "time a broadcast",
    .about = RPI_BENCH_ABOUT("Times a broadcast: every rank gets the root's vector."),
    .notes = RPI_BENCH_NOTES,
    .examples = "  redpoll bench broadcast -n 4 --sizes 64KiB,1MiB,16MiB --root 1\n",
    .options = options,
    .bench = &kind,
    .run = run,
};
