#include "train/data/span_questions.h"

#include "base/memory.h"
#include "base/regular_file.h"
#include "train/tokenizers/json_read.h"
#include "train/tokenizers/token_places.h"

#include <stdio.h>
#include <string.h>

enum { FILE_MOST = 1 << 30, WHERE = 400, SHOWN = 60 };
static const char layout[] = "SQuAD's layout is {\"data\": [{\"paragraphs\": [{\"context\": "
                             "TEXT, \"qas\": [{\"id\": NAME, \"question\": TEXT, \"answers\": "
                             "[{\"text\": TEXT, \"answer_start\": N}]}]}]}]}";

/* What is needed while a file is read. */
typedef struct reader {
    const char *path;
    rpi_encoder *encoder;
    rpi_span_questions *q;
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

static rp_status refuse(const reader *r, const char *key, const char *wanted) {
    return RP_FAIL(CORRUPT, "%s: %s: '%s' is missing or no %s; %s", r->path, r->where, key,
                   wanted, layout);
}

static rp_status take_text(const reader *r, const cJSON *object, const char *key,
                           const char **out_text) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsString(item)) return refuse(r, key, "text");
    *out_text = item->valuestring;
    return RP_OK;
}

static rp_status take_list(const reader *r, const cJSON *object, const char *key,
                           const cJSON **out_list) {
    *out_list = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsArray(*out_list) ? RP_OK : refuse(r, key, "list");
}

/* ---- answers ---- */

/* Where a character lies; past the end: the text's length. */
static size_t byte_of(const char *text, double character) {
    size_t at = 0;
    for (double c = 0; text[at]; at++) {
        if (((unsigned char)text[at] & 0xc0) == 0x80) continue;
        if (c++ >= character) break;
    }
    return at;
}

/* Not more of a text than fits a message, and whole characters of it. */
static int shown_bytes(const char *text) {
    size_t bytes = strnlen(text, SHOWN);
    while (bytes && ((unsigned char)text[bytes] & 0xc0) == 0x80) bytes--;
    return (int)bytes;
}

static rp_status find_answer(const reader *r, const cJSON *json, const char *context,
                             rpi_answer *out) {
    const char *text = NULL;
    const cJSON *start = cJSON_GetObjectItemCaseSensitive(json, "answer_start");
    RP_TRY(take_text(r, json, "text", &text));
    if (!cJSON_IsNumber(start)) return refuse(r, "answer_start", "number");
    double character = start->valuedouble;
    if (!*text) return RP_FAIL(CORRUPT, "%s: %s: an answer is empty", r->path, r->where);
    const char *at = context + (character >= 0 ? byte_of(context, character) : strlen(context));
    if (character < 0 || strncmp(at, text, strlen(text)) != 0)
        return RP_FAIL(CORRUPT,
                       "%s: %s: its answer '%.*s' does not stand at character %.0f of its "
                       "context, but '%.*s' does; answer_start counts characters from 0",
                       r->path, r->where, shown_bytes(text), text, character, shown_bytes(at),
                       at);
    *out = (rpi_answer){at, strlen(text)};
    return RP_OK;
}

static rp_status add_answers(reader *r, const cJSON *list, rpi_span_question *question) {
    rpi_span_questions *q = r->q;
    const cJSON *json;
    question->first_answer = q->answer_count;
    cJSON_ArrayForEach(json, list) {
        RP_TRY(
            grow(q->answer_count, &q->answer_room, sizeof *q->answers, "answers", &q->answers));
        RP_TRY(find_answer(r, json, q->contexts[question->context].text,
                           &q->answers[q->answer_count]));
        q->answer_count++;
        question->answers++;
    }
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
        const rpi_piece *place = &q->places.at[context->first + i];
        if (place->start >= to || place->start + place->bytes <= from) continue;
        if (!met++) question->start_token = i;
        question->end_token = i;
    }
    if (met) return RP_OK;
    return RP_FAIL(CORRUPT, "%s: %s: its answer '%.*s' has no token", r->path, r->where,
                   shown_bytes(answer->text), answer->text);
}

/* ---- questions ---- */

static rp_status take_answers(reader *r, const cJSON *json, rpi_span_question *question) {
    const cJSON *list = NULL;
    bool impossible = false;
    rp_status status = rpi_json_flag(json, "is_impossible", false, &impossible);
    if (status != RP_OK) return rpi_fail_context(status, "%s: %s: ", r->path, r->where);
    if (!impossible || rpi_json_has(json, "answers"))
        RP_TRY(take_list(r, json, "answers", &list));
    if (impossible && cJSON_GetArraySize(list) > 0)
        return RP_FAIL(CORRUPT, "%s: %s: it has answers, and is_impossible says it has none",
                       r->path, r->where);
    RP_TRY(add_answers(r, list, question));
    return find_tokens(r, question);
}

static rp_status add_question(reader *r, const cJSON *json) {
    rpi_span_questions *q = r->q;
    const char *id = NULL, *text = NULL;
    RP_TRY(take_text(r, json, "id", &id));
    snprintf(r->where, sizeof r->where, "question %.200s", id);
    RP_TRY(take_text(r, json, "question", &text));
    RP_TRY(grow(q->question_count, &q->question_room, sizeof *q->questions, "questions",
                &q->questions));
    rpi_span_question *question = &q->questions[q->question_count];
    *question = (rpi_span_question){.context = (int64_t)q->context_count - 1,
                                    .first = q->question_ids.count};
    RP_TRY(rpi_strdup(id, &question->id));
    q->question_count++;
    RP_TRY(rpi_encode(r->encoder, text, strlen(text), RPI_ENCODE_PLAIN_SPECIAL,
                      &q->question_ids, NULL));
    question->tokens = q->question_ids.count - question->first;
    return take_answers(r, json, question);
}

static rp_status add_context(reader *r, const cJSON *json) {
    rpi_span_questions *q = r->q;
    const char *text = NULL;
    RP_TRY(take_text(r, json, "context", &text));
    RP_TRY(
        grow(q->context_count, &q->context_room, sizeof *q->contexts, "texts", &q->contexts));
    rpi_span_context *context = &q->contexts[q->context_count];
    *context = (rpi_span_context){.first = q->context_ids.count};
    RP_TRY(rpi_strdup(text, &context->text));
    q->context_count++;
    rp_status status =
        rpi_encode_with_places(r->encoder, text, strlen(text), &q->context_ids, &q->places);
    if (status != RP_OK) return rpi_fail_context(status, "%s: %s: ", r->path, r->where);
    context->tokens = q->context_ids.count - context->first;
    return RP_OK;
}

static rp_status add_paragraph(reader *r, const cJSON *json, int article, int number) {
    const cJSON *list = NULL, *question;
    int count = 0;
    snprintf(r->where, sizeof r->where, "article %d, paragraph %d", article, number);
    RP_TRY(add_context(r, json));
    RP_TRY(take_list(r, json, "qas", &list));
    cJSON_ArrayForEach(question, list) {
        snprintf(r->where, sizeof r->where, "article %d, paragraph %d, question %d", article,
                 number, ++count);
        RP_TRY(add_question(r, question));
    }
    return RP_OK;
}

static rp_status read_root(reader *r, const cJSON *root) {
    const cJSON *articles = NULL, *article, *paragraphs = NULL, *paragraph;
    int article_number = 0;
    snprintf(r->where, sizeof r->where, "the file");
    RP_TRY(take_list(r, root, "data", &articles));
    cJSON_ArrayForEach(article, articles) {
        int number = 0;
        snprintf(r->where, sizeof r->where, "article %d", ++article_number);
        RP_TRY(take_list(r, article, "paragraphs", &paragraphs));
        cJSON_ArrayForEach(paragraph, paragraphs)
            RP_TRY(add_paragraph(r, paragraph, article_number, ++number));
    }
    if (r->q->question_count) return RP_OK;
    return RP_FAIL(INVALID, "%s has no questions", r->path);
}

static rp_status parse(reader *r, const char *text, size_t bytes) {
    cJSON *root = NULL;
    RP_TRY(rpi_json_parse(r->path, text, bytes, &root));
    rp_status status = read_root(r, root);
    cJSON_Delete(root);
    return status;
}

rp_status rpi_span_questions_parse(const char *name, const char *text, size_t bytes,
                                   const rpi_tokenizer *tokenizer,
                                   rpi_span_questions **out_questions) {
    reader r = {.path = name};
    RP_TRY(rpi_token_places_check(tokenizer));
    RP_TRY(rpi_alloc(sizeof *r.q, "questions", &r.q));
    rp_status status = rpi_encoder_create(tokenizer, &r.encoder);
    if (status == RP_OK) status = parse(&r, text, bytes);
    rpi_encoder_destroy(r.encoder);
    if (status == RP_OK)
        *out_questions = r.q;
    else
        rpi_span_questions_close(r.q);
    return status;
}

rp_status rpi_span_questions_open(const char *path, const rpi_tokenizer *tokenizer,
                                  rpi_span_questions **out_questions) {
    char *text = NULL;
    size_t bytes = 0;
    RP_TRY(rpi_regular_file_read(path, FILE_MOST, &text, &bytes));
    rp_status status = rpi_span_questions_parse(path, text, bytes, tokenizer, out_questions);
    rpi_free(text);
    return status;
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
    rpi_free(q);
}
