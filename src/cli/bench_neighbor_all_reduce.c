/* `redpoll bench neighbor-all-reduce`: every rank gets the weighted sum of its own vector and
 * those of its neighbours in a topology's round. */
#include "base/status.h"
#include "cli/bench_collective.h"
#include "cli/commands.h"

static const rpi_option options[] = {
    RPI_BENCH_VECTOR_OPTIONS("25557032"),
    RPI_BENCH_CODEC_OPTION,
    {"topology", "t", NULL, RPI_OPTION_TEXT, RPI_BENCH_FIELD(topology), "exponential", 0, 0,
     "TOPOLOGY",
     "NAME or NAME:option=value,... (docs/topologies.md); each call is its next round", NULL},
    {0},
};

static rpi_bench_source source(const rpi_bench_call *call, int block) {
    (void)call;
    return (rpi_bench_source){RPI_BENCH_NEIGHBORS, block};
}

static rp_status start(const rpi_bench_call *call, rp_request *requests[2]) {
    const rp_neighbors *neighbors = NULL;
    RP_TRY(rpi_topology_rounds_at(call->rounds, (int64_t)call->options.step, &neighbors));
    rp_segment segment = {.data = (void *)(uintptr_t)call->input,
                          .count = call->count,
                          .dtype = call->dtype,
                          .codec = call->codec};
    return rp_neighbor_all_reduce_start(call->comm, &segment, &call->output, 1, neighbors,
                                        &call->options, &requests[0]);
}

static const rpi_bench_kind kind = {
    .command = &rpi_command_bench_neighbor_all_reduce,
    .collective = RPI_NEIGHBOUR_ALL_REDUCE,
    .gives = RPI_BLOCKS_ONE,
    .gets = RPI_BLOCKS_ONE,
    .mixes = true,
    .has_codec = true,
    .source = source,
    .start = start,
};

static int run(int argc, char **argv) {
    return rpi_bench_run(&kind, argc, argv);
}

const rpi_command rpi_command_bench_neighbor_all_reduce = {
    .name = "bench neighbor-all-reduce",
    .summary = "time an exchange with neighbours of a topology",
    .about =
        RPI_BENCH_ABOUT("Times an exchange with neighbours: every rank gets the weighted "
                        "sum of its own vector and those of its neighbours in a round of a "
                        "topology. redpoll plan gossip predicts it."),
    .notes = RPI_BENCH_NOTES,
    .examples = "  redpoll bench neighbor-all-reduce -n 16 --topology exponential --codec q4\n"
                "  redpoll bench neighbor-all-reduce -n 5 --topology base --link 1Gbit,50us\n"
                "  redpoll bench neighbor-all-reduce -n 4 -t ring -b 1K -e 64M -f 4\n",
    .options = options,
    .bench = &kind,
    .run = run,
};
