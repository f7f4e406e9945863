/* How long a training step takes, and where it goes.
 *
 * A layer's pass is what its device computes (matrix products at an efficiency that grows with
 * their smallest side, the rest at the memory's rate) and the sums over tensor-parallel ranks,
 * or what the host takes to start it all, whichever is longer. A micro-batch is passes over a
 * stage's layers: forward, backward, and once more what is made again. A
 * pipeline takes what its schedule takes, by events. Gradients are summed inside hosts, between
 * them and inside again. */
#ifndef RPI_PLAN_STEP_FORECAST_H
#define RPI_PLAN_STEP_FORECAST_H

#include "plan/foresight/forecast.h"

/* Operations of a rank's forward pass over a layer, of a micro-batch. */
double rpi_pass_flops(const rpi_training_layout *layout);

/* The layout was checked. RP_INVALID: ranks are no whole hosts, or the device does not multiply
 * in its dtype. */
rp_status rpi_forecast_step(const rpi_training_layout *layout, const rpi_machine *machine,
                            rpi_forecast *out);
/* The same with a pipeline that takes no longer than it must, and links between stages that
 * cost nothing: no step is shorter, and it takes no time to tell. */
rp_status rpi_forecast_bound(const rpi_training_layout *layout, const rpi_machine *machine,
                             rpi_forecast *out);

#endif
