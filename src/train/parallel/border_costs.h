/* What it costs to hand activations from a stage to the next, measured with messages of their
 * size. */
#ifndef RPI_TRAIN_BORDER_COSTS_H
#define RPI_TRAIN_BORDER_COSTS_H

#include "plan/pipelines/pipeline_price.h"
#include "redpoll/comm.h"

/* Into the links of a model: border_bytes, rates and latencies; the slowest border counts, of
 * stages of one host and of several. host_of is the communicator's, or NULL. Collective over
 * `stages`, who are told alike; measures only where it is asked for, so that replicas do not
 * disturb each other. RP_NOMEM, or what fails on the way. */
rp_status rpi_border_costs_measure(rp_comm *stages, size_t bytes, bool measures,
                                   rpi_pipeline_model *out_model);

#endif
