/* The contract of a backend: what backends.c (the catalogue) lists. A backend gives kernels.
 *
 * The compiler (program.h) cuts the graph into units: a unit is one node, or a chain of nodes
 * that the backend offered to fuse, and asks the backend once for a kernel for each unit. A
 * kernel says which layouts it reads and writes, what it saves from forward to backward, and
 * how much workspace it needs; the compiler plans memory, inserts reorders between layouts that
 * differ, and sums gradients of values that have several consumers. After that nothing is
 * allocated or decided any more: running a program calls the kernels in order. A kernel is
 * code: it keeps nothing of a run between two calls, because the next call may belong to
 * another micro-batch. What its backward pass needs of its forward pass is in the io.
 *
 * Layouts. An activation is row-major and unpadded (layout 0), or in a layout of the backend
 * (blocked, padded). The gradient of a value is described like a value. Graph inputs come
 * row-major, and a kernel may ask for another layout as it may for activations. Parameters,
 * states and gradients of parameters are always row-major; a session may keep packed copies of
 * a parameter for its kernels, each renewed at a use where its version differs from the
 * parameter's.
 *
 * Determinism: the same inputs, thread count and machine give the same bytes.
 * Threads: a session and its kernels are used by one thread at a time; they may use threads of
 * their own inside a call. */
#ifndef RPI_ENGINE_BACKEND_H
#define RPI_ENGINE_BACKEND_H

#include "engine/graph.h"

enum { RPI_UNIT_NODES = 4, RPI_UNIT_INPUTS = 16, RPI_UNIT_OUTPUTS = 4, RPI_UNIT_READERS = 8 };

/* How a value lies in memory. A session gives out ids other than 0, which only that session
 * understands; equal ids of one session are the same layout of the same shape. */
typedef struct rpi_layout {
    int id;         /* 0: row-major, unpadded */
    size_t bytes;   /* of the whole value, padding included */
    rp_dtype dtype; /* of its elements there; 0: the value's own */
} rpi_layout;

typedef struct rpi_unit_value {
    const char *name;
    rpi_value_kind kind; /* parameter for inputs of role RPI_WEIGHT, state for RPI_STATE; all
                            others are activations or graph inputs, to be treated alike */
    rp_dtype dtype;
    rpi_shape shape;  /* bound: numbers only */
    bool has_samples; /* its first axis is the dimension "batch": a sample each */
    /* recomputed for backward instead of kept: a kernel that reads it in both passes saves no
     * copy of its own */
    bool is_remade;
    /* its parameter in the session's weights; -1: none. Packed copies belong to the parameter:
     * kernels of all programs share them */
    int parameter;
    /* inputs: their layout when the unit runs, unless the kernel asks for another one */
    rpi_layout layout;
} rpi_unit_value;

/* One node, or a fused chain: nodes[i + 1] is the only consumer of nodes[i]'s only output,
 * which is then never stored. The inputs are those of nodes[0], then those of each further node
 * except the one from the chain; the outputs are those of the last node. */
typedef struct rpi_unit {
    int node_count, input_count, output_count;
    const rpi_node *nodes[RPI_UNIT_NODES];
    int chain_input[RPI_UNIT_NODES]; /* which input of nodes[i] is the chain; nodes[0]: -1 */
    rpi_unit_value inputs[RPI_UNIT_INPUTS];
    rpi_unit_value outputs[RPI_UNIT_OUTPUTS];
    /* The nodes that read outputs[0]. 0: they are unknown, there are more than fit, or the
     * value is also a result. A backend may choose by them how to hand the value on. */
    int reader_count;
    const rpi_node *readers[RPI_UNIT_READERS];
    bool training; /* forward uses batch statistics, updates states and saves for backward */
    /* What a matrix product or a convolution (linear, conv2d) multiplies: its inputs as they
     * are (RP_F32), or each rounded to RP_BF16. That holds for activations, parameters, and in
     * backward the gradients of outputs. Sums are of f32 or better; biases and their gradients
     * stay f32, and so do parameters, statistics and results. In RP_BF16 a backend may also
     * round values that are no results, and their gradients, where units hand them on
     * (rpi_layout.dtype); no other op rounds anything. */
    rp_dtype compute;
    uint32_t wanted; /* mask of inputs whose gradients backward must make; 0: no backward */
} rpi_unit;

/* What one call of a kernel reads and writes; indices are the unit's. Pointers are aligned to
 * RPI_ALIGNMENT, but for parameters, their gradients and graph inputs, which are aligned to
 * their element. NULL: absent, or not wanted. */
typedef struct rpi_kernel_io {
    void *inputs[RPI_UNIT_INPUTS]; /* in the layouts the kernel asked for, row-major for caches;
                                      only states and caches are written */
    void *outputs[RPI_UNIT_OUTPUTS];
    const void *grad_outputs[RPI_UNIT_OUTPUTS]; /* backward: of those on the loss's path */
    void *grad_inputs[RPI_UNIT_INPUTS]; /* backward: those that are wanted and written */
    uint64_t versions[RPI_UNIT_INPUTS]; /* of parameters: changes when it is written */
    /* Which run this is, and what random choices (dropout) depend on besides the node's name:
     * the same in forward, in backward and in recomputation. */
    uint64_t run, seed, step;
    int64_t first_sample; /* likewise: of the whole batch, which may go in several runs */
    /* Mask of inputs whose gradients are added to instead of overwritten: parameters, and
     * activations if the kernel says that it can. */
    uint32_t accumulate;
    bool repeats; /* recomputation of forward: states were updated before and do not change */
    /* forward writes it and backward reads it; the first half of backward may leave data for
     * the second; NULL when unit->wanted is 0 */
    void *saved;
    void *workspace; /* contents are lost after the call */
} rpi_kernel_io;

/* A planned implementation. The compiler sets every field but the functions from the op's
 * contract and the unit before it calls plan(), and the backend changes what it wants
 * otherwise. Layouts start as: inputs and their gradients as the inputs lie, outputs and theirs
 * row-major. A fused unit starts from: backward needs no inputs and no outputs, nothing is
 * saved, all gradients are written, nothing works in place. */
typedef struct rpi_kernel {
    void *self; /* the backend's own; passed to the functions below */
    rp_status (*forward)(void *self, const rpi_kernel_io *io);
    /* Backward in two halves: gradients of activations, and gradients of parameters, which go
     * right into the arena. grad_inputs has those of the half alone. They are called in this
     * order, one after the other or with the rest of the backward pass in between, so that the
     * second can hide communication. A half without anything to write is not called and may be
     * NULL; backward_weights is NULL, too, where backward_inputs makes all gradients in one
     * call, because the same sums serve both (batch norm). Inputs and outputs are there if
     * asked for below. */
    rp_status (*backward_inputs)(void *self, const rpi_kernel_io *io);
    rp_status (*backward_weights)(void *self, const rpi_kernel_io *io);
    void (*destroy)(void *self); /* NULL: nothing to free */

    rpi_layout inputs[RPI_UNIT_INPUTS];        /* wanted; row-major for parameters and states */
    rpi_layout outputs[RPI_UNIT_OUTPUTS];      /* made */
    rpi_layout grad_outputs[RPI_UNIT_OUTPUTS]; /* wanted by backward */
    rpi_layout grad_inputs[RPI_UNIT_INPUTS];   /* made by backward */
    uint32_t needs_inputs, needs_outputs;      /* masks of what either half of backward reads */
    /* Mask of activations to whose gradients backward_inputs can add, which saves a sum if a
     * value has several consumers. Initially 0; parameters can always be added to. */
    uint32_t accumulates;
    size_t saved_bytes, forward_workspace, backward_workspace;
    int gradient_from[RPI_UNIT_INPUTS]; /* RPI_GRADIENT_* or an input's index */
    /* outputs[0] may be inputs[in_place_forward], grad_inputs[in_place_backward] may be
     * grad_outputs[0] (where layouts have equal bytes); -1: nothing in place. */
    int in_place_forward, in_place_backward;
} rpi_kernel;

typedef struct rpi_backend_options {
    int threads; /* 0: one a core this process may use */
} rpi_backend_options;

/* Required: name, summary, open, close, supports, plan. */
typedef struct rpi_backend {
    const char *name;    /* "reference", "cpu" */
    const char *summary; /* one line for `redpoll info` */

    rp_status (*open)(const rpi_backend_options *options, void **out_session);
    void (*close)(void *session); /* after all its kernels were destroyed */

    /* Optional, NULL: RP_F32 alone. May units of this rpi_unit.compute, which is not RP_F32, be
     * planned on this machine? RP_UNSUPPORTED says what is missing, and what to do. */
    rp_status (*check_compute)(rp_dtype compute);

    /* May this unit of one node be planned? Pure; looks at op, attributes and shapes. */
    bool (*supports)(const rpi_unit *unit);

    /* Optional: may `next`, the only consumer of the unit's last output, be fused into it?
     * Asked for each unit until the answer is no. `unit` is bound, its layouts are not known
     * yet. If plan() then answers RP_UNSUPPORTED, its nodes become units of their own. */
    bool (*fuse)(void *session, const rpi_unit *unit, const rpi_node *next);

    /* Make a kernel; after a failure nothing is left of it. unit is borrowed for the call;
     * nodes and their attributes live as long as the graph. An add of two inputs of one layout
     * makes an output of that layout: sums of gradients are units of this op. */
    rp_status (*plan)(void *session, const rpi_unit *unit, rpi_kernel *kernel);

    /* Optional where only layout 0 is used: a kernel whose forward copies inputs[0], lying as
     * `from`, to outputs[0] lying as `to`. Only forward, destroy, self and forward_workspace
     * are set. */
    rp_status (*plan_reorder)(void *session, rp_dtype dtype, const rpi_shape *shape,
                              rpi_layout from, rpi_layout to, rpi_kernel *kernel);

    /* Optional: the layout, of this dtype, in which units hand a value of f32 on to each other;
     * its dtype is RP_F32 where they do not. */
    rpi_layout (*handed_on)(void *session, const rpi_shape *shape, rp_dtype dtype);
} rpi_backend;

/* What programs compute in, as a user says it: "fp32" or "bf16", or "float32" or "bfloat16".
 * RP_INVALID names them. */
rp_status rpi_compute_parse(const char *name, rp_dtype *out_compute);
const char *rpi_compute_name(rp_dtype compute); /* 0: "fp32" */

/* May programs compute in this dtype (0: RP_F32) with this backend, on this machine? */
rp_status rpi_backend_check_compute(const rpi_backend *backend, rp_dtype compute);

/* The catalogue: index 0 is the reference; NULL past the end. */
const rpi_backend *rpi_backend_at(int index);
/* RP_INVALID names those there are, and the nearest. */
rp_status rpi_backend_find(const char *name, const rpi_backend **out_backend);
/* The fastest one built in. */
const rpi_backend *rpi_backend_default(void);

#endif
