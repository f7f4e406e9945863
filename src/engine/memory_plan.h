/* Where buffers lie in arenas, from the steps between which each is alive. Pure. */
#ifndef RPI_ENGINE_MEMORY_PLAN_H
#define RPI_ENGINE_MEMORY_PLAN_H

#include "redpoll/status.h"

#include <stdbool.h>
#include <stddef.h>

/* How long a run needs what lies in an arena. Where a program keeps them apart, runs in flight
 * hold no more than what they keep: what passes is memory that they share. */
typedef enum rpi_arena_kind {
    RPI_ARENA_RUN,       /* from the forward pass to the last of backward */
    RPI_ARENA_TO_INPUTS, /* from forward to the first half of backward, or all of it */
    RPI_ARENA_BETWEEN,   /* from the first half of backward to the second */
    RPI_ARENA_PASSING,   /* within one of these passes */
    RPI_ARENAS
} rpi_arena_kind;

/* The passes of a program: steps [0, forward_end), [forward_end, inputs_end), and those behind.
 */
typedef struct rpi_pass_ends {
    int forward_end, inputs_end;
} rpi_pass_ends;

typedef struct rpi_buffer {
    size_t bytes;
    int first, last; /* steps that touch it, inclusive; last < first: never touched;
                        out: `last` counts those that took over its place */
    int shares;      /* out: the buffer whose place it took over, or its own index */
    rpi_arena_kind arena;
    size_t offset; /* out, both: in that arena, a multiple of RPI_ALIGNMENT */
    bool is_kept;  /* of a result: the caller's to place, not a part of the arena */
} rpi_buffer;

/* At `step`, `output` may be written over `input`; it happens where nobody needs `input` any
 * more. In the order of steps. */
typedef struct rpi_reuse {
    int step, output, input;
} rpi_reuse;

/* Set `shares`, `arena` and `offset` so that no two buffers of an arena overlap that are alive
 * at the same step, unless one took over the other. ends NULL: all lie in one, RPI_ARENA_RUN.
 * out_bytes are the arenas' sizes. */
rp_status rpi_memory_plan(rpi_buffer *buffers, int count, const rpi_reuse *reuses,
                          int reuse_count, const rpi_pass_ends *ends,
                          size_t out_bytes[RPI_ARENAS]);

#endif
