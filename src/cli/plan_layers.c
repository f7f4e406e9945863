#include "cli/plan_layers.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/units.h"
#include "plan/stage_cut.h"

#include <string.h>

/* ---- plain lists ---- */

enum { ITEM_BYTES = 64 };

/* Copies the first item of a list into `item`; returns what follows its comma, or NULL. */
static const char *next_item(const char *text, char item[ITEM_BYTES]) {
    const char *end = text + strcspn(text, ",");
    size_t length = (size_t)(end - text);
    if (length >= ITEM_BYTES) length = ITEM_BYTES - 1;
    memcpy(item, text, length);
    item[length] = '\0';
    return *end ? end + 1 : NULL;
}

rp_status rpi_times_parse(const char *text, int most, double *out, int *out_count) {
    char item[ITEM_BYTES];
    int count = 0;
    for (const char *at = text; at; count++) {
        double value;
        at = next_item(at, item);
        RP_TRY(rpi_parse_duration(item, &value));
        if (count == most) return RP_FAIL(INVALID, "more than %d times", most);
        if (out) out[count] = value;
    }
    *out_count = count;
    return RP_OK;
}

rp_status rpi_times_check(const char *text) {
    int count;
    return rpi_times_parse(text, RPI_PIPELINE_STAGES, NULL, &count);
}

rp_status rpi_byte_pair_parse(const char *text, double out[2]) {
    char item[ITEM_BYTES];
    int count = 0;
    for (const char *at = text; at; count++) {
        int64_t value;
        at = next_item(at, item);
        RP_TRY(rpi_parse_bytes(item, &value));
        if (count == 2)
            return RP_FAIL(INVALID,
                           "'%s' is more than what is kept, and what of it for weights", text);
        out[count] = (double)value;
    }
    if (count == 1) out[1] = out[0];
    if (out[1] > out[0])
        return RP_FAIL(INVALID, "'%s': weights need no more than what is kept in all", text);
    return RP_OK;
}

rp_status rpi_byte_pair_check(const char *text) {
    double bytes[2];
    return rpi_byte_pair_parse(text, bytes);
}

/* ---- layers ---- */

static rp_status read_times(char *text, rpi_pipeline_layer *layer) {
    char *backward = strchr(text, '/'), *weights = NULL;
    if (backward) *backward++ = '\0';
    if (backward && (weights = strchr(backward, '/')) != NULL) *weights++ = '\0';
    double whole_s;
    RP_TRY(rpi_parse_duration(text, &layer->forward_s));
    whole_s = 2 * layer->forward_s;
    if (backward) RP_TRY(rpi_parse_duration(backward, &whole_s));
    layer->weights_s = whole_s / 2;
    if (weights) RP_TRY(rpi_parse_duration(weights, &layer->weights_s));
    if (layer->weights_s > whole_s)
        return RP_FAIL(INVALID, "%s for weights are more than the whole backward pass",
                       weights);
    layer->inputs_s = whole_s - layer->weights_s;
    return RP_OK;
}

/* "24*" in front; 1 without one. */
static rp_status read_repeats(char **text, int64_t *out) {
    char *star = strchr(*text, '*'), *equals = strchr(*text, '=');
    *out = 1;
    if (!star || (equals && equals < star)) return RP_OK;
    *star = '\0';
    RP_TRY(rpi_parse_count(*text, out));
    *text = star + 1;
    if (*out >= 1 && *out <= RPI_STAGE_LAYERS) return RP_OK;
    return RP_FAIL(INVALID, "%lld layers; 1 to %d are allowed", (long long)*out,
                   RPI_STAGE_LAYERS);
}

static rp_status read_item(char *text, rpi_layer_list *list) {
    rpi_pipeline_layer layer = {.name = "layer"};
    int64_t repeats;
    RP_TRY(read_repeats(&text, &repeats));
    char *times = strchr(text, '=');
    if (times) {
        *times++ = '\0';
        layer.name = text;
        char *tie = strchr(text, ':');
        if (tie) *tie++ = '\0';
        layer.tie = tie;
        if (!layer.name[0] || (tie && !tie[0]))
            return RP_FAIL(INVALID, "a layer without a name, or a tie without a word");
    }
    RP_TRY(read_times(times ? times : text, &layer));
    if (list->count + repeats > RPI_STAGE_LAYERS)
        return RP_FAIL(INVALID, "more than %d layers", RPI_STAGE_LAYERS);
    for (int64_t i = 0; i < repeats; i++) list->layers[list->count++] = layer;
    return RP_OK;
}

static rp_status read_items(rpi_layer_list *list) {
    for (char *at = list->words, *next; at; at = next) {
        next = strchr(at, ',');
        if (next) *next++ = '\0';
        RP_TRY(read_item(at, list));
    }
    return RP_OK;
}

rp_status rpi_layers_parse(const char *text, rpi_layer_list *out) {
    rpi_layer_list list = {0};
    *out = list;
    rp_status status = rpi_strdup(text, &list.words);
    if (status == RP_OK)
        status = rpi_alloc_array(RPI_STAGE_LAYERS, sizeof *list.layers, "layers", &list.layers);
    if (status == RP_OK) {
        status = read_items(&list);
        if (status != RP_OK) (void)rpi_fail_context(status, "'%s': ", text);
    }
    if (status == RP_OK)
        *out = list;
    else
        rpi_layers_free(&list);
    return status;
}

void rpi_layers_free(rpi_layer_list *list) {
    rpi_free(list->layers);
    rpi_free(list->words);
    *list = (rpi_layer_list){0};
}

rp_status rpi_layers_check(const char *text) {
    rpi_layer_list list;
    RP_TRY(rpi_layers_parse(text, &list));
    rpi_layers_free(&list);
    return RP_OK;
}
