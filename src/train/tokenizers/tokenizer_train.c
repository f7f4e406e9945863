#include "train/tokenizers/tokenizer_train.h"

#include "base/append.h"
#include "base/units.h"

#include <cjson/cJSON.h>
#include <string.h>

extern const rpi_tokenizer_training rpi_training_bpe, rpi_training_wordpiece,
    rpi_training_wordpiece_cased, rpi_training_wordlevel;

static const rpi_tokenizer_training *const kinds[] = {
    &rpi_training_bpe, &rpi_training_wordpiece, &rpi_training_wordpiece_cased,
    &rpi_training_wordlevel};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

const rpi_tokenizer_training *rpi_tokenizer_training_at(int index) {
    return index >= 0 && index < KINDS ? kinds[index] : NULL;
}

static const rpi_tokenizer_training *find(const char *text, const char **out_number) {
    size_t length = strcspn(text, "=");
    *out_number = text[length] ? text + length + 1 : "";
    for (int i = 0; i < KINDS; i++)
        if (strlen(kinds[i]->name) == length && memcmp(kinds[i]->name, text, length) == 0)
            return kinds[i];
    return NULL;
}

rp_status rpi_tokenizer_training_parse(const char *text,
                                       const rpi_tokenizer_training **out_kind,
                                       uint32_t *out_size) {
    const char *number;
    const rpi_tokenizer_training *kind = find(text, &number);
    int64_t size = 0;
    if (!kind) {
        char names[256] = "";
        for (int i = 0; i < KINDS; i++)
            rpi_append(names, sizeof names, "%strain:%s=N", i ? ", " : "", kinds[i]->name);
        return RP_FAIL(INVALID, "--tokenizer train:%s: there are %s", text, names);
    }
    if (rpi_parse_count(number, &size) != RP_OK || size < kind->least || size > RPI_TOKENS_MOST)
        return RP_FAIL(INVALID, "--tokenizer train:%s: train:%s=N with N from %u to %d", text,
                       kind->name, kind->least, RPI_TOKENS_MOST);
    *out_kind = kind;
    *out_size = (uint32_t)size;
    return RP_OK;
}

struct rpi_tokenizer_trainer {
    const rpi_tokenizer_training *kind;
    rpi_word_counts words;
};

static rp_status open_words(rpi_tokenizer_trainer *t) {
    char *json = NULL;
    if (t->kind->make_cutter) RP_TRY(t->kind->make_cutter(&json));
    rp_status status = rpi_word_counts_open(json, &t->words);
    cJSON_free(json);
    return status;
}

rp_status rpi_tokenizer_trainer_create(const rpi_tokenizer_training *kind,
                                       rpi_tokenizer_trainer **out_trainer) {
    rpi_tokenizer_trainer *t = NULL;
    RP_TRY(rpi_alloc(sizeof *t, "a trainer of tokenizers", &t));
    t->kind = kind;
    rp_status status = open_words(t);
    if (status == RP_OK)
        *out_trainer = t;
    else
        rpi_tokenizer_trainer_destroy(t);
    return status;
}

void rpi_tokenizer_trainer_destroy(rpi_tokenizer_trainer *t) {
    if (!t) return;
    rpi_word_counts_close(&t->words);
    rpi_free(t);
}

rp_status rpi_tokenizer_trainer_add(rpi_tokenizer_trainer *t, const char *text, size_t bytes) {
    return rpi_word_counts_add(&t->words, text, bytes);
}

rp_status rpi_tokenizer_trainer_finish(rpi_tokenizer_trainer *t, uint32_t size,
                                       rpi_training_stop stop, char **out_json) {
    if (size < t->kind->least || size > RPI_TOKENS_MOST)
        return RP_FAIL(INVALID, "a vocabulary of %u tokens; %u to %d are allowed", size,
                       t->kind->least, RPI_TOKENS_MOST);
    return t->kind->train(&t->words, size, stop, out_json);
}
