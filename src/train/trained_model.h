/* A model that was trained: the newest checkpoint of a run, or a Hugging Face folder. */
#ifndef RPI_TRAIN_TRAINED_MODEL_H
#define RPI_TRAIN_TRAINED_MODEL_H

#include "train/models/network.h"

struct rpi_safetensors;
struct rpi_piece_files;

typedef struct rpi_trained_model {
    char text[RPI_MODEL_TEXT]; /* "gpt2:layers=12,..." */
    const char *hf_folder;     /* NULL: a run */
    const char *data;          /* what a run learnt from; NULL: not known */
    int64_t step;              /* of a run; -1: of none */
    struct rpi_safetensors *run;
    struct rpi_piece_files *pieces; /* of that, with what lies beside it */
} rpi_trained_model;

/* name: "hf:FOLDER", or the folder of a run; it outlives the model. RP_NOT_FOUND: no such run
 * or folder; RP_CORRUPT: damaged; RP_INVALID: a config.json of what we do not have. */
rp_status rpi_trained_model_open(const char *name, rpi_trained_model *out_model);
void rpi_trained_model_close(rpi_trained_model *model); /* zeros are fine */

/* Its parameters to the weights of a network that was built of its text. RP_CORRUPT: one is
 * missing or not finite. What the model has no use for is listed in note, "" for nothing. */
rp_status rpi_trained_model_load(const rpi_trained_model *model, const rpi_network *network,
                                 rpi_weights *weights, char *note, size_t note_bytes);

#endif
