/* Checks for NaN and infinity, which are never saved or evaluated, and stop the training soon.
 *
 * In every step each rank checks its loss, its running statistics and, before they are summed,
 * its own gradients, and tells the others with its reports (step_reports.h). All ranks
 * therefore stop after the same step, and name the same rank and the step in which it began.
 * Before evaluations and checkpoints and at the end they also check parameters, optimizer state
 * and error feedback. */
#ifndef RPI_TRAIN_DIVERGENCE_H
#define RPI_TRAIN_DIVERGENCE_H

#include "engine/instance.h"
#include "train/trainer.h"

/* Checks gradients in [first, first + count), before they are summed over ranks. */
void rpi_divergence_watch(rpi_trainer *trainer, int64_t first, int64_t count);
/* After this rank's run, before any update: if its loss or gradients are not finite, finds the
 * origin, by a check of the parameters and one more forward pass. */
rp_status rpi_divergence_trace(rpi_trainer *trainer, rpi_instance *instance,
                               const rpi_run_options *run, double loss);

/* What the message of a training that has diverged begins with, before the step; a `;` stands
 * between what has happened and what to do. `redpoll verify` reads it. */
#define RPI_DIVERGED "training has diverged at step "

/* RP_CORRUPT on all ranks alike if a rank has a fault: the message says where it began and what
 * to do. It is then collective. faults: of all ranks in this step, `stride` doubles apart;
 * updates: the updates that parameters had had when they were checked. */
rp_status rpi_divergence_report(const rpi_trainer *trainer, const double *faults, int stride,
                                int64_t step, int64_t updates);

/* Checks everything that a checkpoint holds. mean_states: the states averaged over ranks, or
 * NULL. Collective; fails as above. */
rp_status rpi_divergence_check(rpi_trainer *trainer, const float *mean_states);

#endif
