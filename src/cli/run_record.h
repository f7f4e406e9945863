/* What a run of `redpoll train` was, as its metrics.jsonl says, for a forecast of it. */
#ifndef RPI_CLI_RUN_RECORD_H
#define RPI_CLI_RUN_RECORD_H

#include "redpoll/status.h"

#include <stdbool.h>
#include <stdint.h>

struct cJSON;

/* Texts are the header's; NULL where it has none. */
typedef struct rpi_run_record {
    const char *model, *strategy, *codec, *algorithm, *link, *optimizer, *dtype, *schedule;
    const char *activations_codec;
    int64_t ranks, global_batch, accumulate, sequence;
    int64_t micro_batch; /* samples of a run of the model; 0: a rank's step over accumulate */
    int64_t tensor, context, pipeline, zero; /* 1, 1, 1 and 0 where they are not said */
    double momentum, bucket_mb;
    bool recompute, error_feedback, sequence_parallel;
} rpi_run_record;

/* RP_CORRUPT: no header of a run, or one without what every header has. */
rp_status rpi_run_record_read(const struct cJSON *header, rpi_run_record *out);

#endif
