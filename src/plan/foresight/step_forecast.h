/* The time of a training step, and its terms.
 *
 * A pass over a layer takes the time of its device (matrix products at an efficiency that grows
 * with their smallest side, the rest at the memory's rate) and of sums over tensor-parallel
 * ranks, or the time that the host needs to start it, whichever is longer. A micro-batch is
 * passes over a stage's layers: forward, backward, and recomputation. The time of a pipeline is
 * that of its schedule, simulated by events. Gradients are summed inside hosts, between hosts
 * and inside again. */
#ifndef RPI_PLAN_STEP_FORECAST_H
#define RPI_PLAN_STEP_FORECAST_H

#include "plan/foresight/forecast.h"

/* Operations of a rank's forward pass over a layer with a micro-batch. */
double rpi_pass_flops(const rpi_training_layout *layout);

/* The layout must have been checked. RP_INVALID: the ranks do not fill whole hosts, or the
 * device does not multiply in its dtype. */
rp_status rpi_forecast_step(const rpi_training_layout *layout, const rpi_machine *machine,
                            rpi_forecast *out);
/* A lower bound, which is quick to compute: the pipeline takes its bound, and links between
 * stages cost nothing. */
rp_status rpi_forecast_bound(const rpi_training_layout *layout, const rpi_machine *machine,
                             rpi_forecast *out);

#endif
