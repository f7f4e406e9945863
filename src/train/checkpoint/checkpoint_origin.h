/* What a checkpoint says of the run that saved it, beside the run that goes on. */
#ifndef RPI_TRAIN_CHECKPOINT_ORIGIN_H
#define RPI_TRAIN_CHECKPOINT_ORIGIN_H

#include "train/checkpoint/safetensors.h"
#include "train/trainer.h"

typedef struct rpi_checkpoint_origin {
    int64_t step, world, seed, batch;
    int64_t stages, tensor_ranks; /* the ranks that held one model together */
    int servers;                  /* its ranks that only served */
    int64_t parts; /* parts of the batch: more than learning ranks, if some had died */
    bool feedback;
    /* its ranks had parameters or optimizers of their own (in a world of one: something that
     * the model file does not have) */
    bool apart;
    bool met;   /* they had optimizers of their own */
    bool alike; /* it had this run's strategy, with the same options */
} rpi_checkpoint_origin;

/* Reads the metadata of the model file at `path`. strategy: this run's. RP_CORRUPT: a number is
 * missing or beyond its limits. */
rp_status rpi_checkpoint_origin_read(const rpi_safetensors *file, const char *path,
                                     const char *strategy, rpi_checkpoint_origin *out_origin);

/* Does each rank go on with its own parameters, as if the run had never stopped? */
bool rpi_checkpoint_goes_on_apart(const rpi_trainer *trainer,
                                  const rpi_checkpoint_origin *origin);
/* Are the memories of segments still valid? With another batch, rows are other rows. */
bool rpi_checkpoint_remembers(const rpi_trainer *trainer, const rpi_checkpoint_origin *origin);
bool rpi_checkpoint_is_same_layout(const rpi_trainer *trainer,
                                   const rpi_checkpoint_origin *origin);

/* Appends to what `note` holds, behind a semicolon; cut to `bytes`. */
void rpi_checkpoint_add_note(char *note, size_t bytes, const char *format, ...) RP_PRINTF(3, 4);
/* Appends to `note` what the user may not expect: another order of images, or another number of
 * ranks. */
void rpi_checkpoint_note_changes(const rpi_trainer *trainer,
                                 const rpi_checkpoint_origin *origin, char *note, size_t bytes);

/* Error feedback that other ranks had: each rank takes an equal part of the sum of all their
 * residuals. model: the open model file of `folder`. */
rp_status rpi_checkpoint_share_residuals(rpi_trainer *trainer, const rpi_safetensors *model,
                                         const char *folder,
                                         const rpi_checkpoint_origin *origin);

#endif
