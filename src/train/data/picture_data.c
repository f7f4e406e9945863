#include "train/data/picture_data.h"

#include "base/status.h"
#include "base/suggest.h"
#include "train/data/token_data.h"

#include <stdio.h>
#include <string.h>

static const char usage[] =
    "write images:FOLDER, images:FOLDER,validation=FOLDER or images:FOLDER,validation=5%, and "
    "normalize=imagenet or half";

/* Of ImageNet, as torchvision's models take them; and to -1 ... 1, as those of the papers on
 * vision transformers. */
static const rpi_picture_scale scales[] = {
    {"imagenet", {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}},
    {"half", {0.5, 0.5, 0.5}, {0.5, 0.5, 0.5}},
};
enum { SCALES = sizeof scales / sizeof scales[0] };

const rpi_picture_scale *rpi_picture_scale_at(int index) {
    return index >= 0 && index < SCALES ? &scales[index] : NULL;
}

static const char *scale_name_at(const void *context, int index) {
    (void)context;
    return index < SCALES ? scales[index].name : NULL;
}

typedef struct words {
    char train[RPI_PATH_BYTES], validation[RPI_PATH_BYTES];
    double share; /* 0: not said */
    const rpi_picture_scale *scale;
} words;

/* ---- what the user wrote ---- */

static rp_status parse_validation(const char *text, words *w) {
    if (!*text) return RP_FAIL(INVALID, "validation= is empty; %s", usage);
    if (!rpi_token_data_share(text, &w->share)) {
        snprintf(w->validation, sizeof w->validation, "%s", text);
        return RP_OK;
    }
    if (w->share > 0 && w->share < 1) return RP_OK;
    return RP_FAIL(INVALID, "validation=%s: a share above 0 and below 1 (100%%) is allowed",
                   text);
}

static rp_status parse_scale(const char *text, words *w) {
    int index = 0;
    RP_TRY(rpi_name_find("normalize", text, scale_name_at, NULL, &index));
    w->scale = &scales[index];
    return RP_OK;
}

static rp_status parse_word(const char *word, words *w) {
    if (strncmp(word, "validation=", 11) == 0) return parse_validation(word + 11, w);
    if (strncmp(word, "normalize=", 10) == 0) return parse_scale(word + 10, w);
    return RP_FAIL(INVALID, "'%s' is no option of images; %s", word, usage);
}

static rp_status parse(const char *text, words *w) {
    char copy[RPI_PATH_BYTES], *rest = copy;
    const char *colon = strchr(text, ':');
    if (snprintf(copy, sizeof copy, "%s", colon ? colon + 1 : "") >= RPI_PATH_BYTES - 16)
        return RP_FAIL(INVALID, "the text of the data is too long");
    const char *path = strsep(&rest, ",");
    if (!*path) return RP_FAIL(INVALID, "no folder of pictures is named; %s", usage);
    snprintf(w->train, sizeof w->train, "%s", path);
    for (size_t end = strlen(w->train); end > 1 && w->train[end - 1] == '/';)
        w->train[--end] = '\0';
    w->scale = &scales[0];
    for (char *word; (word = strsep(&rest, ","));) RP_TRY(parse_word(word, w));
    return RP_OK;
}

rp_status rpi_picture_scale_of(const char *text, const rpi_picture_scale **out_scale) {
    words w = {.share = 0};
    RP_TRY(parse(text, &w));
    *out_scale = w.scale;
    return RP_OK;
}

/* ---- folders beside each other ---- */

/* Paths have room for these names: parse() sees to it. */
static void find_validation(const char *parent, words *w) {
    static const char *const names[] = {"val", "validation", "valid", "test"};
    if (w->validation[0] || w->share > 0) return;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !w->validation[0]; i++)
        if (rpi_folder_has(parent, names[i]))
            snprintf(w->validation, sizeof w->validation, "%.*s/%s", RPI_PATH_BYTES - 16,
                     parent, names[i]);
}

static void resolve(words *w) {
    char parent[RPI_PATH_BYTES];
    snprintf(parent, sizeof parent, "%s", w->train);
    if (rpi_picture_folder_has_part(parent, "train")) {
        snprintf(w->train, sizeof w->train, "%.*s/train", RPI_PATH_BYTES - 16, parent);
        find_validation(parent, w);
        return;
    }
    char *slash = strrchr(parent, '/');
    const char *name = slash ? slash + 1 : parent;
    if (strcmp(name, "train") != 0) return;
    if (slash) *slash = '\0';
    find_validation(slash == parent ? "/" : slash ? parent : ".", w);
}

/* ---- a part of one folder ---- */

/* Evenly over the list, and so over the classes: i is held out where (i + 1) share passes a
 * whole number that i share had not. At least one is, and one is not. */
static rp_status split(rpi_picture_data *d, double share) {
    int64_t all = d->train.count, learn = 0;
    RP_TRY(rpi_alloc_array((size_t)all, sizeof *d->split, "the held-out pictures", &d->split));
    int64_t held_out = (int64_t)((double)all * share);
    if (held_out < 1) held_out = 1;
    if (held_out > all - 1) held_out = all - 1;
    for (int64_t i = 0, out = 0; i < all; i++) {
        int64_t passed = (int64_t)((double)(i + 1) * (double)held_out / (double)all + 1e-9);
        if (passed > out)
            d->split[all - held_out + out++] = (uint32_t)i;
        else
            d->split[learn++] = (uint32_t)i;
    }
    d->train_count = all - held_out;
    d->test_count = held_out;
    return RP_OK;
}

static rp_status open_all(const char *text, rpi_picture_data *d) {
    words w = {.share = 0};
    RP_TRY(parse(text, &w));
    d->scale = w.scale;
    resolve(&w);
    RP_TRY(rpi_picture_folder_open(w.train, 2, &d->train));
    if (!w.validation[0]) return split(d, w.share > 0 ? w.share : RPI_TOKEN_DATA_SHARE);
    RP_TRY(rpi_picture_folder_open(w.validation, 1, &d->validation));
    d->train_count = d->train.count;
    d->test_count = d->validation.count;
    return rpi_picture_folder_number_as(&d->validation, &d->train);
}

rp_status rpi_picture_data_open(const char *text, rpi_picture_data *out_data) {
    rpi_picture_data data = {.train_count = 0};
    rp_status status = open_all(text, &data);
    if (status == RP_OK)
        *out_data = data;
    else
        rpi_picture_data_close(&data);
    return status;
}

void rpi_picture_data_close(rpi_picture_data *data) {
    rpi_picture_folder_close(&data->train);
    rpi_picture_folder_close(&data->validation);
    rpi_free(data->split);
    *data = (rpi_picture_data){0};
}
