#include "train/checkpoint/piece.h"

#include "base/status.h"

static rpi_shard_record record_of(const rpi_tensor_piece *piece) {
    rpi_shard_record record = {
        .name = piece->tensor, .dims = piece->shape.dims, .shard = piece->shard};
    for (int d = 0; d < piece->shape.dims; d++) record.shape[d] = piece->shape.size[d];
    if (record.dims) return record;
    record.dims = 1; /* a number: a tensor of one element */
    record.shape[0] = 1;
    return record;
}

rpi_tensor_piece rpi_piece_whole(const char *tensor, const rpi_shape *shape) {
    return (rpi_tensor_piece){
        .tensor = tensor, .shape = *shape, .ranks = 1, .count = rpi_shape_count(shape)};
}

rp_status rpi_piece_check(const rpi_tensor_piece *piece) {
    rpi_shard_record record = record_of(piece);
    if (piece->rank < 0 || piece->rank >= piece->ranks)
        return RP_FAIL(INVALID, "%s: rank %d of %d", piece->tensor, piece->rank, piece->ranks);
    RP_TRY(rpi_shard_check(&record, piece->ranks));
    int64_t held = rpi_shard_count(&record, piece->ranks, piece->rank);
    if (piece->first < 0 || piece->count < 1 || piece->first > held - piece->count)
        return RP_FAIL(INVALID,
                       "%s: %lld elements from %lld on, of %lld that rank %d of %d has",
                       piece->tensor, (long long)piece->count, (long long)piece->first,
                       (long long)held, piece->rank, piece->ranks);
    return RP_OK;
}

/* ---- runs ---- */

void rpi_piece_begin(const rpi_tensor_piece *piece, rpi_piece_walk *walk) {
    const rpi_grid grid = {{piece->ranks, 1, 1, 1}};
    walk->record = record_of(piece);
    walk->first = piece->first;
    (void)rpi_shard_begin(&walk->record, &grid, piece->rank, RPI_REPLICAS_COPY, &walk->cursor);
    walk->cursor.first = piece->first;
    walk->cursor.end = piece->first + piece->count;
}

bool rpi_piece_next(rpi_piece_walk *walk, rpi_shard_run *out_run) {
    if (!rpi_shard_next(&walk->cursor, out_run)) return false;
    out_run->local -= walk->first;
    return true;
}

/* ---- what a rank saves ---- */

rp_status rpi_piece_share_begin(const rpi_tensor_piece *tensor, const rpi_piece_saver *saver,
                                rpi_piece_share *share) {
    *share = (rpi_piece_share){.tensor = *tensor, .record = record_of(tensor)};
    share->record.first_stage = saver->first_stage;
    share->record.last_stage = saver->last_stage;
    share->tensor.ranks = saver->grid->size[RPI_AXIS_TENSOR];
    share->tensor.rank = rpi_grid_place_of(saver->grid, saver->rank).at[RPI_AXIS_TENSOR];
    return rpi_shard_begin(&share->record, saver->grid, saver->rank, saver->replicas,
                           &share->cursor);
}

/* The next run of which this rank is the first holder. */
static bool next_own(rpi_piece_share *share, rpi_shard_run *out_run) {
    *out_run = share->ahead;
    share->ahead.count = 0;
    if (out_run->count) return true;
    while (rpi_shard_next(&share->cursor, out_run))
        if (out_run->holder == 0) return true;
    return false;
}

bool rpi_piece_share_next(rpi_piece_share *share, rpi_tensor_piece *out_piece) {
    rpi_shard_run run;
    if (!next_own(share, &run)) return false;
    rpi_tensor_piece piece = share->tensor;
    piece.first = run.local;
    piece.count = run.count;
    while (next_own(share, &run)) {
        if (run.local != piece.first + piece.count) {
            share->ahead = run;
            break;
        }
        piece.count += run.count;
    }
    *out_piece = piece;
    return true;
}
