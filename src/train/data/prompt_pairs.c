#include "train/data/prompt_pairs.h"

#include "base/log.h"
#include "base/memory.h"
#include "train/texts/broken_rows.h"
#include "train/texts/json_row.h"

static const char usage[] = "a row is {\"prompt\": \"...\", \"completion\": \"...\"}";

/* Tokens of a pair: [start, end) of the list, of which the first `prompt` are not learnt. */
typedef struct pair {
    size_t start, end;
    int64_t prompt;
} pair;

struct rpi_prompt_pairs {
    char *path;
    int64_t sequence;
    rpi_ids ids;
    pair *pairs;
    size_t count, room;
    int32_t filler; /* behind the end of a pair */
    rpi_broken_rows broken;
    int64_t rows;
    size_t replaced; /* U+FFFD */
};

/* What is needed while a file is read. */
typedef struct reader {
    const rpi_tokenizer *tokenizer;
    rpi_encoder *encoder;
    rpi_prompt_pairs *pairs;
    rpi_text mended;
} reader;

static rp_status add_special(reader *r, rpi_special special) {
    uint32_t id = 0;
    if (!rpi_tokenizer_special(r->tokenizer, special, &id)) return RP_OK;
    return rpi_ids_add(&r->pairs->ids, id);
}

static rp_status add_text(reader *r, const cJSON *object, const char *key) {
    const char *text = NULL;
    size_t bytes = 0, replaced = 0, more = 0;
    RP_TRY(rpi_json_row_text(object, key, usage, &r->mended, &text, &bytes, &replaced));
    RP_TRY(rpi_encode(r->encoder, text, bytes, 0, &r->pairs->ids, &more));
    r->pairs->replaced += replaced + more;
    return RP_OK;
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
        return RP_FAIL(INVALID, "there is nothing to learn: an empty completion");
    if (added->prompt > p->sequence)
        return RP_FAIL(INVALID,
                       "the prompt has %lld tokens, which leaves no room for its completion: "
                       "--seq-length %lld or more",
                       (long long)added->prompt, (long long)added->prompt);
    p->count++;
    return RP_OK;
}

/* A row that is broken leaves nothing behind. */
static rp_status add_row(reader *r, rpi_text_part *part) {
    rpi_prompt_pairs *p = r->pairs;
    cJSON *object = NULL;
    size_t tokens = p->ids.count, replaced = p->replaced;
    p->rows++;
    rp_status status = rpi_json_row_read(part, &object);
    if (status == RP_OK) status = add_pair(r, object);
    cJSON_Delete(object);
    if (status == RP_OK) return RP_OK;
    p->ids.count = tokens;
    p->replaced = replaced;
    return rpi_broken_rows_add(&p->broken, status, part->line, part->row, NULL);
}

static rp_status read_rows(reader *r, rpi_text_parts *parts) {
    for (;;) {
        rpi_text_part part;
        bool done = false;
        RP_TRY(rpi_text_parts_next(parts, &done, &part));
        if (done) break;
        RP_TRY(add_row(r, &part));
    }
    RP_TRY(rpi_broken_rows_end(&r->pairs->broken, r->pairs->rows));
    if (r->pairs->count) return RP_OK;
    return RP_FAIL(INVALID, "%s has no pairs of prompt and completion", r->pairs->path);
}

static rp_status read_file(reader *r) {
    rpi_text_parts *parts = NULL;
    uint32_t filler = 0;
    RP_TRY(rpi_encoder_create(r->tokenizer, &r->encoder));
    RP_TRY(rpi_text_parts_open(r->pairs->path, RPI_FORMAT_JSON, false, &parts));
    rp_status status = read_rows(r, parts);
    rpi_text_parts_close(parts);
    if (rpi_tokenizer_special(r->tokenizer, RPI_SPECIAL_END, &filler))
        r->pairs->filler = (int32_t)filler;
    return status;
}

rp_status rpi_prompt_pairs_open(const char *path, const rpi_tokenizer *tokenizer,
                                int64_t sequence, bool skip_broken,
                                rpi_prompt_pairs **out_pairs) {
    reader r = {.tokenizer = tokenizer};
    RP_TRY(rpi_alloc(sizeof *r.pairs, "pairs", &r.pairs));
    r.pairs->sequence = sequence;
    rp_status status = rpi_strdup(path, &r.pairs->path);
    r.pairs->broken =
        (rpi_broken_rows){.path = r.pairs->path, .unit = "row", .skips = skip_broken};
    if (status == RP_OK) status = read_file(&r);
    rpi_encoder_destroy(r.encoder);
    rpi_text_free(&r.mended);
    if (status == RP_OK)
        *out_pairs = r.pairs;
    else
        rpi_prompt_pairs_close(r.pairs);
    return status;
}

void rpi_prompt_pairs_tell(const rpi_prompt_pairs *p) {
    rpi_broken_rows_tell(&p->broken, p->rows);
    if (p->replaced)
        rpi_log(RP_LOG_WARNING, "%s: U+FFFD stands in %zu place%s, for what is no text",
                p->path, p->replaced, p->replaced == 1 ? "" : "s");
}

void rpi_prompt_pairs_close(rpi_prompt_pairs *p) {
    if (!p) return;
    rpi_ids_free(&p->ids);
    rpi_free(p->path);
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
