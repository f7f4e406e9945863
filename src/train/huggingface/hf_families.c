#include "train/huggingface/hf_family.h"

#include "base/status.h"
#include "train/models/model.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

extern const rpi_hf_family rpi_hf_gpt2;
extern const rpi_hf_family rpi_hf_llama;
extern const rpi_hf_family rpi_hf_mistral;
extern const rpi_hf_family rpi_hf_qwen2;
extern const rpi_hf_family rpi_hf_qwen3;
extern const rpi_hf_family rpi_hf_bert;
extern const rpi_hf_family rpi_hf_megatron_bert;
extern const rpi_hf_family rpi_hf_vit;
extern const rpi_hf_family rpi_hf_vit_b16;

static const rpi_hf_family *const families[] = {
    &rpi_hf_gpt2, &rpi_hf_llama,         &rpi_hf_mistral, &rpi_hf_qwen2,   &rpi_hf_qwen3,
    &rpi_hf_bert, &rpi_hf_megatron_bert, &rpi_hf_vit,     &rpi_hf_vit_b16,
};
enum { FAMILIES = sizeof families / sizeof families[0] };

/* "gpt2, llama"; each once, as families of one model are neighbours. */
static const char *names(const char *(*name_of)(const rpi_hf_family *), char text[256]) {
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < FAMILIES && used < 200; i++) {
        if (i && strcmp(name_of(families[i]), name_of(families[i - 1])) == 0) continue;
        used += (size_t)snprintf(text + used, 256 - used, "%s%s", i ? ", " : "",
                                 name_of(families[i]));
    }
    return text;
}

static const char *model_of(const rpi_hf_family *family) {
    return family->model;
}

static const char *type_of(const rpi_hf_family *family) {
    return family->model_type;
}

/* A flag that no family of the model is told by does not matter. */
static bool is_flagged(const rpi_model_choice *choice, const char *flag) {
    const rpi_option *option = flag ? rpi_model_option(choice->model, flag) : NULL;
    if (option && option->type == RPI_OPTION_COUNT) return rpi_model_number(choice, flag) > 0;
    return option && *(const bool *)(choice->options + option->offset);
}

rp_status rpi_hf_family_of_model(const rpi_model_choice *choice,
                                 const rpi_hf_family **out_family) {
    char text[256];
    const char *model = choice->model->name;
    const rpi_hf_family *found = NULL;
    for (int i = 0; i < FAMILIES; i++) {
        const rpi_hf_family *family = families[i];
        if (strcmp(family->model, model) != 0) continue;
        if (!family->flag || is_flagged(choice, family->flag)) found = family;
    }
    *out_family = found;
    if (found) return RP_OK;
    return RP_FAIL(INVALID, "model %s has no names in Hugging Face folders; there are: %s",
                   model, names(model_of, text));
}

/* ---- what a family can say ---- */

static bool has_row(const rpi_hf_family *family, const char *option) {
    const char *const flags[] = {family->flag, family->head_flag};
    for (const rpi_hf_option *o = family->options; o->option; o++)
        if (strcmp(o->option, option) == 0) return true;
    for (int i = 0; i < 2; i++)
        if (flags[i] && strcmp(flags[i], option) == 0) return true;
    /* How weights start is nothing that a model with weights has. */
    return strncmp(option, "init-", 5) == 0 ||
           (family->has_layer_types && strcmp(option, "window") == 0) ||
           (family->is_rotary && strncmp(option, "rope-", 5) == 0);
}

rp_status rpi_hf_family_check(const rpi_hf_family *family, const rpi_model_choice *choice) {
    alignas(max_align_t) unsigned char plain[RPI_MODEL_OPTIONS] = {0};
    RP_TRY(rpi_options_defaults(choice->model->options, plain));
    if (choice->model->fill_in) choice->model->fill_in(plain);
    for (const rpi_option *o = choice->model->options; o->name; o++) {
        char text[64], usual[64];
        if (has_row(family, o->name)) continue;
        rpi_option_text(o, choice->options, text, sizeof text);
        rpi_option_text(o, plain, usual, sizeof usual);
        if (strcmp(text, usual) == 0) continue;
        return RP_FAIL(INVALID,
                       "%s=%s: Hugging Face's %s, which the model is by its other options, has "
                       "no such thing",
                       o->name, text, family->model_type);
    }
    return RP_OK;
}

const char *rpi_hf_architecture(const rpi_hf_family *family, const rpi_model_choice *choice) {
    bool is_other = family->head_flag && is_flagged(choice, family->head_flag);
    return is_other ? family->head_architecture : family->architecture;
}

rp_status rpi_hf_family_of_type(const char *model_type, const rpi_hf_family **out_family) {
    char text[256];
    for (int i = 0; i < FAMILIES; i++) {
        if (strcmp(families[i]->model_type, model_type) != 0) continue;
        *out_family = families[i];
        return RP_OK;
    }
    return RP_FAIL(INVALID, "model_type '%s' is not known; there are: %s", model_type,
                   names(type_of, text));
}

static bool end_with(const char *name, const char *end, const char *other,
                     char text[RPI_HF_NAME]) {
    size_t length = strlen(name), bytes = strlen(end);
    if (length < bytes || strcmp(name + length - bytes, end) != 0) return false;
    snprintf(text, RPI_HF_NAME, "%.*s%s", (int)(length - bytes), name, other);
    return true;
}

const char *rpi_hf_old_name(const char *name, char text[RPI_HF_NAME]) {
    return end_with(name, "LayerNorm.weight", "LayerNorm.gamma", text) ||
                   end_with(name, "LayerNorm.bias", "LayerNorm.beta", text)
               ? text
               : NULL;
}

/* Does a name follow a pattern, whose '*' is a number? *out_number is its digits. */
static bool follows(const char *pattern, const char *name, const char **out_number) {
    *out_number = NULL;
    for (; *pattern; pattern++) {
        if (*pattern != '*') {
            if (*name++ != *pattern) return false;
            continue;
        }
        *out_number = name;
        if (!isdigit((unsigned char)*name)) return false;
        while (isdigit((unsigned char)*name)) name++;
    }
    return *name == '\0';
}

/* The pattern with digits in the place of its '*'. */
static void put_number(const char *pattern, const char *digits, char name[RPI_HF_NAME]) {
    const char *star = strchr(pattern, '*');
    if (!star)
        snprintf(name, RPI_HF_NAME, "%s", pattern);
    else
        snprintf(name, RPI_HF_NAME, "%.*s%.*s%s", (int)(star - pattern), pattern,
                 (int)strspn(digits, "0123456789"), digits, star + 1);
}

const rpi_hf_tensor *rpi_hf_tensor_find(const rpi_hf_family *family, const char *ours,
                                        const rpi_hf_tensor *after, char theirs[RPI_HF_NAME]) {
    for (const rpi_hf_tensor *t = after ? after + 1 : family->tensors; t->ours; t++) {
        const char *number = NULL;
        if (!follows(t->ours, ours, &number)) continue;
        put_number(t->theirs, number, theirs);
        return t;
    }
    return NULL;
}

const char *rpi_hf_bare_name(const rpi_hf_family *family, const char *theirs) {
    size_t length = strlen(family->prefix);
    return strncmp(theirs, family->prefix, length) == 0 ? theirs + length : theirs;
}

bool rpi_hf_tensor_is_ignored(const rpi_hf_family *family, const char *theirs) {
    const char *number = NULL, *bare = rpi_hf_bare_name(family, theirs);
    for (const char *const *name = family->ignored; *name; name++)
        if (follows(rpi_hf_bare_name(family, *name), bare, &number)) return true;
    return false;
}
