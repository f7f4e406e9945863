#include "engine/onednn/onednn_conv_winograd.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "engine/backends/cpu/kernels/kernel_winograd.h"
#include "engine/onednn/onednn_conv_shape.h"
#include "engine/onednn/onednn_linear.h"
#include "engine/onednn/onednn_team.h"

enum { INPUT, WEIGHT, BIAS };
enum { WINDOW = 3, BLOCK = RPI_WINOGRAD_BLOCK };

/* Weights are transformed in every call: a copy that waits for the next one would take four
 * times what they take. */
typedef struct winograd_kernel {
    rpi_kernel_run run;
    rpi_winograd_shape shape, back; /* back: of the input's gradient, from the output's */
    bool has_bias;
} winograd_kernel;

static void destroy(void *self) {
    rpi_free(self);
}

/* ---- running ---- */

static rp_status forward(void *self, const rpi_kernel_io *io) {
    const winograd_kernel *k = self;
    rpi_dnn_team_enter(k->run.threads);
    rpi_kernel_winograd_run(
        &k->run, &(rpi_kernel_winograd){.shape = k->shape,
                                        .x = io->inputs[INPUT],
                                        .weight = io->inputs[WEIGHT],
                                        .bias = k->has_bias ? io->inputs[BIAS] : NULL,
                                        .y = io->outputs[0],
                                        .workspace = io->workspace});
    return RP_OK;
}

static rp_status backward_inputs(void *self, const rpi_kernel_io *io) {
    const winograd_kernel *k = self;
    rpi_dnn_team_enter(k->run.threads);
    rpi_kernel_winograd_run(&k->run,
                            &(rpi_kernel_winograd){.shape = k->back,
                                                   .x = io->grad_outputs[0],
                                                   .weight = io->inputs[WEIGHT],
                                                   .turned = true,
                                                   .y = io->grad_inputs[INPUT],
                                                   .accumulate = io->accumulate >> INPUT & 1u,
                                                   .workspace = io->workspace});
    return RP_OK;
}

static rp_status backward_weights(void *self, const rpi_kernel_io *io) {
    const winograd_kernel *k = self;
    const rpi_winograd_shape *s = &k->shape;
    if (k->has_bias && io->grad_inputs[BIAS])
        rpi_dnn_conv_sum_bias(rpi_kernel_f32(io->grad_outputs[0], 0), s->images, s->filters,
                              k->back.height * k->back.width, BLOCK,
                              io->accumulate >> BIAS & 1u, io->grad_inputs[BIAS]);
    if (!io->grad_inputs[WEIGHT]) return RP_OK;
    rpi_dnn_team_enter(k->run.threads);
    rpi_kernel_winograd_weight_run(
        &k->run, &(rpi_kernel_winograd_weight){.shape = *s,
                                               .x = io->inputs[INPUT],
                                               .dy = io->grad_outputs[0],
                                               .dw = io->grad_inputs[WEIGHT],
                                               .accumulate = io->accumulate >> WEIGHT & 1u,
                                               .workspace = io->workspace});
    return RP_OK;
}

/* ---- planning ---- */

static bool fits(const rpi_dnn_session *session, const rpi_unit *unit,
                 const rpi_dnn_geometry *g) {
    return rpi_dnn_winograd_fits(g) && session->block == BLOCK &&
           unit->inputs[INPUT].kind == RPI_VALUE_ACTIVATION && g->filters % BLOCK == 0 &&
           g->channels % BLOCK == 0 && g->padding < WINDOW;
}

bool rpi_dnn_conv_is_winograd(const rpi_dnn_session *session, const rpi_unit *unit) {
    rpi_dnn_geometry g = rpi_dnn_conv_geometry(session, unit);
    return fits(session, unit, &g) && rpi_dnn_winograd_pays(&g);
}

static void report(const rpi_unit *unit, rpi_dnn_geometry geometry) {
    if (!rpi_log_wants(RP_LOG_DEBUG)) return;
    for (int i = 0; i < RPI_DNN_DIRECTIONS; i++) {
        char text[RPI_DNN_GEOMETRY_TEXT];
        geometry.direction = (rpi_dnn_direction)i;
        if (!rpi_dnn_conv_wants(unit, geometry.direction)) continue;
        rpi_dnn_geometry_text(&geometry, text);
        rpi_log(RP_LOG_DEBUG, "oneDNN %s: convolution by Winograd of our own", text);
    }
}

static void describe(winograd_kernel *k, const rpi_dnn_session *session, const rpi_unit *unit,
                     rpi_kernel *out) {
    const uint32_t weights = 1u << WEIGHT | 1u << BIAS;
    size_t back = rpi_kernel_winograd_workspace(&k->back);
    out->self = k;
    out->forward = forward;
    out->backward_inputs = unit->wanted >> INPUT & 1u ? backward_inputs : NULL;
    out->backward_weights = unit->wanted & weights ? backward_weights : NULL;
    out->destroy = destroy;
    out->accumulates = 1u << INPUT;
    out->inputs[INPUT] = out->grad_inputs[INPUT] =
        rpi_dnn_layout(session, &unit->inputs[INPUT].shape, RPI_DNN_BLOCKED);
    out->outputs[0] = out->grad_outputs[0] =
        rpi_dnn_layout(session, &unit->outputs[0].shape, RPI_DNN_BLOCKED);
    out->needs_inputs = 1u << INPUT | 1u << WEIGHT;
    out->needs_outputs = 0;
    out->saved_bytes = 0;
    out->in_place_forward = out->in_place_backward = -1;
    out->forward_workspace = out->backward_workspace = rpi_kernel_winograd_workspace(&k->shape);
    if (back > out->backward_workspace) out->backward_workspace = back;
}

rp_status rpi_dnn_conv_winograd_plan(rpi_dnn_session *session, const rpi_unit *unit,
                                     rpi_kernel *out) {
    winograd_kernel *k = NULL;
    RP_TRY(rpi_alloc(sizeof *k, "conv2d kernel", &k));
    const int64_t *y = unit->outputs[0].shape.size;
    rpi_dnn_geometry g = rpi_dnn_conv_geometry(session, unit);
    *k = (winograd_kernel){.run = rpi_dnn_kernel_run(session),
                           .shape = {.images = g.batch,
                                     .channels = g.channels,
                                     .filters = g.filters,
                                     .height = g.height,
                                     .width = g.width,
                                     .padding = g.padding},
                           .has_bias = unit->input_count > BIAS};
    k->back = (rpi_winograd_shape){.images = k->shape.images,
                                   .channels = k->shape.filters,
                                   .filters = k->shape.channels,
                                   .height = y[2],
                                   .width = y[3],
                                   .padding = WINDOW - 1 - k->shape.padding};
    describe(k, session, unit, out);
    report(unit, g);
    return RP_OK;
}
