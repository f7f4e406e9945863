/* What wrappers of models put around the names of their tensors: DistributedDataParallel
 * `module.`, torch.compile `_orig_mod.`, PEFT `base_model.model.`, FSDP and activation
 * checkpointing names of their own inside. */
#ifndef RPI_TRAIN_HF_WRAPPERS_H
#define RPI_TRAIN_HF_WRAPPERS_H

#include <stdbool.h>
#include <stddef.h>

/* A name without them, not longer than before; may be the same memory. */
void rpi_hf_unwrap(const char *name, char *out);
/* What a name begins with, for a message; "" for nothing. */
void rpi_hf_wrapper_of(const char *name, char *text, size_t bytes);

#endif
