/* A program: a graph compiled for one session, one set of sizes, training or evaluation.
 *
 * Compiling binds named dimensions, derives the backward pass, asks the backend for kernels and
 * plans memory. What comes out is code: steps that name a space and an offset, no address. It
 * never changes and holds no run's data; an instance (instance.h) runs it, several of them at a
 * time where several micro-batches are in flight. session.h draws how these belong together. */
#ifndef RPI_ENGINE_PROGRAM_H
#define RPI_ENGINE_PROGRAM_H

#include "engine/session.h"

typedef struct rpi_program rpi_program;

enum { RPI_PROGRAM_RESULTS = 72, RPI_PROGRAM_CUTS = 8 };

typedef struct rpi_dimension_binding {
    const char *name; /* NULL: the end of the list */
    int64_t size;
} rpi_dimension_binding;

/* The nodes from one to another, in the order in which they were added, by name. */
typedef struct rpi_segment {
    const char *first, *last;
} rpi_segment;

typedef struct rpi_program_options {
    bool training; /* derive backward; batch statistics */
    /* The graph's named dimensions: {{"batch", 8}, {"sequence", 128}}. Each that the program
     * needs is bound to 1 or more; a name that the graph does not have is an error. */
    rpi_dimension_binding dimensions[RPI_DIMENSIONS];
    /* Values to read after a run besides the loss: logits, counts of correct answers. */
    int result_count;
    rpi_value_id results[RPI_PROGRAM_RESULTS];

    /* A part of a graph, as a stage of a pipeline is: activations that are given to each run in
     * place of being computed, whose gradients can be read after it; and activations whose
     * gradients are given to the backward pass (seeds), besides that of the loss or in place of
     * one. A part covers the parameters whose gradients it makes; a whole graph all of its
     * own, those that nothing reaches included. */
    int given_count, seed_count;
    rpi_value_id given[RPI_PROGRAM_CUTS], seeds[RPI_PROGRAM_CUTS];

    /* How the whole graph hands a given value on from unit to unit: RP_F32 (or 0), or RP_BF16,
     * whose elements then have no more bits than that, though all are given as f32. So the part
     * computes what the whole would. */
    rp_dtype given_dtypes[RPI_PROGRAM_CUTS];

    /* Gradients of parameters are made by a call of their own, rpi_instance_backward_weights,
     * when the caller has time for them; what they read is kept until then. */
    bool halves_apart;

    /* Several runs are in flight at a time: each holds what its backward pass reads, and what
     * is needed within one pass alone lies in memory that all of them share. One run at a time
     * takes a little more memory so than without. Said of all programs of a session or of none.
     * Programs with halves apart are always so: what the second half does not read is free once
     * the first is done. */
    bool shares_passing;

    /* Segments whose activations are not kept from forward to backward but made again from
     * their inputs, which takes time and spares memory; of halves apart, between the forward
     * pass and the first half, which makes them for both. States are updated once, external
     * nodes run once: their outputs are kept. Borrowed for the call. */
    const rpi_segment *recompute;
    int recompute_count;

    /* What matrix products and convolutions take: RP_F32 (or 0), or RP_BF16, as
     * rpi_unit.compute says. */
    rp_dtype compute;
} rpi_program_options;

/* loss: a scalar activation of f32; what is not needed for it or the results is left out.
 * RPI_NO_VALUE without training, or with seeds: only the results are computed. Parameters and
 * states are the session's of the same names. session and graph are borrowed and outlive the
 * program. RP_INVALID, RP_NOT_FOUND (a parameter that the weights lack), RP_UNSUPPORTED (the
 * backend lacks a kernel) and RP_NOMEM name the node; RP_UNSUPPORTED, too, where the backend
 * does not compute in options.compute here. */
rp_status rpi_program_compile(rpi_session *session, const rpi_graph *graph, rpi_value_id loss,
                              const rpi_program_options *options, rpi_program **out_program);
void rpi_program_destroy(rpi_program *program); /* after its instances */

rpi_session *rpi_program_session(const rpi_program *program);

/* How a value of a part is handed on by those that make it: a seed, and of a given value its
 * gradient. RP_BF16: its elements, f32 as every result, have no more bits than that. RP_F32 for
 * any other value. */
rp_dtype rpi_program_handed_on(const rpi_program *program, rpi_value_id value);

typedef enum rpi_pass { RPI_FORWARD, RPI_BACKWARD } rpi_pass;

/* The order in which a pass needs the values of parameters, for who brings them ahead of use:
 * the `at`-th of them by its index in the weights; -1 behind the last one. Of the backward
 * pass with halves_apart the first half's, and then the second's. */
int rpi_program_needs(const rpi_program *program, rpi_pass pass, int at);

/* What happens to a parameter of the weights while a program runs. */
typedef enum rpi_parameter_event {
    RPI_VALUES_NEEDED,   /* the next step reads its values, */
    RPI_GRADIENT_NEEDED, /* or writes its gradient, for the first time in this run */
    RPI_VALUES_DONE      /* no further step of this pass reads its values */
} rpi_parameter_event;

typedef struct rpi_program_facts {
    int64_t forward_flops, backward_flops; /* of one run, counted from the graph */
    size_t memory_bytes; /* of a run: activations, gradients of them, what is saved, results */
    /* Of these, what each run in flight holds from its forward pass on; from the first half of
     * backward to the second; and, where the program keeps that apart, what is needed within
     * one pass alone, once for all runs of the session. */
    size_t in_flight_bytes, between_bytes, passing_bytes;
    size_t workspace_bytes; /* of its largest step; one for the whole session */
    size_t unshared_bytes;  /* what memory_bytes would be if none shared memory */
    int steps, reorders;
} rpi_program_facts;
rpi_program_facts rpi_program_get_facts(const rpi_program *program);

/* What facts are the sums of, for one node of the graph; zeros where the program leaves it out.
 */
typedef struct rpi_node_facts {
    int64_t forward_flops, backward_flops;
    size_t output_bytes; /* of what it makes, were it stored as the graph says */
} rpi_node_facts;
rpi_node_facts rpi_program_get_node_facts(const rpi_program *program, int node);

#endif
