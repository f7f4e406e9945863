#include "train/huggingface/hf_activation.h"

#include "train/tokenizers/json_read.h"

#include <stdio.h>
#include <string.h>

/* Of several that mean one, the first is written. */
typedef struct activation {
    const char *ours, *theirs;
} activation;

static const activation activations[] = {
    {"gelu", "gelu"},
    {"gelu-tanh", "gelu_new"},
    {"gelu-tanh", "gelu_pytorch_tanh"},
    {"relu", "relu"},
    {"silu", "silu"},
    {"silu", "swish"},
    {0},
};

rp_status rpi_hf_activation_read(const char *path, const cJSON *item, char text[32]) {
    for (const activation *a = activations; a->ours; a++)
        if (cJSON_IsString(item) && strcmp(item->valuestring, a->theirs) == 0) {
            snprintf(text, 32, "%s", a->ours);
            return RP_OK;
        }
    return rpi_json_refuse(path, item,
                           "there are gelu, gelu_new, gelu_pytorch_tanh, relu, silu and swish");
}

const char *rpi_hf_activation_name(const char *ours) {
    const activation *a = activations;
    while (strcmp(a->ours, ours) != 0) a++;
    return a->theirs;
}
