/* Reads the golden files that tools/make_golden.py wrote: just enough of safetensors. */
#ifndef GOLDEN_H
#define GOLDEN_H

#include "base/tensor.h"

typedef struct golden {
    char *header; /* JSON without spaces */
    unsigned char *data;
    size_t data_bytes;
} golden;

/* From the folder REDPOLL_GOLDEN. */
rp_status golden_open(const char *name, golden *out_golden);
void golden_close(golden *file);
/* A tensor by name; its data is borrowed from the file. RP_NOT_FOUND. */
rp_status golden_tensor(const golden *file, rpi_tensor *out_tensor, const char *format, ...)
    RP_PRINTF(3, 4);

/* Relative L2; where the norm wanted is below 1e-3, relative to that. A key's bias moves all
 * scores of a query alike, for example: its gradient is 0 but for rounding. */
double golden_distance(const float *got, const float *wanted, int64_t count);

#endif
