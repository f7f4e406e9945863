/* How long it takes to hand activations from a stage to the next, measured with messages of
 * their size. */
#ifndef RPI_TRAIN_BORDER_COSTS_H
#define RPI_TRAIN_BORDER_COSTS_H

#include "plan/pipelines/pipeline_price.h"
#include "redpoll/comm.h"

/* Sets border_bytes, rates and latencies of the model's links. The slowest border counts, one
 * for stages of one host and one for stages of several. host_of is the communicator's, or NULL.
 * Collective over `stages`, all of which get the same result. It measures only where it is
 * asked to, so that replicas do not disturb each other. RP_NOMEM, or the failure of a message.
 */
rp_status rpi_border_costs_measure(rp_comm *stages, size_t bytes, bool measures,
                                   rpi_pipeline_model *out_model);

#endif
