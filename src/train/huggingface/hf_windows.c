#include "train/huggingface/hf_windows.h"

#include "base/append.h"
#include "base/status.h"
#include "train/huggingface/hf_number.h"
#include "train/tokenizers/json_read.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <string.h>

/* What transformers means by a key that is not there. */
enum { USUAL_WINDOW = 4096, USUAL_FIRST = 28 };

/* A whole number of 0 or more; `usual`: the key is not there. */
static rp_status read_count(const char *path, const cJSON *root, const char *key, double usual,
                            double *out) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(root, key);
    *out = usual;
    if (!item) return RP_OK;
    *out = item->valuedouble;
    return rpi_hf_whole_check(path, key, item, 0, RPI_HF_LARGEST);
}

/* 0: there are no windows. */
static rp_status read_window(const char *path, const cJSON *root, double *out) {
    const cJSON *uses = cJSON_GetObjectItemCaseSensitive(root, "use_sliding_window");
    const cJSON *window = cJSON_GetObjectItemCaseSensitive(root, "sliding_window");
    *out = 0;
    if (uses && !cJSON_IsBool(uses))
        return RP_FAIL(CORRUPT, "%s: 'use_sliding_window' is no true or false", path);
    if (!cJSON_IsTrue(uses) || cJSON_IsNull(window)) return RP_OK;
    RP_TRY(read_count(path, root, "sliding_window", USUAL_WINDOW, out));
    return *out > 0 ? RP_OK : RP_FAIL(CORRUPT, "%s: 'sliding_window' is 0", path);
}

static rp_status refuse(const char *path, const cJSON *item) {
    return rpi_json_refuse(path, item, "model llama has windows in all layers or in none");
}

/* By the type of each. */
static rp_status count_types(const char *path, const cJSON *types, double layers,
                             double *out_windowed) {
    const cJSON *type;
    double all = 0;
    *out_windowed = 0;
    if (!cJSON_IsArray(types)) return refuse(path, types);
    cJSON_ArrayForEach(type, types) {
        bool has_window =
            cJSON_IsString(type) && strcmp(type->valuestring, "sliding_attention") == 0;
        if (!has_window &&
            !(cJSON_IsString(type) && strcmp(type->valuestring, "full_attention") == 0))
            return refuse(path, types);
        *out_windowed += has_window;
        all++;
    }
    return all == layers ? RP_OK : refuse(path, types);
}

rp_status rpi_hf_windows_read(const char *path, const cJSON *root, char *text, size_t bytes) {
    const cJSON *types = cJSON_GetObjectItemCaseSensitive(root, "layer_types"), *said = types;
    double window, layers, first, windowed;
    RP_TRY(read_window(path, root, &window));
    RP_TRY(read_count(path, root, "num_hidden_layers", 0, &layers));
    if (rpi_json_has(root, "layer_types")) {
        RP_TRY(count_types(path, types, layers, &windowed));
    } else {
        RP_TRY(read_count(path, root, "max_window_layers", USUAL_FIRST, &first));
        said = cJSON_GetObjectItemCaseSensitive(root, "max_window_layers");
        windowed = window > 0 ? fmax(layers - first, 0) : 0;
    }
    if (windowed == 0) return RP_OK;
    if (windowed == layers && window > 0) {
        rpi_append(text, bytes, ",window=%.15g", window);
        return RP_OK;
    }
    return refuse(path,
                  said ? said : cJSON_GetObjectItemCaseSensitive(root, "use_sliding_window"));
}

void rpi_hf_windows_write(const rpi_model_choice *choice, cJSON *root) {
    int64_t window = rpi_model_number(choice, "window");
    cJSON_AddBoolToObject(root, "use_sliding_window", window > 0);
    if (window == 0) return;
    cJSON_AddNumberToObject(root, "sliding_window", (double)window);
    cJSON_AddNumberToObject(root, "max_window_layers", 0);
}
