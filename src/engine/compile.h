/* Declarations that the stages of the compiler share: cut_units.c cuts the graph into units,
 * compile_passes.c derives the passes from them with compile_unit.c, compile_kernel.c and
 * compile_again.c, emit.c appends steps over places, emit_external.c those of external nodes,
 * compile_finals.c notes when gradients are complete, and resolve.c turns places into addresses
 * (code.h). compile.c calls them in turn. Private to these files. */
#ifndef RPI_ENGINE_COMPILE_H
#define RPI_ENGINE_COMPILE_H

#include "base/memory.h"
#include "engine/code.h"
#include "engine/memory_plan.h"

/* Where a value lies, before memory is planned. */
typedef enum rpi_value_place_kind {
    RPI_NOWHERE,
    RPI_IN_BUFFER,    /* index: of the buffer */
    RPI_IN_INPUT,     /* index: of the graph's input */
    RPI_IN_WEIGHTS,   /* index: value id of a parameter or state */
    RPI_IN_GRADIENT,  /* index: value id of a parameter */
    RPI_IN_ONE,       /* the constant 1: the gradient of the loss */
    RPI_IN_WORKSPACE, /* the session's */
} rpi_value_place_kind;

typedef struct rpi_value_place {
    rpi_value_place_kind kind;
    int index;
    rpi_layout layout;
} rpi_value_place;

typedef struct rpi_step_places {
    rpi_value_place inputs[RPI_UNIT_INPUTS], outputs[RPI_UNIT_OUTPUTS];
    rpi_value_place grad_outputs[RPI_UNIT_OUTPUTS], grad_inputs[RPI_UNIT_INPUTS];
    rpi_value_place saved, workspace;
} rpi_step_places;

/* The second half of an external node that has not been emitted yet. */
typedef struct rpi_pending {
    rpi_step_function finish;
    void *self;
    rpi_step_places places;
    const char *name;
    rpi_pass pass;
    int start; /* the step of the first half; -1: there is none */
    bool is_done;
} rpi_pending;

/* A copy of a value in another layout. */
typedef struct rpi_copy {
    rpi_value_place place;
    struct rpi_copy *next;
} rpi_copy;

typedef struct rpi_compiled_value {
    rpi_shape shape; /* bound */
    bool needed, has_gradient, is_result, is_given, is_seed;
    int consumers;
    rpi_value_place place, gradient;
    bool owns_gradient; /* no other value's gradient is in its buffer: it can be added to */
    rpi_copy *copies;
    rpi_pending *pending, *gradient_pending;
    const rpi_weight *weight; /* of a parameter or state that is needed */
    int writes;               /* writes of a parameter's gradient so far */
    int last_write;
} rpi_compiled_value;

typedef struct rpi_compiled_unit {
    rpi_unit unit;
    rpi_value_id inputs[RPI_UNIT_INPUTS], outputs[RPI_UNIT_OUTPUTS];
    rpi_kernel *kernel;
    rpi_value_place saved;
    int segment;      /* of options.recompute; -1: none */
    bool is_repeated; /* backward has recomputed its outputs */
    const char *name, *what;
} rpi_compiled_unit;

typedef struct rpi_compiler {
    rpi_program *program;
    const rpi_program_options *options;
    rpi_value_id loss;
    void *kernels;                      /* the backend's session */
    int64_t dimensions[RPI_DIMENSIONS]; /* sizes of the graph's named ones; 0: not bound */
    rpi_compiled_value *values;
    int value_count;
    bool *node_needed;
    rpi_compiled_unit *units; /* in the order of forward */
    int unit_count;
    rpi_step_places *places;                          /* of program->steps */
    rpi_value_place results[RPI_PROGRAM_RESULTS + 1]; /* of program->results */
    rpi_value_place given_gradients[RPI_PROGRAM_CUTS];
    int step_room;
    rpi_buffer *buffers;
    int buffer_count, buffer_room;
    rpi_reuse *reuses;
    int reuse_count, reuse_room;
} rpi_compiler;

/* Does the compiler itself run units of this op? */
bool rpi_is_external(const rpi_op *op);

/* cut_units.c: binds shapes, finds what is needed and what has a gradient, and cuts the graph
 * into units. */
rp_status rpi_compile_units(rpi_compiler *compiler);
/* Note which units options.recompute names. */
rp_status rpi_find_segments(rpi_compiler *compiler);
rp_status rpi_split_unit(rpi_compiler *compiler, int index);

/* compile_kernel.c: plans the kernel of a unit whose inputs have their layouts. RP_UNSUPPORTED:
 * the backend has none. */
rp_status rpi_compile_kernel(rpi_compiler *compiler, rpi_compiled_unit *unit);
/* The mask of inputs whose gradients a unit's kernel writes: of parameters, or the others. */
uint32_t rpi_written(const rpi_compiled_unit *unit, bool weights);

/* compile_unit.c: the steps of one unit; failures name it. */
/* Forward. A fused unit for which there is no kernel is split into those of its nodes. */
rp_status rpi_emit_unit(rpi_compiler *compiler, int index);
/* Forward once more, in the backward pass. */
rp_status rpi_emit_unit_again(rpi_compiler *compiler, rpi_compiled_unit *unit);
/* Backward: all of it, or, where the kernel has two calls, the gradients of activations. */
rp_status rpi_emit_unit_backward(rpi_compiler *compiler, rpi_compiled_unit *unit);
/* Does its backward have a second call, and is it wanted? */
bool rpi_has_second_half(const rpi_compiled_unit *unit);
/* The second call: the gradients of parameters. */
rp_status rpi_emit_unit_weights(rpi_compiler *compiler, rpi_compiled_unit *unit);

/* compile_again.c: recomputation, before the backward of the units that read it. */
/* All of a segment of options.recompute that backward reads, once; -1: none.
 * repeated: by segment. */
rp_status rpi_repeat_segment(rpi_compiler *compiler, int segment, bool *repeated);
/* What external nodes have not kept, for this unit and for a few of the next ones. */
rp_status rpi_repeat_ahead(rpi_compiler *compiler, int index);

/* compile_passes.c: all steps, over units that are cut and leaves that have their places. */
rp_status rpi_compile_passes(rpi_compiler *compiler);

/* compile_finals.c: program->finals and program->unreached. */
rp_status rpi_compile_finals(rpi_compiler *compiler);

/* emit.c: steps over places. */
rp_status rpi_emit_buffer(rpi_compiler *compiler, size_t bytes, rpi_layout layout,
                          rpi_value_place *out_place);
/* Room in the session's workspace for the next step; no place for 0 bytes. */
rpi_value_place rpi_emit_workspace(rpi_compiler *compiler, size_t bytes);
/* Appends a step; *step and *places are copied, and their buffers live at least until it. */
rp_status rpi_emit_step(rpi_compiler *compiler, const rpi_program_step *step,
                        const rpi_step_places *places);
/* Emits the second half of an external node, if it was not emitted yet; *pending is then NULL.
 */
rp_status rpi_emit_finish(rpi_compiler *compiler, rpi_pending **pending);
/* `output` may overwrite `input` in the step emitted last, if that step reads it only once. */
rp_status rpi_emit_reuse(rpi_compiler *compiler, rpi_value_place output, rpi_value_place input);
rp_status rpi_emit_kernel(rpi_compiler *compiler, rpi_kernel **out_kernel);
/* The place of `value` in `layout`, after the steps that are needed to bring it there. */
rp_status rpi_emit_use(rpi_compiler *compiler, rpi_value_id value, rpi_layout layout,
                       rpi_pass pass, rpi_value_place *out_place);
rp_status rpi_emit_use_gradient(rpi_compiler *compiler, rpi_value_id value, rpi_layout layout,
                                rpi_value_place *out_place);
/* Adds a contribution at `place` to the gradient of `value`: the first one stays where it is,
 * further ones are summed; those of parameters go to their arena. */
rp_status rpi_emit_gradient(rpi_compiler *compiler, rpi_value_id value, rpi_value_place place);
rpi_layout rpi_row_major(const rpi_compiler *compiler, rpi_value_id value);

/* resolve.c: plan memory, turn places into addresses. */
rp_status rpi_compile_resolve(rpi_compiler *compiler);

/* emit_external.c */
rp_status rpi_emit_external_forward(rpi_compiler *compiler, rpi_compiled_unit *unit,
                                    rpi_pass pass);
bool rpi_external_sends(const rpi_node *node);                   /* it has a backward */
bool rpi_external_passes(const rpi_compiled_unit *unit);         /* outputs are inputs */
bool rpi_external_repeats(const rpi_compiled_unit *unit);        /* in recomputation */
bool rpi_external_always_repeats(const rpi_compiled_unit *unit); /* and without */
rp_status rpi_emit_external_backward(rpi_compiler *compiler, rpi_compiled_unit *unit);

#endif
