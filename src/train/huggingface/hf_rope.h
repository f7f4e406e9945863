/* Stretched rotary positions in config.json: an object rope_scaling, or, from transformers 5
 * on, rope_parameters. */
#ifndef RPI_TRAIN_HF_ROPE_H
#define RPI_TRAIN_HF_ROPE_H

#include "train/models/model.h"

struct cJSON;

/* The object that counts; NULL: there is none. */
const struct cJSON *rpi_hf_rope_object(const struct cJSON *root);

/* Append ",rope-factor=8,..." to the text of a model; nothing where angles are not stretched.
 * RP_INVALID: stretched in another way, or a text that is full; RP_CORRUPT: a key is missing.
 */
rp_status rpi_hf_rope_read(const char *path, const struct cJSON *root, char *text,
                           size_t bytes);
/* The same of a model, into both objects. */
void rpi_hf_rope_write(const rpi_model_choice *choice, struct cJSON *root);

#endif
