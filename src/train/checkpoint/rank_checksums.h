/* Which rank files belong to a model file: its metadata has their checksums, of eight digits a
 * rank, in the order of ranks; zeros of a rank that has none. Where a file of another run, or
 * of the same step done again, has got beside it, it is noticed. */
#ifndef RPI_TRAIN_RANK_CHECKSUMS_H
#define RPI_TRAIN_RANK_CHECKSUMS_H

#include "train/checkpoint/safetensors.h"
#include "train/trainer.h"

#define RPI_RANK_CHECKSUMS_KEY "rank_checksums"

/* The text of all ranks', allocated; *out_text is NULL where no rank has a file. Collective,
 * and no rank is past it before all have written theirs. own: of this rank's file, or 0. */
rp_status rpi_rank_checksums_gather(const rpi_trainer *trainer, uint32_t own, char **out_text);
/* RP_CORRUPT, naming the rank's file: the model was saved with another one. A model that says
 * nothing of it, as older ones do, takes any; NULL is such, too. */
rp_status rpi_rank_checksums_check(const rpi_safetensors *model, const rpi_safetensors *file,
                                   int rank);

#endif
