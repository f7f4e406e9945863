/* `redpoll info --model`: the costs of a training step of a model, before anything is
 * allocated. */
#ifndef RPI_CLI_INFO_MODEL_H
#define RPI_CLI_INFO_MODEL_H

#include "redpoll/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct rpi_info_model {
    const char *model; /* as --model of redpoll train; NULL: not asked for */
    const char *image; /* "3x224x224" */
    const char *dtype, *optimizer;
    int64_t batch, sequence, classes; /* sequence 0: 128, or the model's positions */
    int64_t zero, ranks;              /* the stage of ZeRO, and the ranks that share */
    int64_t tensor_ranks;             /* that share each layer */
    int64_t context_ranks;            /* ranks that share each sequence */
    int64_t stages, micro_batch;      /* of a pipeline; micro_batch 0: the batch */
    const char *schedule;             /* the order of its passes; NULL: 1f1b */
    const char *stage_cut;            /* layers that stages begin with; NULL: counted */
    bool sequence_parallel;           /* ranks that share layers also share tokens */
    const char *activations_codec;    /* the codec between stages; NULL: exact */
    bool recompute, json;
} rpi_info_model;

/* RP_INVALID if `text` is not CHANNELSxHEIGHTxWIDTH. */
rp_status rpi_check_image(const char *text);

rp_status rpi_info_model_print(const rpi_info_model *info);

#endif
