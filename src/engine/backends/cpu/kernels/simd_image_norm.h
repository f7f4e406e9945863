/* What batch norm and group norm of images share; included by their *_simd.c alone. */
#ifndef RPI_ENGINE_SIMD_IMAGE_NORM_H
#define RPI_ENGINE_SIMD_IMAGE_NORM_H

#include "engine/backends/cpu/kernels/simd.h"

/* So that the compiler makes loops of f32 alone. */
SIMD simd_row as_floats(simd_row row) {
    return (simd_row){row.data, false};
}

/* Where the gradient in front of relu comes from: dy as it is, dy where x or where y says that
 * relu is open. */
typedef enum opening { OPEN, OPEN_BY_X, OPEN_BY_Y } opening;

typedef struct planes {
    simd_row x, y, dy, dx, daddend;
} planes;

SIMD bool has_bf16(const planes *at) {
    return at->x.bf16 || at->y.bf16 || at->dy.bf16 || at->dx.bf16 || at->daddend.bf16;
}

SIMD planes all_floats(const planes *at) {
    return (planes){as_floats(at->x), as_floats(at->y), as_floats(at->dy), as_floats(at->dx),
                    as_floats(at->daddend)};
}

#endif
