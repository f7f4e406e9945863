/* Where buffers lie in one arena, from the steps between which each is alive. Pure. */
#ifndef RPI_ENGINE_MEMORY_PLAN_H
#define RPI_ENGINE_MEMORY_PLAN_H

#include "redpoll/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct rpi_buffer {
    size_t bytes;
    int first, last; /* steps that touch it, inclusive; last < first: never touched;
                        out: `last` counts those that took over its place */
    int shares;      /* out: the buffer whose place it took over, or its own index */
    size_t offset;   /* out: a multiple of RPI_ALIGNMENT */
    bool is_kept;    /* of a result: the caller's to place, not a part of the arena */
} rpi_buffer;

/* At `step`, `output` may be written over `input`; it happens where nobody needs `input` any
 * more. In the order of steps. */
typedef struct rpi_reuse {
    int step, output, input;
} rpi_reuse;

/* Set `shares` and `offset` so that no two buffers overlap that are alive at the same step,
 * unless one took over the other. *out_bytes is the arena's size. */
rp_status rpi_memory_plan(rpi_buffer *buffers, int count, const rpi_reuse *reuses,
                          int reuse_count, size_t *out_bytes);

#endif
