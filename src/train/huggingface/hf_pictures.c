#include "train/huggingface/hf_pictures.h"

#include "base/memory.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "train/data/picture_data.h"
#include "train/tokenizers/json_read.h"

#include <math.h>
#include <string.h>

enum { MOST_BYTES = 1 << 20, COLOURS = 3 };
#define NEAR 1e-3

static bool is_near(const cJSON *list, const double values[COLOURS]) {
    if (cJSON_GetArraySize(list) != COLOURS) return false;
    for (int c = 0; c < COLOURS; c++)
        if (!(fabs(cJSON_GetArrayItem(list, c)->valuedouble - values[c]) <= NEAR)) return false;
    return true;
}

static bool is_scale(const cJSON *means, const cJSON *deviations,
                     const rpi_picture_scale *scale) {
    return is_near(means, scale->mean) && is_near(deviations, scale->deviation);
}

static rp_status compare(const char *path, const cJSON *root, const char *data) {
    const cJSON *means = cJSON_GetObjectItemCaseSensitive(root, "image_mean");
    const cJSON *deviations = cJSON_GetObjectItemCaseSensitive(root, "image_std");
    const rpi_picture_scale *scale = NULL, *other = NULL;
    if (!cJSON_IsArray(means) || !cJSON_IsArray(deviations)) return RP_OK;
    RP_TRY(rpi_picture_scale_of(data, &scale));
    if (is_scale(means, deviations, scale)) return RP_OK;
    for (int i = 0; (other = rpi_picture_scale_at(i)) != NULL; i++)
        if (is_scale(means, deviations, other))
            return RP_FAIL(INVALID,
                           "%s: its pictures were normalized otherwise: write normalize=%s "
                           "behind the folder of --data, with a comma between",
                           path, other->name);
    char *shown = cJSON_PrintUnformatted(means);
    rp_status status =
        RP_FAIL(INVALID,
                "%s: 'image_mean' is %.60s, with deviations of its own; pictures "
                "are normalized by those of imagenet or half here",
                path, shown ? shown : "?");
    cJSON_free(shown);
    return status;
}

rp_status rpi_hf_pictures_check(const char *folder, const char *data) {
    char path[RPI_PATH_BYTES], *text = NULL;
    size_t bytes = 0;
    cJSON *root = NULL;
    if (strncmp(data, "images:", 7) != 0) return RP_OK;
    if (snprintf(path, sizeof path, "%s/preprocessor_config.json", folder) >= (int)sizeof path)
        return RP_FAIL(INVALID, "the path %s is too long", folder);
    rp_status status = rpi_regular_file_read(path, MOST_BYTES, &text, &bytes);
    if (status == RP_NOT_FOUND) return RP_OK;
    if (status == RP_OK) status = rpi_json_parse(path, text, bytes, &root);
    rpi_free(text);
    if (status == RP_OK) status = compare(path, root, data);
    cJSON_Delete(root);
    return status;
}
