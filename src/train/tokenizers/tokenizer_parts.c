#include "train/tokenizers/tokenizer_parts.h"

#include <string.h>

const char *rpi_tokenizer_name(const rpi_tokenizer *t) {
    return t->name;
}

const char *rpi_tokenizer_type(const rpi_tokenizer *t) {
    return t->model ? t->model->type : "byte";
}

const char *rpi_tokenizer_json(const rpi_tokenizer *t, size_t *out_bytes) {
    *out_bytes = t->json_bytes;
    return t->json;
}

uint32_t rpi_tokenizer_size(const rpi_tokenizer *t) {
    return t->size;
}

/* One that is looked for behind the normalizers is shown as those leave it, as others do. */
static const char *added_token(const rpi_tokenizer *t, uint32_t id) {
    for (size_t i = 0; i < t->added.count; i++)
        if (t->added.at[i].id == id && t->added.at[i].matched.count)
            return t->added.at[i].matched.at;
    return t->added_ids.tokens[id].text;
}

const char *rpi_tokenizer_token(const rpi_tokenizer *t, uint32_t id) {
    if (id < t->added_ids.size && t->added_ids.tokens[id].text) return added_token(t, id);
    return id < t->vocabulary.size ? t->vocabulary.tokens[id].text : NULL;
}

bool rpi_tokenizer_is_special(const rpi_tokenizer *t, uint32_t id) {
    return id < t->size && t->is_special[id];
}

bool rpi_tokenizer_find(const rpi_tokenizer *t, const char *token, uint32_t *out_id) {
    size_t bytes = strlen(token);
    return rpi_vocabulary_find(&t->added_ids, token, bytes, out_id) ||
           rpi_vocabulary_find(&t->vocabulary, token, bytes, out_id);
}

const char *rpi_special_name(rpi_special special) {
    static const char *const names[RPI_SPECIALS] = {
        [RPI_SPECIAL_BEGIN] = "begin",     [RPI_SPECIAL_END] = "end",
        [RPI_SPECIAL_UNKNOWN] = "unknown", [RPI_SPECIAL_PAD] = "pad",
        [RPI_SPECIAL_CLS] = "cls",         [RPI_SPECIAL_SEP] = "sep",
        [RPI_SPECIAL_MASK] = "mask"};
    return names[special];
}

bool rpi_tokenizer_special(const rpi_tokenizer *t, rpi_special special, uint32_t *out_id) {
    if (t->specials[special] == UINT32_MAX) return false;
    *out_id = t->specials[special];
    return true;
}

void rpi_tokenizer_set_end(rpi_tokenizer *t, uint32_t id) {
    t->specials[RPI_SPECIAL_END] = id;
}

rp_status rpi_normalize(const rpi_tokenizer *t, rpi_matcher *matcher, rpi_text rooms[2],
                        const char *text, size_t bytes, const char **out_text,
                        size_t *out_bytes) {
    for (int i = 0; i < t->normalizers.count; i++) {
        rpi_text *out = text == rooms[0].at ? &rooms[1] : &rooms[0];
        const rpi_normalizer_kind *kind = t->normalizers.at[i].kind;
        out->count = 0;
        RP_TRY(kind->apply(t->normalizers.at[i].state, matcher, text, bytes, out));
        text = out->at;
        bytes = out->count;
    }
    *out_text = text;
    *out_bytes = bytes;
    return RP_OK;
}
