/* Kinds that normalizers.c lists, from other files or used elsewhere too. */
#ifndef RPI_TRAIN_NORMALIZERS_H
#define RPI_TRAIN_NORMALIZERS_H

#include "train/tokenizers/pipeline.h"

rp_status rpi_nfc_apply(const void *state, rpi_matcher *matcher, const char *text, size_t bytes,
                        rpi_text *out);
rp_status rpi_nfd_apply(const void *state, rpi_matcher *matcher, const char *text, size_t bytes,
                        rpi_text *out);
rp_status rpi_nfkc_apply(const void *state, rpi_matcher *matcher, const char *text,
                         size_t bytes, rpi_text *out);
rp_status rpi_nfkd_apply(const void *state, rpi_matcher *matcher, const char *text,
                         size_t bytes, rpi_text *out);
/* Character by character: a final sigma is like any other. */
rp_status rpi_lowercase_apply(const void *state, rpi_matcher *matcher, const char *text,
                              size_t bytes, rpi_text *out);
/* Drops marks that stand alone; of a composed letter they are part (NFD takes it apart). */
rp_status rpi_strip_accents_apply(const void *state, rpi_matcher *matcher, const char *text,
                                  size_t bytes, rpi_text *out);

rp_status rpi_bert_normalizer_load(rpi_pipeline_memory *memory, const cJSON *json,
                                   void **out_state);
rp_status rpi_bert_normalizer_apply(const void *state, rpi_matcher *matcher, const char *text,
                                    size_t bytes, rpi_text *out);

/* Replace is a normalizer and a decoder. */
rp_status rpi_replace_load(rpi_pipeline_memory *memory, const cJSON *json, void **out_state);
rp_status rpi_replace_apply(const void *state, rpi_matcher *matcher, const char *text,
                            size_t bytes, rpi_text *out);

#endif
