/* Packed copies of parameters, shared by all kernels of a session. */
#include "base/memory.h"
#include "base/status.h"
#include "engine/onednn/onednn_session.h"

#include <string.h>

struct rpi_dnn_packed {
    int parameter, users;
    rpi_dnn_primitive copy;
    void *data, *scratch;
    rpi_dnn_widening widening;
    float *wide;      /* NULL: not widened */
    uint64_t version; /* of the parameter that `data` holds; 0: nothing yet */
    rpi_dnn_packed *next;
};

/* ---- widening ---- */

bool rpi_dnn_is_widened(const rpi_dnn_widening *widening) {
    return widening->wide_rows != widening->rows || widening->wide_row != widening->row;
}

const float *rpi_dnn_widen(const rpi_dnn_widening *widening, const float *parameter,
                           float *wide) {
    if (!rpi_dnn_is_widened(widening)) return parameter;
    memset(wide, 0, (size_t)(widening->wide_rows * widening->wide_row) * sizeof *wide);
    for (int64_t i = 0; i < widening->rows; i++)
        memcpy(wide + i * widening->wide_row, parameter + i * widening->row,
               (size_t)widening->row * sizeof *parameter);
    return wide;
}

/* ---- copies ---- */

/* Cannot fail for a memory object that exists; argument 0 is what is copied, 1 the target. */
static rpi_dnn_const_md layout_of(const rpi_dnn_packed *packed, int argument) {
    rpi_dnn_const_md md = NULL;
    (void)dnnl_memory_get_memory_desc(packed->copy.arguments[argument].memory, &md);
    return md;
}

static void destroy(rpi_dnn_packed *packed) {
    rpi_dnn_primitive_destroy(&packed->copy);
    rpi_free(packed->data);
    rpi_free(packed->scratch);
    rpi_free(packed->wide);
    rpi_free(packed);
}

static rp_status make(const rpi_dnn_session *session, rpi_dnn_const_md plain,
                      rpi_dnn_const_md packing, rpi_dnn_packed *packed) {
    const rpi_dnn_widening *widening = &packed->widening;
    RP_TRY(rpi_dnn_copy_create(session, plain, packing, false, &packed->copy));
    RP_TRY(rpi_alloc(dnnl_memory_desc_get_size(packing), "packed weights", &packed->data));
    if (rpi_dnn_is_widened(widening))
        RP_TRY(rpi_alloc_array((size_t)(widening->wide_rows * widening->wide_row),
                               sizeof(float), "widened weights", &packed->wide));
    return rpi_alloc(packed->copy.scratch_bytes, "scratchpad for packing", &packed->scratch);
}

static rpi_dnn_packed *find(const rpi_dnn_session *session, int parameter,
                            rpi_dnn_const_md plain, rpi_dnn_const_md packing) {
    for (rpi_dnn_packed *it = session->packed; it; it = it->next)
        if (it->parameter == parameter && dnnl_memory_desc_equal(layout_of(it, 0), plain) &&
            dnnl_memory_desc_equal(layout_of(it, 1), packing))
            return it;
    return NULL;
}

rp_status rpi_dnn_packed_get(rpi_dnn_session *session, int parameter, rpi_dnn_const_md plain,
                             rpi_dnn_const_md packing, const rpi_dnn_widening *widening,
                             rpi_dnn_packed **out_packed) {
    rpi_dnn_packed *packed = find(session, parameter, plain, packing);
    if (!packed) {
        RP_TRY(rpi_alloc(sizeof *packed, "packed weights", &packed));
        packed->parameter = parameter;
        packed->widening = *widening;
        rp_status status = make(session, plain, packing, packed);
        if (status != RP_OK) {
            destroy(packed);
            return status;
        }
        packed->next = session->packed;
        session->packed = packed;
    }
    packed->users++;
    *out_packed = packed;
    return RP_OK;
}

void rpi_dnn_packed_release(rpi_dnn_session *session, rpi_dnn_packed *packed) {
    if (!packed || --packed->users > 0) return;
    rpi_dnn_packed **link = &session->packed;
    while (*link != packed) link = &(*link)->next;
    *link = packed->next;
    destroy(packed);
}

rp_status rpi_dnn_packed_renew(const rpi_dnn_session *session, rpi_dnn_packed *packed,
                               const void *parameter, uint64_t version, const void **out_data) {
    *out_data = packed->data;
    if (packed->version == version) return RP_OK;
    packed->version = 0; /* nothing, should the copy fail */
    const float *plain = rpi_dnn_widen(&packed->widening, parameter, packed->wide);
    RP_TRY(rpi_dnn_copy_run(session, &packed->copy, plain, packed->data, packed->scratch));
    packed->version = version;
    return RP_OK;
}
