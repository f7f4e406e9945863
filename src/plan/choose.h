/* The algorithm for a collective when nobody named one. */
#ifndef RPI_PLAN_CHOOSE_H
#define RPI_PLAN_CHOOSE_H

#include "plan/outline.h"

/* What links cost when nobody has measured them: 10 Gbit/s and 20 us between hosts, memory
 * inside. Data: rates and latencies that were measured can stand in its place. */
extern const rpi_cost_model rpi_nominal_links;

/* The algorithm for `bytes` (rpi_plan_cost) among ranks that are laid out so:
 *  - lossy codecs: of those with the fewest lossy encodings an element the cheapest;
 *  - exact ones: the cheapest of those that add in rank order, where the collective promises
 * that (collective.h) and also of an all-reduce or reduce-scatter of at most 16 ranks that are
 * all on one host or each on its own, so that its sum has the bits of the serial one; else the
 *    cheapest of all. From 17 hosts and 1 MiB on none in which all send to all at once: that
 *    floods switches, which no outline knows.
 * Prices are those of outlines (outline.h) for the size rounded down to a power of two; the
 * first of the catalogue counts unless another is clearly (5 %) cheaper. Ranks of a gather,
 * scatter or all-to-all know different sizes: of these there is one algorithm. Pure and
 * simulating nothing: ranks that agree on the arguments agree on the algorithm. RP_UNSUPPORTED:
 * none fits the world.
 */
rp_status rpi_algorithm_choose(rpi_collective collective, const rpi_plan_request *request,
                               bool lossy, size_t bytes, const rpi_cost_model *model,
                               const rpi_algorithm **out_algorithm);

/* Why, in a few words: "chosen", "dearer by these links", "exact codecs only", ... of an
 * algorithm of this collective. Never NULL. */
rp_status rpi_algorithm_verdict(const rpi_algorithm *algorithm, const rpi_plan_request *request,
                                bool lossy, size_t bytes, const rpi_cost_model *model,
                                const char **out_words);

/* The choice for every size, made once, for whoever posts: a look-up takes no time. */
typedef struct rpi_choices {
    const rpi_algorithm *by_size[RPI_COLLECTIVES][2][65]; /* lossy; size class; NULL: none */
} rpi_choices;

void rpi_choices_make(const rpi_plan_request *request, const rpi_world_shape *shape,
                      const rpi_cost_model *model, rpi_choices *out_choices);
/* RP_UNSUPPORTED as above. */
rp_status rpi_choices_find(const rpi_choices *choices, rpi_collective collective, int world,
                           bool lossy, size_t bytes, const rpi_algorithm **out_algorithm);

#endif
