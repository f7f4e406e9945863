/* `redpoll bench window-put`: every rank puts its vector into the slots of its neighbours in a
 * topology, and waits until they have it. */
#include "base/memory.h"
#include "base/status.h"
#include "cli/bench_collective.h"
#include "cli/commands.h"
#include "redpoll/window.h"

static const rpi_option options[] = {
    RPI_BENCH_VECTOR_OPTIONS("25557032"),
    RPI_BENCH_CODEC_OPTION,
    {"topology", "t", NULL, RPI_OPTION_TEXT, RPI_BENCH_FIELD(topology), "exponential", 0, 0,
     "TOPOLOGY",
     "NAME or NAME:option=value,... (docs/topologies.md); its first round says who the "
     "neighbours are",
     NULL},
    {0},
};

static rpi_bench_source source(const rpi_bench_call *call, int block) {
    (void)call;
    return (rpi_bench_source){RPI_BENCH_NEIGHBORS, block};
}

static bool takes_dtype(rp_dtype dtype) {
    return dtype == RP_F32 || dtype == RP_F64;
}

static rp_status ranks_of(const rp_neighbor *neighbors, size_t count, int **out_ranks) {
    RP_TRY(rpi_alloc_array(count, sizeof **out_ranks, "neighbours", out_ranks));
    for (size_t i = 0; i < count; i++) (*out_ranks)[i] = neighbors[i].rank;
    return RP_OK;
}

static rp_status open_window(rpi_bench_call *call) {
    const rp_neighbors *lists = NULL;
    int *sources = NULL, *destinations = NULL;
    RP_TRY(rpi_topology_rounds_at(call->rounds, 0, &lists));
    rp_status status = ranks_of(lists->sources, lists->source_count, &sources);
    if (status == RP_OK)
        status = ranks_of(lists->destinations, lists->destination_count, &destinations);
    rp_window_setup setup =
        RP_WINDOW_SETUP(.name = "bench", .data = (void *)(uintptr_t)call->input,
                        .count = call->count, .dtype = call->dtype, .sources = sources,
                        .source_count = lists->source_count, .destinations = destinations,
                        .destination_count = lists->destination_count, .codec = call->codec,
                        .zero_slots = 1);
    if (status == RP_OK) status = rp_window_create(call->comm, &setup, &call->window);
    rpi_free(sources);
    rpi_free(destinations);
    return status;
}

static rp_status start(const rpi_bench_call *call, rp_request *requests[2]) {
    const rp_neighbors *lists = NULL;
    rp_window_operation *operation = NULL;
    (void)requests; /* a window has operations of its own */
    RP_TRY(rpi_topology_rounds_at(call->rounds, 0, &lists));
    rp_window_send send =
        RP_WINDOW_SEND(.targets = lists->destinations, .count = lists->destination_count);
    if (!send.targets) send.targets = &(rp_neighbor){0};
    RP_TRY(rp_window_put(call->window, NULL, call->count, &send, &operation));
    return rp_window_wait(&operation, 0);
}

/* The result is what an update makes of the slots. */
static rp_status settle(const rpi_bench_call *call) {
    const rp_neighbors *lists = NULL;
    RP_TRY(rpi_topology_rounds_at(call->rounds, 0, &lists));
    rp_window_mix mix = RP_WINDOW_MIX(.self_weight = lists->self_weight,
                                      .sources = lists->sources, .count = lists->source_count);
    RP_TRY(rp_barrier(call->comm)); /* all have put */
    return rp_window_update(call->window, &mix, call->output);
}

static const rpi_bench_kind kind = {
    .command = &rpi_command_bench_window_put,
    .collective = RPI_NEIGHBOUR_ALL_REDUCE,
    .gives = RPI_BLOCKS_ONE,
    .gets = RPI_BLOCKS_ONE,
    .mixes = true,
    .has_codec = true,
    .takes_dtype = takes_dtype,
    .dtypes = "f32 and f64",
    .source = source,
    .open = open_window,
    .start = start,
    .settle = settle,
};

static int run(int argc, char **argv) {
    return rpi_bench_run(&kind, argc, argv);
}

const rpi_command rpi_command_bench_window_put = {
    .name = "bench window-put",
    .summary = "time a put into windows of a topology's neighbours",
    .about =
        RPI_BENCH_ABOUT("Times a put into windows: every rank writes its vector into a slot "
                        "of each neighbour in a topology, one-sided, until all of them have "
                        "it. What a weighted update makes of the slots afterwards is "
                        "checked, and not timed."),
    .notes = RPI_BENCH_NOTES,
    .examples = "  redpoll bench window-put -n 4 --topology ring\n"
                "  redpoll bench window-put -n 2 --codec q4 --link 1Gbit,50us\n"
                "  redpoll bench window-put -n 8 -t exponential -b 1K -e 64M -f 4\n",
    .options = options,
    .bench = &kind,
    .run = run,
};
