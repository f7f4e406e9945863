#include "train/models/model.h"

#include "base/append.h"
#include "base/status.h"
#include "base/suggest.h"

#include <stdio.h>
#include <string.h>

extern const rpi_model rpi_model_mlp;
extern const rpi_model rpi_model_resnet20;
extern const rpi_model rpi_model_resnet18;
extern const rpi_model rpi_model_resnet34;
extern const rpi_model rpi_model_resnet50;
extern const rpi_model rpi_model_resnet101;
extern const rpi_model rpi_model_resnet152;
extern const rpi_model rpi_model_vgg16;
extern const rpi_model rpi_model_vgg16_bn;
extern const rpi_model rpi_model_vit;
extern const rpi_model rpi_model_vit_b16;
extern const rpi_model rpi_model_gpt2;
extern const rpi_model rpi_model_llama;
extern const rpi_model rpi_model_bert;
extern const rpi_model rpi_model_transformer_xl;

static const rpi_model *const models[] = {
    &rpi_model_mlp,      &rpi_model_resnet20,  &rpi_model_resnet18,       &rpi_model_resnet34,
    &rpi_model_resnet50, &rpi_model_resnet101, &rpi_model_resnet152,      &rpi_model_vgg16,
    &rpi_model_vgg16_bn, &rpi_model_vit,       &rpi_model_vit_b16,        &rpi_model_gpt2,
    &rpi_model_llama,    &rpi_model_bert,      &rpi_model_transformer_xl,
};
enum { MODELS = sizeof models / sizeof models[0] };

const rpi_model *rpi_model_at(int index) {
    return index >= 0 && index < MODELS ? models[index] : NULL;
}

static const char *name_at(const void *context, int index) {
    (void)context;
    return index < MODELS ? models[index]->name : NULL;
}

/* ---- help ---- */

static void add_choices(const rpi_model *model, bool with_help, char *text, size_t bytes) {
    const rpi_model_size *s = model->sizes;
    const rpi_option *o = model->options;
    for (int i = 0; s && s[i].name; i++)
        rpi_append(text, bytes, "%s%s", i ? ", " : "sizes: ", s[i].name);
    if (s && o) rpi_append(text, bytes, "; ");
    for (int i = 0; o && o[i].name; i++) {
        rpi_append(text, bytes, "%s%s=%s", i ? ", " : "options: ", o[i].name, o[i].fallback);
        if (with_help) rpi_append(text, bytes, " (%s)", o[i].help);
    }
}

const char *rpi_model_help(const rpi_model *model, char *text, size_t bytes) {
    snprintf(text, bytes, "%s", model->summary);
    if (!model->sizes && !model->options) return text;
    rpi_append(text, bytes, "; ");
    add_choices(model, true, text, bytes);
    return text;
}

/* ---- parsing ---- */

const rpi_option *rpi_model_option(const rpi_model *model, const char *name) {
    for (const rpi_option *o = model->options; o && o->name; o++)
        if (strcmp(o->name, name) == 0) return o;
    return NULL;
}

/* Sizes, then options. */
static const char *choice_at(const void *context, int index) {
    const rpi_model *model = context;
    for (const rpi_model_size *s = model->sizes; s && s->name; s++)
        if (index-- == 0) return s->name;
    return model->options && index >= 0 ? model->options[index].name : NULL;
}

static rp_status refuse(const rpi_model *model, const char *word) {
    char choices[RPI_MODEL_HELP] = "", hint[128];
    add_choices(model, false, choices, sizeof choices);
    if (rpi_model_option(model, word))
        snprintf(hint, sizeof hint, "; %.60s wants a value", word);
    else
        rpi_suggest_text(word, choice_at, model, hint, sizeof hint);
    return RP_FAIL(INVALID, "model %s does not take '%.60s'; %s%s%s", model->name, word,
                   choices[0] ? choices : "it takes no options",
                   choices[0] ? " (redpoll info says what they mean)" : "", hint);
}

int64_t rpi_model_memory(const rpi_model_choice *choice) {
    return choice->model->memory ? choice->model->memory(choice->options) : 0;
}

int64_t rpi_model_number(const rpi_model_choice *choice, const char *name) {
    int64_t value = 0;
    const rpi_option *option = rpi_model_option(choice->model, name);
    if (option && option->type == RPI_OPTION_COUNT)
        memcpy(&value, choice->options + option->offset, sizeof value);
    return value;
}

static bool has_head(const rpi_model_choice *choice, const rpi_model_head *head) {
    const rpi_option *option = rpi_model_option(choice->model, head->flag);
    return option && *(const bool *)(choice->options + option->offset);
}

const char *rpi_model_task(const rpi_model_choice *choice) {
    const rpi_model_head *head = choice->model->heads;
    for (; head && head->flag; head++)
        if (has_head(choice, head)) return head->task;
    return choice->model->task;
}

rp_status rpi_model_add_head(char text[RPI_MODEL_TEXT], const char *task) {
    rpi_model_choice choice;
    RP_TRY(rpi_model_parse(text, &choice));
    if (strcmp(rpi_model_task(&choice), task) == 0) return RP_OK;
    const rpi_model_head *head = choice.model->heads;
    for (; head && head->flag; head++) {
        if (strcmp(head->task, task) != 0) continue;
        size_t used = strlen(text), room = RPI_MODEL_TEXT - used;
        int more =
            snprintf(text + used, room, "%c%s=on", strchr(text, ':') ? ',' : ':', head->flag);
        if (more < 0 || (size_t)more >= room)
            return RP_FAIL(INVALID, "the text of the model is too long");
    }
    return RP_OK;
}

rp_status rpi_model_set_memory(char text[RPI_MODEL_TEXT], int64_t memory) {
    rpi_model_choice choice;
    RP_TRY(rpi_model_parse(text, &choice));
    if (rpi_model_memory(&choice) == 0)
        return RP_FAIL(INVALID,
                       "--memory is for a model that remembers earlier segments, as "
                       "transformer-xl does; %s does not",
                       choice.model->name);
    size_t used = strlen(text), room = RPI_MODEL_TEXT - used;
    int more = snprintf(text + used, room, "%cmemory=%lld", strchr(text, ':') ? ',' : ':',
                        (long long)memory);
    if (more < 0 || (size_t)more >= room)
        return RP_FAIL(INVALID, "the text of the model is too long");
    return RP_OK;
}

static rp_status set_option(const rpi_model *model, char *word, char *value, void *options) {
    if (!rpi_model_option(model, word)) return refuse(model, word);
    rp_status status = rpi_options_set_yaml(model->options, word, value, options);
    return status == RP_OK ? RP_OK : rpi_fail_context(status, "model %s: ", model->name);
}

static rp_status set_words(rpi_model_choice *choice, char *words);

static rp_status set_size(rpi_model_choice *choice, const char *word) {
    for (const rpi_model_size *s = choice->model->sizes; s && s->name; s++) {
        if (strcmp(s->name, word) != 0) continue;
        if (choice->size_words[0])
            return RP_FAIL(INVALID, "model %s has one size; '%s' is a second",
                           choice->model->name, word);
        snprintf(choice->size_words, sizeof choice->size_words, "%s", s->options);
        return set_words(choice, choice->size_words);
    }
    return refuse(choice->model, word);
}

/* NOLINTNEXTLINE(misc-no-recursion): what a size says names no further size. */
static rp_status set_words(rpi_model_choice *choice, char *words) {
    char *rest = words;
    for (char *word; (word = strtok_r(rest, ",", &rest));) {
        char *value = strchr(word, '=');
        if (value) *value++ = '\0';
        RP_TRY(value ? set_option(choice->model, word, value, choice->options)
                     : set_size(choice, word));
    }
    return RP_OK;
}

rp_status rpi_model_parse(const char *text, rpi_model_choice *out) {
    *out = (rpi_model_choice){0};
    if (snprintf(out->words, sizeof out->words, "%s", text) >= (int)sizeof out->words)
        return RP_FAIL(INVALID, "the model's text is longer than %d bytes", RPI_MODEL_TEXT - 1);
    char *rest = strchr(out->words, ':');
    if (rest) *rest++ = '\0';
    int index = 0;
    RP_TRY(rpi_name_find("model", out->words, name_at, NULL, &index));
    out->model = models[index];
    if (out->model->options) RP_TRY(rpi_options_defaults(out->model->options, out->options));
    if (rest) RP_TRY(set_words(out, rest));
    if (out->model->fill_in) out->model->fill_in(out->options);
    return RP_OK;
}

bool rpi_model_is_same(const char *text, const char *other) {
    rpi_model_choice a, b;
    if (rpi_model_parse(text, &a) != RP_OK || rpi_model_parse(other, &b) != RP_OK) return false;
    bool same = a.model == b.model;
    for (const rpi_option *o = a.model->options; same && o && o->name; o++) {
        char texts[2][RPI_MODEL_TEXT];
        rpi_option_text(o, a.options, texts[0], sizeof texts[0]);
        rpi_option_text(o, b.options, texts[1], sizeof texts[1]);
        same = strcmp(texts[0], texts[1]) == 0;
    }
    return same;
}
