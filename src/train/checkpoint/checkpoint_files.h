/* Names and entries of checkpoint files, for saving and loading. */
#ifndef RPI_TRAIN_CHECKPOINT_FILES_H
#define RPI_TRAIN_CHECKPOINT_FILES_H

#include "train/checkpoint/safetensors.h"
#include "train/trainer.h"

enum { RPI_CHECKPOINT_NAME = 192, RPI_CHECKPOINT_PATH = 1024 };

/* "FOLDER/model-step-S.safetensors": a model that a newer one has replaced. */
void rpi_checkpoint_earlier_path(const char *folder, int64_t step,
                                 char path[RPI_CHECKPOINT_PATH]);
/* Is this the name of such a file? */
bool rpi_checkpoint_is_earlier(const char *name, int64_t *out_step);
/* The steps of such files in a folder, newest first, at most `most` of them; returns their
 * number. */
int rpi_checkpoint_earlier(const char *folder, int64_t *steps, int most);
void rpi_checkpoint_rank_path(const char *folder, int rank, int world, int64_t step,
                              char path[RPI_CHECKPOINT_PATH]);
/* Are there rank files? There are if something differs between ranks (differs: parameters,
 * optimizers or error feedback), or if a rank has something that no model file holds (keeps:
 * its strategy's state). A single rank has no residual to keep, and its running statistics are
 * the model's; memories belong to its own rows. */
bool rpi_checkpoint_has_rank_files(const rpi_trainer *trainer, int64_t world, bool differs,
                                   bool keeps);
/* Does the strategy of a world of one keep vectors of its own, such as an outer momentum? */
bool rpi_checkpoint_keeps_alone(const rpi_trainer *trainer);
/* "rank 1 of 2 of step 10" */
void rpi_checkpoint_part_text(int rank, int world, int64_t step, char *text, size_t bytes);
/* "1x28x28 images of 10 classes" */
void rpi_checkpoint_shape_text(const rpi_trainer *trainer, char *text, size_t bytes);
/* Exact values that owners keep, where the model has what a codec makes of them. */
#define RPI_CHECKPOINT_KEPT "optimizer.value"
/* "optimizer.momentum.fc.weight" */
void rpi_checkpoint_slot_name(const rpi_optimizer_state *optimizer, int slot,
                              const char *parameter, char name[RPI_CHECKPOINT_NAME]);
/* "value", "optimizer.momentum", "gossip.0": the vectors that ranks with parameters of their
 * own have of each parameter, beside the states, in the order of the arena; returns their
 * number. */
enum { RPI_CHECKPOINT_OWN = 1 + RPI_OPTIMIZER_SLOTS + RPI_STRATEGY_STATES };
typedef struct rpi_checkpoint_vector {
    char kind[64];
    float *arena;
} rpi_checkpoint_vector;
int rpi_checkpoint_own_vectors(const rpi_trainer *trainer,
                               rpi_checkpoint_vector out_vectors[RPI_CHECKPOINT_OWN]);
/* The shape of this rank's part of a parameter. */
const rpi_shape *rpi_checkpoint_own_shape(const rpi_trainer *trainer,
                                          const rpi_parameter *parameter);
/* The name and shape of a layer's memory, rows x tokens x width. */
void rpi_checkpoint_memory(const rpi_trainer *trainer, int layer,
                           char name[RPI_CHECKPOINT_NAME], rpi_shape *out_shape);
/* The number of the optimizer's slots that have entries of their own: all except the values
 * that owners keep where no other rank has them, which are the model's. */
int rpi_checkpoint_slots(const rpi_trainer *trainer);
void rpi_checkpoint_entry_name(const char *kind, const char *parameter,
                               char name[RPI_CHECKPOINT_NAME]);

/* Reads a whole number from the metadata; RP_CORRUPT. */
rp_status rpi_checkpoint_number(const rpi_safetensors *file, const char *path, const char *key,
                                int64_t min, int64_t max, int64_t *out_number);
/* RP_CORRUPT: the file has no checksum. Damage may hit only the checksum's name, and everything
 * else by which the file could be recognised. */
rp_status rpi_checkpoint_check_writer(const rpi_safetensors *file, const char *path);
/* Opens one rank's file and checks that it is that rank's, and was saved with this model (NULL:
 * with any). */
rp_status rpi_checkpoint_open_rank(const rpi_safetensors *model, const char *folder, int rank,
                                   int world, int64_t step, rpi_safetensors **out_file);
/* checkpoint_rank.c: writes that file, if this rank has something to save in it. states: the
 * mean of the replicas' running statistics. *out_checksum: of the file; 0 without one. */
rp_status rpi_checkpoint_write_rank(const rpi_trainer *trainer, const char *folder,
                                    const float *states, uint32_t *out_checksum);
/* Do ranks save parameters and optimizer in pieces, each a part of them? They always do if none
 * holds the whole model; running statistics are then in pieces, too. If ranks have parameters
 * or optimizers of their own, rank 0 saves what all agree on. */
bool rpi_checkpoint_in_pieces(const rpi_trainer *trainer);

#endif
