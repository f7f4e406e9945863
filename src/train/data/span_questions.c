#include "train/data/span_questions.h"

#include "base/log.h"
#include "base/memory.h"
#include "train/data/span_answers.h"
#include "train/texts/json_row.h"
#include "train/tokenizers/token_places.h"

#include <stdio.h>
#include <string.h>

enum { WHERE = 400 };
static const char layout[] =
    "SQuAD's layout is {\"data\": [{\"paragraphs\": [{\"context\": TEXT, \"qas\": [{\"id\": "
    "NAME, \"question\": TEXT, \"answers\": [{\"text\": TEXT, \"answer_start\": N}]}]}]}]}, "
    "that of rows {\"id\": NAME, \"context\": TEXT, \"question\": TEXT, \"answers\": "
    "{\"text\": [TEXT], \"answer_start\": [N]}}";

/* What is needed while a file is read. */
typedef struct reader {
    rpi_encoder *encoder;
    rpi_span_questions *q;
    int64_t line;      /* of the row; 0: the file is one */
    int64_t row;       /* as of an rpi_text_part */
    char where[WHERE]; /* for messages: "article 3, paragraph 1" */
} reader;

static rp_status grow(size_t count, size_t *room, size_t bytes, const char *what, void *list) {
    if (count < *room) return RP_OK;
    size_t more = *room ? 2 * *room : 256;
    RP_TRY(rpi_grow_array(*room, more, bytes, what, list));
    *room = more;
    return RP_OK;
}

/* ---- members ---- */

static rp_status refuse(const char *key, const char *wanted) {
    return RP_FAIL(CORRUPT, "'%s' is missing or no %s; %s", key, wanted, layout);
}

static const cJSON *member(const cJSON *object, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static rp_status take_text(const cJSON *object, const char *key, const char **out_text) {
    const cJSON *item = member(object, key);
    if (!cJSON_IsString(item)) return refuse(key, "text");
    *out_text = item->valuestring;
    return RP_OK;
}

/* What is wrong with a part of the file, and not with one question. */
static rp_status name_place(const reader *r, rp_status status) {
    if (status == RP_OK) return RP_OK;
    return rpi_fail_context(status, "%s: %s: ", r->q->path, r->where);
}

static rp_status take_list(const reader *r, const cJSON *object, const char *key,
                           const cJSON **out_list) {
    *out_list = member(object, key);
    return cJSON_IsArray(*out_list) ? RP_OK : name_place(r, refuse(key, "list"));
}

/* ---- answers ---- */

static rp_status add_answers(reader *r, const cJSON *json, rpi_span_question *question) {
    rpi_span_questions *q = r->q;
    rpi_said_answers said = {0};
    question->first_answer = q->answer_count;
    RP_TRY(rpi_said_answers_read(json, &said));
    for (rpi_said_answer one; rpi_said_answers_next(&said, &one);) {
        RP_TRY(
            grow(q->answer_count, &q->answer_room, sizeof *q->answers, "answers", &q->answers));
        RP_TRY(rpi_said_answer_find(&one, q->contexts[question->context].text,
                                    &q->answers[q->answer_count]));
        q->answer_count++;
        question->answers++;
    }
    if (said.is_impossible && question->answers)
        return RP_FAIL(CORRUPT, "it has answers, and is_impossible says it has none");
    q->unanswerable += question->answers == 0;
    return RP_OK;
}

/* The tokens that have a part in the first answer. */
static rp_status find_tokens(const reader *r, rpi_span_question *question) {
    const rpi_span_questions *q = r->q;
    const rpi_span_context *context = &q->contexts[question->context];
    if (question->answers == 0) return RP_OK;
    const rpi_answer *answer = &q->answers[question->first_answer];
    size_t from = (size_t)(answer->text - context->text), to = from + answer->bytes, met = 0;
    for (size_t i = 0; i < context->tokens; i++) {
        const rpi_text_piece *place = &q->places.at[context->first + i];
        if (place->start >= to || place->start + place->bytes <= from) continue;
        if (!met++) question->start_token = i;
        question->end_token = i;
    }
    if (met) return RP_OK;
    return RP_FAIL(CORRUPT, "its answer '%.*s' has no token", rpi_shown_bytes(answer->text),
                   answer->text);
}

/* ---- questions ---- */

/* A text, or a number as other programs write it; *out_known: there is one. */
static bool take_id(const cJSON *json, char out_id[64], const char **out_text) {
    const cJSON *id = member(json, "id");
    if (cJSON_IsString(id)) *out_text = id->valuestring;
    if (cJSON_IsNumber(id)) {
        snprintf(out_id, 64, "%.17g", id->valuedouble);
        *out_text = out_id;
    }
    return *out_text != NULL;
}

static rp_status add_question(reader *r, const cJSON *json) {
    rpi_span_questions *q = r->q;
    char number[64];
    const char *id = NULL, *text = NULL;
    if (take_id(json, number, &id))
        snprintf(r->where, sizeof r->where, "question %.200s", id);
    else if (!r->line || member(json, "id"))
        return refuse("id", "text");
    RP_TRY(take_text(json, "question", &text));
    RP_TRY(grow(q->question_count, &q->question_room, sizeof *q->questions, "questions",
                &q->questions));
    rpi_span_question *question = &q->questions[q->question_count];
    *question = (rpi_span_question){.context = (int64_t)q->context_count - 1,
                                    .first = q->question_ids.count};
    RP_TRY(rpi_encode(r->encoder, text, strlen(text), RPI_ENCODE_PLAIN_SPECIAL,
                      &q->question_ids, NULL));
    question->tokens = q->question_ids.count - question->first;
    RP_TRY(add_answers(r, json, question));
    RP_TRY(find_tokens(r, question));
    RP_TRY(rpi_strdup(id ? id : r->where, &question->id));
    q->question_count++;
    return RP_OK;
}

/* A question that is broken leaves nothing behind. */
static rp_status try_question(reader *r, const cJSON *json, rp_status before) {
    rpi_span_questions *q = r->q;
    size_t answers = q->answer_count, tokens = q->question_ids.count;
    size_t unanswerable = q->unanswerable;
    rp_status status = before == RP_OK ? add_question(r, json) : before;
    q->rows++;
    if (status == RP_OK) return RP_OK;
    q->answer_count = answers;
    q->question_ids.count = tokens;
    q->unanswerable = unanswerable;
    return rpi_broken_rows_add(&q->broken, status, r->line, r->row, r->line ? NULL : r->where);
}

/* ---- texts ---- */

static rp_status add_context(reader *r, const cJSON *json) {
    rpi_span_questions *q = r->q;
    const char *text = NULL;
    RP_TRY(take_text(json, "context", &text));
    if (q->context_count && strcmp(q->contexts[q->context_count - 1].text, text) == 0)
        return RP_OK; /* rows of one text follow each other */
    RP_TRY(
        grow(q->context_count, &q->context_room, sizeof *q->contexts, "texts", &q->contexts));
    rpi_span_context *context = &q->contexts[q->context_count];
    *context = (rpi_span_context){.first = q->context_ids.count};
    RP_TRY(rpi_strdup(text, &context->text));
    q->context_count++;
    RP_TRY(rpi_encode_with_places(r->encoder, text, strlen(text), &q->context_ids, &q->places));
    context->tokens = q->context_ids.count - context->first;
    return RP_OK;
}

static rp_status add_paragraph(reader *r, const cJSON *json) {
    const cJSON *list = NULL, *question;
    char place[WHERE / 2];
    int count = 0;
    snprintf(place, sizeof place, "%.*s", (int)sizeof place - 1, r->where);
    RP_TRY(name_place(r, add_context(r, json)));
    RP_TRY(take_list(r, json, "qas", &list));
    cJSON_ArrayForEach(question, list) {
        snprintf(r->where, sizeof r->where, "%s, question %d", place, ++count);
        RP_TRY(try_question(r, question, RP_OK));
    }
    return RP_OK;
}

static rp_status add_article(reader *r, const cJSON *json, int article) {
    const cJSON *paragraphs = NULL, *paragraph;
    int number = 0;
    snprintf(r->where, sizeof r->where, "article %d", article);
    RP_TRY(take_list(r, json, "paragraphs", &paragraphs));
    cJSON_ArrayForEach(paragraph, paragraphs) {
        snprintf(r->where, sizeof r->where, "article %d, paragraph %d", article, ++number);
        RP_TRY(add_paragraph(r, paragraph));
    }
    return RP_OK;
}

static bool is_flat(const cJSON *json) {
    return member(json, "question") || (member(json, "context") && !member(json, "qas"));
}

/* A text and a question in one object. */
static rp_status add_flat(reader *r, const cJSON *json, int number) {
    snprintf(r->where, sizeof r->where, "row %d", number);
    return try_question(r, json, add_context(r, json));
}

/* What stands in a list, or in a row: an article, a paragraph, or a question with its text. */
static rp_status add_entry(reader *r, const cJSON *json, int number) {
    if (is_flat(json)) return add_flat(r, json, number);
    r->line = 0;
    if (!member(json, "qas")) return add_article(r, json, number);
    snprintf(r->where, sizeof r->where, "paragraph %d", number);
    return add_paragraph(r, json);
}

/* ---- files ---- */

static rp_status add_root(reader *r, const cJSON *root, int number) {
    const cJSON *articles = NULL, *article;
    int count = 0;
    snprintf(r->where, sizeof r->where, "the file");
    if (is_flat(root) || member(root, "qas") || member(root, "paragraphs"))
        return add_entry(r, root, number);
    r->line = 0;
    RP_TRY(take_list(r, root, "data", &articles));
    cJSON_ArrayForEach(article, articles) RP_TRY(add_entry(r, article, ++count));
    return RP_OK;
}

static rp_status add_part(reader *r, const rpi_text_part *part, int number) {
    cJSON *root = NULL;
    size_t replaced = 0;
    r->line = part->line;
    r->row = part->row;
    rp_status status = rpi_json_row_read_plain(part->text, part->bytes, &root, &replaced);
    r->q->replaced += replaced;
    if (status == RP_OK) {
        status = add_root(r, root, number);
        cJSON_Delete(root);
        return status;
    }
    r->q->rows++;
    return rpi_broken_rows_add(&r->q->broken, status, part->line, part->row, NULL);
}

static rp_status read_parts(reader *r, rpi_text_parts *parts) {
    for (int number = 1;; number++) {
        rpi_text_part part;
        bool done = false;
        RP_TRY(rpi_text_parts_next(parts, &done, &part));
        if (done) break;
        RP_TRY(add_part(r, &part, number));
    }
    RP_TRY(rpi_broken_rows_end(&r->q->broken, r->q->rows));
    if (r->q->question_count) return RP_OK;
    return RP_FAIL(INVALID, "%s has no questions", r->q->path);
}

static rp_status read_file(reader *r, const rpi_tokenizer *tokenizer) {
    rpi_text_parts *parts = NULL;
    RP_TRY(rpi_encoder_create(tokenizer, &r->encoder));
    rp_status status = rpi_text_parts_open(r->q->path, RPI_FORMAT_JSON, false, &parts);
    if (status == RP_OK) status = read_parts(r, parts);
    rpi_text_parts_close(parts);
    rpi_encoder_destroy(r->encoder);
    return status;
}

rp_status rpi_span_questions_open(const char *path, const rpi_tokenizer *tokenizer,
                                  bool skip_broken, rpi_span_questions **out_questions) {
    reader r = {.q = NULL};
    RP_TRY(rpi_token_places_check(tokenizer));
    RP_TRY(rpi_alloc(sizeof *r.q, "questions", &r.q));
    rp_status status = rpi_strdup(path, &r.q->path);
    r.q->broken =
        (rpi_broken_rows){.path = r.q->path, .unit = "question", .skips = skip_broken};
    if (status == RP_OK) status = read_file(&r, tokenizer);
    if (status == RP_OK)
        *out_questions = r.q;
    else
        rpi_span_questions_close(r.q);
    return status;
}

void rpi_span_questions_tell(const rpi_span_questions *q) {
    rpi_broken_rows_tell(&q->broken, q->rows);
    if (q->replaced)
        rpi_log(RP_LOG_WARNING, "%s: U+FFFD stands in %zu place%s, for what is no text",
                q->path, q->replaced, q->replaced == 1 ? "" : "s");
}

void rpi_span_questions_close(rpi_span_questions *q) {
    if (!q) return;
    for (size_t i = 0; i < q->context_count; i++) rpi_free(q->contexts[i].text);
    for (size_t i = 0; i < q->question_count; i++) rpi_free(q->questions[i].id);
    rpi_free(q->contexts);
    rpi_free(q->questions);
    rpi_free(q->answers);
    rpi_ids_free(&q->context_ids);
    rpi_ids_free(&q->question_ids);
    rpi_pieces_free(&q->places);
    rpi_free(q->path);
    rpi_free(q);
}
