/* Windows of attention in config.json, of families that say of each layer whether it has one:
 * use_sliding_window, sliding_window, max_window_layers and layer_types. */
#ifndef RPI_TRAIN_HF_WINDOWS_H
#define RPI_TRAIN_HF_WINDOWS_H

#include "train/models/model.h"

struct cJSON;

/* Append ",window=4096" to the text of a model where all layers have it; nothing where none
 * has. RP_INVALID: some have; RP_CORRUPT: a key of another type. */
rp_status rpi_hf_windows_read(const char *path, const struct cJSON *root, char *text,
                              size_t bytes);
/* The same of a model. */
void rpi_hf_windows_write(const rpi_model_choice *choice, struct cJSON *root);

#endif
