/* Checkpoints: everything that the next step depends on.
 *
 *     model.safetensors         the newest: parameters, averaged running statistics, optimizer
 *                               state; the step and what it belongs to in the metadata
 *     model-step-S.safetensors  those before it, as many as are to be kept
 *     rank-R-of-N-step-S.safetensors
 *                               what differs between ranks: error feedback, and the running
 *                               statistics before averaging
 *
 * Rank files are written first, under names with their step. Then rank 0 gives the newest model
 * its second name and renames the new model over the first; from this moment on the new
 * checkpoint exists. Then models beyond the number to keep are removed, and then their rank
 * files. At any moment a folder therefore holds whole checkpoints, or none. */
#ifndef RPI_TRAIN_CHECKPOINT_H
#define RPI_TRAIN_CHECKPOINT_H

#include "train/trainer.h"

/* The model's file in a folder; returns path. */
const char *rpi_checkpoint_path(const char *folder, char *path, size_t bytes);

/* A key in the metadata of the model's file: which schedule a pipeline runs, and where it is
 * cut. */
#define RPI_STAGE_RECORD_KEY "pipeline"

/* Saves into an existing folder. Collective: a failure on one rank fails all ranks, and the
 * checkpoint that was there stays. */
rp_status rpi_checkpoint_save(rpi_trainer *trainer, const char *folder);

/* Loads the newest checkpoint into an open trainer. With as many ranks as saved it, the next
 * step gives the same bytes as if the run had never stopped. With another number, running
 * statistics are the averaged ones, and every rank takes an equal part of the sum of all error
 * feedback: gradients are summed over ranks, so that the sum of the residuals must be kept. If
 * the newest checkpoint, or a rank's part of it, is damaged or missing, all ranks take the one
 * before. Collective: a failure fails all ranks with the message of the first. RP_MISMATCH: a
 * checkpoint of another model; the message names both. note: what was skipped, and what
 * continues differently; "" if nothing. */
rp_status rpi_checkpoint_load(rpi_trainer *trainer, const char *folder, char *note,
                              size_t note_bytes);

/* Does the newest readable checkpoint in this folder fit the model of these options? For a
 * check before ranks start, which does not look at rank files. */
rp_status rpi_checkpoint_check(const rpi_train_options *options);

/* This rank becomes rank 0. If the former rank 0 has left a newer model in the folder, perhaps
 * while it saved, it is replaced by the trainer's last good checkpoint. */
void rpi_checkpoint_take_over(rpi_trainer *trainer, const char *folder);

enum { RPI_CHECKPOINT_MOST_KEPT = 1000 };

#endif
