/* What stands beside a tokenizer: which token ends a text, in tokenizer_config.json, and,
 * beside the vocabularies of releases that wrote no tokenizer.json, options and tokens that
 * were added.
 */
#ifndef RPI_TRAIN_TOKENIZER_CONFIG_H
#define RPI_TRAIN_TOKENIZER_CONFIG_H

#include "train/tokenizers/json_read.h"

/* The root of FOLDER/tokenizer_config.json, an empty object where there is none; free it with
 * cJSON_Delete(). RP_CORRUPT: damaged. */
rp_status rpi_tokenizer_config_read(const char *folder, cJSON **out_config);

/* Are the tokens that tokenizer_config.json, special_tokens_map.json and added_tokens.json name
 * all among `specials` (NULL ends it), under the ids of `vocab`? Others would be cut otherwise
 * than by the vocabulary: RP_UNSUPPORTED names the file and the token. */
rp_status rpi_tokenizer_config_check(const char *folder, const cJSON *config,
                                     const char *const *specials, const cJSON *vocab);

/* The token that ends a text, as tokenizer_config.json or special_tokens_map.json beside
 * "FOLDER/tokenizer.json" names it (beside "X.tokenizer.json": X.tokenizer_config.json ...);
 * free it with rpi_free(). NULL: neither does. RP_CORRUPT: damaged. */
rp_status rpi_tokenizer_config_end(const char *tokenizer_path, char **out_token);

#endif
