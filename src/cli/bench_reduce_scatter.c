/* `redpoll bench reduce-scatter`: rank r gets the sum of everybody's block r. */
#include "cli/bench_collective.h"
#include "cli/bench_serial.h"
#include "cli/commands.h"

static const rpi_option options[] = {
    RPI_BENCH_VECTOR_OPTIONS("1M"),
    RPI_BENCH_CODEC_OPTION,
    RPI_BENCH_REDUCE_OPTION,
    RPI_BENCH_ALGORITHM_OPTION,
    RPI_BENCH_PLACE_OPTION,
    RPI_BENCH_SEGMENTS_OPTION,
    {0},
};

static rpi_bench_source source(const rpi_bench_call *call, int block) {
    (void)block;
    return (rpi_bench_source){RPI_BENCH_EVERYBODY, call->rank};
}

static rp_status start(const rpi_bench_call *call, rp_request *requests[2]) {
    if (call->segments)
        return rpi_bench_start_segments(call, call->inputs, call->output,
                                        rp_reduce_scatter_segments_start, &requests[0]);
    return rp_reduce_scatter_start(call->comm, call->input, call->output, call->count,
                                   call->dtype, &call->codec, &call->options, &requests[0]);
}

static const rpi_bench_kind kind = {
    .command = &rpi_command_bench_reduce_scatter,
    .collective = RPI_REDUCE_SCATTER,
    .gives = RPI_BLOCKS_EACH,
    .gets = RPI_BLOCKS_ONE,
    .either_place = true,
    .reduces = true,
    .has_codec = true,
    .bus_factor = rpi_bus_others,
    .source = source,
    .start = start,
};

static int run(int argc, char **argv) {
    return rpi_bench_run(&kind, argc, argv);
}

const rpi_command rpi_command_bench_reduce_scatter = {
    .name = "bench reduce-scatter",
    .summary = "time a reduce-scatter",
    .about =
        RPI_BENCH_ABOUT("Times a reduce-scatter: rank r gets the sum of everybody's block r."),
    .notes = RPI_BENCH_NOTES,
    .examples = "  redpoll bench reduce-scatter -n 4 --sizes 1MiB,16MiB --codec q8\n"
                "  redpoll bench reduce-scatter -n 4 --segments 100 --link 1Gbit,1ms\n",
    .options = options,
    .bench = &kind,
    .run = run,
};
