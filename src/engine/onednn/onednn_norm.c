/* Batch normalisation, with relu where the graph has one behind it: by our own kernel
 * (onednn_norm_own.c), and where that has no form, by oneDNN.
 *
 * oneDNN fuses the relu into the training pass for nothing, but its relu makes 0 of NaN. A NaN
 * or an infinity anywhere in a channel shows in the channel's statistics, so these few numbers
 * are looked at, and what oneDNN got wrong is made again as it is defined. Evaluation, where
 * the statistics do not come from the data, has a loop of its own. */
#include "engine/onednn/onednn_norm.h"
#include "base/memory.h"
#include "base/status.h"
#include "engine/layers.h"
#include "engine/onednn/onednn_elementwise.h"
#include "engine/onednn/onednn_op.h"

#include <math.h>
#include <string.h>

extern const rpi_op rpi_op_add, rpi_op_batch_norm2d, rpi_op_relu;
extern const rpi_dnn_op rpi_dnn_op_batch_norm2d;

enum {
    INPUT = RPI_DNN_NORM_INPUT,
    SCALE = RPI_DNN_NORM_SCALE,
    SHIFT = RPI_DNN_NORM_SHIFT,
    RUNNING_MEAN = RPI_DNN_NORM_MEAN,
    RUNNING_VARIANCE = RPI_DNN_NORM_VARIANCE
};
enum { BACKWARD_ARGUMENTS = 8 }; /* and the mask and the shift where they are taken */

typedef struct norm_kernel {
    const rpi_dnn_session *session;
    rpi_dnn_primitive forward, backward; /* of training */
    bool relu;
    int64_t images, channels, pixels;
    int64_t block; /* channels that lie together; row-major is blocks of one */
    float epsilon, momentum;
    bool saves;                  /* statistics go to `saved`, else to forward's workspace */
    size_t mean, variance, mask; /* there; mask: where relu is open, for backward */
    size_t forward_scratch, backward_scratch;                    /* in the workspaces */
    size_t grad_input_aside, grad_scale_aside, grad_shift_aside; /* in backward's */
} norm_kernel;

static void destroy(void *self) {
    norm_kernel *kernel = self;
    rpi_dnn_primitive_destroy(&kernel->forward);
    rpi_dnn_primitive_destroy(&kernel->backward);
    rpi_free(kernel);
}

/* ---- one block of channels, as it is defined ---- */

typedef struct statistics {
    const float *mean, *variance, *scale, *shift;
} statistics;

static float factor_of(const norm_kernel *k, const statistics *of, int64_t c) {
    return of->scale[c] / sqrtf(of->variance[c] + k->epsilon);
}

static int64_t blocks_of(const norm_kernel *k) {
    return (k->channels + k->block - 1) / k->block;
}

/* Where the channels from `first` on lie in image n. */
static int64_t plane_of(const norm_kernel *k, int64_t n, int64_t first) {
    return (n * blocks_of(k) + first / k->block) * k->pixels * k->block;
}

/* The padding of the last block keeps its zeros. */
static rpi_dnn_lanes lanes_of(const norm_kernel *k, const statistics *of, int64_t first) {
    rpi_dnn_lanes lanes = {0};
    for (int i = 0; i < RPI_DNN_LANES; i++) {
        int64_t c = first + i % k->block;
        if (c >= k->channels) continue;
        lanes.mean[i] = of->mean[c];
        lanes.factor[i] = factor_of(k, of, c);
        lanes.shift[i] = of->shift[c];
    }
    return lanes;
}

static void normalise_block(const norm_kernel *k, const statistics *of, int64_t first,
                            const float *x, float *y) {
    rpi_dnn_lanes lanes = lanes_of(k, of, first);
    for (int64_t n = 0; n < k->images; n++) {
        int64_t at = plane_of(k, n, first);
        rpi_dnn_normalise(&lanes, k->pixels * k->block, x + at, k->relu, y + at);
    }
}

static rp_status evaluate(void *self, const rpi_kernel_io *io) {
    const norm_kernel *k = self;
    statistics of = {io->inputs[RUNNING_MEAN], io->inputs[RUNNING_VARIANCE], io->inputs[SCALE],
                     io->inputs[SHIFT]};
    const float *x = io->inputs[INPUT];
    float *y = io->outputs[0];
#pragma omp parallel for num_threads(k->session->threads) schedule(static)
    for (int64_t block = 0; block < blocks_of(k); block++)
        normalise_block(k, &of, block * k->block, x, y);
    return RP_OK;
}

/* ---- what oneDNN's relu loses ---- */

/* May the channel's normalised elements be NaN? A finite variance says that all elements are
 * finite, and finite they stay then, or become infinite. */
static bool is_lost(const norm_kernel *k, const statistics *of, int64_t c) {
    return !isfinite(of->mean[c]) || !isfinite(of->variance[c]) || !isfinite(of->shift[c]) ||
           !isfinite(factor_of(k, of, c));
}

static void mend_forward(const norm_kernel *k, const statistics *of, const float *x, float *y) {
    for (int64_t c = 0; c < k->channels; c++)
        if (is_lost(k, of, c)) normalise_block(k, of, c - c % k->block, x, y);
}

static bool any_lost(const norm_kernel *k, const statistics *of) {
    bool lost = false;
    for (int64_t c = 0; c < k->channels; c++) lost |= is_lost(k, of, c);
    return lost;
}

/* One channel of the backward pass with z = (x - mean) / deviation and dy 0 where relu is
 * closed: dshift = sum dy, dscale = sum dy z,
 * dx = scale / deviation (dy - (dshift + z dscale) / count). dx may be dy. */
static void backward_channel(const norm_kernel *k, const statistics *of, int64_t c,
                             const float *x, const float *dy, float *dx, float *dscale,
                             float *dshift) {
    const double mean = of->mean[c], scale = of->scale[c], shift = of->shift[c];
    const double inverse = 1 / sqrt((double)of->variance[c] + (double)k->epsilon);
    const double count = (double)(k->images * k->pixels);
    double sum = 0, product = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t n = 0; n < k->images; n++)
            for (int64_t p = 0; p < k->pixels; p++) {
                int64_t i = plane_of(k, n, c) + p * k->block + c % k->block;
                double z = ((double)x[i] - mean) * inverse;
                double open = z * scale + shift <= 0 ? 0 : (double)dy[i];
                if (pass == 0) {
                    sum += open;
                    product += open * z;
                } else {
                    dx[i] = (float)(scale * inverse * (open - (sum + z * product) / count));
                }
            }
    *dscale = (float)product;
    *dshift = (float)sum;
}

/* ---- running ---- */

static rp_status forward(void *self, const rpi_kernel_io *io) {
    const norm_kernel *kernel = self;
    void *home = kernel->saves ? io->saved : io->workspace;
    float *mean = rpi_dnn_at(home, kernel->mean),
          *variance = rpi_dnn_at(home, kernel->variance);
    RP_TRY(rpi_dnn_primitive_run(
        kernel->session, &kernel->forward,
        (const void *[]){io->inputs[INPUT], mean, variance, io->inputs[SCALE],
                         io->inputs[SHIFT], io->outputs[0], rpi_dnn_at(home, kernel->mask)},
        rpi_dnn_at(io->workspace, kernel->forward_scratch)));
    statistics of = {mean, variance, io->inputs[SCALE], io->inputs[SHIFT]};
    if (kernel->relu) mend_forward(kernel, &of, io->inputs[INPUT], io->outputs[0]);
    if (!io->repeats)
        rpi_dnn_norm_update_running(io, kernel->channels, kernel->images * kernel->pixels,
                                    kernel->momentum, mean, variance);
    return RP_OK;
}

static void deliver(const norm_kernel *kernel, const rpi_kernel_io *io, int input,
                    const float *aside) {
    if (io->grad_inputs[input])
        rpi_dnn_deliver(io->grad_inputs[input], aside, kernel->channels,
                        io->accumulate >> input & 1u);
}

static rp_status run_backward(const norm_kernel *kernel, const rpi_kernel_io *io,
                              const statistics *of, float *dx, float *dscale, float *dshift) {
    const void *data[RPI_DNN_ARGUMENTS] = {
        io->inputs[INPUT],   of->mean, of->variance, of->scale,
        io->grad_outputs[0], dx,       dscale,       dshift};
    int count = BACKWARD_ARGUMENTS;
    if (kernel->relu) data[count++] = rpi_dnn_at(io->saved, kernel->mask);
    if (RPI_DNN_NORM_BACKWARD_TAKES_SHIFT) data[count++] = of->shift;
    return rpi_dnn_primitive_run(kernel->session, &kernel->backward, data,
                                 rpi_dnn_at(io->workspace, kernel->backward_scratch));
}

static rp_status backward(void *self, const rpi_kernel_io *io) {
    const norm_kernel *kernel = self;
    float *dscale = rpi_dnn_at(io->workspace, kernel->grad_scale_aside);
    float *dshift = rpi_dnn_at(io->workspace, kernel->grad_shift_aside);
    float *dx = io->grad_inputs[INPUT];
    if (!dx) dx = rpi_dnn_at(io->workspace, kernel->grad_input_aside);
    statistics of = {rpi_dnn_at(io->saved, kernel->mean),
                     rpi_dnn_at(io->saved, kernel->variance), io->inputs[SCALE],
                     io->inputs[SHIFT]};
    if (kernel->relu && any_lost(kernel, &of)) {
        for (int64_t c = 0; c < kernel->channels; c++)
            backward_channel(kernel, &of, c, io->inputs[INPUT], io->grad_outputs[0], dx,
                             dscale + c, dshift + c);
    } else {
        RP_TRY(run_backward(kernel, io, &of, dx, dscale, dshift));
    }
    deliver(kernel, io, SCALE, dscale);
    deliver(kernel, io, SHIFT, dshift);
    return RP_OK;
}

/* ---- planning ---- */

static rp_status make_forward(norm_kernel *kernel, dnnl_primitive_desc_t pd) {
    static const int names[] = {DNNL_ARG_SRC,      DNNL_ARG_MEAN,  DNNL_ARG_VARIANCE,
                                DNNL_ARG_SCALE,    DNNL_ARG_SHIFT, DNNL_ARG_DST,
                                DNNL_ARG_WORKSPACE};
    return rpi_dnn_primitive_create(kernel->session, pd, kernel->relu ? 7 : 6, names,
                                    &kernel->forward);
}

static rp_status make_backward(norm_kernel *kernel, dnnl_primitive_desc_t pd) {
    int names[RPI_DNN_ARGUMENTS] = {DNNL_ARG_SRC,        DNNL_ARG_MEAN,      DNNL_ARG_VARIANCE,
                                    DNNL_ARG_SCALE,      DNNL_ARG_DIFF_DST,  DNNL_ARG_DIFF_SRC,
                                    DNNL_ARG_DIFF_SCALE, DNNL_ARG_DIFF_SHIFT};
    int count = BACKWARD_ARGUMENTS;
    if (kernel->relu) names[count++] = DNNL_ARG_WORKSPACE;
    if (RPI_DNN_NORM_BACKWARD_TAKES_SHIFT) names[count++] = DNNL_ARG_SHIFT;
    return rpi_dnn_primitive_create(kernel->session, pd, count, names, &kernel->backward);
}

static rp_status make_primitives(norm_kernel *kernel, const rpi_dnn_norm *norm, bool wanted,
                                 size_t *out_mask_bytes) {
    const rpi_dnn_context *dnn = &kernel->session->dnn;
    dnnl_primitive_desc_t pd = NULL, backward_pd = NULL;
    RP_TRY(rpi_dnn_norm_describe(dnn, norm, &pd));
    rp_status status =
        wanted ? rpi_dnn_norm_backward_describe(dnn, norm, pd, &backward_pd) : RP_OK;
    if (status != RP_OK) {
        dnnl_primitive_desc_destroy(pd);
        return status;
    }
    if (kernel->relu)
        *out_mask_bytes =
            dnnl_memory_desc_get_size(rpi_dnn_described_md(pd, dnnl_query_workspace_md));
    status = make_forward(kernel, pd);
    if (!wanted) return status;
    if (status == RP_OK) return make_backward(kernel, backward_pd);
    dnnl_primitive_desc_destroy(backward_pd);
    return status;
}

/* Statistics of whole blocks, so that nobody can write past them. */
static size_t statistics_bytes(const norm_kernel *kernel) {
    size_t block = (size_t)kernel->session->block;
    return ((size_t)kernel->channels + block - 1) / block * block * sizeof(float);
}

static void describe(norm_kernel *kernel, const rpi_unit *unit, rpi_layout layout,
                     rpi_kernel *out) {
    out->self = kernel;
    out->forward = unit->training ? forward : evaluate;
    out->backward_inputs = unit->wanted ? backward : NULL; /* its sums serve all gradients */
    out->destroy = destroy;
    out->inputs[INPUT] = out->grad_inputs[INPUT] = layout;
    out->outputs[0] = out->grad_outputs[0] = layout;
    out->needs_inputs = 1u << INPUT | 1u << SCALE | 1u << SHIFT;
    out->needs_outputs = 0;
    out->in_place_forward = -1;
    out->in_place_backward = 0;
    out->saved_bytes = 0;
}

static void reserve(norm_kernel *kernel, const rpi_unit *unit, size_t mask_bytes,
                    rpi_kernel *out) {
    size_t bytes = statistics_bytes(kernel);
    size_t *home = kernel->saves ? &out->saved_bytes : &out->forward_workspace;
    kernel->forward_scratch =
        rpi_dnn_reserve(&out->forward_workspace, kernel->forward.scratch_bytes);
    kernel->mean = rpi_dnn_reserve(home, bytes);
    kernel->variance = rpi_dnn_reserve(home, bytes);
    kernel->mask = rpi_dnn_reserve(home, mask_bytes);
    kernel->backward_scratch =
        rpi_dnn_reserve(&out->backward_workspace, kernel->backward.scratch_bytes);
    kernel->grad_scale_aside = rpi_dnn_reserve(&out->backward_workspace, bytes);
    kernel->grad_shift_aside = rpi_dnn_reserve(&out->backward_workspace, bytes);
    if (!(unit->wanted >> INPUT & 1u))
        kernel->grad_input_aside =
            rpi_dnn_reserve(&out->backward_workspace, out->inputs[INPUT].bytes);
}

static rp_status plan_training(norm_kernel *kernel, const rpi_unit *unit, int id,
                               rpi_kernel *out) {
    rpi_dnn_md data = NULL;
    size_t mask_bytes = 0;
    RP_TRY(rpi_dnn_image_md(kernel->session, &unit->inputs[INPUT].shape, RP_F32, id, &data));
    rpi_dnn_norm norm = {.data = data, .epsilon = kernel->epsilon, .relu = kernel->relu};
    rp_status status = make_primitives(kernel, &norm, unit->wanted != 0, &mask_bytes);
    rpi_dnn_md_destroy(data);
    if (status == RP_OK) reserve(kernel, unit, mask_bytes, out);
    return status;
}

static rp_status plan(rpi_dnn_session *session, const rpi_unit *unit, rpi_kernel *out) {
    const rpi_batch_norm2d_attributes *attributes = unit->nodes[0]->attributes;
    const rpi_unit_value *input = &unit->inputs[INPUT];
    const int64_t *size = input->shape.size;
    int id = rpi_dnn_layout_for(input, input->layout.id);
    norm_kernel *kernel = NULL;
    if (rpi_dnn_norm_is_own(session, unit)) return rpi_dnn_norm_own_plan(session, unit, out);
    if (unit->input_count > RPI_DNN_NORM_ADDEND) return RP_UNSUPPORTED; /* but for ours */
    RP_TRY(rpi_alloc(sizeof *kernel, "batch_norm2d kernel", &kernel));
    *kernel = (norm_kernel){.session = session,
                            .relu = unit->node_count == 2,
                            .images = size[0],
                            .channels = size[1],
                            .pixels = size[2] * size[3],
                            .block = id == RPI_DNN_BLOCKED ? session->block : 1,
                            .epsilon = attributes->epsilon,
                            .momentum = attributes->momentum,
                            .saves = unit->wanted != 0};
    describe(kernel, unit, rpi_dnn_layout(session, &input->shape, id), out);
    rp_status status = unit->training ? plan_training(kernel, unit, id, out) : RP_OK;
    if (status != RP_OK) destroy(kernel);
    return status;
}

/* A relu; or the sum of a residual block, with the relu behind it. */
static bool fuse(const rpi_unit *unit, const rpi_node *next) {
    const rpi_op *last = unit->nodes[unit->node_count - 1]->op;
    if (next->op == &rpi_op_add) return unit->node_count == 1 && rpi_dnn_norm_may_be_own(unit);
    return next->op == &rpi_op_relu && last != &rpi_op_relu;
}

const rpi_dnn_op rpi_dnn_op_batch_norm2d = {
    .op = &rpi_op_batch_norm2d, .fuse = fuse, .plan = plan};
