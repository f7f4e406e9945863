/* config.json of a Hugging Face folder: what model it is, and how large. */
#ifndef RPI_TRAIN_HF_CONFIG_H
#define RPI_TRAIN_HF_CONFIG_H

#include "train/huggingface/hf_family.h"
#include "train/models/model.h"

/* The model of a folder as redpoll train --model takes it ("gpt2:layers=12,..."). RP_NOT_FOUND:
 * no config.json there; RP_CORRUPT: damaged, or a key is missing; RP_INVALID: an architecture
 * that we do not have, or a variant of it, or the folder of an adapter. Messages name file and
 * key. Fails also as opening the files of weights does, where config.json ties the head. */
rp_status rpi_hf_config_read(const char *folder, char model[RPI_MODEL_TEXT],
                             const rpi_hf_family **out_family);

/* The same. *out_untied: config.json ties the head to the table of tokens, but the folder's
 * files have two different matrices, and the model has, too. */
rp_status rpi_hf_config_open(const char *folder, char model[RPI_MODEL_TEXT],
                             const rpi_hf_family **out_family, bool *out_untied);

/* The folder of "hf:FOLDER"; NULL: the text names no folder. */
const char *rpi_hf_folder(const char *text);
/* The model that --model names: itself, or that of hf:FOLDER. *out_folder: as above. Fails as
 * rpi_hf_config_read() does; RP_INVALID: no folder behind hf:, or a text that is too long. */
rp_status rpi_hf_model_of(const char *text, char model[RPI_MODEL_TEXT],
                          const char **out_folder);

/* The tokens before and behind a text; -1: none is known. */
typedef struct rpi_hf_text_ends {
    int64_t begin, end;
} rpi_hf_text_ends;

/* What a model of pictures was trained on; zeros for others. */
typedef struct rpi_hf_pictures {
    int64_t classes, channels, side;
} rpi_hf_pictures;

/* The text of config.json for such a model; free with rpi_free(). */
rp_status rpi_hf_config_text(const rpi_hf_family *family, const rpi_model_choice *choice,
                             rpi_hf_text_ends ends, rpi_hf_pictures pictures, char **out_text);

/* The tokens at which a text ends, by generation_config.json or config.json; a folder may name
 * none. RP_CORRUPT: damaged. */
enum { RPI_HF_ENDS = 16 };
typedef struct rpi_hf_ends {
    int count;
    int64_t at[RPI_HF_ENDS];
} rpi_hf_ends;
rp_status rpi_hf_config_ends(const char *folder, rpi_hf_ends *out_ends);

#endif
