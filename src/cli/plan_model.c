#include "cli/plan_model.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "cli/gaussian.h"
#include "net/shaped/link_shape.h"
#include "plan/algorithms.h"
#include "plan/choose.h"
#include "plan/outline.h"

/* How fast this machine encodes and decodes: a fraction of a second, best of a few. */
static rp_status measure_codec(const rp_codec *codec, rpi_cost_model *model) {
    enum { COUNT = 1 << 20, REPEATS = 5 };
    float *x = NULL;
    void *encoded = NULL;
    size_t bytes = rp_codec_encoded_bytes(codec, RP_F32, COUNT);
    RP_TRY(rpi_alloc_array(COUNT, sizeof *x, "a sample", &x));
    rp_status status = rpi_alloc(bytes, "a sample", &encoded);
    if (status == RP_OK) rpi_gaussian(1, 0, 0, COUNT, x);
    double encode_s = 1e9, decode_s = 1e9;
    for (int i = 0; i < REPEATS && status == RP_OK; i++) {
        int64_t start = rpi_now_ns();
        status = rp_codec_encode(codec, RP_F32, x, COUNT, NULL, encoded, &bytes);
        int64_t middle = rpi_now_ns();
        if (status == RP_OK)
            status = rp_codec_decode_add(codec, RP_F32, encoded, bytes, COUNT, NULL, x);
        int64_t end = rpi_now_ns();
        if (rpi_seconds(middle - start) < encode_s) encode_s = rpi_seconds(middle - start);
        if (rpi_seconds(end - middle) < decode_s) decode_s = rpi_seconds(end - middle);
    }
    model->encode_bytes_s = COUNT * sizeof(float) / encode_s;
    model->decode_add_bytes_s = COUNT * sizeof(float) / decode_s;
    rpi_free(x);
    rpi_free(encoded);
    return status;
}

rp_status rpi_plan_model_make(const char *link, const char *local, const rp_codec *codec,
                              rpi_cost_model *out_model) {
    rpi_link_shape between, inside;
    RP_TRY(rpi_link_shape_parse(link, &between));
    RP_TRY(rpi_link_shape_parse(local, &inside));
    *out_model = (rpi_cost_model){.bytes_per_s = between.bytes_per_s,
                                  .latency_s = between.latency_s,
                                  .inside_bytes_per_s = inside.bytes_per_s,
                                  .inside_latency_s = inside.latency_s,
                                  .frame_bytes = 64};
    return measure_codec(codec, out_model);
}

const int *rpi_plan_layout(int64_t ranks, int64_t hosts) {
    static int host_of[16384];
    if (!hosts) return NULL;
    for (int64_t rank = 0; rank < ranks; rank++) host_of[rank] = (int)(rank * hosts / ranks);
    return host_of;
}

rp_status rpi_plan_all_reduce(const rpi_plan_request *request, bool lossy, size_t bytes,
                              size_t encoded, const rpi_cost_model *model, int most_simulated,
                              const rpi_algorithm **out_algorithm, rpi_cost *out_cost) {
    const rpi_algorithm *algorithm;
    rpi_world_shape shape;
    RP_TRY(rpi_algorithm_choose(RPI_ALL_REDUCE, request, lossy, bytes, &rpi_nominal_links,
                                &algorithm));
    *out_algorithm = algorithm;
    if (request->world <= most_simulated)
        return rpi_plan_cost(algorithm, request, bytes, encoded, model, out_cost);
    RP_TRY(rpi_world_shape_make(request, &shape));
    rpi_outline outline = algorithm->outline(&shape);
    *out_cost = (rpi_cost){.time_s = rpi_outline_price(&outline, &shape, bytes, encoded, model),
                           .wire_bytes = outline.host_bytes * (double)encoded};
    return RP_OK;
}

/* The traffic of a round: one vector to each neighbour, whatever it is added to there. */
static rp_status make_traffic(const rpi_mixing *mixing, rpi_mixing *traffic) {
    rpi_mixing_start(traffic, mixing->ranks, 1);
    for (int rank = 0; rank < mixing->ranks; rank++) {
        rpi_edges in = rpi_mixing_in(mixing, rank);
        for (int e = 0; e < in.count; e++) rpi_mixing_link(traffic, in.list[e].rank, rank);
    }
    return rpi_mixing_finish(traffic, RPI_WEIGHTS_UNIFORM);
}

static rp_status price_round(const rpi_topology *topology, int64_t step,
                             const rpi_plan_request *request, size_t bytes, size_t encoded,
                             const rpi_cost_model *model, rpi_cost *out_cost) {
    rpi_mixing mixing = {0}, traffic = {0};
    rp_status status = rpi_topology_mix(topology, step, &mixing);
    if (status == RP_OK && mixing.vectors > 1) status = make_traffic(&mixing, &traffic);
    rpi_plan_request of_round = *request;
    of_round.mixing = mixing.vectors > 1 ? &traffic : &mixing;
    if (status == RP_OK)
        status = rpi_plan_cost(&rpi_algorithm_neighbour_all_reduce, &of_round, bytes, encoded,
                               model, out_cost);
    rpi_mixing_free(&mixing);
    rpi_mixing_free(&traffic);
    return status;
}

rp_status rpi_plan_gossip_rounds(const rpi_topology *topology, int rounds,
                                 const rpi_plan_request *request, size_t bytes, size_t encoded,
                                 const rpi_cost_model *model, rpi_cost *out_mean,
                                 rpi_cost *out_slowest) {
    *out_mean = *out_slowest = (rpi_cost){0};
    for (int step = 0; step < rounds; step++) {
        rpi_cost cost;
        RP_TRY(price_round(topology, step, request, bytes, encoded, model, &cost));
        out_mean->time_s += cost.time_s / rounds;
        out_mean->wire_bytes += cost.wire_bytes / rounds;
        if (step == 0 || cost.time_s > out_slowest->time_s) *out_slowest = cost;
    }
    return RP_OK;
}
