#include "base/memory.h"
#include "base/status.h"
#include "engine/compile.h"

#include <string.h>

extern const rpi_op rpi_op_add;

enum { FIRST_ROOM = 64 };

static rp_status make_room(int count, int room, size_t bytes, const char *what,
                           void *in_out_array) {
    if (count < room) return RP_OK;
    size_t grown = room ? 2 * (size_t)room : FIRST_ROOM;
    return rpi_grow_array((size_t)count, grown, bytes, what, in_out_array);
}

static int grown_room(int count, int room) {
    if (count < room) return room;
    return room ? 2 * room : FIRST_ROOM;
}

rpi_layout rpi_row_major(const rpi_compiler *compiler, rpi_value_id value) {
    size_t count = (size_t)rpi_shape_count(&compiler->values[value].shape);
    rp_dtype dtype = rpi_graph_value(compiler->program->graph, value)->dtype;
    return (rpi_layout){.id = 0, .bytes = count * rp_dtype_bytes(dtype)};
}

rp_status rpi_emit_buffer(rpi_compiler *compiler, size_t bytes, rpi_layout layout,
                          rpi_value_place *out_place) {
    RP_TRY(make_room(compiler->buffer_count, compiler->buffer_room, sizeof *compiler->buffers,
                     "a memory plan", &compiler->buffers));
    compiler->buffer_room = grown_room(compiler->buffer_count, compiler->buffer_room);
    compiler->buffers[compiler->buffer_count] =
        (rpi_buffer){.bytes = bytes, .first = -1, .last = -2};
    *out_place = (rpi_value_place){RPI_IN_BUFFER, compiler->buffer_count++, layout};
    return RP_OK;
}

rpi_value_place rpi_emit_workspace(rpi_compiler *compiler, size_t bytes) {
    size_t *most = &compiler->program->facts.workspace_bytes;
    if (bytes > *most) *most = bytes;
    return (rpi_value_place){.kind = bytes ? RPI_IN_WORKSPACE : RPI_NOWHERE};
}

static void touch(rpi_compiler *compiler, const rpi_value_place *places, int count) {
    int step = compiler->program->step_count - 1;
    for (int i = 0; i < count; i++) {
        if (places[i].kind != RPI_IN_BUFFER) continue;
        rpi_buffer *buffer = &compiler->buffers[places[i].index];
        if (buffer->first < 0) buffer->first = step;
        buffer->last = step;
    }
}

rp_status rpi_emit_step(rpi_compiler *compiler, const rpi_program_step *step,
                        const rpi_step_places *places) {
    rpi_program *program = compiler->program;
    int count = program->step_count, room = compiler->step_room;
    /* Both arrays have the same capacity, so that a failure between them leaves none short. */
    RP_TRY(make_room(count, room, sizeof *program->steps, "steps", &program->steps));
    RP_TRY(make_room(count, room, sizeof *compiler->places, "steps", &compiler->places));
    compiler->step_room = grown_room(count, room);
    program->steps[count] = *step;
    compiler->places[count] = *places;
    program->step_count++;
    touch(compiler, places->inputs, RPI_UNIT_INPUTS);
    touch(compiler, places->outputs, RPI_UNIT_OUTPUTS);
    touch(compiler, places->grad_outputs, RPI_UNIT_OUTPUTS);
    touch(compiler, places->grad_inputs, RPI_UNIT_INPUTS);
    touch(compiler, &places->saved, 1);
    return RP_OK;
}

rp_status rpi_emit_finish(rpi_compiler *compiler, rpi_pending **pending) {
    rpi_pending *task = *pending;
    *pending = NULL;
    if (!task || task->is_done) return RP_OK;
    task->is_done = true; /* for all values that wait for it */
    rpi_program_step step = {.run = task->finish,
                             .self = task->self,
                             .name = task->name,
                             .what = "finish",
                             .pass = task->pass};
    RP_TRY(rpi_emit_step(compiler, &step, &task->places));
    if (task->start >= 0)
        compiler->program->steps[task->start].finish = compiler->program->step_count - 1;
    return RP_OK;
}

static int count_place(const rpi_value_place *places, int count, rpi_value_place wanted) {
    int found = 0;
    for (int i = 0; i < count; i++)
        found += places[i].kind == wanted.kind && places[i].index == wanted.index;
    return found;
}

rp_status rpi_emit_reuse(rpi_compiler *compiler, rpi_value_place output,
                         rpi_value_place input) {
    int step = compiler->program->step_count - 1;
    const rpi_step_places *places = &compiler->places[step];
    if (output.kind != RPI_IN_BUFFER || input.kind != RPI_IN_BUFFER ||
        output.layout.bytes != input.layout.bytes)
        return RP_OK;
    int reads = count_place(places->inputs, RPI_UNIT_INPUTS, input) +
                count_place(places->outputs, RPI_UNIT_OUTPUTS, input) +
                count_place(places->grad_outputs, RPI_UNIT_OUTPUTS, input);
    if (reads != 1) return RP_OK;
    RP_TRY(make_room(compiler->reuse_count, compiler->reuse_room, sizeof *compiler->reuses,
                     "a memory plan", &compiler->reuses));
    compiler->reuse_room = grown_room(compiler->reuse_count, compiler->reuse_room);
    compiler->reuses[compiler->reuse_count++] = (rpi_reuse){step, output.index, input.index};
    return RP_OK;
}

/* A kernel that the program destroys. */
rp_status rpi_emit_kernel(rpi_compiler *compiler, rpi_kernel **out_kernel) {
    rpi_kernel_list *entry = NULL;
    RP_TRY(rpi_arena_alloc(compiler->program->memory, sizeof *entry, &entry));
    memset(entry, 0, sizeof *entry);
    entry->next = compiler->program->kernels;
    compiler->program->kernels = entry;
    *out_kernel = &entry->kernel;
    return RP_OK;
}

static rp_status emit_reorder(rpi_compiler *compiler, rpi_value_id value, rpi_value_place from,
                              rpi_layout to, rpi_pass pass, rpi_value_place *out_place) {
    rpi_program *program = compiler->program;
    const rpi_value *described = rpi_graph_value(program->graph, value);
    if (!program->backend->plan_reorder)
        return RP_FAIL(INTERNAL, "'%s' has several layouts, but backend %s has no reorder",
                       described->name, program->backend->name);
    rpi_kernel *kernel = NULL;
    RP_TRY(rpi_emit_kernel(compiler, &kernel));
    rp_status status =
        program->backend->plan_reorder(compiler->kernels, described->dtype,
                                       &compiler->values[value].shape, from.layout, to, kernel);
    if (status != RP_OK) kernel->destroy = NULL;
    if (status != RP_OK) return rpi_fail_context(status, "reorder of '%s': ", described->name);
    rpi_step_places places = {.inputs[0] = from};
    RP_TRY(rpi_emit_buffer(compiler, to.bytes, to, out_place));
    places.outputs[0] = *out_place;
    places.workspace = rpi_emit_workspace(compiler, kernel->forward_workspace);
    program->facts.reorders++;
    return rpi_emit_step(compiler,
                         &(rpi_program_step){.run = kernel->forward,
                                             .self = kernel->self,
                                             .name = described->name,
                                             .what = "reorder",
                                             .pass = pass},
                         &places);
}

static const rpi_value_place *find_copy(const rpi_compiled_value *value, rpi_layout layout) {
    for (const rpi_copy *copy = value->copies; copy; copy = copy->next)
        if (copy->place.layout.id == layout.id) return &copy->place;
    return NULL;
}

rp_status rpi_emit_use(rpi_compiler *compiler, rpi_value_id id, rpi_layout layout,
                       rpi_pass pass, rpi_value_place *out_place) {
    rpi_compiled_value *value = &compiler->values[id];
    RP_TRY(rpi_emit_finish(compiler, &value->pending));
    const rpi_value_place *copied = find_copy(value, layout);
    if (value->place.layout.id == layout.id || copied) {
        *out_place = copied ? *copied : value->place;
        return RP_OK;
    }
    rpi_copy *copy = NULL;
    RP_TRY(rpi_arena_alloc(compiler->program->memory, sizeof *copy, &copy));
    RP_TRY(emit_reorder(compiler, id, value->place, layout, pass, &copy->place));
    copy->next = value->copies;
    value->copies = copy;
    *out_place = copy->place;
    return RP_OK;
}

rp_status rpi_emit_use_gradient(rpi_compiler *compiler, rpi_value_id id, rpi_layout layout,
                                rpi_value_place *out_place) {
    rpi_compiled_value *value = &compiler->values[id];
    RP_TRY(rpi_emit_finish(compiler, &value->gradient_pending));
    *out_place = value->gradient;
    if (value->gradient.layout.id == layout.id) return RP_OK;
    return emit_reorder(compiler, id, value->gradient, layout, RPI_BACKWARD, out_place);
}

/* A step of the compiler's own: gradient of a parameter (+)= what lies at inputs[0]. */
typedef struct deposit {
    int64_t count;
} deposit;

static rp_status run_deposit(void *self, const rpi_kernel_io *io) {
    const deposit *task = self;
    const float *from = io->inputs[0];
    float *to = io->grad_inputs[0];
    if (!(io->accumulate & 1u))
        memcpy(to, from, (size_t)task->count * sizeof *to);
    else
        for (int64_t i = 0; i < task->count; i++) to[i] += from[i];
    return RP_OK;
}

static rp_status emit_deposit(rpi_compiler *compiler, rpi_value_id id, rpi_value_place place) {
    rpi_compiled_value *value = &compiler->values[id];
    deposit *task = NULL;
    RP_TRY(rpi_arena_alloc(compiler->program->memory, sizeof *task, &task));
    task->count = rpi_shape_count(&value->shape);
    rpi_program_step step = {.run = run_deposit,
                             .self = task,
                             .name = rpi_graph_value(compiler->program->graph, id)->name,
                             .what = "gradient",
                             .pass = RPI_BACKWARD,
                             .written_gradients = 1,
                             .always_add = value->writes > 0};
    rpi_step_places places = {.inputs[0] = place};
    if (place.layout.id != 0)
        RP_TRY(emit_reorder(compiler, id, place, rpi_row_major(compiler, id), RPI_BACKWARD,
                            &places.inputs[0]));
    places.grad_inputs[0] = (rpi_value_place){.kind = RPI_IN_GRADIENT, .index = id};
    RP_TRY(rpi_emit_step(compiler, &step, &places));
    value->writes++;
    value->last_write = compiler->program->step_count - 1;
    return RP_OK;
}

/* A unit that adds two gradients of `value`, both lying in `layout`. */
static rp_status plan_sum(rpi_compiler *compiler, rpi_value_id id, rpi_layout layout,
                          rpi_kernel **out_kernel) {
    rpi_program *program = compiler->program;
    const rpi_value *described = rpi_graph_value(program->graph, id);
    rpi_node *node = NULL;
    RP_TRY(rpi_arena_alloc(program->memory, sizeof *node, &node));
    *node = (rpi_node){.name = described->name,
                       .op = &rpi_op_add,
                       .input_count = 2,
                       .output_count = 1,
                       .inputs = {id, id},
                       .outputs = {id}};
    rpi_unit_value value = {.name = described->name,
                            .kind = RPI_VALUE_ACTIVATION,
                            .dtype = described->dtype,
                            .shape = compiler->values[id].shape,
                            .layout = layout};
    rpi_unit unit = {.node_count = 1,
                     .input_count = 2,
                     .output_count = 1,
                     .nodes = {node},
                     .chain_input = {-1},
                     .inputs = {value, value},
                     .outputs = {value}};
    RP_TRY(rpi_emit_kernel(compiler, out_kernel));
    rpi_kernel *kernel = *out_kernel;
    kernel->inputs[0] = kernel->inputs[1] = kernel->outputs[0] = layout;
    kernel->in_place_backward = -1;
    rp_status status = program->backend->plan(compiler->kernels, &unit, kernel);
    if (status != RP_OK) kernel->destroy = NULL;
    if (status != RP_OK)
        return rpi_fail_context(status, "sum of gradients of '%s': ", described->name);
    if (kernel->inputs[0].id != layout.id || kernel->inputs[1].id != layout.id ||
        kernel->outputs[0].id != layout.id)
        return RP_FAIL(INTERNAL, "backend %s changed the layout of a sum",
                       program->backend->name);
    return RP_OK;
}

static rp_status emit_sum(rpi_compiler *compiler, rpi_value_id id, rpi_value_place place) {
    rpi_compiled_value *value = &compiler->values[id];
    rpi_layout layout = value->gradient.layout;
    rpi_step_places places = {0};
    rpi_kernel *kernel = NULL;
    RP_TRY(rpi_emit_finish(compiler, &value->gradient_pending));
    if (place.layout.id != layout.id)
        RP_TRY(emit_reorder(compiler, id, place, layout, RPI_BACKWARD, &place));
    RP_TRY(plan_sum(compiler, id, layout, &kernel));
    rpi_value_place sum;
    RP_TRY(rpi_emit_buffer(compiler, layout.bytes, layout, &sum));
    places.inputs[0] = place;
    places.inputs[1] = value->gradient;
    places.outputs[0] = sum;
    places.workspace = rpi_emit_workspace(compiler, kernel->forward_workspace);
    rpi_program_step step = {.run = kernel->forward,
                             .self = kernel->self,
                             .name = rpi_graph_value(compiler->program->graph, id)->name,
                             .what = "add",
                             .pass = RPI_BACKWARD};
    RP_TRY(rpi_emit_step(compiler, &step, &places));
    if (kernel->in_place_forward >= 0)
        RP_TRY(rpi_emit_reuse(compiler, sum, places.inputs[kernel->in_place_forward]));
    value->gradient = sum;
    return RP_OK;
}

rp_status rpi_emit_gradient(rpi_compiler *compiler, rpi_value_id id, rpi_value_place place) {
    rpi_compiled_value *value = &compiler->values[id];
    if (rpi_graph_value(compiler->program->graph, id)->kind == RPI_VALUE_PARAMETER)
        return emit_deposit(compiler, id, place);
    if (value->gradient.kind != RPI_NOWHERE) return emit_sum(compiler, id, place);
    value->gradient = place;
    return RP_OK;
}
