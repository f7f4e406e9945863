/* Group normalisation by our own kernel, in whatever layout its input lies, with the relu, or
 * the sum and the relu of a residual block, that stand behind it. In bf16 it keeps what it
 * makes rounded. */
#include "base/memory.h"
#include "base/status.h"
#include "engine/backends/cpu/kernels/kernel_group_norm.h"
#include "engine/layers.h"
#include "engine/onednn/onednn_op.h"
#include "engine/onednn/onednn_team.h"

extern const rpi_op rpi_op_add, rpi_op_conv2d, rpi_op_group_norm, rpi_op_max_pool2d,
    rpi_op_relu;
extern const rpi_dnn_op rpi_dnn_op_group_norm;

enum { INPUT, SCALE, SHIFT, ADDEND /* where a sum is fused */ };

typedef struct group_norm_kernel {
    rpi_kernel_run run;
    rpi_kernel_group_norm call; /* what is the same in all calls */
    int input, addend, output;  /* layouts; gradients lie as the values do */
    size_t mean, inverse;       /* in what is saved, or in the workspace */
    size_t forward_room, room;  /* in the workspaces */
} group_norm_kernel;

static void destroy(void *self) {
    rpi_free(self);
}

static rpi_kernel_rows rows_of(const group_norm_kernel *k, const void *data, int layout) {
    const int64_t row = k->call.pixels * k->call.block;
    return layout == RPI_DNN_HALF ? rpi_kernel_bf16(data, row) : rpi_kernel_f32(data, row);
}

static rpi_kernel_group_norm call_of(const group_norm_kernel *k, const rpi_kernel_io *io) {
    rpi_kernel_group_norm it = k->call;
    void *home = io->saved ? io->saved : io->workspace;
    it.scale = io->inputs[SCALE];
    it.shift = io->inputs[SHIFT];
    it.mean = rpi_dnn_at(home, k->mean);
    it.inverse = rpi_dnn_at(home, k->inverse);
    it.x = rows_of(k, io->inputs[INPUT], k->input);
    it.y = rows_of(k, io->outputs[0], k->output);
    return it;
}

static rp_status forward(void *self, const rpi_kernel_io *io) {
    const group_norm_kernel *k = self;
    rpi_kernel_group_norm it = call_of(k, io);
    it.room = rpi_dnn_at(io->workspace, k->forward_room);
    if (it.adds) it.addend = rows_of(k, io->inputs[ADDEND], k->addend);
    rpi_dnn_team_enter(k->run.threads);
    rpi_kernel_group_norm_forward(&k->run, &it);
    return RP_OK;
}

static rp_status backward(void *self, const rpi_kernel_io *io) {
    const group_norm_kernel *k = self;
    rpi_kernel_group_norm it = call_of(k, io);
    it.room = rpi_dnn_at(io->workspace, k->room);
    it.dy = rows_of(k, io->grad_outputs[0], k->output);
    it.dx = rows_of(k, io->grad_inputs[INPUT], k->input);
    if (it.adds) it.daddend = rows_of(k, io->grad_inputs[ADDEND], k->addend);
    it.dscale = io->grad_inputs[SCALE];
    it.dshift = io->grad_inputs[SHIFT];
    it.sums_to_dscale = io->accumulate >> SCALE & 1u;
    it.sums_to_dshift = io->accumulate >> SHIFT & 1u;
    rpi_dnn_team_enter(k->run.threads);
    rpi_kernel_group_norm_backward(&k->run, &it);
    return RP_OK;
}

/* ---- planning ---- */

/* With relu the gradient of the addend is made, in place where it can; without, it is that of
 * the output. */
static void describe_addend(const group_norm_kernel *k, const rpi_dnn_session *session,
                            const rpi_unit *unit, rpi_kernel *out) {
    const bool is_wanted = unit->wanted >> ADDEND & 1u;
    out->inputs[ADDEND] = out->grad_inputs[ADDEND] =
        rpi_dnn_layout(session, &unit->inputs[ADDEND].shape, k->addend);
    out->in_place_forward = ADDEND;
    if (k->call.relu) out->needs_outputs = 1;
    if (is_wanted && !k->call.relu && k->addend == k->output)
        out->gradient_from[ADDEND] = RPI_GRADIENT_OF_OUTPUT;
    else if (is_wanted)
        out->in_place_backward = ADDEND;
}

static void describe(group_norm_kernel *k, const rpi_dnn_session *session, const rpi_unit *unit,
                     rpi_kernel *out) {
    const rpi_shape *shape = &unit->inputs[INPUT].shape;
    out->self = k;
    out->forward = forward;
    out->backward_inputs = unit->wanted ? backward : NULL; /* its sums serve all gradients */
    out->backward_weights = NULL;
    out->destroy = destroy;
    out->inputs[INPUT] = out->grad_inputs[INPUT] = rpi_dnn_layout(session, shape, k->input);
    out->outputs[0] = out->grad_outputs[0] = rpi_dnn_layout(session, shape, k->output);
    out->needs_inputs = 1u << INPUT | 1u << SCALE | 1u << SHIFT;
    out->needs_outputs = 0;
    out->in_place_forward = -1;
    out->in_place_backward = INPUT;
    out->saved_bytes = 0;
    if (k->call.adds) describe_addend(k, session, unit, out);
}

static void reserve(group_norm_kernel *k, const rpi_unit *unit, rpi_kernel *out) {
    const int64_t images = k->call.images, groups = k->call.groups;
    const size_t statistics = (size_t)(images * groups) * sizeof(float);
    const size_t room =
        (size_t)rpi_group_norm_room(images, k->call.channels, groups) * sizeof(float);
    size_t *home = unit->wanted ? &out->saved_bytes : &out->forward_workspace;
    k->mean = rpi_dnn_reserve(home, statistics);
    k->inverse = rpi_dnn_reserve(home, statistics);
    k->forward_room = rpi_dnn_reserve(&out->forward_workspace, room);
    k->room = rpi_dnn_reserve(&out->backward_workspace, room);
}

/* The layout in which a value is read: as it lies, where the kernel can read that. */
static int layout_of(const rpi_unit *unit, const rpi_unit_value *value) {
    if (unit->compute == RP_BF16 && value->layout.id == RPI_DNN_HALF) return RPI_DNN_HALF;
    return rpi_dnn_layout_for(value, value->layout.id);
}

/* f32 values of a unit lie alike: in blocks where the input does. */
static int f32_layout(int layout) {
    return layout == RPI_DNN_HALF ? RPI_DNN_BLOCKED : layout;
}

static void choose_layouts(const rpi_dnn_session *session, const rpi_unit *unit,
                           group_norm_kernel *k) {
    static const rpi_op *const readers[] = {&rpi_op_conv2d, &rpi_op_add, &rpi_op_max_pool2d,
                                            NULL};
    k->input = layout_of(unit, &unit->inputs[INPUT]);
    k->output = k->addend = f32_layout(k->input);
    if (k->output == RPI_DNN_PLAIN) return;
    if (rpi_dnn_makes_half(session, unit, readers)) k->output = RPI_DNN_HALF;
    if (k->call.adds && layout_of(unit, &unit->inputs[ADDEND]) == RPI_DNN_HALF)
        k->addend = RPI_DNN_HALF;
}

static rp_status plan(rpi_dnn_session *session, const rpi_unit *unit, rpi_kernel *out) {
    const rpi_group_norm_attributes *attributes = unit->nodes[0]->attributes;
    const int64_t *size = unit->inputs[INPUT].shape.size;
    const bool adds = unit->input_count > ADDEND;
    group_norm_kernel *k = NULL;
    if (adds && unit->inputs[ADDEND].kind != RPI_VALUE_ACTIVATION) return RP_UNSUPPORTED;
    RP_TRY(rpi_alloc(sizeof *k, "group_norm kernel", &k));
    *k = (group_norm_kernel){
        .run = rpi_dnn_kernel_run(session),
        .call = {.images = size[0],
                 .channels = size[1],
                 .pixels = size[2] * size[3],
                 .groups = attributes->groups,
                 .relu = unit->nodes[unit->node_count - 1]->op == &rpi_op_relu,
                 .adds = adds,
                 .epsilon = attributes->epsilon}};
    choose_layouts(session, unit, k);
    k->call.block = k->input == RPI_DNN_PLAIN ? 1 : session->block;
    describe(k, session, unit, out);
    reserve(k, unit, out);
    return RP_OK;
}

/* A relu; or the sum of a residual block, with the relu behind it. */
static bool fuse(const rpi_unit *unit, const rpi_node *next) {
    const rpi_op *last = unit->nodes[unit->node_count - 1]->op;
    if (next->op == &rpi_op_add) return unit->node_count == 1;
    return next->op == &rpi_op_relu && last != &rpi_op_relu;
}

const rpi_dnn_op rpi_dnn_op_group_norm = {.op = &rpi_op_group_norm, .fuse = fuse, .plan = plan};
