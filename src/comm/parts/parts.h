/* What steps do to a part of a chunk, slice by slice: values to values, to bytes and back. A
 * slot is the input, the output, an accumulator of wider sums, or an encoded slot, which has
 * bytes (plan/plan.h). [progress] */
#ifndef RPI_COMM_PARTS_H
#define RPI_COMM_PARTS_H

#include "comm/core/chunk.h"

/* ---- slots ---- */

/* Dtype of the values in a slot. */
rp_dtype rpi_slot_dtype(int slot, const rpi_extent *extent);
/* The address of a slice's values in a slot, on the host; IN is only ever read. */
void *rpi_slot_values(const rpi_chunk *chunk, int slot, int part, const rpi_slice *slice);
rpi_encoded_slot *rpi_encoded_slot_of(rpi_chunk *chunk, int slot);
void rpi_encoded_slot_read(rpi_chunk *chunk, int encoded_slot); /* one reader less */
void rpi_encoded_slot_empty(rpi_chunk *chunk,
                            int encoded_slot); /* what it holds is given back */

/* ---- values to values (part_values.c) ---- */

/* Room for a slice that is converted between dtypes; until the next call. */
rp_status rpi_scratch_take(rpi_context *context, size_t bytes, void **out_scratch);
rp_status rpi_part_copy(rpi_chunk *chunk, int from, int into, int part);
/* COPY: times its weight, if it has one. */
rp_status rpi_part_extent_copy(rpi_chunk *chunk, const rpi_instruction *instruction);
/* ADD of values. */
rp_status rpi_part_add(rpi_chunk *chunk, const rpi_instruction *instruction);
/* values, a copy (the addend must not be changed), times the weight and into the sum. */
rp_status rpi_slice_add_weighed(rpi_chunk *chunk, const rpi_instruction *instruction,
                                const rpi_slice *slice, void *values);

/* ---- values to bytes and back (part_codec.c) ---- */

/* The inputs of an ENCODE: where its values are, and how they are encoded. */
typedef struct rpi_encoding {
    int slot, part, role, level;
} rpi_encoding;
rpi_encoding rpi_encoding_of(const rpi_instruction *instruction);
/* Whether the values that this ENCODE reads serve as its encoding: exact, and not overwritten
 * (RPI_ENCODED_VALUES). */
bool rpi_instruction_stays_values(const rpi_chunk *chunk, const rpi_instruction *encode);
/* *out_bytes: the written bytes, at most rpi_partition_part_bytes(). */
rp_status rpi_part_encode(rpi_chunk *chunk, rpi_encoding e, void *out, size_t *out_bytes);
/* From an encoded slot that has bytes; add: to the values there, with the instruction's weight.
 */
rp_status rpi_part_decode(rpi_chunk *chunk, const rpi_instruction *instruction, bool add);
/* The sum of two, of exact values; payload: for a frame with the sum; NULL: there is none.
 * Returns its bytes. */
size_t rpi_part_fold(rpi_chunk *chunk, const rpi_instruction *instruction,
                     unsigned char *payload);
/* The sum of this rank's own values and an encoding. */
rp_status rpi_part_fold_encodings(rpi_chunk *chunk, const rpi_instruction *instruction);

#endif
