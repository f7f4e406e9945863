/* The algorithm for a collective when nobody named one. */
#ifndef RPI_PLAN_CHOOSE_H
#define RPI_PLAN_CHOOSE_H

#include "plan/cost.h"

/* Where encodings lose (lossy), the one with the fewest quantisations; among equals, and for
 * exact ones, the cheapest by rpi_plan_cost of these sizes and this model, the first of the
 * catalogue unless another is clearly (5 %) cheaper. Pure, so ranks that agree on the arguments
 * agree on the algorithm (a model measured on each rank apart does not do). Ranks of a gather,
 * scatter or all-to-all know different sizes: of these there is one algorithm in each world.
 * Prices only where there is something to choose. RP_UNSUPPORTED: no algorithm fits the world.
 */
rp_status rpi_algorithm_choose(rpi_collective collective, int world, size_t bytes,
                               size_t encoded, bool lossy, const rpi_cost_model *model,
                               const rpi_algorithm **out_algorithm);

/* What the executor runs when nobody names an algorithm, and so what `redpoll plan` prices:
 * rpi_algorithm_choose for a nominal network (10 Gbit/s, 20 us) and the size rounded down to a
 * power of two. In worlds above 16 an exact vector goes round a ring where there is one: the
 * model knows no switch, and all ranks sending to each other at once flood one. Pure. */
rp_status rpi_algorithm_default(rpi_collective collective, int world, bool lossy, size_t bytes,
                                const rpi_algorithm **out_algorithm);

#endif
