/* A tensor view: where elements are and what shape they have. It owns nothing. */
#ifndef RPI_BASE_TENSOR_H
#define RPI_BASE_TENSOR_H

#include "redpoll/dtype.h"

enum { RPI_MAX_DIMS = 8 };

/* Where memory lives; kernels and transports ask before they touch it. */
typedef enum rpi_domain { RPI_HOST, RPI_CUDA } rpi_domain;

typedef struct rpi_shape {
    int dims;                   /* 0: a scalar, one element */
    int64_t size[RPI_MAX_DIMS]; /* outermost first, row-major */
} rpi_shape;

typedef struct rpi_tensor {
    void *data; /* borrowed; row-major, no padding */
    rp_dtype dtype;
    rpi_domain domain;
    rpi_shape shape;
} rpi_tensor;

int64_t rpi_shape_count(const rpi_shape *shape);
int rpi_shape_equal(const rpi_shape *a, const rpi_shape *b);
/* "64x3x3x3" into text; returns text. */
const char *rpi_shape_text(const rpi_shape *shape, char *text, size_t bytes);

#endif
