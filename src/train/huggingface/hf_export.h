/* The model of a run as a Hugging Face folder: config.json, model.safetensors and, where the
 * data of the run name one, tokenizer.json. */
#ifndef RPI_TRAIN_HF_EXPORT_H
#define RPI_TRAIN_HF_EXPORT_H

#include "redpoll/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct rpi_hf_exported {
    const char *architecture; /* static */
    int64_t parameters, step;
    bool has_tokenizer;
    char note[1200]; /* why there is no tokenizer.json; "" where there is */
} rpi_hf_exported;

/* Everything is written beside `folder` and comes under its name when it is whole; on failure
 * what was there stays, and nothing is left. RP_NOT_FOUND: no checkpoint in `run`; RP_INVALID:
 * a model without names there, or a folder that holds something, without `overwrite`, which
 * replaces files of the same names and leaves others. */
rp_status rpi_hf_export(const char *run, const char *folder, bool overwrite,
                        rpi_hf_exported *out_exported);

#endif
