/* The optimizer's state as whole arrays, for a file that holds all of it: the trainer's own, or
 * on rank 0 a copy for as long as it writes, where ranks have parts of it (ownership.h). */
#ifndef RPI_TRAIN_WHOLE_SLOTS_H
#define RPI_TRAIN_WHOLE_SLOTS_H

#include "train/trainer.h"

typedef struct rpi_whole_slots { /* zeros: none but the trainer's own */
    float *copies[RPI_OPTIMIZER_SLOTS + 1];
} rpi_whole_slots;

/* Collective where ranks have parts; rank 0 gets all of them. */
rp_status rpi_whole_slots_gather(const rpi_trainer *trainer, rpi_whole_slots *out_slots);
void rpi_whole_slots_free(rpi_whole_slots *slots);

/* Of all elements from the arena's `first` on. */
const float *rpi_whole_slots_at(const rpi_whole_slots *slots, const rpi_trainer *trainer,
                                int slot, int64_t first);

#endif
