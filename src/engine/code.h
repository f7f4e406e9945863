/* What a compiled program consists of: steps over (space, offset). compile.c makes it, code.c
 * ends it, instance.c gives the spaces their memory and runs it. Private to the engine. */
#ifndef RPI_ENGINE_CODE_H
#define RPI_ENGINE_CODE_H

#include "base/memory.h"
#include "engine/memory_plan.h"
#include "engine/program.h"

/* The memories that steps address. */
typedef enum rpi_space {
    RPI_SPACE_NONE,
    RPI_SPACE_ARENA,      /* lent to a run: activations, gradients, saved; `index`: its kind */
    RPI_SPACE_KEPT,       /* the instance's own: results */
    RPI_SPACE_WORKSPACE,  /* the session's: lost after each step */
    RPI_SPACE_PARAMETERS, /* the model's; `index`: the parameter */
    RPI_SPACE_GRADIENTS,
    RPI_SPACE_STATES, /* the model's states */
    RPI_SPACE_ONE,    /* the constant 1: the gradient of the loss */
    RPI_SPACE_INPUTS, /* the caller's, for the run; `index`: the input */
    RPI_SPACES
} rpi_space;

typedef struct rpi_address {
    short space;
    int index;
    size_t offset; /* in bytes; 0 with an index */
} rpi_address;

typedef rp_status (*rpi_step_function)(void *self, const rpi_kernel_io *io);

typedef struct rpi_program_step {
    rpi_step_function run;
    void *self;
    const char *name, *what;
    rpi_pass pass;
    rpi_address inputs[RPI_UNIT_INPUTS], outputs[RPI_UNIT_OUTPUTS];
    rpi_address grad_outputs[RPI_UNIT_OUTPUTS], grad_inputs[RPI_UNIT_INPUTS];
    rpi_address saved, workspace;
    int parameters[RPI_UNIT_INPUTS]; /* index of the parameter that an input is; else -1 */
    uint32_t written_gradients; /* mask of inputs whose parameter gradients the step writes */
    /* inputs to whose gradients it adds, as an earlier step has begun them */
    uint32_t always_add;
    bool repeats;   /* a forward kernel that runs again for backward */
    int64_t floats; /* in output 0 of a forward kernel, padding included; 0: no floats */
    rp_dtype dtype; /* theirs: RP_F32 or RP_BF16 */
    int finish;     /* the start of an external node: the step that finishes it; else 0 */
} rpi_program_step;

/* A parameter is needed before a step, or is done with after it (RPI_VALUES_DONE). */
typedef struct rpi_parameter_use {
    int step;
    rpi_parameter_event event;
    int parameter;
} rpi_parameter_use;

/* Gradients in [first, first + count) of the arena are final after a step. */
typedef struct rpi_final_range {
    int step; /* -1: at the end of the backward pass, as no step makes them */
    int64_t first, count;
} rpi_final_range;

typedef struct rpi_program_result {
    rpi_value_id value;
    rpi_tensor tensor; /* without data */
    rpi_address address;
    int step; /* the gradient of a given value is there after this step */
} rpi_program_result;

typedef struct rpi_kernel_list {
    rpi_kernel kernel;
    struct rpi_kernel_list *next;
} rpi_kernel_list;

struct rpi_program {
    rpi_session *session;
    const rpi_graph *graph;
    const rpi_backend *backend;
    rpi_weights *weights;
    rpi_arena *memory; /* owns everything below except the steps */
    rpi_kernel_list *kernels;
    rpi_program_step *steps; /* forward, backward, and deferred second halves */
    int step_count, forward_count, inputs_end;
    bool *uses_input;
    int input_count;
    rpi_program_result results[RPI_PROGRAM_RESULTS + 1];
    int result_count;
    /* Values that the caller gives, with their gradients, and those whose gradients are given;
     * both are inputs too, behind those of the graph. */
    rpi_program_result given[RPI_PROGRAM_CUTS];
    rpi_value_id seeds[RPI_PROGRAM_CUTS];
    rp_dtype given_gradients[RPI_PROGRAM_CUTS], seed_values[RPI_PROGRAM_CUTS]; /* handed on */
    int given_count, seed_count;
    rpi_final_range *finals; /* in the order of steps and of the arena */
    int final_count;
    rpi_parameter_use *uses; /* in the order of steps */
    int use_count;
    int *unreached; /* parameters of this program without a gradient in it */
    int unreached_count;
    bool training, halves_apart;
    size_t arena_bytes[RPI_ARENAS], kept_bytes;
    rpi_program_facts facts;
    rpi_node_facts *node_facts; /* [nodes of the graph] */
};

/* parameter_use.c: list what happens to parameters, once there are addresses. */
rp_status rpi_list_parameter_uses(rpi_program *program);
/* The first of program->uses at `step` or behind it. */
int rpi_first_use(const rpi_program *program, int step);

/* emit_external.c: end what the start step with this `self` has begun. */
void rpi_external_cancel(void *self, uint64_t run);

#endif
