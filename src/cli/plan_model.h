/* The assumptions of predictions: links as the user gives them, codecs with their measured
 * speed. */
#ifndef RPI_CLI_PLAN_MODEL_H
#define RPI_CLI_PLAN_MODEL_H

#include "plan/cost.h"
#include "plan/topologies/topology.h"
#include "redpoll/codec.h"

/* `link` between hosts, `local` inside one, both RATE,LATENCY; the codec is measured for a
 * fraction of a second. RP_INVALID: it is not a link. */
rp_status rpi_plan_model_make(const char *link, const char *local, const rp_codec *codec,
                              rpi_cost_model *out_model);

/* The all-reduce that a run would choose, and its price: simulated up to so many ranks, and by
 * its closed form in larger worlds, whose simulation takes long. */
rp_status rpi_plan_all_reduce(const rpi_plan_request *request, bool lossy, size_t bytes,
                              size_t encoded, const rpi_cost_model *model, int most_simulated,
                              const rpi_algorithm **out_algorithm, rpi_cost *out_cost);

/* The time and bytes of the first `rounds` rounds of a topology: their mean (time_s and
 * wire_bytes), and the slowest of them. */
rp_status rpi_plan_gossip_rounds(const rpi_topology *topology, int rounds,
                                 const rpi_plan_request *request, size_t bytes, size_t encoded,
                                 const rpi_cost_model *model, rpi_cost *out_mean,
                                 rpi_cost *out_slowest);

/* The host of each rank. Ranks are distributed in order, as evenly as possible: some hosts have
 * one more than others. NULL for 0 hosts: each rank is on its own. At most 16384 ranks; static.
 */
const int *rpi_plan_layout(int64_t ranks, int64_t hosts);

#endif
