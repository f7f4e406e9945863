/* A model's parameters from a Hugging Face folder: hf_files.h has its files. */
#ifndef RPI_TRAIN_HF_WEIGHTS_H
#define RPI_TRAIN_HF_WEIGHTS_H

#include "train/huggingface/hf_family.h"
#include "train/models/network.h"

/* Copy what is there to the parameters of a network, which config.json must be of. partial:
 * heads that the family says a file may lack keep their values; of all else every tensor must
 * be there, else RP_CORRUPT lists them. Heads that start anew, tensors without a place in the
 * model, wrappers in their names and matrices that are not tied, as config.json says, are told
 * in note, "" for nothing. RP_MISMATCH: a tensor of another shape or of no floats;
 * RP_CORRUPT: also NaN or infinity, or not one tensor of this model; RP_INVALID: two
 * different matrices where the model has one. */
rp_status rpi_hf_load(const char *folder, const rpi_network *network, rpi_weights *weights,
                      bool partial, char *note, size_t note_bytes);
/* From rows x columns to columns x rows. */
void rpi_hf_transpose(const float *from, int64_t rows, int64_t columns, float *to);

/* Can its files be opened? For a check before ranks start. */
rp_status rpi_hf_check(const char *folder);

#endif
