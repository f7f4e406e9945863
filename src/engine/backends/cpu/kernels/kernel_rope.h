/* Rotary position embedding of queries and keys, by rotating halves (as in Hugging Face's
 * LLaMA) or adjacent pairs (as in Meta's).
 *
 * Shapes: x, y [batch, length, heads, head_size] by strides, f32 or bf16; tables
 * [positions, rotary / 2] f32. With c below rotary / 2 and the angle a of (position, c),
 *   y_c = x_c cos a - x_(c + rotary / 2) sin a
 *   y_(c + rotary / 2) = x_(c + rotary / 2) cos a + x_c sin a
 * and elements from `rotary` on are copied; `pairs`: of x_2c and x_(2c + 1) instead, by plain
 * loops. The gradient is the rotation back: `inverse`. Tables that are scaled scale both.
 *
 * Su et al., "RoFormer: enhanced transformer with rotary position embedding", 2021. */
#ifndef RPI_ENGINE_KERNEL_ROPE_H
#define RPI_ENGINE_KERNEL_ROPE_H

#include "engine/backends/cpu/kernels/kernel.h"
#include "engine/rope_stretch.h"

typedef struct rpi_kernel_rope {
    int64_t batch, length, heads, head_size;
    int64_t rotary; /* even, at most head_size */
    const float *cosines, *sines;
    const int32_t *positions; /* [batch, length], rows of the tables; NULL: token + offset */
    int64_t offset;
    bool inverse;
    rpi_kernel_heads x, y; /* y may be x */
    bool pairs;
} rpi_kernel_rope;

void rpi_kernel_rope_apply(const rpi_kernel_run *run, const rpi_kernel_rope *it);

/* The angle of position p, element c is p theta^(-2c / rotary), stretched (NULL: it is not),
 * and where the rule says so its cosine and sine are scaled. In double, and rounded once.
 * cosines, sines: [count, rotary / 2] of the positions from `first` on, out. */
void rpi_kernel_rope_tables(double theta, const rpi_rope_stretch *stretch, int64_t first,
                            int64_t count, int64_t rotary, float *cosines, float *sines);

/* ---- inside ---- */

RPI_KERNEL_DECLARE(rope);

static inline int64_t rpi_rope_position(const rpi_kernel_rope *it, int64_t unit) {
    return it->positions ? it->positions[unit] : unit % it->length + it->offset;
}

#endif
