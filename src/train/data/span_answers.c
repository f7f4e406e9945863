#include "train/data/span_answers.h"

#include <string.h>

enum { SHOWN = 60 };
static const char answers_layout[] =
    "write [{\"text\": TEXT, \"answer_start\": N}], or {\"text\": [TEXT], \"answer_start\": "
    "[N]}, or [] where there is none";

static const cJSON *member(const cJSON *object, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

/* ---- what is said ---- */

/* true, or 1 as a table has it */
static rp_status take_impossible(const cJSON *question, bool *out) {
    const cJSON *item = member(question, "is_impossible");
    bool is_bit = cJSON_IsNumber(item) && (item->valuedouble == 0 || item->valuedouble == 1);
    if (item && !cJSON_IsNull(item) && !cJSON_IsBool(item) && !is_bit)
        return RP_FAIL(CORRUPT, "'is_impossible' is neither true nor false");
    *out = cJSON_IsTrue(item) || (is_bit && item->valuedouble == 1);
    return RP_OK;
}

static size_t count_of(const cJSON *item) {
    if (!item || cJSON_IsNull(item)) return 0;
    return cJSON_IsArray(item) ? (size_t)cJSON_GetArraySize(item) : 1;
}

static const cJSON *first_of(const cJSON *item) {
    if (cJSON_IsArray(item)) return item->child;
    return cJSON_IsNull(item) ? NULL : item;
}

static rp_status take_columns(const cJSON *answers, rpi_said_answers *said) {
    const cJSON *texts = member(answers, "text"), *starts = member(answers, "answer_start");
    if (!texts || !starts)
        return RP_FAIL(CORRUPT, "'%s' is missing in its answers; %s",
                       texts ? "answer_start" : "text", answers_layout);
    said->text = first_of(texts);
    said->start = first_of(starts);
    if (count_of(texts) == count_of(starts)) return RP_OK;
    return RP_FAIL(CORRUPT, "its answers have %zu of 'text' and %zu of 'answer_start'",
                   count_of(texts), count_of(starts));
}

rp_status rpi_said_answers_read(const cJSON *question, rpi_said_answers *out) {
    const cJSON *answers = member(question, "answers");
    *out = (rpi_said_answers){0};
    RP_TRY(take_impossible(question, &out->is_impossible));
    if (cJSON_IsObject(answers)) return take_columns(answers, out);
    if (cJSON_IsArray(answers)) {
        out->one = answers->child;
        return RP_OK;
    }
    if (cJSON_IsNull(answers) || (!answers && out->is_impossible)) return RP_OK;
    return RP_FAIL(CORRUPT, "'answers' is missing or no list; %s", answers_layout);
}

/* "" before the first character, or nowhere */
static bool is_none(const rpi_said_answer *answer, bool is_impossible) {
    bool is_empty = cJSON_IsNull(answer->text) ||
                    (cJSON_IsString(answer->text) && !*answer->text->valuestring);
    bool is_nowhere =
        cJSON_IsNull(answer->start) ||
        (answer->start && cJSON_IsNumber(answer->start) && answer->start->valuedouble < 0);
    return is_empty && (is_nowhere || is_impossible);
}

bool rpi_said_answers_next(rpi_said_answers *said, rpi_said_answer *out) {
    do {
        if (!said->one && !said->text) return false;
        out->text = said->one ? member(said->one, "text") : said->text;
        out->start = said->one ? member(said->one, "answer_start") : said->start;
        if (said->one) said->one = said->one->next;
        /* One that is in no list is followed by other members. */
        bool is_listed = said->text && !said->text->string;
        said->text = is_listed ? said->text->next : NULL;
        said->start = is_listed && said->start ? said->start->next : NULL;
    } while (is_none(out, said->is_impossible));
    return true;
}

/* ---- where it stands ---- */

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
int rpi_shown_bytes(const char *text) {
    size_t bytes = strnlen(text, SHOWN);
    while (bytes && ((unsigned char)text[bytes] & 0xc0) == 0x80) bytes--;
    return (int)bytes;
}

rp_status rpi_said_answer_find(const rpi_said_answer *answer, const char *context,
                               rpi_answer *out) {
    if (!cJSON_IsString(answer->text))
        return RP_FAIL(CORRUPT, "'text' is missing or no text in its answers; %s",
                       answers_layout);
    if (!cJSON_IsNumber(answer->start))
        return RP_FAIL(CORRUPT, "'answer_start' is missing or no number in its answers; %s",
                       answers_layout);
    const char *text = answer->text->valuestring;
    double character = answer->start->valuedouble;
    if (!*text)
        return RP_FAIL(CORRUPT, "an answer is empty; \"answers\": [] says that there is none");
    const char *found =
        context + (character >= 0 ? byte_of(context, character) : strlen(context));
    if (!*found)
        return RP_FAIL(
            CORRUPT,
            "its answer '%.*s' does not stand at character %.0f of its context, which "
            "%s; answer_start counts characters from 0",
            rpi_shown_bytes(text), text, character,
            character < 0 ? "begins later" : "ends before");
    if (strncmp(found, text, strlen(text)) != 0)
        return RP_FAIL(CORRUPT,
                       "its answer '%.*s' does not stand at character %.0f of its context, but "
                       "'%.*s' does; answer_start counts characters from 0",
                       rpi_shown_bytes(text), text, character, rpi_shown_bytes(found), found);
    *out = (rpi_answer){found, strlen(text)};
    return RP_OK;
}
