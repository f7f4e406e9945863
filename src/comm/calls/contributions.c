#include "comm/calls/contributions.h"
#include "comm/core/request.h"

#include "base/memory.h"
#include "base/status.h"
#include "comm/device/device.h"
#include "comm/values/values.h"

static bool holds_back(const rpi_run *run) {
    if (!run->residual || !run->count) return false;
    return run->unencoded || rp_codec_is_exact(&run->codec, run->dtype);
}

/* Residuals of zeros, which they are in most steps, spare the copy. */
static void forget_zeros(rpi_cut *cut) {
    for (size_t i = 0; i < cut->count; i++) {
        rpi_run *run = &cut->runs[i];
        size_t k = 0;
        if (!holds_back(run)) continue;
        while (k < run->count && run->residual[k] == 0) k++;
        if (k == run->count) run->residual = NULL;
    }
}

static bool is_changed(const rpi_run *run, const rpi_change *c) {
    return run->in && run->count && (c->scales || (c->pays_out && holds_back(run)));
}

static bool changes_any(const rpi_cut *cut, const rpi_change *c) {
    for (size_t i = 0; i < cut->count; i++)
        if (is_changed(&cut->runs[i], c)) return true;
    return false;
}

static size_t staged_bytes(const rpi_run *run, const rpi_change *c) {
    if (!is_changed(run, c) || run->in == run->out) return 0;
    return rpi_align_up(run->count * rp_dtype_bytes(run->dtype));
}

static rp_status reserve_staged(rpi_cut *cut, const rpi_change *c) {
    size_t bytes = 0;
    for (size_t i = 0; i < cut->count; i++) bytes += staged_bytes(&cut->runs[i], c);
    return bytes ? rpi_alloc(bytes, "changed input", &cut->staged) : RP_OK;
}

/* The exact codec encodes an element as what it is. */
static void pay_out(rpi_run *run, void *into) {
    static const rp_codec exact = {0};
    const rp_encode_context context = {.residual = run->residual};
    (void)rp_codec_encode(&exact, run->dtype, run->in, run->count, &context, into, NULL);
    run->residual = NULL;
}

/* Where it lies when that is the call's to overwrite, else in a copy. */
static void change_input(rpi_cut *cut, const rpi_change *c) {
    unsigned char *copy = cut->staged;
    for (size_t i = 0; i < cut->count; i++) {
        rpi_run *run = &cut->runs[i];
        if (!is_changed(run, c)) continue;
        void *into = run->in == run->out ? run->out : copy;
        copy += staged_bytes(run, c);
        if (c->scales) {
            rpi_values_scale(run->in, run->dtype, c->factor, run->count, into);
            run->in = into;
        }
        if (c->pays_out && holds_back(run)) pay_out(run, into);
        run->in = into;
    }
}

/* Once nothing can refuse the call any more, and before anybody reads. */
static rp_status post_changed(rp_request *request, const rpi_change *c) {
    RP_TRY(reserve_staged(&request->cut, c));
    RP_TRY(rpi_request_admit(request));
    change_input(&request->cut, c);
    rpi_request_enqueue(request);
    return RP_OK;
}

/* The same where they lie in memory of a GPU: their copies on the host are changed. */
static rp_status post_changed_there(rp_request *request, const rpi_change *c) {
    rpi_device_change *there = &request->device->change;
    rpi_cut *cut = &request->cut;
    there->scales = c->scales;
    there->factor = c->factor;
    if (c->pays_out)
        RP_TRY(rpi_alloc_array(cut->count, sizeof *there->paid, "residuals", &there->paid));
    for (size_t i = 0; there->paid && i < cut->count; i++) {
        rpi_run *run = &cut->runs[i];
        if (!run->in || !holds_back(run)) continue;
        there->paid[i] = run->residual;
        run->residual = NULL;
    }
    return rpi_request_post(request);
}

rp_status rpi_contribution_post(rp_request *request, const rpi_change *change) {
    if (change->pays_out && !request->device) forget_zeros(&request->cut);
    if (!changes_any(&request->cut, change)) return rpi_request_post(request);
    return request->device ? post_changed_there(request, change)
                           : post_changed(request, change);
}
