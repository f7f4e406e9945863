/* The tensors that the files of a Hugging Face folder hold: model.safetensors, or the shards
 * that model.safetensors.index.json names; f32, bf16, f16 or f64. */
#ifndef RPI_TRAIN_HF_FILES_H
#define RPI_TRAIN_HF_FILES_H

#include "base/regular_file.h"
#include "train/checkpoint/safetensors.h"

typedef struct rpi_hf_files rpi_hf_files;

typedef struct rpi_hf_stored {
    const char *name; /* without what wrappers of models put around it: hf_wrappers.h */
    const char *file; /* beside config.json */
    const rpi_named_tensor *tensor; /* under the name that it has in the file */
    const rpi_safetensors *from;
} rpi_hf_stored;

/* Open and check all files, headers and what the index says of them. RP_NOT_FOUND: none there,
 * or a shard is missing; RP_CORRUPT: damaged, or two tensors of one name; RP_INVALID: those of
 * a LoRA adapter. Messages name the file. */
rp_status rpi_hf_files_open(const char *folder, rpi_hf_files **out_files);
void rpi_hf_files_close(rpi_hf_files *files); /* NULL is fine */

/* In the order of their names; valid until the files are closed. */
int rpi_hf_files_count(const rpi_hf_files *files);
const rpi_hf_stored *rpi_hf_files_at(const rpi_hf_files *files, int index);
/* NULL: there is none such. */
const rpi_hf_stored *rpi_hf_files_find(const rpi_hf_files *files, const char *name);

/* Its elements as f32. RP_MISMATCH: of no floats; RP_CORRUPT: NaN or infinity. */
rp_status rpi_hf_files_read(const rpi_hf_files *files, const rpi_hf_stored *stored, float *out);

/* RP_INVALID: the folder is a LoRA adapter's, which says what model it belongs to. */
rp_status rpi_hf_adapter_check(const char *folder);

#endif
