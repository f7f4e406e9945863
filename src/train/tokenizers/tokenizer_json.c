/* Making a tokenizer of the text of a tokenizer.json. */
#include "train/tokenizers/tokenizer_parts.h"

#include <string.h>

static rp_status load_steps(const cJSON *root, rpi_tokenizer *t) {
    const cJSON *decoder = cJSON_GetObjectItemCaseSensitive(root, "decoder");
    RP_TRY(rpi_normalizers_load(
        &t->memory, cJSON_GetObjectItemCaseSensitive(root, "normalizer"), &t->normalizers));
    RP_TRY(rpi_pre_tokenizers_load(&t->memory,
                                   cJSON_GetObjectItemCaseSensitive(root, "pre_tokenizer"),
                                   &t->pre_tokenizers));
    t->raw_bytes = rpi_pre_tokenizers_end_in_bytes(&t->pre_tokenizers);
    RP_TRY(rpi_decoders_load(&t->memory, decoder, &t->decoders));
    t->has_decoder = rpi_json_has(root, "decoder");
    return rpi_post_processor_load(cJSON_GetObjectItemCaseSensitive(root, "post_processor"), t);
}

static rp_status load_model(const cJSON *root, rpi_tokenizer *t) {
    const cJSON *model = NULL;
    RP_TRY(rpi_json_member(root, "model", &model));
    RP_TRY(rpi_text_model_find(model, &t->model));
    rp_status status = t->model->load(model, &t->vocabulary, &t->model_state);
    return status == RP_OK ? RP_OK : rpi_fail_context(status, "model %s: ", t->model->type);
}

/* Tokens that are looked for behind the normalizers are looked for as those leave them. */
static rp_status set_matched(rpi_tokenizer *t, rpi_matcher *matcher, rpi_added_token *token) {
    rpi_text rooms[2] = {{0}, {0}};
    const char *text = token->content.at;
    size_t bytes = token->content.count;
    rp_status status = RP_OK;
    if (token->normalized && bytes)
        status = rpi_normalize(t, matcher, rooms, text, bytes, &text, &bytes);
    if (status == RP_OK) status = rpi_text_append(&token->matched, text, bytes);
    if (status == RP_OK) status = rpi_text_reserve(&token->matched, 1); /* a NUL behind it */
    rpi_text_free(&rooms[0]);
    rpi_text_free(&rooms[1]);
    return status;
}

static rp_status load_added(const cJSON *root, rpi_tokenizer *t) {
    RP_TRY(rpi_added_tokens_load(cJSON_GetObjectItemCaseSensitive(root, "added_tokens"),
                                 &t->vocabulary, &t->added));
    rpi_matcher *matcher = NULL;
    RP_TRY(rpi_matcher_create(&matcher));
    rp_status status = RP_OK;
    for (size_t i = 0; i < t->added.count && status == RP_OK; i++) {
        rpi_added_token *token = &t->added.at[i];
        if (!token->content.count) continue;
        status = rpi_vocabulary_add(&t->added_ids, token->content.at, token->content.count,
                                    token->id);
        if (status == RP_OK) status = set_matched(t, matcher, token);
    }
    rpi_matcher_free(matcher);
    return status == RP_OK ? rpi_added_tokens_prepare(&t->added) : status;
}

static rp_status finish(rpi_tokenizer *t) {
    size_t size = t->vocabulary.size;
    if (t->added_ids.size > size) size = t->added_ids.size;
    if (size == 0) return RP_FAIL(CORRUPT, "the vocabulary is empty");
    t->size = (uint32_t)size;
    RP_TRY(rpi_alloc_array(size, sizeof *t->is_special, "a vocabulary", &t->is_special));
    for (size_t i = 0; i < t->added.count; i++)
        if (t->added.at[i].special) t->is_special[t->added.at[i].id] = true;
    const rpi_ids *around[] = {&t->before, &t->after};
    for (int a = 0; a < 2; a++)
        for (size_t i = 0; i < around[a]->count; i++)
            if (around[a]->at[i] >= size)
                return RP_FAIL(CORRUPT, "the post_processor adds id %u; the vocabulary has %zu",
                               around[a]->at[i], size);
    return RP_OK;
}

/* Names that files use for what is asked for; the first that is a token counts. */
static const char *const candidates[RPI_SPECIALS][6] = {
    [RPI_SPECIAL_BEGIN] = {"<s>", "<|begin_of_text|>", "<|startoftext|>", "<bos>", "[CLS]"},
    [RPI_SPECIAL_END] = {"<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>"},
    [RPI_SPECIAL_UNKNOWN] = {"<unk>", "[UNK]", "<|unk|>"},
    [RPI_SPECIAL_PAD] = {"<pad>", "[PAD]", "<|pad|>"},
    [RPI_SPECIAL_CLS] = {"[CLS]", "<s>"},
    [RPI_SPECIAL_SEP] = {"[SEP]", "</s>"},
    [RPI_SPECIAL_MASK] = {"[MASK]", "<mask>"},
};

static void find_specials(rpi_tokenizer *t) {
    for (int s = 0; s < RPI_SPECIALS; s++) {
        t->specials[s] = UINT32_MAX;
        for (int c = 0; candidates[s][c]; c++)
            if (rpi_tokenizer_find(t, candidates[s][c], &t->specials[s])) break;
    }
}

static rp_status load(const cJSON *root, rpi_tokenizer *t) {
    if (!cJSON_IsObject(root)) return RP_FAIL(CORRUPT, "it is no JSON object");
    RP_TRY(load_model(root, t));
    RP_TRY(load_steps(root, t));
    RP_TRY(load_added(root, t));
    RP_TRY(finish(t));
    find_specials(t);
    return RP_OK;
}

static rp_status make(const char *name, const char *json, size_t bytes, rpi_tokenizer *t) {
    cJSON *root = NULL;
    RP_TRY(rpi_strdup(name, &t->name));
    RP_TRY(rpi_alloc(bytes + 1, "a tokenizer", &t->json));
    memcpy(t->json, json, bytes);
    t->json_bytes = bytes;
    RP_TRY(rpi_json_parse(name, json, bytes, &root));
    rp_status status = load(root, t);
    cJSON_Delete(root);
    return status == RP_OK ? RP_OK : rpi_fail_context(status, "%s: ", name);
}

rp_status rpi_tokenizer_parse(const char *name, const char *json, size_t bytes,
                              rpi_tokenizer **out_tokenizer) {
    rpi_tokenizer *t = NULL;
    RP_TRY(rpi_alloc(sizeof *t, "a tokenizer", &t));
    rp_status status = make(name, json, bytes, t);
    if (status == RP_OK)
        *out_tokenizer = t;
    else
        rpi_tokenizer_close(t);
    return status;
}

void rpi_tokenizer_close(rpi_tokenizer *t) {
    if (!t) return;
    if (t->model) t->model->destroy(t->model_state);
    rpi_added_tokens_free(&t->added);
    rpi_vocabulary_free(&t->vocabulary);
    rpi_vocabulary_free(&t->added_ids);
    rpi_pipeline_memory_free(&t->memory);
    rpi_ids_free(&t->before);
    rpi_ids_free(&t->after);
    rpi_free(t->is_special);
    rpi_free(t->name);
    rpi_free(t->json);
    rpi_free(t);
}
