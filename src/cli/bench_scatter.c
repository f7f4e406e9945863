/* `redpoll bench scatter`: rank r gets block r of the root. */
#include "cli/bench_collective.h"
#include "cli/commands.h"

static const rpi_option options[] = {
    RPI_BENCH_VECTOR_OPTIONS("1M"),
    RPI_BENCH_ROOT_OPTION,
    RPI_BENCH_ALGORITHM_OPTION,
    RPI_BENCH_PLACE_OPTION,
    {0},
};

static rpi_bench_source source(const rpi_bench_call *call, int block) {
    (void)block;
    return (rpi_bench_source){call->root, call->rank};
}

static rp_status start(const rpi_bench_call *call, rp_request *requests[2]) {
    return rp_scatter_start(call->comm, call->inputs, call->output, call->count, call->dtype,
                            &call->options, &requests[0]);
}

static const rpi_bench_kind kind = {
    .command = &rpi_command_bench_scatter,
    .collective = RPI_SCATTER,
    .gives = RPI_BLOCKS_EACH_AT_ROOT,
    .gets = RPI_BLOCKS_ONE,
    .either_place = true,
    .has_root = true,
    .bus_factor = rpi_bus_others,
    .source = source,
    .start = start,
};

static int run(int argc, char **argv) {
    return rpi_bench_run(&kind, argc, argv);
}

const rpi_command rpi_command_bench_scatter = {
    .name = "bench scatter",
    .summary = "time a scatter",
    .about = RPI_BENCH_ABOUT("Times a scatter: rank r gets block r of the root."),
    .notes = RPI_BENCH_NOTES,
    .examples = "  redpoll bench scatter -n 4 --sizes 64KiB,1MiB\n",
    .options = options,
    .bench = &kind,
    .run = run,
};
