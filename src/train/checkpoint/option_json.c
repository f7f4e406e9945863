#include "train/checkpoint/option_json.h"

#include "base/c_locale.h"
#include "base/status.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double number_of(const rpi_option *option, const void *target) {
    const char *field = (const char *)target + option->offset;
    int64_t whole = 0;
    double real = 0;
    if (option->type == RPI_OPTION_COUNT || option->type == RPI_OPTION_BYTES) {
        memcpy(&whole, field, sizeof whole);
        return (double)whole;
    }
    memcpy(&real, field, sizeof real);
    return real;
}

/* Writes as many digits as give the same number again; cJSON may write a number that only is
 * nearly the same. */
static void add_number(cJSON *object, const char *name, double number) {
    char text[40];
    int digits = 15;
    do snprintf(text, sizeof text, "%.*g", digits, number);
    while (rpi_strtod(text, NULL) != number && ++digits <= 17);
    if (isfinite(number))
        cJSON_AddRawToObject(object, name, text);
    else
        cJSON_AddNullToObject(object, name);
}

void rpi_option_add_json(cJSON *object, const rpi_option *option, const void *target) {
    const char *field = (const char *)target + option->offset, *words = NULL;
    char text[64];
    switch (option->type) {
    case RPI_OPTION_FLAG:
        rpi_option_text(option, target, text, sizeof text);
        if (option->value)
            cJSON_AddStringToObject(object, option->name, text);
        else
            cJSON_AddBoolToObject(object, option->name, text[0] == 't');
        break;
    case RPI_OPTION_TEXT:
        memcpy(&words, field, sizeof words);
        if (words && *words)
            cJSON_AddStringToObject(object, option->name, words);
        else
            cJSON_AddNullToObject(object, option->name);
        break;
    default: add_number(object, option->name, number_of(option, target));
    }
}

rp_status rpi_option_set_json(const rpi_option *table, const cJSON *member, void *target) {
    char text[40];
    if (cJSON_IsNull(member)) return RP_OK;
    if (cJSON_IsString(member))
        return rpi_options_set_name(table, member->string, member->valuestring, target);
    if (cJSON_IsBool(member))
        return rpi_options_set_name(table, member->string,
                                    cJSON_IsTrue(member) ? "true" : "false", target);
    if (!cJSON_IsNumber(member))
        return RP_FAIL(INVALID, "--%s: neither text nor number nor switch", member->string);
    snprintf(text, sizeof text, "%.17g", member->valuedouble);
    return rpi_options_set_name(table, member->string, text, target);
}
