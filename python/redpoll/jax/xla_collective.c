/* A collective inside a program of XLA: the one handler that XLA calls for all of them, on its
 * own thread and without Python.
 *
 * What is done is in a plan that Python has prepared (`_plan.py` mirrors `struct plan`); only
 * the addresses of buffers come with the call. Operands: the tensors, then a residual for each
 * if there is feedback, the step, and perhaps something to come after, which is not read.
 * Results: tensors and residuals. Compiled where jax is installed, against its headers. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "xla/ffi/api/c_api.h"

enum { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, BARRIER };
enum { OPTIONS_BYTES = 512, MESSAGE_BYTES = 1200, PENDING = 1 };

typedef int reduce_fn(void *comm, void *segments, size_t count, void *options, void **request);
typedef int gather_fn(void *comm, const void *input, void *output, size_t count, int dtype,
                      const void *codec, void *options, void **request);
typedef int broadcast_fn(void *comm, void *data, size_t count, int dtype, void *options,
                         void **request);
typedef int barrier_fn(void *comm, void **request);

struct error { /* as rp_error begins */
    int status;
    const char *message;
};

struct segments {
    char *all; /* `count` rp_segments, without addresses; a copy is filled in a call */
    int64_t bytes, data_at, residual_at;
};

struct plan {
    void *comm; /* NULL: it was closed */
    int64_t kind;
    union {
        reduce_fn *reduce;
        gather_fn *gather; /* and reduce-scatter */
        broadcast_fn *broadcast;
        barrier_fn *barrier;
    } start;
    void (*attend)(void *comm); /* this thread drives, and no other */
    void (*leave)(void *comm);
    int (*wait_for)(void *request, double timeout_s);
    int (*release)(void **request);
    const struct error *(*last_error)(void);
    int64_t count, feedback; /* tensors; 1: with residuals */
    const int64_t *bytes;    /* of each tensor's operand */
    struct segments segments;
    const char *options; /* an rp_collective_options */
    int64_t options_bytes, step_at;
    int64_t elements, dtype; /* what the others take */
    const void *codec;
    char *room; /* segments of the call, used by one call at a time */
};

static pthread_mutex_t posting = PTHREAD_MUTEX_INITIALIZER;

static XLA_FFI_Error *failed(const XLA_FFI_Api *api, const char *message) {
    XLA_FFI_Error_Create_Args args = {.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE,
                                      .message = message,
                                      .errc = XLA_FFI_Error_Code_INTERNAL};
    return api->XLA_FFI_Error_Create(&args);
}

static void *operand(const XLA_FFI_CallFrame *frame, int64_t i) {
    return ((XLA_FFI_Buffer *)frame->args.args[i])->data;
}

static void *result(const XLA_FFI_CallFrame *frame, int64_t i) {
    return ((XLA_FFI_Buffer *)frame->rets.rets[i])->data;
}

/* In place: the result begins as the operand, unless XLA has made them one. */
static void copy(const XLA_FFI_CallFrame *frame, int64_t i, int64_t bytes) {
    if (operand(frame, i) != result(frame, i)) {
        memcpy(result(frame, i), operand(frame, i), (size_t)bytes);
    }
}

static void fill_segments(const struct plan *plan, const XLA_FFI_CallFrame *frame) {
    const struct segments *s = &plan->segments;
    memcpy(plan->room, s->all, (size_t)(plan->count * s->bytes));
    for (int64_t i = 0; i < plan->count; i++) {
        char *one = plan->room + i * s->bytes;
        void *data = result(frame, i), *residual = NULL;
        copy(frame, i, plan->bytes[i]);
        memcpy(one + s->data_at, &data, sizeof data);
        if (!plan->feedback) continue;
        copy(frame, plan->count + i, plan->bytes[plan->count + i]);
        if (plan->bytes[plan->count + i]) residual = result(frame, plan->count + i);
        memcpy(one + s->residual_at, &residual, sizeof residual);
    }
}

static int post(const struct plan *plan, const XLA_FFI_CallFrame *frame, void *options,
                void **request) {
    size_t n = (size_t)plan->elements;
    switch (plan->kind) {
    case ALL_REDUCE:
        fill_segments(plan, frame);
        return plan->start.reduce(plan->comm, plan->room, (size_t)plan->count, options,
                                  request);
    case ALL_GATHER:
    case REDUCE_SCATTER:
        return plan->start.gather(plan->comm, operand(frame, 0), result(frame, 0), n,
                                  (int)plan->dtype, plan->codec, options, request);
    case BROADCAST:
        copy(frame, 0, plan->bytes[0]);
        return plan->start.broadcast(plan->comm, result(frame, 0), n, (int)plan->dtype, options,
                                     request);
    default: return plan->start.barrier(plan->comm, request);
    }
}

/* `said`: what went wrong, if anything. */
static int drive(const struct plan *plan, const XLA_FFI_CallFrame *frame, void *options,
                 char *said, size_t room) {
    void *request = NULL;
    pthread_mutex_lock(&posting);
    void *comm = plan->comm;
    int code = comm ? 0 : -1;
    if (comm) {
        plan->attend(comm);
        code = post(plan, frame, options, &request);
    }
    const char *refused = comm ? plan->last_error()->message : "its communicator was closed";
    snprintf(said, room, "%s", code < 0 ? refused : "");
    pthread_mutex_unlock(&posting);
    if (code >= 0) {
        do code = plan->wait_for(request, 1.0);
        while (code == PENDING); /* the communicator's own limit ends it */
        snprintf(said, room, "%s", code < 0 ? plan->last_error()->message : "");
        plan->release(&request);
    }
    if (comm) plan->leave(comm);
    return code;
}

static XLA_FFI_Error *run(const struct plan *plan, const XLA_FFI_CallFrame *frame) {
    char options[OPTIONS_BYTES], said[MESSAGE_BYTES];
    uint32_t step;
    if (plan->options_bytes > OPTIONS_BYTES) {
        return failed(frame->api, "redpoll: options are longer than xla_collective.c knows");
    }
    memcpy(options, plan->options, (size_t)plan->options_bytes);
    memcpy(&step, operand(frame, plan->count * (1 + plan->feedback)), sizeof step);
    uint64_t wide = step;
    memcpy(options + plan->step_at, &wide, sizeof wide);
    int code = drive(plan, frame, options, said, sizeof said);
    return code < 0 ? failed(frame->api, said) : NULL;
}

/* XLA asks first which interface this was compiled for. */
static int tell_version(const XLA_FFI_CallFrame *frame) {
    XLA_FFI_Extension_Base *extension = frame->extension_start;
    if (!extension || extension->type != XLA_FFI_Extension_Metadata) return 0;
    XLA_FFI_Metadata *told = ((XLA_FFI_Metadata_Extension *)extension)->metadata;
    told->api_version.major_version = XLA_FFI_API_MAJOR;
    told->api_version.minor_version = XLA_FFI_API_MINOR;
    return 1;
}

XLA_FFI_Error *redpoll_collective(XLA_FFI_CallFrame *frame);

XLA_FFI_Error *redpoll_collective(XLA_FFI_CallFrame *frame) {
    if (tell_version(frame)) return NULL;
    if (frame->attrs.size != 1 || frame->attrs.types[0] != XLA_FFI_AttrType_SCALAR) {
        return failed(frame->api, "redpoll: a call without its plan");
    }
    int64_t address;
    memcpy(&address, ((XLA_FFI_Scalar *)frame->attrs.attrs[0])->value, sizeof address);
    return run((const struct plan *)(intptr_t)address, frame);
}
