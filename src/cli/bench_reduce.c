/* `redpoll bench reduce`: the root gets the sum of all vectors. */
#include "cli/bench_collective.h"
#include "cli/bench_serial.h"
#include "cli/commands.h"

static const rpi_option options[] = {
    RPI_BENCH_VECTOR_OPTIONS("1M"), RPI_BENCH_REDUCE_OPTION, RPI_BENCH_ROOT_OPTION,
    RPI_BENCH_ALGORITHM_OPTION,     RPI_BENCH_PLACE_OPTION,  {0},
};

static rpi_bench_source source(const rpi_bench_call *call, int block) {
    (void)call;
    return (rpi_bench_source){RPI_BENCH_EVERYBODY, block};
}

static rp_status start(const rpi_bench_call *call, rp_request *requests[2]) {
    return rp_reduce_start(call->comm, call->input, call->output, call->count, call->dtype,
                           &call->options, &requests[0]);
}

static const rpi_bench_kind kind = {
    .command = &rpi_command_bench_reduce,
    .collective = RPI_REDUCE,
    .gives = RPI_BLOCKS_ONE,
    .gets = RPI_BLOCKS_ONE_AT_ROOT,
    .either_place = true,
    .reduces = true,
    .has_root = true,
    .bus_factor = rpi_bus_one,
    .source = source,
    .start = start,
};

static int run(int argc, char **argv) {
    return rpi_bench_run(&kind, argc, argv);
}

const rpi_command rpi_command_bench_reduce = {
    .name = "bench reduce",
    .summary = "time a reduce",
    .about = RPI_BENCH_ABOUT("Times a reduce: the root gets the sum of all vectors."),
    .notes = RPI_BENCH_NOTES,
    .examples = "  redpoll bench reduce -n 4 --dtype i32 --reduce bxor\n",
    .options = options,
    .bench = &kind,
    .run = run,
};
