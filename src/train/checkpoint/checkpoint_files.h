/* Names and entries of checkpoint files, shared by saving and loading. */
#ifndef RPI_TRAIN_CHECKPOINT_FILES_H
#define RPI_TRAIN_CHECKPOINT_FILES_H

#include "train/trainer.h"

enum { RPI_CHECKPOINT_NAME = 192, RPI_CHECKPOINT_PATH = 1024 };

/* "FOLDER/model-step-S.safetensors", one that a newer has replaced. */
void rpi_checkpoint_earlier_path(const char *folder, int64_t step,
                                 char path[RPI_CHECKPOINT_PATH]);
/* Is this name of such a file? */
bool rpi_checkpoint_is_earlier(const char *name, int64_t *out_step);
/* The steps of those in a folder, newest first, at most `most` of them; how many. */
int rpi_checkpoint_earlier(const char *folder, int64_t *steps, int most);
void rpi_checkpoint_rank_path(const char *folder, int rank, int world, int64_t step,
                              char path[RPI_CHECKPOINT_PATH]);
/* Does something differ between ranks (differs: parameters, optimizers or error feedback), or
 * has one rank what no model file holds (keeps: its strategy's state)? One rank owes nothing,
 * and its running statistics are the model's; memories are of its own rows. */
bool rpi_checkpoint_has_rank_files(const rpi_trainer *trainer, int64_t world, bool differs,
                                   bool keeps);
/* The strategy of a world of one has vectors of its own, as an outer momentum. */
bool rpi_checkpoint_keeps_alone(const rpi_trainer *trainer);
/* "rank 1 of 2 of step 10" */
void rpi_checkpoint_part_text(int rank, int world, int64_t step, char *text, size_t bytes);
/* "1x28x28 images of 10 classes" */
void rpi_checkpoint_shape_text(const rpi_trainer *trainer, char *text, size_t bytes);
/* "optimizer.momentum.fc.weight" */
void rpi_checkpoint_slot_name(const rpi_optimizer *optimizer, int slot, const char *parameter,
                              char name[RPI_CHECKPOINT_NAME]);
/* "value", "optimizer.momentum", "gossip.0": what ranks with parameters of their own have of
 * each, beside the states, in the order of the arena; how many. */
enum { RPI_CHECKPOINT_OWN = 1 + RPI_OPTIMIZER_SLOTS + RPI_STRATEGY_STATES };
typedef struct rpi_checkpoint_vector {
    char kind[64];
    float *arena;
} rpi_checkpoint_vector;
int rpi_checkpoint_own_vectors(const rpi_trainer *trainer,
                               rpi_checkpoint_vector out_vectors[RPI_CHECKPOINT_OWN]);
/* A layer's memory: its name and shape, rows x tokens x width. */
void rpi_checkpoint_memory(const rpi_trainer *trainer, int layer,
                           char name[RPI_CHECKPOINT_NAME], rpi_shape *out_shape);
void rpi_checkpoint_entry_name(const char *kind, const char *parameter,
                               char name[RPI_CHECKPOINT_NAME]);

#endif
