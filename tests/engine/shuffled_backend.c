#include "shuffled_backend.h"

#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"

#include <string.h>

enum { MIRRORED = 1, PADDING = 64 };

static uint64_t next_seed;
static int fusions;

void shuffled_backend_seed(uint64_t seed) {
    next_seed = seed;
    fusions = 0;
}

int shuffled_backend_fusions(void) {
    return fusions;
}

/* ---- layouts: all elements have 4 bytes ---- */

static int64_t count_of(const rpi_shape *shape) {
    return rpi_shape_count(shape);
}

static rpi_layout layout_of(int id, const rpi_shape *shape) {
    size_t bytes = 4 * (size_t)count_of(shape);
    return (rpi_layout){.id = id, .bytes = bytes + (id == MIRRORED ? PADDING : 0)};
}

static void unpack(const void *from, rpi_layout layout, int64_t count, uint32_t *to) {
    const uint32_t *source = from;
    if (layout.id == 0) memcpy(to, source, 4 * (size_t)count);
    for (int64_t i = 0; layout.id == MIRRORED && i < count; i++)
        to[i] = source[PADDING / 4 + count - 1 - i];
}

static void pack(const uint32_t *from, rpi_layout layout, int64_t count, void *to) {
    uint32_t *target = to;
    if (layout.id == 0) memcpy(target, from, 4 * (size_t)count);
    if (layout.id == MIRRORED) memset(target, 0xff, PADDING); /* NaN to whoever reads it */
    for (int64_t i = 0; layout.id == MIRRORED && i < count; i++)
        target[PADDING / 4 + count - 1 - i] = from[i];
}

/* ---- kernels: a chain of reference kernels between unpacked copies ---- */

typedef struct part {
    rpi_unit unit;
    rpi_kernel kernel;
    int outer[RPI_NODE_INPUTS];  /* input of the whole unit; -1: the part before */
    size_t saved, output_saved;  /* places in io->saved */
    uint32_t *output, *gradient; /* of the chain behind this part */
    void *workspace;
} part;

typedef struct chain {
    rpi_arena *memory;
    rpi_unit unit;
    rpi_kernel plan; /* what the compiler was told */
    int count;
    part parts[RPI_UNIT_NODES];
    uint32_t *inputs[RPI_UNIT_INPUTS], *grad_inputs[RPI_UNIT_INPUTS];
    uint32_t *outputs[RPI_UNIT_OUTPUTS];
} chain;

static bool is_weight(const rpi_unit *unit, int input) {
    return unit->inputs[input].kind == RPI_VALUE_PARAMETER ||
           unit->inputs[input].kind == RPI_VALUE_STATE;
}

static void fill_part_io(const chain *c, int index, const rpi_kernel_io *io,
                         rpi_kernel_io *out) {
    const part *p = &c->parts[index];
    *out = (rpi_kernel_io){
        .workspace = p->workspace, .repeats = io->repeats, .seed = io->seed, .step = io->step};
    for (int i = 0; i < p->unit.input_count; i++) {
        int outer = p->outer[i];
        out->inputs[i] = outer < 0                    ? c->parts[index - 1].output
                         : is_weight(&c->unit, outer) ? io->inputs[outer]
                                                      : (void *)c->inputs[outer];
    }
    for (int i = 0; i < p->unit.output_count; i++)
        out->outputs[i] = index == c->count - 1 ? c->outputs[i] : p->output;
    if (io->saved) out->saved = (unsigned char *)io->saved + p->saved;
}

static void unpack_inputs(const chain *c, const rpi_kernel_io *io) {
    for (int i = 0; i < c->unit.input_count; i++)
        if (!is_weight(&c->unit, i) && io->inputs[i])
            unpack(io->inputs[i], c->plan.inputs[i], count_of(&c->unit.inputs[i].shape),
                   c->inputs[i]);
}

static rp_status forward(void *self, const rpi_kernel_io *io) {
    const chain *c = self;
    unpack_inputs(c, io);
    for (int i = 0; i < c->count; i++) {
        rpi_kernel_io part_io;
        const part *p = &c->parts[i];
        fill_part_io(c, i, io, &part_io);
        RP_TRY(p->kernel.forward(p->kernel.self, &part_io));
        if (io->saved && i < c->count - 1)
            memcpy((unsigned char *)io->saved + p->output_saved, p->output,
                   4 * (size_t)count_of(&p->unit.outputs[0].shape));
    }
    for (int i = 0; i < c->unit.output_count; i++)
        pack(c->outputs[i], c->plan.outputs[i], count_of(&c->unit.outputs[i].shape),
             io->outputs[i]);
    return RP_OK;
}

static void fill_gradients(const chain *c, int index, const rpi_kernel_io *io,
                           rpi_kernel_io *out) {
    const part *p = &c->parts[index];
    out->grad_outputs[0] = p->gradient;
    for (int i = 0; i < p->unit.input_count; i++) {
        int outer = p->outer[i];
        if (outer < 0)
            out->grad_inputs[i] = c->parts[index - 1].gradient;
        else if (io->grad_inputs[outer])
            out->grad_inputs[i] = is_weight(&c->unit, outer) ? io->grad_inputs[outer]
                                                             : (void *)c->grad_inputs[outer];
        if (outer >= 0 && io->accumulate >> outer & 1u) out->accumulate |= 1u << i;
    }
}

static rp_status backward_part(const chain *c, int index, const rpi_kernel_io *io) {
    const part *p = &c->parts[index];
    rpi_kernel_io part_io;
    fill_part_io(c, index, io, &part_io);
    fill_gradients(c, index, io, &part_io);
    if (p->unit.nodes[0]->op->gradient_from == RPI_GRADIENT_WRITTEN)
        return p->kernel.backward_inputs(p->kernel.self, &part_io);
    for (int i = 0; i < p->unit.input_count; i++)
        if (part_io.grad_inputs[i])
            memcpy(part_io.grad_inputs[i], p->gradient,
                   4 * (size_t)count_of(&p->unit.inputs[i].shape));
    return RP_OK;
}

static rp_status backward(void *self, const rpi_kernel_io *io) {
    const chain *c = self;
    const rpi_unit *unit = &c->unit;
    unpack_inputs(c, io);
    for (int i = 0; i < unit->output_count; i++)
        if (io->outputs[i])
            unpack(io->outputs[i], c->plan.outputs[i], count_of(&unit->outputs[i].shape),
                   c->outputs[i]);
    for (int i = 0; i < c->count - 1; i++)
        memcpy(c->parts[i].output, (unsigned char *)io->saved + c->parts[i].output_saved,
               4 * (size_t)count_of(&c->parts[i].unit.outputs[0].shape));
    unpack(io->grad_outputs[0], c->plan.grad_outputs[0], count_of(&unit->outputs[0].shape),
           c->parts[c->count - 1].gradient);
    for (int i = c->count - 1; i >= 0; i--) RP_TRY(backward_part(c, i, io));
    for (int i = 0; i < unit->input_count; i++)
        if (io->grad_inputs[i] && !is_weight(unit, i))
            pack(c->grad_inputs[i], c->plan.grad_inputs[i], count_of(&unit->inputs[i].shape),
                 io->grad_inputs[i]);
    return RP_OK;
}

static void destroy(void *self) {
    chain *c = self;
    if (!c) return;
    for (int i = 0; i < c->count; i++)
        if (c->parts[i].kernel.destroy) c->parts[i].kernel.destroy(c->parts[i].kernel.self);
    rpi_arena_destroy(c->memory);
    rpi_free(c);
}

/* ---- planning ---- */

/* A unit of one node, its inputs taken from the whole unit or from the part before. */
static rp_status cut_part(chain *c, int index, int *next_input) {
    part *p = &c->parts[index];
    const rpi_node *node = c->unit.nodes[index];
    rpi_shape inputs[RPI_NODE_INPUTS], outputs[RPI_NODE_OUTPUTS];
    p->unit = (rpi_unit){.node_count = 1,
                         .nodes = {node},
                         .chain_input = {-1},
                         .input_count = node->input_count,
                         .output_count = node->output_count,
                         .training = c->unit.training,
                         .wanted = c->unit.wanted};
    for (int i = 0; i < node->input_count; i++) {
        p->outer[i] = i == c->unit.chain_input[index] ? -1 : (*next_input)++;
        p->unit.inputs[i] =
            p->outer[i] < 0 ? c->parts[index - 1].unit.outputs[0] : c->unit.inputs[p->outer[i]];
        inputs[i] = p->unit.inputs[i].shape;
    }
    RP_TRY(node->op->infer(node->attributes, node->input_count, inputs, outputs));
    for (int i = 0; i < node->output_count; i++) {
        p->unit.outputs[i] = c->unit.outputs[0];
        p->unit.outputs[i].shape = outputs[i];
    }
    RP_TRY(rpi_backend_at(0)->plan(NULL, &p->unit, &p->kernel));
    if (node->op->saved_bytes)
        p->kernel.saved_bytes = node->op->saved_bytes(node->attributes, inputs, outputs);
    size_t bytes = 4 * (size_t)count_of(&outputs[0]);
    RP_TRY(rpi_arena_alloc(c->memory, bytes, &p->output));
    RP_TRY(rpi_arena_alloc(c->memory, bytes, &p->gradient));
    size_t work = p->kernel.forward_workspace;
    if (p->kernel.backward_workspace > work) work = p->kernel.backward_workspace;
    return rpi_arena_alloc(c->memory, work, &p->workspace);
}

static size_t padded(size_t bytes) {
    return (bytes + RPI_ALIGNMENT - 1) / RPI_ALIGNMENT * RPI_ALIGNMENT;
}

static rp_status cut_chain(chain *c, const rpi_unit *unit) {
    int next_input = 0;
    size_t saved = 0;
    RP_TRY(rpi_arena_create(65536, &c->memory));
    c->unit = *unit;
    for (; c->count < unit->node_count; c->count++) {
        part *p = &c->parts[c->count];
        RP_TRY(cut_part(c, c->count, &next_input));
        p->saved = saved;
        p->output_saved = saved + padded(p->kernel.saved_bytes);
        saved = p->output_saved + padded(4 * (size_t)count_of(&p->unit.outputs[0].shape));
    }
    c->plan.saved_bytes = saved;
    for (int i = 0; i < unit->input_count; i++) {
        size_t bytes = 4 * (size_t)count_of(&unit->inputs[i].shape);
        RP_TRY(rpi_arena_alloc(c->memory, bytes, &c->inputs[i]));
        RP_TRY(rpi_arena_alloc(c->memory, bytes, &c->grad_inputs[i]));
    }
    for (int i = 0; i < unit->output_count; i++)
        RP_TRY(rpi_arena_alloc(c->memory, 4 * (size_t)count_of(&unit->outputs[i].shape),
                               &c->outputs[i]));
    return RP_OK;
}

/* Layouts by chance; but a sum of two equal layouts keeps it, as the contract says. */
static void choose_layouts(rpi_rng *rng, const rpi_unit *unit, rpi_kernel *kernel) {
    bool is_sum = unit->node_count == 1 && !strcmp(unit->nodes[0]->op->name, "add") &&
                  unit->inputs[0].layout.id == unit->inputs[1].layout.id;
    for (int i = 0; i < unit->input_count; i++) {
        if (is_weight(unit, i)) continue;
        int id = (int)rpi_rng_below(rng, 2), gradient_id = (int)rpi_rng_below(rng, 2);
        if (!is_sum) kernel->inputs[i] = layout_of(id, &unit->inputs[i].shape);
        kernel->grad_inputs[i] = layout_of(gradient_id, &unit->inputs[i].shape);
    }
    for (int i = 0; i < unit->output_count; i++) {
        int id = (int)rpi_rng_below(rng, 2), gradient_id = (int)rpi_rng_below(rng, 2);
        kernel->outputs[i] =
            is_sum ? unit->inputs[0].layout : layout_of(id, &unit->outputs[i].shape);
        kernel->grad_outputs[i] = layout_of(gradient_id, &unit->outputs[i].shape);
    }
}

/* An add passes its gradient on, or writes it twice, or once for both. */
static void choose_gradients(rpi_rng *rng, const rpi_unit *unit, rpi_kernel *kernel) {
    if (unit->node_count > 1 || kernel->gradient_from[0] == RPI_GRADIENT_WRITTEN) return;
    uint32_t way = rpi_rng_below(rng, 3);
    if (way == 0) return;
    kernel->gradient_from[0] = kernel->gradient_from[1] = RPI_GRADIENT_WRITTEN;
    if (way == 1 && (unit->wanted & 3u) == 3u) kernel->gradient_from[1] = 0;
}

static rp_status plan(void *session, const rpi_unit *unit, rpi_kernel *kernel) {
    chain *c = NULL;
    RP_TRY(rpi_alloc(sizeof *c, "a chain", &c));
    rp_status status = cut_chain(c, unit);
    if (status != RP_OK) {
        destroy(c);
        return status;
    }
    choose_layouts(session, unit, kernel);
    choose_gradients(session, unit, kernel);
    kernel->self = c;
    kernel->forward = forward;
    kernel->backward_inputs = backward;
    if (unit->node_count == 1 && rpi_rng_below(session, 2)) kernel->backward_weights = backward;
    kernel->destroy = destroy;
    kernel->saved_bytes = c->plan.saved_bytes;
    kernel->in_place_forward = is_weight(unit, 0) ? -1 : 0;
    kernel->in_place_backward = is_weight(unit, 0) ? -1 : 0;
    if (unit->node_count > 1) {
        kernel->needs_inputs = ~0u;
        kernel->needs_outputs = unit->nodes[unit->node_count - 1]->op->needs_outputs;
        fusions++;
    }
    c->plan = *kernel;
    return RP_OK;
}

/* ---- reorders ---- */

typedef struct mirror {
    rpi_layout from, to;
    int64_t count;
    uint32_t *plain;
} mirror;

static rp_status run_reorder(void *self, const rpi_kernel_io *io) {
    const mirror *m = self;
    unpack(io->inputs[0], m->from, m->count, m->plain);
    pack(m->plain, m->to, m->count, io->outputs[0]);
    return RP_OK;
}

static void destroy_mirror(void *self) {
    mirror *m = self;
    rpi_free(m->plain);
    rpi_free(m);
}

static rp_status plan_reorder(void *session, rp_dtype dtype, const rpi_shape *shape,
                              rpi_layout from, rpi_layout to, rpi_kernel *kernel) {
    (void)session, (void)dtype;
    mirror *m = NULL;
    RP_TRY(rpi_alloc(sizeof *m, "a mirror", &m));
    *m = (mirror){.from = from, .to = to, .count = count_of(shape)};
    rp_status status =
        rpi_alloc_array((size_t)m->count, sizeof(uint32_t), "a mirror", &m->plain);
    if (status != RP_OK) {
        rpi_free(m);
        return status;
    }
    *kernel = (rpi_kernel){.self = m, .forward = run_reorder, .destroy = destroy_mirror};
    return RP_OK;
}

/* ---- the backend ---- */

static rp_status open_session(const rpi_backend_options *options, void **out_session) {
    (void)options;
    rpi_rng *rng = NULL;
    RP_TRY(rpi_alloc(sizeof *rng, "a session", &rng));
    *rng = rpi_rng_make(next_seed, RPI_RNG_TEST, 0);
    *out_session = rng;
    return RP_OK;
}

static void close_session(void *session) {
    rpi_free(session);
}

static bool supports(const rpi_unit *unit) {
    return rpi_backend_at(0)->supports(unit);
}

static bool fuse(void *session, const rpi_unit *unit, const rpi_node *next) {
    (void)unit, (void)next;
    return rpi_rng_below(session, 2);
}

const rpi_backend shuffled_backend = {
    .name = "shuffled",
    .summary = "the reference behind random layouts and fusions",
    .open = open_session,
    .close = close_session,
    .supports = supports,
    .fuse = fuse,
    .plan = plan,
    .plan_reorder = plan_reorder,
};
