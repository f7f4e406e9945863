/* The part of oneDNN that Redpoll uses, the same for oneDNN 2 and 3.
 *
 * The two differ in how primitive descriptors are made and in whether a memory descriptor is a
 * struct or a handle. onednn_api.c alone knows; everything above writes against this header.
 *
 * Data is f32, and bf16 where a descriptor says so. Every primitive takes its scratchpad from
 * the caller. Descriptors given to the rpi_dnn_*_describe functions are borrowed for the call.
 * A describe function that finds no implementation gives RP_UNSUPPORTED without recording a
 * message: asking is not failing. */
#ifndef RPI_ENGINE_ONEDNN_API_H
#define RPI_ENGINE_ONEDNN_API_H

#include "base/tensor.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t rpi_dnn_md;
typedef const_dnnl_memory_desc_t rpi_dnn_const_md;
#else
typedef dnnl_memory_desc_t *rpi_dnn_md;
typedef const dnnl_memory_desc_t *rpi_dnn_const_md;
#endif

/* "2.6": what the backend was built with. */
#define RPI_DNN_QUOTE(number)        #number
#define RPI_DNN_DOTTED(major, minor) RPI_DNN_QUOTE(major) "." RPI_DNN_QUOTE(minor)
#define RPI_DNN_VERSION              RPI_DNN_DOTTED(DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR)

typedef struct rpi_dnn_context {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attributes; /* scratchpad from the caller */
    dnnl_primitive_attr_t accumulate; /* besides: destination += result (reorders) */
} rpi_dnn_context;

rp_status rpi_dnn_context_open(rpi_dnn_context *context);
void rpi_dnn_context_close(rpi_dnn_context *context); /* zeros are fine */

/* How many channels oneDNN's kernels for this processor (and ONEDNN_MAX_CPU_ISA) take at once:
 * 16 with AVX-512, else 8. */
int rpi_dnn_channel_block(void);
/* Are there kernels of bf16 for it: with AVX512-BF16 or AMX? */
bool rpi_dnn_has_bf16(void);
bool rpi_dnn_has_amx(void); /* of bf16 */

/* RP_OK, RP_NOMEM or RP_INTERNAL with a message that names `what`. */
rp_status rpi_dnn_check(dnnl_status_t status, const char *what);

/* Memory descriptors; destroy with rpi_dnn_md_destroy (NULL is fine). */
rp_status rpi_dnn_md_create(int dims, const int64_t *size, rp_dtype dtype,
                            dnnl_format_tag_t tag, rpi_dnn_md *out_md);
void rpi_dnn_md_destroy(rpi_dnn_md md);

typedef enum rpi_dnn_direction {
    RPI_DNN_FORWARD,
    RPI_DNN_BACKWARD_DATA,
    RPI_DNN_BACKWARD_WEIGHTS,
    RPI_DNN_DIRECTIONS
} rpi_dnn_direction;

/* source N x C x H x W, weights K x C x R x S, destination N x K x P x Q. Bias NULL: none; it
 * has no part in the backward data pass. What is read may be bf16; what is made is f32. */
typedef struct rpi_dnn_conv {
    rpi_dnn_const_md source, weights, bias, destination;
    const struct rpi_dnn_conv *forward; /* which this goes back; NULL: forward, or all is f32 */
    dnnl_dims_t stride, padding_before, padding_after; /* two entries are used */
} rpi_dnn_conv;
rp_status rpi_dnn_conv_describe(const rpi_dnn_context *context, rpi_dnn_direction direction,
                                const rpi_dnn_conv *conv, dnnl_primitive_desc_t *out_pd);

/* oneDNN's name for what was found, such as "jit:avx512_core"; and is it the code that defines
 * the result without any care for speed? */
const char *rpi_dnn_implementation(dnnl_primitive_desc_t pd);
bool rpi_dnn_is_reference(dnnl_primitive_desc_t pd);

/* source M x K, weights K x N, destination M x N; or added to the destination. */
typedef struct rpi_dnn_matmul {
    rpi_dnn_const_md source, weights, destination;
    bool accumulate;
} rpi_dnn_matmul;
rp_status rpi_dnn_matmul_describe(const rpi_dnn_context *context, const rpi_dnn_matmul *product,
                                  dnnl_primitive_desc_t *out_pd);

/* Training, scale and shift always; `relu`, which makes 0 of NaN, is fused and leaves a
 * workspace. Backward takes the description of the forward pass as a hint. */
typedef struct rpi_dnn_norm {
    rpi_dnn_const_md data;
    float epsilon;
    bool relu;
} rpi_dnn_norm;
rp_status rpi_dnn_norm_describe(const rpi_dnn_context *context, const rpi_dnn_norm *norm,
                                dnnl_primitive_desc_t *out_pd);
rp_status rpi_dnn_norm_backward_describe(const rpi_dnn_context *context,
                                         const rpi_dnn_norm *norm,
                                         dnnl_primitive_desc_t forward,
                                         dnnl_primitive_desc_t *out_pd);

/* Is the shift an argument of the backward pass too? Its value plays no part there. */
enum { RPI_DNN_NORM_BACKWARD_TAKES_SHIFT = DNNL_VERSION_MAJOR < 3 };

/* Copy between layouts, or add what is copied to the destination. */
rp_status rpi_dnn_reorder_describe(const rpi_dnn_context *context, rpi_dnn_const_md from,
                                   rpi_dnn_const_md to, bool accumulate,
                                   dnnl_primitive_desc_t *out_pd);

/* The layout a description settled on; borrowed from it. */
rpi_dnn_const_md rpi_dnn_described_md(dnnl_primitive_desc_t pd, dnnl_query_t what);

#endif
