/* The check of a pipeline's orders, without running it. */
#ifndef RPI_PLAN_PIPELINE_CHECK_H
#define RPI_PLAN_PIPELINE_CHECK_H

#include "plan/pipelines/pipeline_orders.h"

/* RP_OK: the orders are what a kind promises:
 *   - each micro-batch goes once each way through each part, weights behind inputs;
 *   - of each part, backward passes run in the order of micro-batches, and weights too;
 *   - nobody waits for ever, where between two stages there is room for as many messages of a
 *     direction (activations, gradients) as the kind says, one as a rule, of which one is taken
 *     when its receiver runs the pass that needs it, and a sender goes no further while there
 * is no room: so messages of a link are needed in the order in which they are sent, too;
 *   - each stage keeps as many micro-batches at most as the kind says, no fewer and no more;
 *   - where passes take one unit and messages nothing, all is done when the kind says.
 * RP_INTERNAL names the first that does not hold, and where. RP_NOMEM. */
rp_status rpi_pipeline_check(rpi_pipeline_orders *orders);

/* The most micro-batches, one for each chunk, of which a stage keeps something. */
int rpi_pipeline_most_kept(const rpi_pipeline_orders *orders, int stage);

#endif
