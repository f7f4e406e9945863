/* `redpoll bench all-gather`: every rank gets the blocks of all. */
#include "cli/bench_collective.h"
#include "cli/commands.h"

static const rpi_option options[] = {
    RPI_BENCH_VECTOR_OPTIONS("1M"), RPI_BENCH_CODEC_OPTION,    RPI_BENCH_ALGORITHM_OPTION,
    RPI_BENCH_PLACE_OPTION,         RPI_BENCH_SEGMENTS_OPTION, {0},
};

static rpi_bench_source source(const rpi_bench_call *call, int block) {
    (void)call;
    return (rpi_bench_source){block, 0};
}

static rp_status start(const rpi_bench_call *call, rp_request *requests[2]) {
    if (call->segments)
        return rpi_bench_start_segments(call, call->outputs, call->input,
                                        rp_all_gather_segments_start, &requests[0]);
    return rp_all_gather_start(call->comm, call->input, call->output, call->count, call->dtype,
                               &call->codec, &call->options, &requests[0]);
}

static const rpi_bench_kind kind = {
    .command = &rpi_command_bench_all_gather,
    .collective = RPI_ALL_GATHER,
    .gives = RPI_BLOCKS_ONE,
    .gets = RPI_BLOCKS_EACH,
    .either_place = true,
    .has_codec = true,
    .replicates = true,
    .bus_factor = rpi_bus_others,
    .source = source,
    .start = start,
};

static int run(int argc, char **argv) {
    return rpi_bench_run(&kind, argc, argv);
}

const rpi_command rpi_command_bench_all_gather = {
    .name = "bench all-gather",
    .summary = "time an all-gather",
    .about = RPI_BENCH_ABOUT("Times an all-gather: every rank gets the blocks of all."),
    .notes = RPI_BENCH_NOTES,
    .examples = "  redpoll bench all-gather -n 4 --sizes 1MiB,16MiB --dtype bf16\n",
    .options = options,
    .bench = &kind,
    .run = run,
};
