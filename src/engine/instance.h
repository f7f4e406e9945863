/* An instance: one run of a program, with the memory that it needs.
 *
 * Forward and backward are two calls, so that several micro-batches can be in flight: each is
 * an instance of the same program, and may go forward before another one goes backward.
 *
 *     forward             the session lends an arena
 *       ... other instances run ...
 *     backward            reads what forward saved there; the arena goes back to the pool
 *     result              still readable: results lie in memory of the instance's own
 *
 * Calls on the instances of one session come one at a time. The same run twice gives the same
 * bytes. A run allocates nothing, unless more instances are in flight than ever before. */
#ifndef RPI_ENGINE_INSTANCE_H
#define RPI_ENGINE_INSTANCE_H

#include "engine/program.h"

typedef struct rpi_instance rpi_instance;

/* Reserves memory for one run in the session. The program is borrowed and shared. */
rp_status rpi_instance_create(const rpi_program *program, rpi_instance **out_instance);
void rpi_instance_destroy(rpi_instance *instance);

const rpi_program *rpi_instance_program(const rpi_instance *instance);

/* One step that ran: a kernel, a reorder, a sum, or a half of an external node. */
typedef struct rpi_step_report {
    const char *name; /* of its node ("layer1.conv1"), for the life of the program */
    const char *what; /* "conv2d", "batch_norm2d+relu", "reorder", "add", "start", "finish" */
    rpi_pass pass;
    int64_t start_ns, end_ns; /* rpi_now_ns() */
} rpi_step_report;

typedef struct rpi_run_options {
    /* Forward: one a graph input, in order of declaration: row-major, of the bound shape;
     * borrowed until the end of the backward pass. Inputs that the program does not use may be
     * NULL. Caches (RPI_CACHE in op.h) among them are the caller's memory, rewritten: the next
     * run, of any program of that graph, goes on from them. */
    const void *const *inputs;
    const void *const *given; /* forward: one for each given value, as `inputs` */
    const void *const
        *seeds; /* backward: one for each seed, the gradient of the loss with respect to it */
    /* For forward, and kept for its backward: a number of the caller's that is passed to
     * external nodes, which tell the micro-batches in flight apart by it; and the values on
     * which random choices depend, with the number of this run's first sample in the whole
     * batch: they are the same for any cut of a batch into runs. */
    uint64_t run, seed, step;
    int64_t first_sample;
    /* No kernel runs, but everything that a run reports is reported in its order: for ranks
     * that have nothing to run while others do. Inputs are not read, gradients of parameters
     * are zeros unless they are accumulated, and results are undefined. */
    bool idle;
    bool accumulate; /* backward: add to the gradients instead of overwriting them */

    /* Optional: gradients in [first, first + count) are final. Called during backward, in the
     * order of the arena. Together the ranges cover the program's parameters exactly once,
     * without gaps if these are all of the model's. The range may be read and written at once.
     * A failure ends the run with it. */
    rp_status (*on_gradient_final)(void *context, int64_t first, int64_t count);
    /* Optional: called for uses of the index-th parameter of the weights (rpi_parameter_event).
     * Each pass, and each half of a backward pass by itself if halves run apart, reports once
     * for each parameter that it reads that it needs the parameter, and once that it is done
     * with it. Gradients are reported as needed once in a backward pass, and as done by
     * on_gradient_final. The function may still place a needed parameter
     * (rpi_weights_place_values) or write it, and may free one that is done. A failure ends the
     * run with it, and nothing more is reported. */
    rp_status (*on_parameter)(void *context, int index, rpi_parameter_event event);
    /* Optional: called when the gradient of the index-th given value is complete. */
    rp_status (*on_given_gradient)(void *context, int index);
    void (*on_step)(void *context, const rpi_step_report *report); /* optional */
    void *context;
} rpi_run_options;

/* The forward pass: afterwards results are readable and states updated (training). A pass that
 * still waits for its backward is dropped. Blocks until done. A failure of a kernel (a label
 * out of range) names the node; states are then undefined. RP_INVALID, here and in backward:
 * a parameter that a step needs lies nowhere. */
rp_status rpi_instance_forward(rpi_instance *instance, const rpi_run_options *run);
/* The backward pass of the forward pass before: gradients of d loss / d parameter are written
 * or added. RP_INVALID: the program has none, or no forward pass waits for it. After a failure
 * gradients are undefined and the run is dropped. */
rp_status rpi_instance_backward(rpi_instance *instance, const rpi_run_options *run);
/* The same in two calls, for programs compiled with halves_apart: gradients of activations,
 * given values among them, and then, any time later, gradients of parameters. The second wants
 * the same `accumulate` as the first. */
rp_status rpi_instance_backward_inputs(rpi_instance *instance, const rpi_run_options *run);
rp_status rpi_instance_backward_weights(rpi_instance *instance, const rpi_run_options *run);
/* Forward and, in a training program, backward. */
rp_status rpi_instance_run(rpi_instance *instance, const rpi_run_options *run);
/* Gives the arena back without a backward pass. */
void rpi_instance_drop(rpi_instance *instance);

/* For a run that has given NaN or infinity: runs its forward pass again to the end, with the
 * same options, because ranks that share layers communicate in any of them; finds the first
 * kernel whose output contains one. *out_name: of its node, as rpi_node has it (not a copy), or
 * of its first node if several are fused; NULL: all outputs are finite. Takes a read of each
 * activation more than a run; states are updated once more. */
rp_status rpi_instance_find_nonfinite(rpi_instance *instance, const rpi_run_options *run,
                                      const char **out_name);

/* The elements of the loss or a result, row-major, valid until the next forward pass.
 * RP_INVALID when this value is none of them. */
rp_status rpi_instance_result(const rpi_instance *instance, rpi_value_id value,
                              rpi_tensor *out_tensor);

/* The gradient of the loss by a given value, row-major, valid until the next forward pass or as
 * long as the seed that it is equal to. RP_INVALID: it is none, or the loss does not depend on
 * it. */
rp_status rpi_instance_gradient(const rpi_instance *instance, rpi_value_id given,
                                rpi_tensor *out_tensor);

#endif
