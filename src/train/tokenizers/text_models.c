/* The catalogue of models. */
#include "train/tokenizers/pipeline.h"

#include <string.h>

extern const rpi_text_model_kind rpi_text_model_bpe;
extern const rpi_text_model_kind rpi_text_model_wordpiece;
extern const rpi_text_model_kind rpi_text_model_unigram;
extern const rpi_text_model_kind rpi_text_model_word_level;

static const rpi_text_model_kind *const kinds[] = {
    &rpi_text_model_bpe,
    &rpi_text_model_wordpiece,
    &rpi_text_model_unigram,
    &rpi_text_model_word_level,
};

/* Old files do not say which; what they hold does. */
static const char *type_of(const cJSON *json) {
    const char *type = rpi_json_type(json);
    if (*type) return type;
    if (rpi_json_has(json, "merges")) return "BPE";
    if (rpi_json_has(json, "continuing_subword_prefix")) return "WordPiece";
    return cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(json, "vocab")) ? "Unigram" : "";
}

rp_status rpi_text_model_find(const cJSON *json, const rpi_text_model_kind **out_kind) {
    const char *type = type_of(json);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(kinds[i]->type, type) != 0) continue;
        *out_kind = kinds[i];
        return RP_OK;
    }
    return RP_FAIL(UNSUPPORTED,
                   "model '%s' is not supported; there are BPE, WordPiece, Unigram, WordLevel",
                   type);
}
