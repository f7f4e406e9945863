#include "train/models/model.h"

#include "base/status.h"
#include "base/suggest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const rpi_model rpi_model_mlp;
extern const rpi_model rpi_model_resnet20;
extern const rpi_model rpi_model_resnet18;

static const rpi_model *const models[] = {
    &rpi_model_mlp,
    &rpi_model_resnet20,
    &rpi_model_resnet18,
};
enum { MODELS = sizeof models / sizeof models[0], WIDEST = 65536 };

const rpi_model *rpi_model_at(int index) {
    return index >= 0 && index < MODELS ? models[index] : NULL;
}

static const char *name_at(const void *context, int index) {
    (void)context;
    return index < MODELS ? models[index]->name : NULL;
}

static rp_status find(const char *name, const rpi_model **out_model) {
    int index = 0;
    RP_TRY(rpi_name_find("model", name, name_at, NULL, &index));
    *out_model = models[index];
    return RP_OK;
}

/* A width at *text, which moves behind it. */
static rp_status parse_width(const char **text, int *out_width) {
    char *end;
    long width = strtol(*text, &end, 10);
    if (end == *text || width < 1 || width > WIDEST)
        return RP_FAIL(INVALID, "'%s' is no width; 1 to %d are allowed", *text, WIDEST);
    *out_width = (int)width;
    *text = end;
    return RP_OK;
}

static rp_status parse_hidden(const char *value, rpi_model_options *options) {
    options->hidden_count = 0;
    for (const char *at = value;; at++) {
        if (options->hidden_count == RPI_MODEL_HIDDEN)
            return RP_FAIL(INVALID, "'%s' has more than %d hidden layers", value,
                           RPI_MODEL_HIDDEN);
        RP_TRY(parse_width(&at, &options->hidden[options->hidden_count++]));
        if (!*at) return RP_OK;
        if (*at != 'x') return RP_FAIL(INVALID, "'%s' is not like 512x256", value);
    }
}

static rp_status parse_stem(const char *value, rpi_model_options *options) {
    options->imagenet_stem = strcmp(value, "imagenet") == 0;
    if (options->imagenet_stem || strcmp(value, "small") == 0) return RP_OK;
    return RP_FAIL(INVALID, "'%s' is no stem; small or imagenet", value);
}

static rp_status parse_first_width(const char *value, rpi_model_options *options) {
    const char *end = value;
    RP_TRY(parse_width(&end, &options->width));
    return *end ? RP_FAIL(INVALID, "'%s' is no width", value) : RP_OK;
}

static const struct {
    const char *name;
    rpi_model_takes bit;
    rp_status (*parse)(const char *value, rpi_model_options *options);
} known[] = {
    {"hidden", RPI_TAKES_HIDDEN, parse_hidden},
    {"width", RPI_TAKES_WIDTH, parse_first_width},
    {"stem", RPI_TAKES_STEM, parse_stem},
};

static rp_status parse_option(const rpi_model *model, char *text, rpi_model_options *options) {
    char *value = strchr(text, '=');
    if (value) *value++ = '\0';
    for (size_t i = 0; value && i < sizeof known / sizeof known[0]; i++)
        if ((model->takes & known[i].bit) && strcmp(known[i].name, text) == 0)
            return known[i].parse(value, options);
    return RP_FAIL(INVALID, "model %s does not take '%s': %s", model->name, text,
                   model->summary);
}

rp_status rpi_model_parse(const char *text, const rpi_model **out_model,
                          rpi_model_options *out_options) {
    char words[RPI_MODEL_TEXT];
    if (snprintf(words, sizeof words, "%s", text) >= (int)sizeof words)
        return RP_FAIL(INVALID, "the model's text is longer than %d bytes", RPI_MODEL_TEXT - 1);
    char *rest = strchr(words, ':');
    if (rest) *rest++ = '\0';
    const rpi_model *model = NULL;
    RP_TRY(find(words, &model));
    rpi_model_options options = model->defaults;
    for (char *word = rest ? strtok_r(rest, ",", &rest) : NULL; word;
         word = strtok_r(NULL, ",", &rest))
        RP_TRY(parse_option(model, word, &options));
    *out_model = model;
    *out_options = options;
    return RP_OK;
}
