/* Checkpoints: everything that the next step depends on.
 *
 *     model.safetensors         the newest: parameters, averaged running statistics, optimizer
 *                               state; the step and what it belongs to in the metadata
 *     model-step-S.safetensors  those before it, as many as are to be kept
 *     rank-R-of-N-step-S.safetensors
 *                               what differs between ranks: error feedback, and the running
 *                               statistics before averaging
 *
 * Rank files are written first, under names with their step; then rank 0 gives the newest its
 * second name and renames the new model over the first, which is the moment a checkpoint comes
 * into being; then go the models that are too many, and then their rank files. So at any moment
 * a folder holds whole checkpoints, or none. */
#ifndef RPI_TRAIN_CHECKPOINT_H
#define RPI_TRAIN_CHECKPOINT_H

#include "train/trainer.h"

/* The model's file in a folder; returns path. */
const char *rpi_checkpoint_path(const char *folder, char *path, size_t bytes);

/* In the metadata of the model's file: which schedule a pipeline runs, and where it is cut. */
#define RPI_STAGE_RECORD_KEY "pipeline"

/* Save into an existing folder. Collective: when it fails on one rank it fails on all; the
 * checkpoint that was there stays. */
rp_status rpi_checkpoint_save(rpi_trainer *trainer, const char *folder);

/* Load the newest into a trainer that was opened: with as many ranks as saved it the next step
 * gives the same bytes as if the run had never stopped. With another number, running statistics
 * are the averaged ones, and every rank takes an equal part of the sum of all error feedback:
 * gradients are summed over ranks, so the sum of what is still owed to the parameters is what
 * must be kept. Where the newest, or a rank's part of it, is damaged or missing, the one before
 * is taken, by all ranks. Collective: fails on all ranks with the message of the first.
 * RP_MISMATCH: a checkpoint of another model, naming both. What was passed over, and what
 * continues differently than it began, goes to note, "" for nothing. */
rp_status rpi_checkpoint_load(rpi_trainer *trainer, const char *folder, char *note,
                              size_t note_bytes);

/* Does the newest readable checkpoint in this folder fit the model of these options? For a
 * check before ranks start: rank files are not looked at. */
rp_status rpi_checkpoint_check(const rpi_train_options *options);

/* This rank is rank 0 from now on: what the one before has left in the folder, perhaps in the
 * middle of saving, is replaced if it is not the trainer's last good checkpoint. */
void rpi_checkpoint_take_over(rpi_trainer *trainer, const char *folder);

enum { RPI_CHECKPOINT_MOST_KEPT = 1000 };

#endif
