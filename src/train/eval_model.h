/* Evaluates a trained model on data: the newest checkpoint of a run, or a Hugging Face folder.
 * One rank. */
#ifndef RPI_TRAIN_EVAL_MODEL_H
#define RPI_TRAIN_EVAL_MODEL_H

#include "base/regular_file.h"
#include "train/train.h"

typedef struct rpi_eval_options {
    const char *model;           /* "hf:FOLDER", or the folder of a run */
    const char *data, *data_dir; /* NULL: the run's data, and its folder */
    /* 0: the run's, else 256, or the number of positions of a Hugging Face folder's model if
     * that is smaller */
    int64_t seq_length;
    int64_t batch_size;  /* samples at once; 0: 16 */
    int64_t memory;      /* memory of a row in tokens; 0: the model's own */
    int64_t samples;     /* the first held-out samples; 0: all */
    bool skip_broken;    /* leave out broken pictures; a run's setting counts, too */
    bool all;            /* for tokens: every sample, not only held-out ones */
    int64_t threads;     /* 0: one a core */
    const char *backend; /* NULL: the fastest */
} rpi_eval_options;

typedef struct rpi_eval_result {
    rpi_evaluation evaluation;
    char model[RPI_MODEL_TEXT]; /* "gpt2:layers=12,..." */
    char data[2 * RPI_PATH_BYTES + 64];
    int64_t parameters, step; /* step: of the run; -1: of none */
    char note[4096];          /* what the user may not expect; "" if nothing */
} rpi_eval_result;

/* RP_INVALID: a mistake of usage; RP_NOT_FOUND: there is no such run, folder or data;
 * RP_CORRUPT: it is damaged, or tensors of the model are missing. */
rp_status rpi_eval(const rpi_eval_options *options, rpi_eval_result *out_result);

#endif
