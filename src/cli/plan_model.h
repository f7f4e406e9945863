/* What predictions assume: links as the user names them, codecs as fast as here and now. */
#ifndef RPI_CLI_PLAN_MODEL_H
#define RPI_CLI_PLAN_MODEL_H

#include "plan/cost.h"
#include "plan/topologies/topology.h"
#include "redpoll/codec.h"

/* `link` between hosts, `local` inside one, both RATE,LATENCY; the codec is measured for a
 * fraction of a second. RP_INVALID: no link. */
rp_status rpi_plan_model_make(const char *link, const char *local, const rp_codec *codec,
                              rpi_cost_model *out_model);

/* The all-reduce that a run would choose, and its price: simulated up to so many ranks, and in
 * larger worlds, whose simulation takes long, by its closed form. */
rp_status rpi_plan_all_reduce(const rpi_plan_request *request, bool lossy, size_t bytes,
                              size_t encoded, const rpi_cost_model *model, int most_simulated,
                              const rpi_algorithm **out_algorithm, rpi_cost *out_cost);

/* What the first `rounds` rounds of a topology take: on average (time_s and wire_bytes), and
 * the slowest of them. */
rp_status rpi_plan_gossip_rounds(const rpi_topology *topology, int rounds,
                                 const rpi_plan_request *request, size_t bytes, size_t encoded,
                                 const rpi_cost_model *model, rpi_cost *out_mean,
                                 rpi_cost *out_slowest);

/* Ranks in order, as even as can be: some hosts have one more than others. Which host each rank
 * is on; NULL of 0 hosts: each on its own. At most 16384 ranks; static. */
const int *rpi_plan_layout(int64_t ranks, int64_t hosts);

#endif
