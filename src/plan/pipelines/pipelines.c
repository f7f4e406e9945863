/* The catalogue of pipelines. */
#include "base/suggest.h"
#include "plan/pipelines/pipeline_kind.h"

#include <stddef.h>

extern const rpi_pipeline_kind rpi_pipeline_afab, rpi_pipeline_1f1b, rpi_pipeline_eager_1f1b,
    rpi_pipeline_interleaved, rpi_pipeline_zb_h1, rpi_pipeline_zb_h2, rpi_pipeline_zb_v;

static const rpi_pipeline_kind *const catalogue[] = {
    &rpi_pipeline_afab,        &rpi_pipeline_1f1b,  &rpi_pipeline_eager_1f1b,
    &rpi_pipeline_interleaved, &rpi_pipeline_zb_h1, &rpi_pipeline_zb_h2,
    &rpi_pipeline_zb_v,
};

const rpi_pipeline_kind *rpi_pipeline_kind_at(int index) {
    int count = (int)(sizeof catalogue / sizeof catalogue[0]);
    return index >= 0 && index < count ? catalogue[index] : NULL;
}

static const char *name_at(const void *context, int index) {
    (void)context;
    const rpi_pipeline_kind *kind = rpi_pipeline_kind_at(index);
    return kind ? kind->name : NULL;
}

rp_status rpi_pipeline_kind_find(const char *name, const rpi_pipeline_kind **out_kind) {
    int index = 0;
    rp_status status = rpi_name_find("schedule", name, name_at, NULL, &index);
    if (status == RP_OK) *out_kind = catalogue[index];
    return status;
}
