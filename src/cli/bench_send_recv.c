/* `redpoll bench send-recv`: every rank sends to the next and receives from the one before. */
#include "base/status.h"
#include "cli/bench_collective.h"
#include "cli/commands.h"

static const rpi_option options[] = {
    RPI_BENCH_VECTOR_OPTIONS("1M"),
    {0},
};

static rpi_bench_source source(const rpi_bench_call *call, int block) {
    return (rpi_bench_source){(call->rank + call->world - 1) % call->world, block};
}

static rp_status start(const rpi_bench_call *call, rp_request *requests[2]) {
    int next = (call->rank + 1) % call->world;
    int previous = (call->rank + call->world - 1) % call->world;
    RP_TRY(rp_recv_with_start(call->comm, call->output, call->count, call->dtype, previous, 0,
                              &call->options, &requests[0]));
    return rp_send_with_start(call->comm, call->input, call->count, call->dtype, next, 0,
                              &call->options, &requests[1]);
}

static const rpi_bench_kind kind = {
    .command = &rpi_command_bench_send_recv,
    .collective = RPI_SENDRECV,
    .gives = RPI_BLOCKS_ONE,
    .gets = RPI_BLOCKS_ONE,
    .bus_factor = rpi_bus_one,
    .source = source,
    .start = start,
};

static int run(int argc, char **argv) {
    return rpi_bench_run(&kind, argc, argv);
}

const rpi_command rpi_command_bench_send_recv = {
    .name = "bench send-recv",
    .summary = "time sends and receives around the ranks",
    .about = RPI_BENCH_ABOUT("Times sends and receives: every rank sends to the next one and "
                             "receives from the one before."),
    .notes = RPI_BENCH_NOTES,
    .examples = "  redpoll bench send-recv -n 2 --sizes 4KiB,1MiB\n",
    .options = options,
    .bench = &kind,
    .run = run,
};
