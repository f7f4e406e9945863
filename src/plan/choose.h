/* The algorithm for a collective when nobody named one. */
#ifndef RPI_PLAN_CHOOSE_H
#define RPI_PLAN_CHOOSE_H

#include "plan/cost.h"

/* Where encodings lose (lossy), the one with the fewest quantisations; among equals, and for
 * exact ones, the cheapest by rpi_plan_cost of these sizes and this model; among those, the
 * first of the catalogue. Pure, so ranks that agree on the arguments agree on the algorithm (a
 * model measured on each rank apart does not do). Prices only where there is something to
 * choose. RP_UNSUPPORTED: no algorithm fits the world. */
rp_status rpi_algorithm_choose(rpi_collective collective, int world, size_t bytes,
                               size_t encoded, bool lossy, const rpi_cost_model *model,
                               const rpi_algorithm **out_algorithm);

#endif
