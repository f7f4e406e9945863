/* Data that a run learns from one after the other: "stages:tokens:A;10=tokens:B;20=tokens:C"
 * has A until step 10, which is the first to learn from B. Steps are counted from 1. */
#ifndef RPI_TRAIN_STAGES_H
#define RPI_TRAIN_STAGES_H

#include "base/regular_file.h"

#include <stdbool.h>
#include <stdint.h>

enum { RPI_STAGES = 64, RPI_STAGE_TEXT = 2 * RPI_PATH_BYTES };

typedef struct rpi_stage {
    int64_t first; /* step, from 0 */
    char data[RPI_STAGE_TEXT];
} rpi_stage;

bool rpi_stages_are(const char *data);
/* The index-th of a text that are; *out_more: there are others behind it. RP_INVALID: it is
 * written otherwise. */
rp_status rpi_stages_at(const char *data, int index, rpi_stage *out_stage, bool *out_more);

#endif
