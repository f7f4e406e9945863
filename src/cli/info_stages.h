/* `redpoll info --model M --pp N`: the memory and work of each stage of a pipeline, and whether
 * the ranks fit into this host's memory. */
#ifndef RPI_CLI_INFO_STAGES_H
#define RPI_CLI_INFO_STAGES_H

#include "engine/optimizer.h"
#include "train/model_account.h"
#include "train/parallel/rank_account.h"

#include <cjson/cJSON.h>

typedef struct rpi_info_stages_request {
    int64_t stages, tensor_ranks, context_ranks;
    int64_t ranks;              /* of all replicas; up to 1: one replica */
    int64_t batch, micro_batch; /* samples of a replica; micro_batch 0: the batch */
    int64_t zero;
    const char *schedule;          /* NULL: 1f1b */
    const char *cut;               /* layers that stages begin with, or "counted"; NULL: that */
    const char *activations_codec; /* the codec between stages; NULL: exact */
} rpi_info_stages_request;

typedef struct rpi_info_stages {
    int stages, replicas, ranks; /* 0 stages: not asked for */
    int64_t micro_batch;
    int micro_batches;
    char text[RPI_MODEL_STAGE_TEXT]; /* the layers of each stage */
    rpi_rank_account *each;          /* owned: [stages] */
    double all_bytes, host_bytes;    /* of all ranks; and this host's memory, or INFINITY */
} rpi_info_stages;

/* model: with its options resolved. RP_INVALID: the numbers do not fit together; the message
 * says what would. */
rp_status rpi_info_stages_make(const rpi_info_stages_request *asked, const char *model,
                               const rpi_account_options *options,
                               const rpi_optimizer *optimizer, rpi_info_stages *out_stages);
void rpi_info_stages_free(rpi_info_stages *stages); /* zeros are fine */

void rpi_info_stages_print(const rpi_info_stages *stages);
void rpi_info_stages_add_json(const rpi_info_stages *stages, cJSON *object);

#endif
