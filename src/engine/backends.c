#include "base/status.h"
#include "base/suggest.h"
#include "engine/backend.h"

#include <string.h>

extern const rpi_backend rpi_backend_reference;
#ifdef RPI_WITH_ONEDNN
extern const rpi_backend rpi_backend_cpu;
#endif

static const rpi_backend *const catalogue[] = {
    &rpi_backend_reference,
#ifdef RPI_WITH_ONEDNN
    &rpi_backend_cpu,
#endif
};

enum { BACKENDS = sizeof catalogue / sizeof catalogue[0] };

const rpi_backend *rpi_backend_at(int index) {
    return index >= 0 && index < BACKENDS ? catalogue[index] : NULL;
}

static const char *name_at(const void *context, int index) {
    (void)context;
    const rpi_backend *backend = rpi_backend_at(index);
    return backend ? backend->name : NULL;
}

rp_status rpi_backend_find(const char *name, const rpi_backend **out_backend) {
    int index = 0;
    /* Checkpoints of before 0.3 name the cpu backend after the library that it stood on alone.
     */
    if (strcmp(name, "onednn") == 0) name = "cpu";
#ifndef RPI_WITH_ONEDNN
    if (strcmp(name, "cpu") == 0)
        return RP_FAIL(UNSUPPORTED,
                       "backend cpu needs oneDNN, and this build has none: install it "
                       "(libdnnl-dev), build again, or use reference");
#endif
    RP_TRY(rpi_name_find("backend", name, name_at, NULL, &index));
    *out_backend = catalogue[index];
    return RP_OK;
}

/* The catalogue goes from the slowest to the fastest. */
const rpi_backend *rpi_backend_default(void) {
    return catalogue[BACKENDS - 1];
}

/* ---- precision ---- */

static const struct {
    const char *name;
    rp_dtype compute;
} precisions[] = {{"fp32", RP_F32},
                  {"bf16", RP_BF16},
                  /* as nanotron's files say it */
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
