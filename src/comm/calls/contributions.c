#include "comm/calls/contributions.h"
#include "comm/core/request.h"

#include "base/memory.h"
#include "base/status.h"
#include "comm/device/device.h"
#include "comm/values/values.h"

static bool keeps_residual(const rpi_extent *extent) {
    if (!extent->residual || !extent->count) return false;
    return extent->unencoded || rp_codec_is_exact(&extent->codec, extent->dtype);
}

/* Residuals are zeros in most steps, which saves the copy. */
static void drop_zeros(rpi_partition *partition) {
    for (size_t i = 0; i < partition->count; i++) {
        rpi_extent *extent = &partition->extents[i];
        size_t k = 0;
        if (!keeps_residual(extent)) continue;
        while (k < extent->count && extent->residual[k] == 0) k++;
        if (k == extent->count) extent->residual = NULL;
    }
}

static bool is_changed(const rpi_extent *extent, const rpi_change *c) {
    return extent->in && extent->count &&
           (c->scales || (c->flushes_residual && keeps_residual(extent)));
}

static bool changes_any(const rpi_partition *partition, const rpi_change *c) {
    for (size_t i = 0; i < partition->count; i++)
        if (is_changed(&partition->extents[i], c)) return true;
    return false;
}

static size_t staged_bytes(const rpi_extent *extent, const rpi_change *c) {
    if (!is_changed(extent, c) || extent->in == extent->out) return 0;
    return rpi_align_up(extent->count * rp_dtype_bytes(extent->dtype));
}

static rp_status reserve_staged(rpi_partition *partition, const rpi_change *c) {
    size_t bytes = 0;
    for (size_t i = 0; i < partition->count; i++)
        bytes += staged_bytes(&partition->extents[i], c);
    return bytes ? rpi_alloc(bytes, "changed input", &partition->staged) : RP_OK;
}

/* The exact codec encodes an element as its own bytes. */
static void flush(rpi_extent *extent, void *into) {
    static const rp_codec exact = {0};
    const rp_encode_context context = {.residual = extent->residual};
    (void)rp_codec_encode(&exact, extent->dtype, extent->in, extent->count, &context, into,
                          NULL);
    extent->residual = NULL;
}

/* In place if the call may overwrite that memory, else in a copy. */
static void change_input(rpi_partition *partition, const rpi_change *c) {
    unsigned char *copy = partition->staged;
    for (size_t i = 0; i < partition->count; i++) {
        rpi_extent *extent = &partition->extents[i];
        if (!is_changed(extent, c)) continue;
        void *into = extent->in == extent->out ? extent->out : copy;
        copy += staged_bytes(extent, c);
        if (c->scales) {
            rpi_values_scale(extent->in, extent->dtype, c->factor, extent->count, into);
            extent->in = into;
        }
        if (c->flushes_residual && keeps_residual(extent)) flush(extent, into);
        extent->in = into;
    }
}

/* This comes after every check that can refuse the call, and before any instruction reads the
 * input. */
static rp_status post_changed(rp_request *request, const rpi_change *c) {
    RP_TRY(reserve_staged(&request->partition, c));
    RP_TRY(rpi_request_admit(request));
    change_input(&request->partition, c);
    rpi_request_enqueue(request);
    return RP_OK;
}

/* The same for elements in memory of a GPU: their copies on the host are changed. */
static rp_status post_changed_there(rp_request *request, const rpi_change *c) {
    rpi_device_change *there = &request->device->change;
    rpi_partition *partition = &request->partition;
    there->scales = c->scales;
    there->factor = c->factor;
    if (c->flushes_residual)
        RP_TRY(
            rpi_alloc_array(partition->count, sizeof *there->paid, "residuals", &there->paid));
    for (size_t i = 0; there->paid && i < partition->count; i++) {
        rpi_extent *extent = &partition->extents[i];
        if (!extent->in || !keeps_residual(extent)) continue;
        there->paid[i] = extent->residual;
        extent->residual = NULL;
    }
    return rpi_request_post(request);
}

rp_status rpi_contribution_post(rp_request *request, const rpi_change *change) {
    if (change->flushes_residual && !request->device) drop_zeros(&request->partition);
    if (!changes_any(&request->partition, change)) return rpi_request_post(request);
    return request->device ? post_changed_there(request, change)
                           : post_changed(request, change);
}
