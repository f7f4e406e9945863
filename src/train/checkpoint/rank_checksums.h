/* Says which rank files belong to a model file: the model's metadata has their checksums, eight
 * digits a rank, in the order of ranks; zeros for a rank without a file. A file of another run,
 * or of the same step made again, is noticed. */
#ifndef RPI_TRAIN_RANK_CHECKSUMS_H
#define RPI_TRAIN_RANK_CHECKSUMS_H

#include "train/checkpoint/safetensors.h"
#include "train/trainer.h"

#define RPI_RANK_CHECKSUMS_KEY "rank_checksums"

/* The text of all ranks, allocated; *out_text is NULL if no rank has a file. Collective: no
 * rank returns before all have written theirs. own: of this rank's file, or 0. */
rp_status rpi_rank_checksums_gather(const rpi_trainer *trainer, uint32_t own, char **out_text);
/* RP_CORRUPT: the model was saved with another file; the message names the rank's file. A model
 * without checksums, as older ones are, accepts any file, and so does NULL. */
rp_status rpi_rank_checksums_check(const rpi_safetensors *model, const rpi_safetensors *file,
                                   int rank);

#endif
