/* `redpoll bench all-reduce`: every rank gets the sum of all vectors. */
#include "cli/bench_collective.h"
#include "cli/bench_serial.h"
#include "cli/commands.h"

static const rpi_option options[] = {
    RPI_BENCH_VECTOR_OPTIONS("25557032"),
    RPI_BENCH_CODEC_OPTION,
    RPI_BENCH_REDUCE_OPTION,
    RPI_BENCH_ALGORITHM_OPTION,
    {0},
};

/* Twice what a reduce-scatter or an all-gather moves. */
static double bus_factor(int world) {
    return 2 * rpi_bus_others(world);
}

static rpi_bench_source source(const rpi_bench_call *call, int block) {
    (void)call;
    return (rpi_bench_source){RPI_BENCH_EVERYBODY, block};
}

static rp_status start(const rpi_bench_call *call, rp_request *requests[2]) {
    rp_segment segment = {
        .data = call->output, .count = call->count, .dtype = call->dtype, .codec = call->codec};
    return rp_all_reduce_start(call->comm, &segment, 1, &call->options, &requests[0]);
}

static const rpi_bench_kind kind = {
    .command = &rpi_command_bench_all_reduce,
    .collective = RPI_ALL_REDUCE,
    .gives = RPI_BLOCKS_ONE,
    .gets = RPI_BLOCKS_ONE,
    .in_place = true,
    .reduces = true,
    .has_codec = true,
    .replicates = true,
    .bus_factor = bus_factor,
    .source = source,
    .start = start,
};

static int run(int argc, char **argv) {
    return rpi_bench_run(&kind, argc, argv);
}

const rpi_command rpi_command_bench_all_reduce = {
    .name = "bench all-reduce",
    .summary = "time an all-reduce: seconds, bytes, error",
    .about = RPI_BENCH_ABOUT("Times an all-reduce: every rank gets the sum of all vectors."),
    .notes = RPI_BENCH_NOTES,
    .examples = "  redpoll bench all-reduce -n 4 --count 25557032 --link 1Gbit,50us\n"
                "  redpoll bench all-reduce -n 4 --codec q4 --link 1Gbit,50us --json\n"
                "  redpoll bench all-reduce -n 4 --hosts 2 --link 1Gbit,50us\n"
                "  redpoll bench all-reduce -n 2 -b 1K -e 64M -f 2\n"
                "  redpoll bench all-reduce -n 2 --sizes 64K,16M --dtype i64 --reduce max\n"
                "  redpoll run -n 4 redpoll bench all-reduce --count 16M --transport tcp\n",
    .options = options,
    .bench = &kind,
    .run = run,
};
