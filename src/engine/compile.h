/* What the stages of the compiler share: cut_units.c cuts the graph into units, emit.c appends
 * steps over places, emit_external.c those of external nodes, compile.c derives the passes,
 * resolve.c turns places into addresses; program.c runs the result. Private to these files. */
#ifndef RPI_ENGINE_COMPILE_H
#define RPI_ENGINE_COMPILE_H

#include "base/memory.h"
#include "engine/memory_plan.h"
#include "engine/program.h"

/* Where a value is, before addresses are known. */
typedef enum rpi_place_kind {
    RPI_NOWHERE,
    RPI_IN_BUFFER,   /* index: of the buffer */
    RPI_IN_INPUT,    /* index: of the graph's input; address known at each run */
    RPI_IN_WEIGHTS,  /* index: value id of a parameter or state */
    RPI_IN_GRADIENT, /* index: value id of a parameter */
    RPI_IN_ONE,      /* the constant 1: the gradient of the loss */
} rpi_place_kind;

typedef struct rpi_place {
    rpi_place_kind kind;
    int index;
    rpi_layout layout;
} rpi_place;

typedef rp_status (*rpi_step_function)(void *self, const rpi_kernel_io *io);

typedef struct rpi_step_places {
    rpi_place inputs[RPI_UNIT_INPUTS], outputs[RPI_UNIT_OUTPUTS];
    rpi_place grad_outputs[RPI_UNIT_OUTPUTS], grad_inputs[RPI_UNIT_INPUTS];
    rpi_place saved, workspace;
} rpi_step_places;

typedef struct rpi_program_step {
    rpi_step_function run;
    void *self;
    const char *name, *what;
    rpi_pass pass;
    rpi_kernel_io io;
    uint32_t written_gradients; /* mask of inputs whose parameter gradients it makes */
    uint32_t always_add;        /* those of them that an earlier step has made already */
    int64_t floats;    /* in output 0 of a forward kernel, padding included; 0: not f32 */
    int64_t final_end; /* gradients before this element are final afterwards; 0: none */
} rpi_program_step;

/* An input slot whose content is known only at each run: a graph input, or a version. */
typedef struct rpi_step_patch {
    int step, slot;
    int index; /* of the graph's input; or value id of the parameter */
} rpi_step_patch;

typedef struct rpi_program_result_place {
    rpi_value_id value;
    rpi_tensor tensor;
    rpi_place place;
} rpi_program_result_place;

struct rpi_program {
    const rpi_graph *graph;
    rpi_weights *weights;
    const rpi_backend *backend;
    void *session;
    rpi_arena *memory; /* of everything below but the arrays that grow */
    struct rpi_kernel_list *kernels;
    rpi_program_step *steps;
    int step_count;
    rpi_step_patch *inputs, *versions;
    int input_patches, version_patches;
    rpi_program_result_place results[RPI_PROGRAM_RESULTS + 1];
    int result_count;
    rpi_value_id *unreached; /* parameters without a gradient in this program */
    int unreached_count;
    unsigned char *data; /* activations, their gradients, workspace */
    bool training;
    float one;
    rpi_program_facts facts;
};

typedef struct rpi_kernel_list {
    rpi_kernel kernel;
    struct rpi_kernel_list *next;
} rpi_kernel_list;

/* The second half of an external node, not yet emitted. */
typedef struct rpi_pending {
    rpi_step_function finish;
    void *self;
    rpi_place input, output;
    const char *name;
    rpi_pass pass;
} rpi_pending;

/* A copy of a value in another layout. */
typedef struct rpi_copy {
    rpi_place place;
    struct rpi_copy *next;
} rpi_copy;

typedef struct rpi_compiled_value {
    rpi_shape shape; /* bound */
    bool needed, has_gradient, is_result;
    int consumers;
    rpi_place place, gradient;
    rpi_copy *copies;
    rpi_pending *pending, *gradient_pending;
    int writes; /* of a parameter's gradient so far */
    int last_write;
} rpi_compiled_value;

typedef struct rpi_compiled_unit {
    rpi_unit unit;
    rpi_value_id inputs[RPI_UNIT_INPUTS], outputs[RPI_UNIT_OUTPUTS];
    rpi_kernel *kernel;
    rpi_place saved;
    const char *name, *what;
    void *external; /* emit_external.c's */
} rpi_compiled_unit;

typedef struct rpi_compiler {
    rpi_program *program;
    const rpi_program_options *options;
    rpi_value_id loss;
    rpi_compiled_value *values;
    int value_count;
    bool *node_needed;
    rpi_compiled_unit *units; /* in the order of forward */
    int unit_count;
    rpi_step_places *places; /* of program->steps */
    int step_room;
    rpi_buffer *buffers;
    int buffer_count, buffer_room;
    rpi_reuse *reuses;
    int reuse_count, reuse_room;
} rpi_compiler;

/* Units that are the compiler's own to run. */
bool rpi_is_external(const rpi_op *op);

/* cut_units.c: bind shapes, find what is needed and what has a gradient, cut into units. */
rp_status rpi_compile_units(rpi_compiler *compiler);

/* emit.c: steps over places. */
rp_status rpi_emit_buffer(rpi_compiler *compiler, size_t bytes, rpi_layout layout,
                          rpi_place *out_place);
/* Append a step; *step and *places are copied, buffers live at least until it. */
rp_status rpi_emit_step(rpi_compiler *compiler, const rpi_program_step *step,
                        const rpi_step_places *places);
/* `output` may lie over `input` in the step emitted last, where that reads it only once. */
rp_status rpi_emit_reuse(rpi_compiler *compiler, rpi_place output, rpi_place input);
rp_status rpi_emit_kernel(rpi_compiler *compiler, rpi_kernel **out_kernel);
/* Where `value` lies in `layout`, after whatever steps that takes. */
rp_status rpi_emit_use(rpi_compiler *compiler, rpi_value_id value, rpi_layout layout,
                       rpi_pass pass, rpi_place *out_place);
rp_status rpi_emit_use_gradient(rpi_compiler *compiler, rpi_value_id value, rpi_layout layout,
                                rpi_place *out_place);
/* A contribution to the gradient of `value` lies at `place`: the first one stays where it is,
 * further ones are summed; those of parameters go to their arena. */
rp_status rpi_emit_gradient(rpi_compiler *compiler, rpi_value_id value, rpi_place place);
rpi_layout rpi_row_major(const rpi_compiler *compiler, rpi_value_id value);

/* resolve.c: plan memory, turn places into addresses. */
rp_status rpi_compile_resolve(rpi_compiler *compiler);

/* emit_external.c */
rp_status rpi_emit_external_forward(rpi_compiler *compiler, rpi_compiled_unit *unit);
rp_status rpi_emit_external_backward(rpi_compiler *compiler, rpi_compiled_unit *unit);
rp_status rpi_emit_finish(rpi_compiler *compiler, rpi_pending **pending);

#endif
