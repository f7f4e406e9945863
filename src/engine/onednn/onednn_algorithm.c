#include "engine/onednn/onednn_algorithm.h"

#include "base/log.h"
#include "base/status.h"

#include <stdio.h>

void rpi_dnn_geometry_text(const rpi_dnn_geometry *g, char text[RPI_DNN_GEOMETRY_TEXT]) {
    static const char *const directions[] = {"forward", "backward-data", "backward-weights"};
    snprintf(text, RPI_DNN_GEOMETRY_TEXT,
             "%d %s n%lld c%lld h%lld w%lld k%lld r%lld s%lld stride%d padding%d threads%d%s",
             DNNL_VERSION_MAJOR, directions[g->direction], (long long)g->batch,
             (long long)g->channels, (long long)g->height, (long long)g->width,
             (long long)g->filters, (long long)g->window_height, (long long)g->window_width,
             g->stride, g->padding, g->threads, g->is_bf16 ? " bf16" : "");
}

/* ---- the rule ---- */

bool rpi_dnn_winograd_fits(const rpi_dnn_geometry *geometry) {
    return geometry->window_height == 3 && geometry->window_width == 3 &&
           geometry->stride == 1 && !geometry->is_bf16;
}

/* Tiles of 4 x 4 outputs in all images. */
static int64_t winograd_tiles(const rpi_dnn_geometry *geometry) {
    enum { TILE = 4 };
    const int64_t rows = geometry->height + 2 * geometry->padding - 2;
    const int64_t columns = geometry->width + 2 * geometry->padding - 2;
    return geometry->batch * ((rows + TILE - 1) / TILE) * ((columns + TILE - 1) / TILE);
}

/* Measured on Zen 4 over 16 to 512 channels, images of 4 to 32 pixels, batches of 1 to 64, one
 * and two threads, and on Zen 5: with fewer tiles the matrices are too thin, with fewer
 * channels the transforms outweigh the products, and below about 0.1 ms of work the start-up
 * does. */
bool rpi_dnn_winograd_pays(const rpi_dnn_geometry *geometry) {
    enum { LEAST_TILES = 32, LEAST_CHANNELS = 32 };
    const double least_flops = 2e7;
    int64_t rows = geometry->height + 2 * geometry->padding - 2;
    int64_t columns = geometry->width + 2 * geometry->padding - 2;
    double flops = 18.0 * (double)(geometry->batch * rows * columns) *
                   (double)(geometry->channels * geometry->filters);
    return winograd_tiles(geometry) >= LEAST_TILES && geometry->channels >= LEAST_CHANNELS &&
           geometry->filters >= LEAST_CHANNELS && flops >= least_flops;
}

/* ---- what oneDNN has ---- */

rp_status rpi_dnn_conv_lacks_kernel(const rpi_dnn_session *session, rpi_dnn_direction direction,
                                    const rpi_dnn_conv *conv, bool *out_lacks) {
    dnnl_primitive_desc_t pd = NULL;
    rp_status status = rpi_dnn_conv_describe(&session->dnn, direction, conv, &pd);
    *out_lacks = status == RP_UNSUPPORTED || (status == RP_OK && rpi_dnn_is_reference(pd));
    if (pd) dnnl_primitive_desc_destroy(pd);
    return status == RP_UNSUPPORTED ? RP_OK : status;
}

static void report(const rpi_dnn_geometry *geometry, dnnl_primitive_desc_t pd) {
    bool slow = rpi_dnn_is_reference(pd);
    rp_log_level level = slow ? RP_LOG_INFO : RP_LOG_DEBUG;
    if (!rpi_log_wants(level)) return;
    char text[RPI_DNN_GEOMETRY_TEXT];
    rpi_dnn_geometry_text(geometry, text);
    rpi_log(level, "oneDNN %s: convolution by %s%s", text, rpi_dnn_implementation(pd),
            slow ? ", which is slow" : "");
}

rp_status rpi_dnn_conv_choose(const rpi_dnn_session *session, const rpi_dnn_geometry *geometry,
                              const rpi_dnn_conv *conv, dnnl_primitive_desc_t *out_pd) {
    RP_TRY(rpi_dnn_conv_describe(&session->dnn, geometry->direction, conv, out_pd));
    report(geometry, *out_pd);
    return RP_OK;
}
