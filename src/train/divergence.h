/* The watch over what is trained: nothing that is NaN or infinite is saved or evaluated, or
 * trained on for long.
 *
 * Every step each rank looks at its loss, its running statistics and, before they are summed,
 * its own gradients, and tells the others with its reports (step_reports.h); so all ranks stop
 * after the same step and name the same rank and the step where it began. Parameters, optimizer
 * state and error feedback are looked at as well before evaluations and checkpoints and at the
 * end. */
#ifndef RPI_TRAIN_DIVERGENCE_H
#define RPI_TRAIN_DIVERGENCE_H

#include "engine/instance.h"
#include "train/trainer.h"

/* Look at gradients in [first, first + count), which are this rank's alone still. */
void rpi_divergence_watch(rpi_trainer *trainer, int64_t first, int64_t count);
/* This rank's step ran, before any update: if its loss or gradients are not finite, find where
 * that began, by the parameters and the forward pass once more. */
rp_status rpi_divergence_trace(rpi_trainer *trainer, rpi_instance *instance,
                               const rpi_run_options *run, double loss);

/* RP_CORRUPT when a rank has a fault, on all ranks alike: says where it began and what to do.
 * Collective then.
 * faults: of all ranks in this step, `stride` doubles apart; updates: those that parameters had
 * had when they were looked at. */
rp_status rpi_divergence_report(const rpi_trainer *trainer, const double *faults, int stride,
                                int64_t step, int64_t updates);

/* Look at all that a checkpoint holds. mean_states: the states averaged over ranks, or NULL.
 * Collective; fails as above. */
rp_status rpi_divergence_check(rpi_trainer *trainer, const float *mean_states);

#endif
