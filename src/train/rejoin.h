/* Ranks that die while a run trains whose strategy goes on without them: those that are left
 * meet, all go on behind the same step, and each with its own part of the data. What the dead
 * would have learnt from is left out from then on. */
#ifndef RPI_TRAIN_REJOIN_H
#define RPI_TRAIN_REJOIN_H

#include "train/trainer.h"

/* Of ranks with roles: those left behind since the last time, as the strategy says, out of the
 * members. false: none. *out_loss: until the next one. */
bool rpi_trainer_find_lost(rpi_trainer *trainer, rpi_loss *out_loss);

/* "ranks 0, 1 and 3" */
void rpi_append_ranks(char *text, size_t bytes, const int *ranks, int count);

/* What a rank has done when it hears of a death; doubles, as ranks send them to each other. */
typedef struct rpi_standing {
    double step;             /* the others' steps are done alone by who is behind */
    double evaluated, saved; /* behind these steps; -1: never */
    double good;             /* step of the last checkpoint */
    double asked;
} rpi_standing;

/* Of all ranks, which have done equally many steps. Collective. */
rp_status rpi_trainer_compare(const rpi_trainer *trainer, rpi_standing *in_out_standing);

/* The communicator of those that are left becomes the trainer's, and all are behind the same
 * step. In: this rank's standing. Out: the furthest step, what all have done behind it, what
 * any was asked for. Further deaths are dealt with meanwhile. *out_loss: until the next one.
 * `reports` stay alone until rpi_step_reports_rejoin(). Collective over them. */
rp_status rpi_trainer_rejoin(rpi_trainer *trainer, rpi_standing *in_out_standing,
                             rpi_loss *out_loss);

#endif
