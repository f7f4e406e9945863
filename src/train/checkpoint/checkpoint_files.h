/* Names and entries of checkpoint files, shared by saving and loading. */
#ifndef RPI_TRAIN_CHECKPOINT_FILES_H
#define RPI_TRAIN_CHECKPOINT_FILES_H

#include "train/checkpoint/safetensors.h"
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
/* Of what owners keep, where the model has what a codec makes of it. */
#define RPI_CHECKPOINT_KEPT "optimizer.value"
/* "optimizer.momentum.fc.weight" */
void rpi_checkpoint_slot_name(const rpi_optimizer_state *optimizer, int slot,
                              const char *parameter, char name[RPI_CHECKPOINT_NAME]);
/* "value", "optimizer.momentum", "gossip.0": what ranks with parameters of their own have of
 * each, beside the states, in the order of the arena; how many. */
enum { RPI_CHECKPOINT_OWN = 1 + RPI_OPTIMIZER_SLOTS + RPI_STRATEGY_STATES };
typedef struct rpi_checkpoint_vector {
    char kind[64];
    float *arena;
} rpi_checkpoint_vector;
int rpi_checkpoint_own_vectors(const rpi_trainer *trainer,
                               rpi_checkpoint_vector out_vectors[RPI_CHECKPOINT_OWN]);
/* What this rank has of a parameter. */
const rpi_shape *rpi_checkpoint_own_shape(const rpi_trainer *trainer,
                                          const rpi_parameter *parameter);
/* A layer's memory: its name and shape, rows x tokens x width. */
void rpi_checkpoint_memory(const rpi_trainer *trainer, int layer,
                           char name[RPI_CHECKPOINT_NAME], rpi_shape *out_shape);
/* How many of the optimizer's slots have entries of their own: all but the values that owners
 * keep where nobody else has any, which are the model's. */
int rpi_checkpoint_slots(const rpi_trainer *trainer);
void rpi_checkpoint_entry_name(const char *kind, const char *parameter,
                               char name[RPI_CHECKPOINT_NAME]);

/* A whole number in the metadata; RP_CORRUPT. */
rp_status rpi_checkpoint_number(const rpi_safetensors *file, const char *path, const char *key,
                                int64_t min, int64_t max, int64_t *out_number);
/* RP_CORRUPT: it has no checksum. Damage may hit just the checksum's name, and whatever else
 * would tell that the file is ours. */
rp_status rpi_checkpoint_check_writer(const rpi_safetensors *file, const char *path);
/* What belongs to one rank, and is that and no other's, and was saved with this model (NULL:
 * with any). */
rp_status rpi_checkpoint_open_rank(const rpi_safetensors *model, const char *folder, int rank,
                                   int world, int64_t step, rpi_safetensors **out_file);
/* checkpoint_rank.c: write that file, if this rank has something for it. states: the mean of
 * the replicas' running statistics. *out_checksum: of the file; 0 without one. */
rp_status rpi_checkpoint_write_rank(const rpi_trainer *trainer, const char *folder,
                                    const float *states, uint32_t *out_checksum);
/* Do ranks save parameters and optimizer in pieces, each a part of them? Always where none
 * holds the whole model; running statistics are in pieces then, too. Where ranks have
 * parameters or optimizers of their own, rank 0 saves what all agree on. */
bool rpi_checkpoint_in_pieces(const rpi_trainer *trainer);

#endif
