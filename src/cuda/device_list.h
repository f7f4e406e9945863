/* Calls that one launch of a kernel does: pieces of a part, or of several. A block finds the
 * call that it belongs to by its number. */
#ifndef RPI_CUDA_DEVICE_LIST_H
#define RPI_CUDA_DEVICE_LIST_H

#include "cuda/device_call.h"

enum { RPI_LIST_CALLS = 24 }; /* with them it stays below 4 KB, which kernels take */
enum { RPI_LIST_MOST = 64 };  /* that lists are made of at once: bits of a set */

typedef struct rpi_device_list {
    int count;
    uint32_t begins[RPI_LIST_CALLS + 1]; /* blocks before each call, and all of them */
    rpi_device_call call[RPI_LIST_CALLS];
} rpi_device_list;

static inline int rpi_device_lies_well(const rpi_device_call *call) {
    uintptr_t all = (uintptr_t)call->x | (uintptr_t)call->residual | (uintptr_t)call->y;
    return !(all % 16) && !((uintptr_t)call->encoded % rpi_device_alignment(call));
}

/* One kernel does both. */
static inline int rpi_device_is_alike(const rpi_device_call *a, const rpi_device_call *b) {
    return a->kind == b->kind && a->type == b->type && a->wire_type == b->wire_type &&
           a->bits == b->bits && a->stochastic == b->stochastic && a->kept == b->kept &&
           a->quarters == b->quarters && a->bucket == b->bucket &&
           !a->residual == !b->residual && rpi_device_lies_well(a) == rpi_device_lies_well(b);
}

/* What varies in length needs scratch memory of its own. */
static inline int rpi_device_may_join(const rpi_device_call *call) {
    return call->kind != RPI_DEVICE_TOPK && call->kind != RPI_DEVICE_VARIED;
}

/* The first of at most RPI_LIST_MOST calls that is not in *taken, and those like it, as many as
 * there is room for: all are in *taken then. 0: there is none. */
static inline int rpi_device_list_take(const rpi_device_call *calls, int count, uint64_t *taken,
                                       rpi_device_list *out) {
    out->count = 0;
    for (int i = 0; i < count && out->count < RPI_LIST_CALLS; i++) {
        if (*taken >> i & 1) continue;
        if (out->count &&
            (!rpi_device_may_join(&calls[i]) || !rpi_device_is_alike(&out->call[0], &calls[i])))
            continue;
        *taken |= (uint64_t)1 << i;
        out->call[out->count++] = calls[i];
    }
    return out->count;
}

#endif
