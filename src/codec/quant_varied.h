/* How v1 ... v8 give each run of elements bits of its own: what a run is like, how many bits it
 * gets, and where its levels lie. docs/codecs.md is normative for all of it. */
#ifndef RPI_CODEC_QUANT_VARIED_H
#define RPI_CODEC_QUANT_VARIED_H

#include "codec/codec.h"
#include "codec/quant_kernels.h"
#include "codec/varied_arithmetic.h"

/* residual: NULL, or added to x. */
rpi_varied_run rpi_varied_look(const rpi_quant_kernels *kernels, const float *x,
                               const float *residual, size_t count);

#endif
