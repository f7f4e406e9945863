#include "train/huggingface/hf_number.h"

#include "base/status.h"

#include <math.h>

static rp_status too_large(const char *path, const char *key, double value, double most) {
    return RP_FAIL(INVALID, "%s: '%s' is %.15g, which is too large: %.15g is the most", path,
                   key, value, most);
}

rp_status rpi_hf_whole_check(const char *path, const char *key, const cJSON *item, double least,
                             double most) {
    double value = cJSON_IsNumber(item) ? item->valuedouble : NAN;
    if (!(value >= least) || value != floor(value))
        return RP_FAIL(CORRUPT, "%s: '%s' is no whole number%s", path, key,
                       least > 0 ? " above 0" : "");
    return value <= most ? RP_OK : too_large(path, key, value, most);
}

rp_status rpi_hf_real_check(const char *path, const char *key, const cJSON *item) {
    if (!cJSON_IsNumber(item)) return RP_FAIL(CORRUPT, "%s: '%s' is no number", path, key);
    if (isfinite(item->valuedouble)) return RP_OK;
    return too_large(path, key, item->valuedouble, 1e308);
}
