/* Waiting for requests: what callers ask of them when they are posted. */
#include "comm/calls/posting.h"
#include "comm/core/communicator.h"
#include "comm/core/completions.h"
#include "comm/core/request.h"
#include "comm/device/device.h"
#include "comm/run/progress_loop.h"

#include "base/clock.h"
#include "base/fpenv.h"
#include "base/status.h"

static rp_status status_of(const rp_request *request) {
    if (request->status == RP_OK) return RP_OK;
    return rpi_fail(request->status, __FILE__, __LINE__, "%s", request->message);
}

rp_status rp_request_wait(rp_request **in_out_request) {
    rp_request *request = in_out_request ? *in_out_request : NULL;
    if (!request) return RP_FAIL(INVALID, "there is no request to wait for");
    rpi_wait_until(request, RPI_NEVER_NS);
    rp_status status = status_of(request);
    *in_out_request = NULL;
    rpi_request_free(request);
    return status;
}

rp_status rp_request_wait_for(rp_request *request, double timeout_s) {
    RPI_FPENV_SCOPE;
    if (!request) return RP_FAIL(INVALID, "there is no request to wait for");
    if (timeout_s != timeout_s) return RP_FAIL(INVALID, "timeout_s is not a number");
    if (timeout_s == 0) return rp_request_test(request);
    return rpi_wait_until(request, rpi_deadline_ns(timeout_s)) ? status_of(request)
                                                               : RP_PENDING;
}

rp_status rp_request_wait_stream_for(rp_request *request, void *stream, double timeout_s) {
    if (!request) return RP_FAIL(INVALID, "there is no request to wait for");
    if (timeout_s != timeout_s) return RP_FAIL(INVALID, "timeout_s is not a number");
    if (!request->device) return rp_request_wait_for(request, timeout_s);
    if (timeout_s == 0 && !atomic_load(&request->enqueued)) rpi_progress_once(request->comm);
    if (!rpi_wait_until_enqueued(request, rpi_deadline_ns(timeout_s))) return RP_PENDING;
    if (atomic_load(&request->done) && request->status != RP_OK) return status_of(request);
    return rpi_transfer_follow(request->device, stream);
}

rp_status rp_request_wait_stream(rp_request *request, void *stream) {
    return rp_request_wait_stream_for(request, stream, -1);
}

rp_status rp_request_test(rp_request *request) {
    if (!request) return RP_FAIL(INVALID, "there is no request to test");
    if (!atomic_load(&request->done)) rpi_progress_once(request->comm);
    return atomic_load(&request->done) ? status_of(request) : RP_PENDING;
}

rp_status rp_request_free(rp_request **in_out_request) {
    rp_request *request = in_out_request ? *in_out_request : NULL;
    if (!request) return RP_OK;
    if (!atomic_load(&request->done)) {
        char text[160];
        pthread_mutex_lock(
            &request->comm->context->lock); /* a receive may learn its sender just now */
        rpi_request_name(request, text, sizeof text);
        pthread_mutex_unlock(&request->comm->context->lock);
        return RP_FAIL(INVALID, "%s is still running: wait for it first", text);
    }
    *in_out_request = NULL;
    rpi_request_free(request);
    return RP_OK;
}

int rp_request_source(const rp_request *request) {
    if (!request) (void)RP_FAIL(INVALID, "request is NULL");
    bool is_known = request && (atomic_load(&request->done) || atomic_load(&request->enqueued));
    return is_known && request->peer >= 0 ? request->peer : -1;
}

rp_status rp_request_notify(rp_request *request, rp_completions *completions, uint64_t token) {
    if (!request || !completions)
        return RP_FAIL(INVALID, "a request and a queue of completions are needed");
    if (!request->comm->context->has_thread)
        return RP_FAIL(INVALID, "communicator '%s' has no progress thread to complete it",
                       request->comm->name);
    if (request->completions) return RP_FAIL(INVALID, "the request has a token already");
    RP_TRY(rpi_completions_promise(completions));
    pthread_mutex_lock(&request->comm->context->lock);
    request->completions = completions;
    request->token = token;
    if (atomic_load(&request->done)) rpi_completions_put(completions, token);
    pthread_mutex_unlock(&request->comm->context->lock);
    return RP_OK;
}

rp_status rpi_blocking_end(rp_comm *comm, rp_status posted, rp_request **request) {
    rp_status status = posted == RP_OK ? rp_request_wait(request) : posted;
    if (comm) rp_comm_leave(comm); /* without one it has not been posted */
    return status;
}
