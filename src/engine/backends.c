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
    /* Checkpoints from before 0.3 name the cpu backend after its library. */
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
