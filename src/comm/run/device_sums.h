/* Sums in memory of a GPU. If the GPU can do every instruction on a part's accumulator, the
 * accumulator is there, and so are this rank's own values and the owner's residual: only
 * encodings are moved between it and the host. All work of a part is put into one lane.
 * Otherwise the host adds, on copies (device.h). [progress] */
#ifndef RPI_COMM_DEVICE_SUMS_H
#define RPI_COMM_DEVICE_SUMS_H

#include "comm/core/chunk.h"
#include "comm/device/device.h"

/* The chunk starts: decides which parts are summed there. */
rp_status rpi_device_sums_open(rpi_chunk *chunk);
bool rpi_device_adds(const rpi_chunk *chunk, int part);
/* The GPU's address of a slice's part of the accumulator. */
void *rpi_device_sum_place(const rpi_chunk *chunk, int part, const rpi_slice *slice);
/* An instruction, except an ENCODE, on the accumulator of such a part; RP_PENDING: it is begun.
 */
bool rpi_device_sums_take(const rpi_chunk *chunk, const rpi_instruction *instruction);
rp_status rpi_device_sums_begin(rpi_chunk *chunk, const rpi_instruction *instruction);

#endif
