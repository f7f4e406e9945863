#include "train/tokenizers/tokenizer_files.h"

#include "train/tokenizers/tokenizer_config.h"
#include "train/tokenizers/utf8_text.h"

#include "base/regular_file.h"
#include "train/tokenizers/tokenizers.h"

#include <string.h>

enum { FILE_MOST = 1 << 28, PATH_BYTES = RPI_PATH_BYTES };

static rp_status printed(cJSON *root, char **out_json) {
    char *text = root ? cJSON_PrintUnformatted(root) : NULL;
    cJSON_Delete(root);
    if (!text) return RP_FAIL(NOMEM, "no memory for a tokenizer.json");
    *out_json = text;
    return RP_OK;
}

static void add_special(cJSON *list, const cJSON *vocab, const char *content) {
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(vocab, content);
    if (!id) return;
    cJSON *token = cJSON_CreateObject();
    cJSON_AddNumberToObject(token, "id", id->valuedouble);
    cJSON_AddStringToObject(token, "content", content);
    cJSON_AddBoolToObject(token, "single_word", false);
    cJSON_AddBoolToObject(token, "lstrip", false);
    cJSON_AddBoolToObject(token, "rstrip", false);
    cJSON_AddBoolToObject(token, "normalized", false);
    cJSON_AddBoolToObject(token, "special", true);
    cJSON_AddItemToArray(list, token);
}

/* The parts that others look for, in the order in which they are written. */
static cJSON *begin(cJSON **out_added) {
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "version", "1.0");
    cJSON_AddNullToObject(root, "truncation");
    cJSON_AddNullToObject(root, "padding");
    *out_added = cJSON_AddArrayToObject(root, "added_tokens");
    return root;
}

static void add_byte_level(cJSON *root, const char *key, bool prefix) {
    cJSON *step = cJSON_AddObjectToObject(root, key);
    cJSON_AddStringToObject(step, "type", "ByteLevel");
    cJSON_AddBoolToObject(step, "add_prefix_space", prefix);
    cJSON_AddBoolToObject(step, "trim_offsets", true);
    cJSON_AddBoolToObject(step, "use_regex", true);
}

/* prefix: a text begins with a space, if need be with one of ours. */
static rp_status byte_level_json(cJSON *vocab, cJSON *merges, const char *end, bool prefix,
                                 char **out_json) {
    cJSON *added = NULL, *root = begin(&added);
    if (end) add_special(added, vocab, end);
    cJSON_AddNullToObject(root, "normalizer");
    add_byte_level(root, "pre_tokenizer", prefix);
    add_byte_level(root, "post_processor", false);
    add_byte_level(root, "decoder", false);
    cJSON *model = cJSON_AddObjectToObject(root, "model");
    cJSON_AddStringToObject(model, "type", "BPE");
    cJSON_AddNullToObject(model, "dropout");
    cJSON_AddNullToObject(model, "unk_token");
    cJSON_AddNullToObject(model, "continuing_subword_prefix");
    cJSON_AddNullToObject(model, "end_of_word_suffix");
    cJSON_AddBoolToObject(model, "fuse_unk", false);
    cJSON_AddBoolToObject(model, "byte_fallback", false);
    cJSON_AddBoolToObject(model, "ignore_merges", false);
    cJSON_AddItemToObject(model, "vocab", vocab);
    cJSON_AddItemToObject(model, "merges", merges);
    return printed(root, out_json);
}

rp_status rpi_byte_level_json(cJSON *vocab, cJSON *merges, const char *end, char **out_json) {
    return byte_level_json(vocab, merges, end, false, out_json);
}

/* ---- lines of a file ---- */

static rp_status read_file(const char *folder, const char *name, char path[PATH_BYTES],
                           char **out_text, size_t *out_bytes) {
    if (snprintf(path, PATH_BYTES, "%s/%s", folder, name) >= PATH_BYTES)
        return RP_FAIL(INVALID, "the path %s is too long", folder);
    RP_TRY(rpi_regular_file_read(path, FILE_MOST, out_text, out_bytes));
    rp_status status = rpi_utf8_check(path, *out_text, *out_bytes);
    if (status == RP_OK) return RP_OK;
    rpi_free(*out_text);
    *out_text = NULL;
    return status;
}

/* Ends the line with a NUL and goes to the next; NULL: the text is at its end. */
static char *next_line(char **at) {
    char *line = *at;
    if (!*line) return NULL;
    size_t length = strcspn(line, "\n");
    *at = line + length + (line[length] == '\n');
    line[length] = '\0';
    if (length && line[length - 1] == '\r') line[length - 1] = '\0';
    return line;
}

/* ---- GPT-2: vocab.json, merges.txt ---- */

static rp_status read_merges(const char *folder, cJSON **out_merges) {
    char path[PATH_BYTES], *text = NULL, *line;
    size_t bytes = 0;
    RP_TRY(read_file(folder, "merges.txt", path, &text, &bytes));
    cJSON *merges = cJSON_CreateArray();
    char *at = text;
    rp_status status = RP_OK;
    for (int number = 1; status == RP_OK && (line = next_line(&at)); number++) {
        if (!*line || strncmp(line, "#version", 8) == 0) continue;
        const char *space = strchr(line, ' ');
        if (!space || space == line || !space[1] || strchr(space + 1, ' '))
            status =
                RP_FAIL(CORRUPT, "%s:%d: '%.60s' is no pair of tokens", path, number, line);
        else
            cJSON_AddItemToArray(merges, cJSON_CreateString(line));
    }
    rpi_free(text);
    if (status == RP_OK)
        *out_merges = merges;
    else
        cJSON_Delete(merges);
    return status;
}

/* What tokenizer_config.json says, where there is one. */
static rp_status gpt2_config(const char *folder, const cJSON *vocab, bool *out_prefix) {
    static const char *const specials[] = {"<|endoftext|>", NULL};
    cJSON *config = NULL;
    bool begins = false;
    RP_TRY(rpi_tokenizer_config_read(folder, &config));
    rp_status status = rpi_json_flag(config, "add_prefix_space", false, out_prefix);
    if (status == RP_OK) status = rpi_json_flag(config, "add_bos_token", false, &begins);
    if (status == RP_OK) status = rpi_tokenizer_config_check(folder, config, specials, vocab);
    if (status == RP_OK && begins)
        status = RP_FAIL(UNSUPPORTED,
                         "%s/tokenizer_config.json: 'add_bos_token' is true, which is read of "
                         "a tokenizer.json alone; transformers writes that",
                         folder);
    cJSON_Delete(config);
    return status;
}

rp_status rpi_gpt2_json(const char *folder, char **out_json) {
    bool prefix = false;
    char path[PATH_BYTES], *text = NULL;
    size_t bytes = 0;
    cJSON *vocab = NULL, *merges = NULL;
    RP_TRY(read_file(folder, "vocab.json", path, &text, &bytes));
    rp_status status = rpi_json_parse(path, text, bytes, &vocab);
    rpi_free(text);
    if (status == RP_OK) status = gpt2_config(folder, vocab, &prefix);
    if (status == RP_OK) status = read_merges(folder, &merges);
    if (status == RP_OK)
        return byte_level_json(vocab, merges, "<|endoftext|>", prefix, out_json);
    cJSON_Delete(vocab);
    return status;
}

/* ---- BERT: vocab.txt ---- */

/* How BertNormalizer is to write a text. */
typedef struct bert_writing {
    bool lowercase, chinese_apart;
    cJSON *accents; /* off: true or false; null: where lower case is wanted */
} bert_writing;

static void add_template_token(cJSON *list, cJSON *known, const cJSON *vocab,
                               const char *content) {
    cJSON *item = cJSON_CreateObject();
    cJSON *inner = cJSON_AddObjectToObject(item, "SpecialToken");
    cJSON_AddStringToObject(inner, "id", content);
    cJSON_AddNumberToObject(inner, "type_id", 0);
    cJSON_AddItemToArray(list, item);
    cJSON *facts = cJSON_AddObjectToObject(known, content);
    cJSON_AddStringToObject(facts, "id", content);
    double id = cJSON_GetObjectItemCaseSensitive(vocab, content)->valuedouble;
    cJSON_AddItemToObject(facts, "ids", cJSON_CreateDoubleArray(&id, 1));
    const char *const tokens[] = {content};
    cJSON_AddItemToObject(facts, "tokens", cJSON_CreateStringArray(tokens, 1));
}

static void add_sequence(cJSON *list, const char *id, int type) {
    cJSON *item = cJSON_CreateObject();
    cJSON *inner = cJSON_AddObjectToObject(item, "Sequence");
    cJSON_AddStringToObject(inner, "id", id);
    cJSON_AddNumberToObject(inner, "type_id", type);
    cJSON_AddItemToArray(list, item);
}

/* [CLS] A [SEP], and of pairs [CLS] A [SEP] B [SEP]. */
static void add_template(cJSON *root, const cJSON *vocab) {
    cJSON *step = cJSON_AddObjectToObject(root, "post_processor");
    cJSON_AddStringToObject(step, "type", "TemplateProcessing");
    cJSON *single = cJSON_AddArrayToObject(step, "single");
    cJSON *pair = cJSON_AddArrayToObject(step, "pair");
    cJSON *known = cJSON_AddObjectToObject(step, "special_tokens");
    cJSON *again = cJSON_CreateObject();
    add_template_token(single, known, vocab, "[CLS]");
    add_sequence(single, "A", 0);
    add_template_token(single, known, vocab, "[SEP]");
    add_template_token(pair, again, vocab, "[CLS]");
    add_sequence(pair, "A", 0);
    add_template_token(pair, again, vocab, "[SEP]");
    add_sequence(pair, "B", 1);
    add_template_token(pair, again, vocab, "[SEP]");
    cJSON_Delete(again);
}

static void add_bert_steps(cJSON *root, const cJSON *vocab, bert_writing writing) {
    cJSON *normalizer = cJSON_AddObjectToObject(root, "normalizer");
    cJSON_AddStringToObject(normalizer, "type", "BertNormalizer");
    cJSON_AddBoolToObject(normalizer, "clean_text", true);
    cJSON_AddBoolToObject(normalizer, "handle_chinese_chars", writing.chinese_apart);
    cJSON_AddItemToObject(normalizer, "strip_accents", writing.accents);
    cJSON_AddBoolToObject(normalizer, "lowercase", writing.lowercase);
    cJSON *cut = cJSON_AddObjectToObject(root, "pre_tokenizer");
    cJSON_AddStringToObject(cut, "type", "BertPreTokenizer");
    add_template(root, vocab);
    cJSON *decoder = cJSON_AddObjectToObject(root, "decoder");
    cJSON_AddStringToObject(decoder, "type", "WordPiece");
    cJSON_AddStringToObject(decoder, "prefix", "##");
    cJSON_AddBoolToObject(decoder, "cleanup", true);
}

static rp_status bert_vocabulary(const char *folder, cJSON **out_vocab) {
    static const char *const needed[] = {"[UNK]", "[CLS]", "[SEP]"};
    char path[PATH_BYTES], *text = NULL, *line;
    size_t bytes = 0;
    RP_TRY(read_file(folder, "vocab.txt", path, &text, &bytes));
    cJSON *vocab = cJSON_CreateObject();
    char *at = text;
    for (int id = 0; (line = next_line(&at)); id++) cJSON_AddNumberToObject(vocab, line, id);
    rpi_free(text);
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        if (cJSON_GetObjectItemCaseSensitive(vocab, needed[i])) continue;
        cJSON_Delete(vocab);
        return RP_FAIL(CORRUPT, "%s lacks the token %s", path, needed[i]);
    }
    *out_vocab = vocab;
    return RP_OK;
}

static const char *const bert_special[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", NULL};
enum { BERT_SPECIAL = sizeof bert_special / sizeof bert_special[0] - 1 };

const char *rpi_bert_special(uint32_t index) {
    return index < BERT_SPECIAL ? bert_special[index] : NULL;
}

static rp_status wordpiece_json(cJSON *vocab, bert_writing writing, char **out_json) {
    cJSON *added = NULL, *root = begin(&added);
    for (size_t i = 0; i < BERT_SPECIAL; i++) add_special(added, vocab, bert_special[i]);
    add_bert_steps(root, vocab, writing);
    cJSON *model = cJSON_AddObjectToObject(root, "model");
    cJSON_AddStringToObject(model, "type", "WordPiece");
    cJSON_AddStringToObject(model, "unk_token", "[UNK]");
    cJSON_AddStringToObject(model, "continuing_subword_prefix", "##");
    cJSON_AddNumberToObject(model, "max_input_chars_per_word", 100);
    cJSON_AddItemToObject(model, "vocab", vocab);
    return printed(root, out_json);
}

rp_status rpi_wordpiece_json(cJSON *vocab, bool lowercase, char **out_json) {
    return wordpiece_json(vocab, (bert_writing){lowercase, true, cJSON_CreateNull()}, out_json);
}

/* What tokenizer_config.json says, where there is one. */
static rp_status read_writing(const cJSON *config, bert_writing *out) {
    bool off = false;
    RP_TRY(rpi_json_flag(config, "do_lower_case", true, &out->lowercase));
    RP_TRY(rpi_json_flag(config, "tokenize_chinese_chars", true, &out->chinese_apart));
    RP_TRY(rpi_json_flag(config, "strip_accents", false, &off));
    out->accents =
        rpi_json_has(config, "strip_accents") ? cJSON_CreateBool(off) : cJSON_CreateNull();
    return RP_OK;
}

rp_status rpi_bert_json(const char *folder, char **out_json) {
    cJSON *vocab = NULL, *config = NULL;
    bert_writing writing = {0};
    RP_TRY(rpi_tokenizer_config_read(folder, &config));
    rp_status status = bert_vocabulary(folder, &vocab);
    if (status == RP_OK)
        status = rpi_tokenizer_config_check(folder, config, bert_special, vocab);
    if (status == RP_OK) status = read_writing(config, &writing);
    cJSON_Delete(config);
    if (status == RP_OK) return wordpiece_json(vocab, writing, out_json);
    cJSON_Delete(vocab);
    return status;
}

/* ---- of nothing but a vocabulary ---- */

cJSON *rpi_vocabulary_json(const rpi_vocabulary *vocabulary) {
    cJSON *vocab = cJSON_CreateObject();
    for (size_t id = 0; id < vocabulary->size; id++)
        cJSON_AddNumberToObject(vocab, vocabulary->tokens[id].text, (double)id);
    return vocab;
}

rp_status rpi_word_level_json(cJSON *vocab, char **out_json) {
    cJSON *added = NULL, *root = begin(&added);
    add_special(added, vocab, "<|endoftext|>");
    add_special(added, vocab, "[UNK]");
    cJSON_AddNullToObject(root, "normalizer");
    cJSON_AddStringToObject(cJSON_AddObjectToObject(root, "pre_tokenizer"), "type",
                            "Whitespace");
    cJSON_AddNullToObject(root, "post_processor");
    cJSON_AddNullToObject(root, "decoder");
    cJSON *model = cJSON_AddObjectToObject(root, "model");
    cJSON_AddStringToObject(model, "type", "WordLevel");
    cJSON_AddItemToObject(model, "vocab", vocab);
    cJSON_AddStringToObject(model, "unk_token", "[UNK]");
    return printed(root, out_json);
}
