/* How an instruction is begun on a GPU: what kernels can do, bytes that it can access, work in
 * a lane, and the mark after it. [progress] */
#ifndef RPI_COMM_DEVICE_STEPS_H
#define RPI_COMM_DEVICE_STEPS_H

#include "comm/core/chunk.h"
#include "comm/device/device.h"
#include "cuda/device_codec.h"

/* Kernels, or a copy if elements are sent as they are. */
bool rpi_device_knows_slice(const rpi_slice *slice, const rp_encode_context *context,
                            rpi_device_call *call, bool *out_copies);
bool rpi_device_knows_part(const rpi_chunk *chunk, const rpi_instruction *instruction);
/* Received bytes, where the GPU reads them. RP_PENDING: they were revoked. */
rp_status rpi_device_pin_slot(rpi_chunk *chunk, const rpi_instruction *instruction, int slot);
/* If a piece of the part begins at an address that kernels cannot use well (because of the
 * lengths before it), they would access it byte by byte, each over PCIe. Then kernels work on a
 * copy of the encoded slot in the GPU's memory. *out_bytes: where they work. The lane does the
 * copying where the slot is read. */
rp_status rpi_device_begin_slot(rpi_chunk *chunk, const rpi_instruction *instruction, int slot,
                                int lane, unsigned char **out_bytes);
/* Behind what has written it. */
rp_status rpi_device_end_slot(rpi_chunk *chunk, int slot, int lane, size_t bytes);
/* The memory in which kernels work on an encoded slot that has begun. */
unsigned char *rpi_device_slot_bytes(const rpi_chunk *chunk, int slot);
rpi_device_step *rpi_device_step_of(const rpi_chunk *chunk, const rpi_instruction *instruction);
/* All of it is in the lane. */
rp_status rpi_device_begun(rpi_chunk *chunk, const rpi_instruction *instruction, int lane);
/* The state of an encoded slot whose bytes are there. */
rpi_encoded_slot rpi_device_pinned_slot(const rpi_encoded_slot *encoded_slot,
                                        const rpi_pinned *pinned, size_t bytes);

#endif
