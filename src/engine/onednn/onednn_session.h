/* What the kernels of one session share, and the pieces they are made of. */
#ifndef RPI_ENGINE_ONEDNN_SESSION_H
#define RPI_ENGINE_ONEDNN_SESSION_H

#include "engine/backend.h"
#include "engine/backends/cpu/kernels/kernel.h"
#include "engine/onednn/onednn_api.h"

struct rpi_dnn_packed;

typedef struct rpi_dnn_session {
    rpi_dnn_context dnn;
    int threads;
    int block; /* channels of a blocked activation that lie together: 16 or 8 */
    struct rpi_dnn_packed *packed; /* of all kernels that live */
    const rpi_backend *reference;  /* for ops that need no speed */
    void *reference_session;
} rpi_dnn_session;

/* How our own kernels run in this session. */
static inline rpi_kernel_run rpi_dnn_kernel_run(const rpi_dnn_session *session) {
    return (rpi_kernel_run){.threads = session->threads, .isa = rpi_cpu_isa()};
}

/* ---- layouts: 0 is row-major; RPI_DNN_BLOCKED cuts the channels of an image into blocks, the
 * last one padded with zeros: N x C/block x H x W x block ---- */
enum { RPI_DNN_PLAIN = 0, RPI_DNN_BLOCKED = 1 };
/* N x H x W x C, inside of a kernel alone: what kernels for AMX read and make. */
enum { RPI_DNN_CHANNELS_LAST = 2 };
/* Blocked, and of bf16, in blocks of 16 without padding: what units of bf16 hand to each other,
 * forward and, the gradients of what lies so, backward. */
enum { RPI_DNN_HALF = 3 };

rpi_layout rpi_dnn_layout(const rpi_dnn_session *session, const rpi_shape *shape, int id);
rp_dtype rpi_dnn_layout_dtype(int id); /* of f32 values that lie so */
/* May images of this shape lie in RPI_DNN_HALF? And in the unit, which has a backward pass? */
bool rpi_dnn_shape_fits_half(const rpi_dnn_session *session, const rpi_shape *shape);
bool rpi_dnn_fits_half(const rpi_dnn_session *session, const rpi_unit *unit,
                       const rpi_shape *shape);
/* Is the unit's output to be handed on so? All that read it must be of these ops, which end
 * with NULL. */
bool rpi_dnn_makes_half(const rpi_dnn_session *session, const rpi_unit *unit,
                        const rpi_op *const readers[]);
/* Channels of a blocked image with those that pad the last block. */
int64_t rpi_dnn_padded_channels(const rpi_dnn_session *session, int64_t channels);
/* The descriptor of an image of this shape in a layout. */
rp_status rpi_dnn_image_md(const rpi_dnn_session *session, const rpi_shape *shape,
                           rp_dtype dtype, int id, rpi_dnn_md *out_md);
/* The descriptor of `count` elements without structure. */
rp_status rpi_dnn_flat_md(int64_t count, rp_dtype dtype, rpi_dnn_md *out_md);
/* The layout of f32 a kernel may ask for: `wanted` for activations, blocked for RPI_DNN_HALF;
 * row-major for all else. */
int rpi_dnn_layout_for(const rpi_unit_value *value, int wanted);

/* ---- workspaces: pieces of one buffer ---- */

/* Reserve `bytes` at the end of a buffer of *total bytes; gives the offset. */
size_t rpi_dnn_reserve(size_t *total, size_t bytes);
void *rpi_dnn_at(void *buffer, size_t offset);

/* ---- a primitive with places for its arguments ---- */

enum { RPI_DNN_ARGUMENTS = 12 };

typedef struct rpi_dnn_primitive {
    dnnl_primitive_t handle; /* NULL: none */
    int count;               /* arguments, without the scratchpad, which comes last */
    dnnl_exec_arg_t arguments[RPI_DNN_ARGUMENTS + 1];
    size_t scratch_bytes;
} rpi_dnn_primitive;

/* Takes `pd` over, on failure too. names: DNNL_ARG_* in the order in which run is given data.
 */
rp_status rpi_dnn_primitive_create(const rpi_dnn_session *session, dnnl_primitive_desc_t pd,
                                   int count, const int *names, rpi_dnn_primitive *out);
void rpi_dnn_primitive_destroy(rpi_dnn_primitive *primitive); /* zeros are fine */
/* data: one pointer an argument; const data is not written. Blocks until done. */
rp_status rpi_dnn_primitive_run(const rpi_dnn_session *session,
                                const rpi_dnn_primitive *primitive, const void *const *data,
                                void *scratch);

/* ---- copies between layouts ---- */

rp_status rpi_dnn_copy_create(const rpi_dnn_session *session, rpi_dnn_const_md from,
                              rpi_dnn_const_md to, bool accumulate, rpi_dnn_primitive *out);
rp_status rpi_dnn_copy_run(const rpi_dnn_session *session, const rpi_dnn_primitive *copy,
                           const void *from, void *to, void *scratch);

/* ---- parameters in the layouts that primitives want: onednn_packed.c ---- */

/* A parameter with zeros for the channels that pad a block. The rows are its filters. */
typedef struct rpi_dnn_widening {
    int64_t rows, row;           /* of the parameter */
    int64_t wide_rows, wide_row; /* as the primitives take it; rows: not widened */
} rpi_dnn_widening;

/* One copy for all kernels of the session that want this parameter in this layout. It is
 * renewed at a use where the parameter's version has changed since. */
typedef struct rpi_dnn_packed rpi_dnn_packed;

/* plain, packed: the layouts of the parameter, widened where it is, and of the copy. What was
 * got is released by rpi_dnn_packed_release. */
rp_status rpi_dnn_packed_get(rpi_dnn_session *session, int parameter, rpi_dnn_const_md plain,
                             rpi_dnn_const_md packed, const rpi_dnn_widening *widening,
                             rpi_dnn_packed **out_packed);
void rpi_dnn_packed_release(rpi_dnn_session *session, rpi_dnn_packed *packed); /* NULL: fine */
/* The copy of what the parameter holds now. */
rp_status rpi_dnn_packed_renew(const rpi_dnn_session *session, rpi_dnn_packed *packed,
                               const void *parameter, uint64_t version, const void **out_data);

/* Zeros, then the parameter's rows into `wide`; returns it, or the parameter if it has all. */
const float *rpi_dnn_widen(const rpi_dnn_widening *widening, const float *parameter,
                           float *wide);
bool rpi_dnn_is_widened(const rpi_dnn_widening *widening);

/* ---- gradients of row-major inputs, which may have to be added to ---- */

/* target[i] = or += source[i]; what is aside of the gradient's place is given by `accumulate`.
 */
void rpi_dnn_deliver(float *target, const float *source, int64_t count, bool accumulate);

#endif
