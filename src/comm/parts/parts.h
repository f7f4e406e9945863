/* What steps do to a part of a chunk, piece by piece: values to values, to bytes and back. A
 * slot is the input, the output, an accumulator of wider sums, or a wire, which holds bytes
 * (plan/plan.h). [driver] */
#ifndef RPI_COMM_PARTS_H
#define RPI_COMM_PARTS_H

#include "comm/core/chunk.h"

/* ---- slots ---- */

/* Dtype of the values in a slot. */
rp_dtype rpi_slot_dtype(int slot, const rpi_run *run);
/* Where a piece's values lie in a slot, on the host; IN is only ever read. */
void *rpi_slot_values(const rpi_chunk *chunk, int slot, int part, const rpi_piece *piece);
rpi_wire *rpi_wire_of(rpi_chunk *chunk, int slot);
void rpi_wire_read(rpi_chunk *chunk, int wire);  /* one reader less */
void rpi_wire_empty(rpi_chunk *chunk, int wire); /* what it holds is given back */

/* ---- values to values (part_values.c) ---- */

/* Room for a piece on its way between dtypes; until the next call. */
rp_status rpi_scratch_take(rpi_fabric *fabric, size_t bytes, void **out_scratch);
rp_status rpi_part_copy(rpi_chunk *chunk, int from, int into, int part);
/* COPY: times its weight, where it has one. */
rp_status rpi_part_run_copy(rpi_chunk *chunk, const rpi_action *action);
/* ADD of values. */
rp_status rpi_part_add(rpi_chunk *chunk, const rpi_action *action);
/* values, a copy (what is added is not ours to change), times the weight and into the sum. */
rp_status rpi_piece_add_weighed(rpi_chunk *chunk, const rpi_action *action,
                                const rpi_piece *piece, void *values);

/* ---- values to bytes and back (part_codec.c) ---- */

/* What an ENCODE is told: where its values are, and how they become bytes. */
typedef struct rpi_encoding {
    int slot, part, role, level;
} rpi_encoding;
rpi_encoding rpi_encoding_of(const rpi_action *action);
/* What this ENCODE encodes stays values: exact, and not overwritten (RPI_WIRE_VALUES). */
bool rpi_action_stays_values(const rpi_chunk *chunk, const rpi_action *encode);
/* *out_bytes: how many were written, no more than rpi_cut_part_bytes(). */
rp_status rpi_part_encode(rpi_chunk *chunk, rpi_encoding e, void *out, size_t *out_bytes);
/* From a wire that holds bytes; add: to what is there, with the action's weight. */
rp_status rpi_part_decode(rpi_chunk *chunk, const rpi_action *action, bool add);
/* The sum of two, of exact values; payload: where a frame takes it, too; NULL: there is none.
 * Returns its bytes. */
size_t rpi_part_fold(rpi_chunk *chunk, const rpi_action *action, unsigned char *payload);
/* The sum of this rank's own values and an encoding. */
rp_status rpi_part_fold_encodings(rpi_chunk *chunk, const rpi_action *action);

#endif
