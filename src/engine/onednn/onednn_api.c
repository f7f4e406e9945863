#include "engine/onednn/onednn_api.h"

#include "base/memory.h"
#include "base/status.h"

#include <oneapi/dnnl/dnnl_debug.h>
#include <string.h>

/* ---- what is the same in oneDNN 2 and 3 ---- */

rp_status rpi_dnn_check(dnnl_status_t status, const char *what) {
    if (status == dnnl_success) return RP_OK;
    if (status == dnnl_out_of_memory) return RP_FAIL(NOMEM, "oneDNN: %s: out of memory", what);
    return RP_FAIL(INTERNAL, "oneDNN: %s: %s", what, dnnl_status2str(status));
}

static bool has_isa(dnnl_cpu_isa_t wanted) {
    unsigned isa = wanted;
    return ((unsigned)dnnl_get_effective_cpu_isa() & isa) == isa;
}

int rpi_dnn_channel_block(void) {
    return has_isa(dnnl_cpu_isa_avx512_core) ? 16 : 8;
}

bool rpi_dnn_has_bf16(void) {
    return has_isa(dnnl_cpu_isa_avx512_core_bf16); /* AMX comes with it */
}

bool rpi_dnn_has_amx(void) {
    return has_isa(dnnl_cpu_isa_avx512_core_amx);
}

static dnnl_data_type_t data_type(rp_dtype dtype) {
    return dtype == RP_BF16 ? dnnl_bf16 : dnnl_f32;
}

/* Only "there is no implementation" is an answer; all else is a failure. */
static rp_status described(dnnl_status_t status, const char *what) {
    if (status == dnnl_unimplemented) return RP_UNSUPPORTED;
    return rpi_dnn_check(status, what);
}

rpi_dnn_const_md rpi_dnn_described_md(dnnl_primitive_desc_t pd, dnnl_query_t what) {
    return dnnl_primitive_desc_query_md(pd, what, 0);
}

const char *rpi_dnn_implementation(dnnl_primitive_desc_t pd) {
    const char *name = "";
    /* Cannot fail for a description that exists. */
    (void)dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
    return name;
}

bool rpi_dnn_is_reference(dnnl_primitive_desc_t pd) {
    static const char prefix[] = "ref";
    return strncmp(rpi_dnn_implementation(pd), prefix, sizeof prefix - 1) == 0;
}

rp_status rpi_dnn_reorder_describe(const rpi_dnn_context *context, rpi_dnn_const_md from,
                                   rpi_dnn_const_md to, bool accumulate,
                                   dnnl_primitive_desc_t *out_pd) {
    dnnl_primitive_attr_t attributes = accumulate ? context->accumulate : context->attributes;
    return described(dnnl_reorder_primitive_desc_create(out_pd, from, context->engine, to,
                                                        context->engine, attributes),
                     "reorder");
}

static unsigned norm_flags(const rpi_dnn_norm *norm) {
    unsigned flags = dnnl_use_scale | dnnl_use_shift;
    if (norm->relu) flags |= dnnl_fuse_norm_relu;
    return flags;
}

/* ---- what differs ---- */

#if DNNL_VERSION_MAJOR >= 3

static const dnnl_dims_t no_dilation = {0};

rp_status rpi_dnn_md_create(int dims, const int64_t *size, rp_dtype dtype,
                            dnnl_format_tag_t tag, rpi_dnn_md *out_md) {
    return rpi_dnn_check(
        dnnl_memory_desc_create_with_tag(out_md, dims, size, data_type(dtype), tag),
        "memory descriptor");
}

void rpi_dnn_md_destroy(rpi_dnn_md md) {
    if (md) dnnl_memory_desc_destroy(md);
}

static dnnl_status_t append_sum(dnnl_post_ops_t operations) {
    return dnnl_post_ops_append_sum(operations, 1.0f, 0, dnnl_data_type_undef);
}

static dnnl_status_t conv_forward(const rpi_dnn_context *context, const rpi_dnn_conv *conv,
                                  dnnl_alg_kind_t algorithm, dnnl_primitive_desc_t *out_pd) {
    return dnnl_convolution_forward_primitive_desc_create(
        out_pd, context->engine, dnnl_forward_training, algorithm, conv->source, conv->weights,
        conv->bias, conv->destination, conv->stride, no_dilation, conv->padding_before,
        conv->padding_after, context->attributes);
}

static dnnl_status_t conv_backward_data(const rpi_dnn_context *context,
                                        const rpi_dnn_conv *conv, dnnl_primitive_desc_t hint,
                                        dnnl_primitive_desc_t *out_pd) {
    return dnnl_convolution_backward_data_primitive_desc_create(
        out_pd, context->engine, dnnl_convolution_direct, conv->source, conv->weights,
        conv->destination, conv->stride, no_dilation, conv->padding_before, conv->padding_after,
        hint, context->attributes);
}

static dnnl_status_t conv_backward_weights(const rpi_dnn_context *context,
                                           const rpi_dnn_conv *conv, dnnl_primitive_desc_t hint,
                                           dnnl_primitive_desc_t *out_pd) {
    return dnnl_convolution_backward_weights_primitive_desc_create(
        out_pd, context->engine, dnnl_convolution_direct, conv->source, conv->weights,
        conv->bias, conv->destination, conv->stride, no_dilation, conv->padding_before,
        conv->padding_after, hint, context->attributes);
}

rp_status rpi_dnn_matmul_describe(const rpi_dnn_context *context, const rpi_dnn_matmul *product,
                                  dnnl_primitive_desc_t *out_pd) {
    return described(dnnl_matmul_primitive_desc_create(
                         out_pd, context->engine, product->source, product->weights, NULL,
                         product->destination,
                         product->accumulate ? context->accumulate : context->attributes),
                     "matrix product");
}

rp_status rpi_dnn_norm_describe(const rpi_dnn_context *context, const rpi_dnn_norm *norm,
                                dnnl_primitive_desc_t *out_pd) {
    return described(dnnl_batch_normalization_forward_primitive_desc_create(
                         out_pd, context->engine, dnnl_forward_training, norm->data, norm->data,
                         norm->epsilon, norm_flags(norm), context->attributes),
                     "batch normalization");
}

rp_status rpi_dnn_norm_backward_describe(const rpi_dnn_context *context,
                                         const rpi_dnn_norm *norm,
                                         dnnl_primitive_desc_t forward,
                                         dnnl_primitive_desc_t *out_pd) {
    return described(dnnl_batch_normalization_backward_primitive_desc_create(
                         out_pd, context->engine, dnnl_backward, norm->data, norm->data,
                         norm->data, norm->epsilon, norm_flags(norm), forward,
                         context->attributes),
                     "batch normalization, backward");
}

#else /* oneDNN 2 */

rp_status rpi_dnn_md_create(int dims, const int64_t *size, rp_dtype dtype,
                            dnnl_format_tag_t tag, rpi_dnn_md *out_md) {
    rpi_dnn_md md = NULL;
    RP_TRY(rpi_alloc(sizeof *md, "memory descriptor", &md));
    dnnl_status_t status = dnnl_memory_desc_init_by_tag(md, dims, size, data_type(dtype), tag);
    if (status != dnnl_success) {
        rpi_free(md);
        return rpi_dnn_check(status, "memory descriptor");
    }
    *out_md = md;
    return RP_OK;
}

void rpi_dnn_md_destroy(rpi_dnn_md md) {
    rpi_free(md);
}

static dnnl_status_t append_sum(dnnl_post_ops_t operations) {
    return dnnl_post_ops_append_sum(operations, 1.0f);
}

/* The operation's descriptor was made with this status; make the primitive's from it. */
static dnnl_status_t describe(const rpi_dnn_context *context, dnnl_status_t status,
                              const void *operation, dnnl_primitive_attr_t attributes,
                              dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *out_pd) {
    if (status != dnnl_success) return status;
    return dnnl_primitive_desc_create(out_pd, operation, attributes, context->engine, hint);
}

static dnnl_status_t conv_forward(const rpi_dnn_context *context, const rpi_dnn_conv *conv,
                                  dnnl_alg_kind_t algorithm, dnnl_primitive_desc_t *out_pd) {
    dnnl_convolution_desc_t operation;
    dnnl_status_t status = dnnl_convolution_forward_desc_init(
        &operation, dnnl_forward_training, algorithm, conv->source, conv->weights, conv->bias,
        conv->destination, conv->stride, conv->padding_before, conv->padding_after);
    return describe(context, status, &operation, context->attributes, NULL, out_pd);
}

static dnnl_status_t conv_backward_data(const rpi_dnn_context *context,
                                        const rpi_dnn_conv *conv, dnnl_primitive_desc_t hint,
                                        dnnl_primitive_desc_t *out_pd) {
    dnnl_convolution_desc_t operation;
    dnnl_status_t status = dnnl_convolution_backward_data_desc_init(
        &operation, dnnl_convolution_direct, conv->source, conv->weights, conv->destination,
        conv->stride, conv->padding_before, conv->padding_after);
    return describe(context, status, &operation, context->attributes, hint, out_pd);
}

static dnnl_status_t conv_backward_weights(const rpi_dnn_context *context,
                                           const rpi_dnn_conv *conv, dnnl_primitive_desc_t hint,
                                           dnnl_primitive_desc_t *out_pd) {
    dnnl_convolution_desc_t operation;
    dnnl_status_t status = dnnl_convolution_backward_weights_desc_init(
        &operation, dnnl_convolution_direct, conv->source, conv->weights, conv->bias,
        conv->destination, conv->stride, conv->padding_before, conv->padding_after);
    return describe(context, status, &operation, context->attributes, hint, out_pd);
}

rp_status rpi_dnn_matmul_describe(const rpi_dnn_context *context, const rpi_dnn_matmul *product,
                                  dnnl_primitive_desc_t *out_pd) {
    dnnl_matmul_desc_t operation;
    dnnl_status_t status = dnnl_matmul_desc_init(&operation, product->source, product->weights,
                                                 NULL, product->destination);
    return described(describe(context, status, &operation,
                              product->accumulate ? context->accumulate : context->attributes,
                              NULL, out_pd),
                     "matrix product");
}

rp_status rpi_dnn_norm_describe(const rpi_dnn_context *context, const rpi_dnn_norm *norm,
                                dnnl_primitive_desc_t *out_pd) {
    dnnl_batch_normalization_desc_t operation;
    dnnl_status_t status = dnnl_batch_normalization_forward_desc_init(
        &operation, dnnl_forward_training, norm->data, norm->epsilon, norm_flags(norm));
    return described(describe(context, status, &operation, context->attributes, NULL, out_pd),
                     "batch normalization");
}

rp_status rpi_dnn_norm_backward_describe(const rpi_dnn_context *context,
                                         const rpi_dnn_norm *norm,
                                         dnnl_primitive_desc_t forward,
                                         dnnl_primitive_desc_t *out_pd) {
    dnnl_batch_normalization_desc_t operation;
    dnnl_status_t status = dnnl_batch_normalization_backward_desc_init(
        &operation, dnnl_backward, norm->data, norm->data, norm->epsilon, norm_flags(norm));
    return described(
        describe(context, status, &operation, context->attributes, forward, out_pd),
        "batch normalization, backward");
}

#endif

/* ---- the context ---- */

static rp_status make_attributes(dnnl_status_t (*append)(dnnl_post_ops_t),
                                 dnnl_primitive_attr_t *out_attributes) {
    RP_TRY(rpi_dnn_check(dnnl_primitive_attr_create(out_attributes), "attributes"));
    RP_TRY(rpi_dnn_check(
        dnnl_primitive_attr_set_scratchpad_mode(*out_attributes, dnnl_scratchpad_mode_user),
        "scratchpad mode"));
    if (!append) return RP_OK;
    dnnl_post_ops_t operations = NULL;
    RP_TRY(rpi_dnn_check(dnnl_post_ops_create(&operations), "post-operations"));
    dnnl_status_t status = append(operations);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_post_ops(*out_attributes, operations);
    dnnl_post_ops_destroy(operations);
    return rpi_dnn_check(status, "post-operations");
}

static rp_status open_context(rpi_dnn_context *context) {
    RP_TRY(rpi_dnn_check(dnnl_engine_create(&context->engine, dnnl_cpu, 0), "CPU engine"));
    RP_TRY(rpi_dnn_check(
        dnnl_stream_create(&context->stream, context->engine, dnnl_stream_default_flags),
        "stream"));
    RP_TRY(make_attributes(NULL, &context->attributes));
    return make_attributes(append_sum, &context->accumulate);
}

rp_status rpi_dnn_context_open(rpi_dnn_context *context) {
    *context = (rpi_dnn_context){0};
    rp_status status = open_context(context);
    if (status != RP_OK) rpi_dnn_context_close(context);
    return status;
}

void rpi_dnn_context_close(rpi_dnn_context *context) {
    if (context->accumulate) dnnl_primitive_attr_destroy(context->accumulate);
    if (context->attributes) dnnl_primitive_attr_destroy(context->attributes);
    if (context->stream) dnnl_stream_destroy(context->stream);
    if (context->engine) dnnl_engine_destroy(context->engine);
    *context = (rpi_dnn_context){0};
}

/* ---- convolution: the backward passes need a forward description as a hint ---- */

rp_status rpi_dnn_conv_describe(const rpi_dnn_context *context, rpi_dnn_direction direction,
                                const rpi_dnn_conv *conv, dnnl_primitive_desc_t *out_pd) {
    if (direction == RPI_DNN_FORWARD)
        return described(conv_forward(context, conv, dnnl_convolution_direct, out_pd),
                         "convolution");
    dnnl_primitive_desc_t hint = NULL;
    dnnl_status_t status = conv_forward(context, conv->forward ? conv->forward : conv,
                                        dnnl_convolution_direct, &hint);
    if (status != dnnl_success) return described(status, "convolution, as a hint");
    status = direction == RPI_DNN_BACKWARD_DATA
                 ? conv_backward_data(context, conv, hint, out_pd)
                 : conv_backward_weights(context, conv, hint, out_pd);
    dnnl_primitive_desc_destroy(hint);
    return described(status, direction == RPI_DNN_BACKWARD_DATA
                                 ? "convolution, backward data"
                                 : "convolution, backward weights");
}
