#include "cli/run_record.h"

#include "base/option.h"
#include "base/status.h"
#include "base/units.h"

#include <cjson/cJSON.h>

/* Where --seq-length is not said. */
enum { USUAL_SEQUENCE = 256 };

static const char *text_of(const cJSON *object, const char *key) {
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsString(value) ? value->valuestring : NULL;
}

static double number_of(const cJSON *object, const char *key, double absent) {
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(value) ? value->valuedouble : absent;
}

/* As a number, or as the digits of a text. */
static int64_t whole_of(const cJSON *object, const char *key, int64_t absent) {
    const char *text = text_of(object, key);
    double value = number_of(object, key, 0);
    if (text && rpi_parse_real(text, &value) != RP_OK) value = 0;
    return value >= 1 && value <= 1e15 ? (int64_t)value : absent;
}

/* As a switch, or as the word of one. */
static bool is_on(const cJSON *object, const char *key) {
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);
    bool on = false;
    if (cJSON_IsString(value) && rpi_parse_switch(value->valuestring, &on)) return on;
    return cJSON_IsTrue(value);
}

rp_status rpi_run_record_read(const cJSON *header, rpi_run_record *out) {
    const cJSON *options = cJSON_GetObjectItemCaseSensitive(header, "options");
    *out = (rpi_run_record){
        .model = text_of(header, "model"),
        .strategy = text_of(options, "strategy"),
        .codec = text_of(options, "codec"),
        .activations_codec = text_of(options, "activations_codec"),
        .algorithm = text_of(options, "algorithm"),
        .link = text_of(options, "link"),
        .optimizer = text_of(options, "optimizer"),
        .dtype = text_of(options, "dtype"),
        .schedule = text_of(options, "schedule"),
        .ranks = whole_of(header, "ranks", 0),
        .global_batch = whole_of(header, "global_batch_size", 0),
        .accumulate = whole_of(options, "accumulate", 1),
        .micro_batch = whole_of(options, "micro-batch-size", 0),
        .sequence = whole_of(options, "seq-length", USUAL_SEQUENCE),
        .tensor = whole_of(options, "tp", 1),
        .context = whole_of(options, "cp", 1),
        .pipeline = whole_of(options, "pp", 1),
        .zero = whole_of(options, "zero", 0),
        .momentum = number_of(options, "momentum", 0),
        .bucket_mb = number_of(options, "bucket-mb", 4),
        .recompute = is_on(options, "recompute"),
        .sequence_parallel = is_on(options, "sequence-parallel"),
        .error_feedback = is_on(options, "error-feedback"),
    };
    if (!out->model || !out->ranks || !out->global_batch)
        return RP_FAIL(CORRUPT, "the run's header lacks its model, ranks or batch");
    if (!out->strategy) out->strategy = "all-reduce";
    if (!out->codec) out->codec = "fp32";
    return RP_OK;
}
