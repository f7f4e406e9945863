/* A trained model on data, without training: the newest checkpoint of a run, or a Hugging Face
 * folder. One rank. */
#ifndef RPI_TRAIN_EVAL_MODEL_H
#define RPI_TRAIN_EVAL_MODEL_H

#include "base/regular_file.h"
#include "train/train.h"

typedef struct rpi_eval_options {
    const char *model;           /* "hf:FOLDER", or the folder of a run */
    const char *data, *data_dir; /* NULL: what the run learnt from, and its folder */
    int64_t seq_length;          /* 0: the run's, else 256, or as many positions
                                  * as a Hugging Face folder's model has, if fewer */
    int64_t batch_size;          /* samples at once; 0: 16 */
    int64_t memory;              /* tokens that a row remembers; 0: the model's own */
    int64_t samples;             /* first of those held out; 0: all */
    bool skip_broken;            /* of pictures: go on without those that are; a run's, too */
    bool all;                    /* of tokens: every sample, not only those held out */
    int64_t threads;             /* 0: one a core */
    const char *backend;         /* NULL: the fastest */
} rpi_eval_options;

typedef struct rpi_eval_result {
    rpi_evaluation evaluation;
    char model[RPI_MODEL_TEXT]; /* "gpt2:layers=12,..." */
    char data[2 * RPI_PATH_BYTES + 64];
    int64_t parameters, step; /* step: of the run; -1: of none */
    char note[4096];          /* what the user may not expect; "" for nothing */
} rpi_eval_result;

/* RP_INVALID: a mistake of usage; RP_NOT_FOUND: no such run, folder or data; RP_CORRUPT:
 * damaged, or not all of a model's tensors. */
rp_status rpi_eval(const rpi_eval_options *options, rpi_eval_result *out_result);

#endif
