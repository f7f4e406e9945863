#include "engine/backend.h"

#include "base/status.h"
#include "base/suggest.h"

static const struct {
    const char *name;
    rp_dtype compute;
} precisions[] = {{"fp32", RP_F32},
                  {"bf16", RP_BF16},
                  /* the name in nanotron's files */
                  {"float32", RP_F32},
                  {"bfloat16", RP_BF16}};

enum { PRECISIONS = sizeof precisions / sizeof precisions[0] };

static const char *precision_at(const void *context, int index) {
    (void)context;
    return index >= 0 && index < PRECISIONS ? precisions[index].name : NULL;
}

rp_status rpi_compute_parse(const char *name, rp_dtype *out_compute) {
    int index = 0;
    RP_TRY(rpi_name_find("dtype", name, precision_at, NULL, &index));
    *out_compute = precisions[index].compute;
    return RP_OK;
}

const char *rpi_compute_name(rp_dtype compute) {
    return compute == RP_BF16 ? "bf16" : "fp32";
}

rp_status rpi_backend_check_compute(const rpi_backend *backend, rp_dtype compute) {
    if (compute == 0 || compute == RP_F32) return RP_OK;
    if (backend->check_compute) return backend->check_compute(compute);
    return RP_FAIL(UNSUPPORTED, "backend %s computes in f32 only; %s is not supported",
                   backend->name, rp_dtype_name(compute));
}
