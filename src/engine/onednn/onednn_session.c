#include "engine/onednn/onednn_session.h"

#include "base/memory.h"
#include "base/status.h"
#include "engine/onednn/onednn_team.h"

#include <string.h>

/* ---- layouts ---- */

static int64_t round_up(int64_t value, int64_t step) {
    return (value + step - 1) / step * step;
}

int64_t rpi_dnn_padded_channels(const rpi_dnn_session *session, int64_t channels) {
    return round_up(channels, session->block);
}

rpi_layout rpi_dnn_layout(const rpi_dnn_session *session, const rpi_shape *shape, int id) {
    int64_t count = rpi_shape_count(shape);
    if (id == RPI_DNN_BLOCKED)
        count = count / shape->size[1] * rpi_dnn_padded_channels(session, shape->size[1]);
    const rp_dtype dtype = rpi_dnn_layout_dtype(id);
    return (rpi_layout){
        .id = id, .bytes = (size_t)count * rp_dtype_bytes(dtype), .dtype = dtype};
}

rp_dtype rpi_dnn_layout_dtype(int id) {
    return id == RPI_DNN_HALF ? RP_BF16 : RP_F32;
}

bool rpi_dnn_shape_fits_half(const rpi_dnn_session *session, const rpi_shape *shape) {
    enum { LANES = 16 };
    return session->block == LANES && shape->dims == 4 && shape->size[1] % LANES == 0;
}

bool rpi_dnn_fits_half(const rpi_dnn_session *session, const rpi_unit *unit,
                       const rpi_shape *shape) {
    return unit->compute == RP_BF16 && unit->training && unit->wanted &&
           rpi_dnn_shape_fits_half(session, shape);
}

static bool is_among(const rpi_op *op, const rpi_op *const ops[]) {
    while (*ops && *ops != op) ops++;
    return *ops;
}

bool rpi_dnn_makes_half(const rpi_dnn_session *session, const rpi_unit *unit,
                        const rpi_op *const readers[]) {
    if (!rpi_dnn_fits_half(session, unit, &unit->outputs[0].shape)) return false;
    for (int i = 0; i < unit->reader_count; i++)
        if (!is_among(unit->readers[i]->op, readers)) return false;
    return unit->reader_count > 0;
}

rp_status rpi_dnn_image_md(const rpi_dnn_session *session, const rpi_shape *shape,
                           rp_dtype dtype, int id, rpi_dnn_md *out_md) {
    const dnnl_format_tag_t tags[] = {
        [RPI_DNN_PLAIN] = dnnl_nchw,
        [RPI_DNN_BLOCKED] = session->block == 16 ? dnnl_nChw16c : dnnl_nChw8c,
        [RPI_DNN_CHANNELS_LAST] = dnnl_nhwc,
        [RPI_DNN_HALF] = dnnl_nChw16c,
    };
    return rpi_dnn_md_create(4, shape->size, dtype, tags[id], out_md);
}

rp_status rpi_dnn_flat_md(int64_t count, rp_dtype dtype, rpi_dnn_md *out_md) {
    return rpi_dnn_md_create(1, &count, dtype, dnnl_a, out_md);
}

int rpi_dnn_layout_for(const rpi_unit_value *value, int wanted) {
    if (value->kind != RPI_VALUE_ACTIVATION) return RPI_DNN_PLAIN;
    return wanted == RPI_DNN_HALF ? RPI_DNN_BLOCKED : wanted;
}

/* ---- workspaces ---- */

size_t rpi_dnn_reserve(size_t *total, size_t bytes) {
    size_t offset = *total;
    *total += (size_t)round_up((int64_t)bytes, RPI_ALIGNMENT);
    return offset;
}

void *rpi_dnn_at(void *buffer, size_t offset) {
    return (char *)buffer + offset;
}

/* ---- primitives ---- */

static rp_status add_argument(const rpi_dnn_session *session, rpi_dnn_const_md md, int name,
                              dnnl_exec_arg_t *argument) {
    argument->arg = name;
    return rpi_dnn_check(
        dnnl_memory_create(&argument->memory, md, session->dnn.engine, DNNL_MEMORY_NONE),
        "memory object");
}

static rp_status make_primitive(const rpi_dnn_session *session, dnnl_primitive_desc_t pd,
                                int count, const int *names, rpi_dnn_primitive *out) {
    RP_TRY(rpi_dnn_check(dnnl_primitive_create(&out->handle, pd), "primitive"));
    for (int i = 0; i < count; i++) {
        rpi_dnn_const_md md =
            dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, names[i]);
        RP_TRY(add_argument(session, md, names[i], &out->arguments[i]));
    }
    rpi_dnn_const_md scratch = rpi_dnn_described_md(pd, dnnl_query_scratchpad_md);
    out->scratch_bytes = dnnl_memory_desc_get_size(scratch);
    return add_argument(session, scratch, DNNL_ARG_SCRATCHPAD, &out->arguments[count]);
}

rp_status rpi_dnn_primitive_create(const rpi_dnn_session *session, dnnl_primitive_desc_t pd,
                                   int count, const int *names, rpi_dnn_primitive *out) {
    *out = (rpi_dnn_primitive){.count = count};
    rp_status status = make_primitive(session, pd, count, names, out);
    dnnl_primitive_desc_destroy(pd);
    if (status != RP_OK) rpi_dnn_primitive_destroy(out);
    return status;
}

void rpi_dnn_primitive_destroy(rpi_dnn_primitive *primitive) {
    for (int i = 0; i <= primitive->count; i++)
        if (primitive->arguments[i].memory) dnnl_memory_destroy(primitive->arguments[i].memory);
    if (primitive->handle) dnnl_primitive_destroy(primitive->handle);
    *primitive = (rpi_dnn_primitive){0};
}

rp_status rpi_dnn_primitive_run(const rpi_dnn_session *session,
                                const rpi_dnn_primitive *primitive, const void *const *data,
                                void *scratch) {
    rpi_dnn_team_enter(session->threads);
    for (int i = 0; i <= primitive->count; i++) {
        void *pointer = i < primitive->count ? (void *)data[i] : scratch;
        RP_TRY(rpi_dnn_check(
            dnnl_memory_set_data_handle(primitive->arguments[i].memory, pointer), "argument"));
    }
    RP_TRY(rpi_dnn_check(dnnl_primitive_execute(primitive->handle, session->dnn.stream,
                                                primitive->count + 1, primitive->arguments),
                         "execution"));
    return rpi_dnn_check(dnnl_stream_wait(session->dnn.stream), "waiting");
}

/* ---- copies ---- */

rp_status rpi_dnn_copy_create(const rpi_dnn_session *session, rpi_dnn_const_md from,
                              rpi_dnn_const_md to, bool accumulate, rpi_dnn_primitive *out) {
    static const int names[] = {DNNL_ARG_FROM, DNNL_ARG_TO};
    dnnl_primitive_desc_t pd = NULL;
    RP_TRY(rpi_dnn_reorder_describe(&session->dnn, from, to, accumulate, &pd));
    return rpi_dnn_primitive_create(session, pd, 2, names, out);
}

rp_status rpi_dnn_copy_run(const rpi_dnn_session *session, const rpi_dnn_primitive *copy,
                           const void *from, void *to, void *scratch) {
    const void *data[RPI_DNN_ARGUMENTS] = {from, to};
    return rpi_dnn_primitive_run(session, copy, data, scratch);
}

/* ---- gradients ---- */

void rpi_dnn_deliver(float *target, const float *source, int64_t count, bool accumulate) {
    if (!accumulate) {
        memcpy(target, source, (size_t)count * sizeof *target);
        return;
    }
    for (int64_t i = 0; i < count; i++) target[i] += source[i];
}
