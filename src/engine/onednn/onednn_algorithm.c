#include "engine/onednn/onednn_algorithm.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"

enum { TIMED_RUNS = 5 };

/* Names of the three tensors in each direction: read, read, written. */
static const int argument_names[RPI_DNN_DIRECTIONS][3] = {
    [RPI_DNN_FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
    [RPI_DNN_BACKWARD_DATA] = {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC},
    [RPI_DNN_BACKWARD_WEIGHTS] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS},
};

/* ---- measuring ---- */

typedef struct trial {
    rpi_dnn_session *session;
    const rpi_dnn_geometry *geometry;
    const rpi_dnn_conv *conv;
} trial;

/* The quickest of a few runs, after one that warms up. */
static rp_status time_runs(const rpi_dnn_session *session, const rpi_dnn_primitive *primitive,
                           const void *const *data, void *scratch, double *out_seconds) {
    double best = 0;
    for (int run = 0; run <= TIMED_RUNS; run++) {
        int64_t start = rpi_now_ns();
        RP_TRY(rpi_dnn_primitive_run(session, primitive, data, scratch));
        double seconds = rpi_seconds(rpi_now_ns() - start);
        if (run == 1 || (run > 1 && seconds < best)) best = seconds;
    }
    *out_seconds = best;
    return RP_OK;
}

static rp_status time_primitive(const rpi_dnn_session *session,
                                const rpi_dnn_primitive *primitive, const size_t *bytes,
                                double *out_seconds) {
    void *data[3] = {0}, *scratch = NULL;
    rp_status status = rpi_alloc(primitive->scratch_bytes, "scratchpad", &scratch);
    for (int i = 0; i < 3 && status == RP_OK; i++)
        status = rpi_alloc(bytes[i], "tensor for measuring", &data[i]);
    if (status == RP_OK)
        status = time_runs(session, primitive, (const void *const *)data, scratch, out_seconds);
    for (int i = 0; i < 3; i++) rpi_free(data[i]);
    rpi_free(scratch);
    return status;
}

static rp_status measure(void *context, bool winograd, double *out_seconds) {
    const trial *it = context;
    rpi_dnn_direction direction = it->geometry->direction;
    rpi_dnn_conv conv = *it->conv;
    conv.winograd = winograd;
    conv.bias = NULL; /* costs nothing either way */
    dnnl_primitive_desc_t pd = NULL;
    RP_TRY(rpi_dnn_conv_describe(&it->session->dnn, direction, &conv, &pd));
    size_t bytes[3];
    for (int i = 0; i < 3; i++)
        bytes[i] = dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(
            pd, dnnl_query_exec_arg_md, argument_names[direction][i]));
    rpi_dnn_primitive primitive;
    RP_TRY(rpi_dnn_primitive_create(it->session, pd, 3, argument_names[direction], &primitive));
    rp_status status = time_primitive(it->session, &primitive, bytes, out_seconds);
    rpi_dnn_primitive_destroy(&primitive);
    return status;
}

/* ---- choosing ---- */

static rp_status describe(rpi_dnn_session *session, rpi_dnn_direction direction,
                          rpi_dnn_conv *conv, bool winograd, dnnl_primitive_desc_t *out_pd) {
    conv->winograd = winograd;
    return rpi_dnn_conv_describe(&session->dnn, direction, conv, out_pd);
}

rp_status rpi_dnn_conv_lacks_kernel(const rpi_dnn_session *session, rpi_dnn_direction direction,
                                    const rpi_dnn_conv *conv, bool *out_lacks) {
    dnnl_primitive_desc_t pd = NULL;
    rp_status status = rpi_dnn_conv_describe(&session->dnn, direction, conv, &pd);
    *out_lacks = status == RP_UNSUPPORTED || (status == RP_OK && rpi_dnn_is_reference(pd));
    if (pd) dnnl_primitive_desc_destroy(pd);
    return status == RP_UNSUPPORTED ? RP_OK : status;
}

static rp_status choose(rpi_dnn_session *session, const rpi_dnn_geometry *geometry,
                        rpi_dnn_conv *conv, dnnl_primitive_desc_t *out_pd) {
    dnnl_primitive_desc_t winograd = NULL;
    rp_status status = RP_UNSUPPORTED;
    if (rpi_dnn_winograd_fits(geometry))
        status = describe(session, geometry->direction, conv, true, &winograd);
    if (status != RP_OK && status != RP_UNSUPPORTED) return status;
    bool take = false;
    if (winograd) {
        trial it = {session, geometry, conv};
        status = rpi_dnn_tuning_choose(session->tuning, geometry, measure, &it, &take);
        if (status == RP_OK && take) {
            conv->winograd = true;
            *out_pd = winograd;
            return RP_OK;
        }
        dnnl_primitive_desc_destroy(winograd);
        RP_TRY(status);
    }
    return describe(session, geometry->direction, conv, false, out_pd);
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

rp_status rpi_dnn_conv_choose(rpi_dnn_session *session, const rpi_dnn_geometry *geometry,
                              rpi_dnn_conv *conv, dnnl_primitive_desc_t *out_pd) {
    RP_TRY(choose(session, geometry, conv, out_pd));
    report(geometry, *out_pd);
    return RP_OK;
}
