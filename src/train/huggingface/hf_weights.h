/* The tensors of a Hugging Face folder: model.safetensors, or the shards that
 * model.safetensors.index.json names; f32, bf16, f16 or f64. */
#ifndef RPI_TRAIN_HF_WEIGHTS_H
#define RPI_TRAIN_HF_WEIGHTS_H

#include "train/huggingface/hf_family.h"
#include "train/models/network.h"

typedef struct rpi_hf_weights rpi_hf_weights;

/* Open and check all files, headers and what the index says of them. RP_NOT_FOUND: none there,
 * or a shard is missing; RP_CORRUPT: damaged. Messages name the file. */
rp_status rpi_hf_weights_open(const char *folder, rpi_hf_weights **out_weights);
void rpi_hf_weights_close(rpi_hf_weights *weights); /* NULL is fine */

/* Copy what is there to the parameters of a network; those that are missing keep their values.
 * Both, and tensors without a place in the model, are listed in note, "" for nothing.
 * RP_MISMATCH: a tensor of another shape or of no floats; RP_CORRUPT: NaN or infinity, or not
 * one tensor of this model. */
rp_status rpi_hf_weights_load(const rpi_hf_weights *from, const rpi_hf_family *family,
                              const rpi_network *network, rpi_weights *weights, bool partial,
                              char *note, size_t note_bytes);

/* All of it from a folder whose config.json is of that network's model. partial: tensors may be
 * missing; else RP_CORRUPT lists them. */
rp_status rpi_hf_load(const char *folder, const rpi_network *network, rpi_weights *weights,
                      bool partial, char *note, size_t note_bytes);
/* From rows x columns to columns x rows. */
void rpi_hf_transpose(const float *from, int64_t rows, int64_t columns, float *to);

/* Can its files be opened? For a check before ranks start. */
rp_status rpi_hf_check(const char *folder);

#endif
