/* A program: a graph compiled for one backend, one batch size, training or evaluation.
 *
 * Compiling binds shapes, derives the backward pass, asks the backend for kernels and plans
 * memory; a run executes the steps and allocates nothing. Programs over one rpi_weights share
 * parameters, gradients and states: keep one for training, one for evaluation and one for the
 * last short batch. Run them one at a time. The same run twice gives the same bytes. */
#ifndef RPI_ENGINE_PROGRAM_H
#define RPI_ENGINE_PROGRAM_H

#include "engine/backend.h"
#include "engine/weights.h"

typedef struct rpi_program rpi_program;

enum { RPI_PROGRAM_RESULTS = 8 };

typedef struct rpi_program_options {
    const rpi_backend *backend; /* NULL: the reference */
    rpi_backend_options backend_options;
    bool training; /* derive backward; batch statistics */
    int64_t batch; /* binds RPI_BATCH; at least 1 where the graph has it */
    /* Values to read after a run besides the loss: logits, counts of correct answers. */
    int result_count;
    rpi_value_id results[RPI_PROGRAM_RESULTS];
} rpi_program_options;

/* loss: a scalar activation of f32; what is not needed for it or the results is left out.
 * RPI_NO_VALUE without training: only the results are computed.
 * graph and weights are borrowed and outlive the program. RP_INVALID, RP_UNSUPPORTED (the
 * backend lacks a kernel) and RP_NOMEM name the node. */
rp_status rpi_program_compile(const rpi_graph *graph, rpi_weights *weights, rpi_value_id loss,
                              const rpi_program_options *options, rpi_program **out_program);
void rpi_program_destroy(rpi_program *program);

typedef enum rpi_pass { RPI_FORWARD, RPI_BACKWARD } rpi_pass;

/* One step that ran: a kernel, a reorder, a sum, or a half of an external node. */
typedef struct rpi_step_report {
    const char *name; /* of its node ("layer1.conv1"), for the life of the program */
    const char *what; /* "conv2d", "batch_norm2d+relu", "reorder", "add", "start", "finish" */
    rpi_pass pass;
    int64_t start_ns, end_ns; /* rpi_now_ns() */
} rpi_step_report;

typedef struct rpi_run_options {
    /* One a graph input, in order of declaration: row-major, of the bound shape; borrowed for
     * the run. Inputs that the program does not use may be NULL. */
    const void *const *inputs;
    bool accumulate;    /* add to the gradients instead of overwriting them */
    bool skip_backward; /* of a training program: stop after the loss */

    /* Optional: gradients in [first, first + count) are final. Called during backward, in the
     * order of the arena, without gaps; together the calls cover the arena exactly once. The
     * range may be read and written at once. A failure ends the run with it. */
    rp_status (*on_gradient_final)(void *context, int64_t first, int64_t count);
    void (*on_step)(void *context, const rpi_step_report *report); /* optional */
    void *context;
} rpi_run_options;

/* Run all steps. Afterwards results are readable, states updated (training), gradients of
 * d loss / d parameter written or added. Blocks until done. A failure of a kernel (a label out
 * of range) names the node; gradients and states are then undefined. */
rp_status rpi_program_run(rpi_program *program, const rpi_run_options *run);

/* For a run that gave NaN or infinity: its forward pass again, with the same options, up to the
 * first kernel whose output holds one. *out_name: of its node, as rpi_node has it (not a copy),
 * and of its first where several are fused; NULL when all outputs are finite. Slower than a run
 * by a read of each activation; states are updated once more. */
rp_status rpi_program_find_nonfinite(rpi_program *program, const rpi_run_options *run,
                                     const char **out_name);

/* The elements of the loss or a result, row-major, valid until the next run. RP_INVALID when
 * this value is none of them. */
rp_status rpi_program_result(const rpi_program *program, rpi_value_id value,
                             rpi_tensor *out_tensor);

typedef struct rpi_program_facts {
    int64_t forward_flops, backward_flops; /* of one run, counted from the graph */
    size_t memory_bytes;   /* of the arena for activations, gradients of them and workspace */
    size_t unshared_bytes; /* what they would take if none shared memory */
    int steps, reorders;
} rpi_program_facts;
rpi_program_facts rpi_program_get_facts(const rpi_program *program);

#endif
