/* config.json of a model of ours. */
#include "train/huggingface/hf_config.h"

#include "base/memory.h"
#include "base/status.h"
#include "train/huggingface/hf_activation.h"
#include "train/huggingface/hf_rope.h"
#include "train/huggingface/hf_windows.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

enum { MOST_KEY = 64 };

/* A key may lie in an object: "rope_parameters.rope_theta". */
static void put_key(cJSON *root, const char *key, cJSON *item) {
    char outer[MOST_KEY];
    const char *dot = strchr(key, '.');
    if (!dot) {
        cJSON_AddItemToObject(root, key, item);
        return;
    }
    snprintf(outer, sizeof outer, "%.*s", (int)(dot - key), key);
    cJSON *object = cJSON_GetObjectItemCaseSensitive(root, outer);
    if (!object) object = cJSON_AddObjectToObject(root, outer);
    cJSON_AddItemToObject(object, dot + 1, item);
}

static cJSON *make_value(const rpi_model_choice *choice, const char *name) {
    const rpi_option *option = rpi_model_option(choice->model, name);
    const void *at = choice->options + (option ? option->offset : 0);
    if (option && option->type == RPI_OPTION_TEXT)
        return cJSON_CreateString(rpi_hf_activation_name(*(const char *const *)at));
    if (option && option->type == RPI_OPTION_FLAG) return cJSON_CreateBool(*(const bool *)at);
    if (option && option->type == RPI_OPTION_REAL)
        return cJSON_CreateNumber(*(const double *)at);
    return cJSON_CreateNumber((double)rpi_model_number(choice, name));
}

static void put_options(cJSON *root, const rpi_hf_family *family,
                        const rpi_model_choice *choice) {
    for (const rpi_hf_option *o = family->options; o->option; o++) {
        put_key(root, o->key, make_value(choice, o->option));
        if (o->also) put_key(root, o->also, make_value(choice, o->option));
    }
}

static void put_token(cJSON *root, const char *key, int64_t token) {
    put_key(root, key, token >= 0 ? cJSON_CreateNumber((double)token) : cJSON_CreateNull());
}

/* Classes have no names here. */
static void put_pictures(cJSON *root, rpi_hf_pictures pictures) {
    cJSON_DeleteItemFromObjectCaseSensitive(root, "image_size");
    cJSON_AddNumberToObject(root, "image_size", (double)pictures.side);
    cJSON_AddNumberToObject(root, "num_channels", (double)pictures.channels);
    cJSON *names = cJSON_AddObjectToObject(root, "id2label");
    cJSON *numbers = cJSON_AddObjectToObject(root, "label2id");
    for (int64_t i = 0; i < pictures.classes; i++) {
        char id[24], label[32];
        snprintf(id, sizeof id, "%lld", (long long)i);
        snprintf(label, sizeof label, "LABEL_%lld", (long long)i);
        cJSON_AddStringToObject(names, id, label);
        cJSON_AddNumberToObject(numbers, label, (double)i);
    }
}

static cJSON *make_config(const rpi_hf_family *family, const rpi_model_choice *choice,
                          rpi_hf_text_ends ends, rpi_hf_pictures pictures) {
    cJSON *root = cJSON_CreateObject();
    cJSON *architectures = cJSON_AddArrayToObject(root, "architectures");
    cJSON_AddItemToArray(architectures,
                         cJSON_CreateString(rpi_hf_architecture(family, choice)));
    cJSON_AddStringToObject(root, "model_type", family->model_type);
    cJSON_AddStringToObject(root, "torch_dtype", "float32");
    put_options(root, family, choice);
    for (const rpi_hf_constant *c = family->constants; c->key; c++)
        if (c->json) put_key(root, c->key, cJSON_Parse(c->json));
    if (family->has_layer_types) rpi_hf_windows_write(choice, root);
    if (family->is_rotary) rpi_hf_rope_write(choice, root);
    if (family->sees_pictures) {
        put_pictures(root, pictures);
        return root;
    }
    put_token(root, "bos_token_id", ends.begin);
    put_token(root, "eos_token_id", ends.end);
    return root;
}

rp_status rpi_hf_config_text(const rpi_hf_family *family, const rpi_model_choice *choice,
                             rpi_hf_text_ends ends, rpi_hf_pictures pictures, char **out_text) {
    RP_TRY(rpi_hf_family_check(family, choice));
    cJSON *root = make_config(family, choice, ends, pictures);
    char *text = cJSON_Print(root);
    cJSON_Delete(root);
    if (!text) return RP_FAIL(NOMEM, "no memory for config.json");
    rp_status status = rpi_strdup(text, out_text);
    cJSON_free(text);
    return status;
}
