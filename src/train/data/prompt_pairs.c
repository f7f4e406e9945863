#include "train/data/prompt_pairs.h"

#include "base/memory.h"
#include "base/regular_file.h"
#include "train/tokenizers/json_read.h"

#include <string.h>

enum { FILE_MOST = 1 << 30 };

/* Tokens of a pair: [start, end) of the list, of which the first `prompt` are not learnt. */
typedef struct pair {
    size_t start, end;
    int64_t prompt;
} pair;

struct rpi_prompt_pairs {
    int64_t sequence;
    rpi_ids ids;
    pair *pairs;
    size_t count, room;
    int32_t filler; /* behind the end of a pair */
};

/* What is needed while a file is read. */
typedef struct reader {
    const char *path;
    const rpi_tokenizer *tokenizer;
    rpi_encoder *encoder;
    rpi_prompt_pairs *pairs;
    long long line;
} reader;

static rp_status add_special(reader *r, rpi_special special) {
    uint32_t id = 0;
    if (!rpi_tokenizer_special(r->tokenizer, special, &id)) return RP_OK;
    return rpi_ids_add(&r->pairs->ids, id);
}

static rp_status add_text(reader *r, const cJSON *object, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsString(item))
        return RP_FAIL(CORRUPT,
                       "%s:%lld: '%s' is no text; a line is {\"prompt\": \"...\", "
                       "\"completion\": \"...\"}",
                       r->path, r->line, key);
    size_t bytes = rpi_json_unshield(item->valuestring);
    return rpi_encode(r->encoder, item->valuestring, bytes, 0, &r->pairs->ids, NULL);
}

static rp_status make_room(rpi_prompt_pairs *p) {
    if (p->count < p->room) return RP_OK;
    size_t room = p->room ? 2 * p->room : 256;
    RP_TRY(rpi_grow_array(p->room, room, sizeof *p->pairs, "pairs", &p->pairs));
    p->room = room;
    return RP_OK;
}

static rp_status add_pair(reader *r, const cJSON *object) {
    rpi_prompt_pairs *p = r->pairs;
    RP_TRY(make_room(p));
    pair *added = &p->pairs[p->count];
    *added = (pair){.start = p->ids.count};
    RP_TRY(add_special(r, RPI_SPECIAL_BEGIN));
    RP_TRY(add_text(r, object, "prompt"));
    added->prompt = (int64_t)(p->ids.count - added->start);
    RP_TRY(add_text(r, object, "completion"));
    RP_TRY(add_special(r, RPI_SPECIAL_END));
    added->end = p->ids.count;
    int64_t all = (int64_t)(added->end - added->start);
    if (all < 2 || all == added->prompt)
        return RP_FAIL(INVALID, "%s:%lld: there is nothing to learn: an empty completion",
                       r->path, r->line);
    if (added->prompt > p->sequence)
        return RP_FAIL(INVALID,
                       "%s:%lld: the prompt has %lld tokens, which leaves no room for its "
                       "completion: --seq-length %lld or more, or leave the line out",
                       r->path, r->line, (long long)added->prompt, (long long)added->prompt);
    p->count++;
    return RP_OK;
}

static rp_status add_line(reader *r, char *text, size_t bytes) {
    const char *end = NULL;
    bool longer = false;
    if (strspn(text, " \t\r") >= bytes) return RP_OK;
    cJSON *object = rpi_json_whole(text, rpi_json_shield(text, bytes), &end, &longer);
    if (!cJSON_IsObject(object)) {
        cJSON_Delete(object);
        return RP_FAIL(CORRUPT, "%s:%lld: this is no JSON object", r->path, r->line);
    }
    rp_status status = add_pair(r, object);
    cJSON_Delete(object);
    return status;
}

static rp_status read_lines(reader *r, char *text, size_t bytes) {
    for (size_t at = 0; at < bytes;) {
        size_t length = strcspn(text + at, "\n");
        text[at + length] = '\0';
        r->line++;
        RP_TRY(add_line(r, text + at, length));
        at += length + 1;
    }
    if (r->pairs->count) return RP_OK;
    return RP_FAIL(INVALID, "%s has no pairs of prompt and completion", r->path);
}

static rp_status read_file(reader *r) {
    char *text = NULL;
    size_t bytes = 0;
    uint32_t filler = 0;
    RP_TRY(rpi_encoder_create(r->tokenizer, &r->encoder));
    RP_TRY(rpi_regular_file_read(r->path, FILE_MOST, &text, &bytes));
    rp_status status = read_lines(r, text, bytes);
    rpi_free(text);
    if (rpi_tokenizer_special(r->tokenizer, RPI_SPECIAL_END, &filler))
        r->pairs->filler = (int32_t)filler;
    return status;
}

rp_status rpi_prompt_pairs_open(const char *path, const rpi_tokenizer *tokenizer,
                                int64_t sequence, rpi_prompt_pairs **out_pairs) {
    reader r = {.path = path, .tokenizer = tokenizer};
    RP_TRY(rpi_alloc(sizeof *r.pairs, "pairs", &r.pairs));
    r.pairs->sequence = sequence;
    rp_status status = read_file(&r);
    rpi_encoder_destroy(r.encoder);
    if (status == RP_OK)
        *out_pairs = r.pairs;
    else
        rpi_prompt_pairs_close(r.pairs);
    return status;
}

void rpi_prompt_pairs_close(rpi_prompt_pairs *p) {
    if (!p) return;
    rpi_ids_free(&p->ids);
    rpi_free(p->pairs);
    rpi_free(p);
}

int64_t rpi_prompt_pairs_count(const rpi_prompt_pairs *p) {
    return (int64_t)p->count;
}

/* Labels [first, end) of a row: label i is token i + 1. */
static void find_labels(const rpi_prompt_pairs *p, const pair *one, int64_t *out_first,
                        int64_t *out_end) {
    int64_t labels = (int64_t)(one->end - one->start) - 1;
    *out_first = one->prompt ? one->prompt - 1 : 0;
    *out_end = labels < p->sequence ? labels : p->sequence;
}

int64_t rpi_prompt_pair_valid(const rpi_prompt_pairs *p, int64_t index) {
    int64_t first, end;
    find_labels(p, &p->pairs[index], &first, &end);
    return end - first;
}

void rpi_prompt_pair_read(const rpi_prompt_pairs *p, int64_t index, const rpi_token_rows *rows,
                          int64_t row) {
    const pair *one = &p->pairs[index];
    const uint32_t *ids = p->ids.at + one->start;
    int32_t *inputs = rows->inputs + row * p->sequence,
            *labels = rows->labels + row * p->sequence;
    int64_t first, end;
    find_labels(p, one, &first, &end);
    for (int64_t i = 0; i < p->sequence; i++) {
        inputs[i] = one->start + (size_t)i < one->end ? (int32_t)ids[i] : p->filler;
        labels[i] = i >= first && i < end ? (int32_t)ids[i + 1] : RPI_LABEL_IGNORED;
    }
}
