/* A piece of a tensor: elements that lie together in the memory of one rank, and where they
 * belong in the whole tensor. In every layout ranks save pieces. A rank that loads asks for
 * pieces of its own, and does not know which ranks wrote them (piece_files.h).
 *
 *     tensor         its name
 *     shape          of the whole tensor
 *     shard          how tensor ranks share it (plan/shard.h),
 *     ranks, rank    among how many, and which of them held the piece
 *     first, count   which of that rank's elements, in the order of its memory
 *
 * The elements of a piece come in the order of the whole tensor, in one run or several. */
#ifndef RPI_TRAIN_PIECE_H
#define RPI_TRAIN_PIECE_H

#include "base/tensor.h"
#include "plan/shard.h"

struct cJSON;

typedef struct rpi_tensor_piece {
    const char *tensor;
    rpi_shape shape;
    rpi_shard shard;
    int ranks, rank;
    int64_t first, count;
} rpi_tensor_piece;

/* All of a tensor. */
rpi_tensor_piece rpi_piece_whole(const char *tensor, const rpi_shape *shape);

/* RP_INVALID: no rank can have such a piece. */
rp_status rpi_piece_check(const rpi_tensor_piece *piece);

/* Walks through its runs, in the order of the whole tensor; `local` counts from the piece's
 * beginning. The piece must have been checked, and must exist as long as the walk. */
typedef struct rpi_piece_walk {
    rpi_shard_record record;
    rpi_shard_cursor cursor;
    int64_t first;
} rpi_piece_walk;
void rpi_piece_begin(const rpi_tensor_piece *piece, rpi_piece_walk *out_walk);
bool rpi_piece_next(rpi_piece_walk *walk, rpi_shard_run *out_run);

/* The pieces of a tensor that a rank of a grid saves: those of which it is the first holder, so
 * that all ranks together save each element once. */
typedef struct rpi_piece_share {
    rpi_tensor_piece tensor;
    rpi_shard_record record;
    rpi_shard_cursor cursor;
    rpi_shard_run ahead; /* count 0: there is none */
} rpi_piece_share;
/* The rank that saves. */
typedef struct rpi_piece_saver {
    const rpi_grid *grid;
    int rank;
    rpi_shard_replicas replicas;
    /* the stages that hold the tensor: one, or the two that share it */
    int first_stage, last_stage;
} rpi_piece_saver;
/* tensor: its name, shape and shard. RP_INVALID: as of rpi_shard_begin(). The share must not be
 * moved while pieces are asked for. */
rp_status rpi_piece_share_begin(const rpi_tensor_piece *tensor, const rpi_piece_saver *saver,
                                rpi_piece_share *out_share);
bool rpi_piece_share_next(rpi_piece_share *share, rpi_tensor_piece *out_piece);

/* As JSON: {"tensor", "shape", "shard": {"kind", "axis", "repeats", "sections"}, "ranks",
 * "rank", "first", "count"}. NULL: out of memory. */
struct cJSON *rpi_piece_to_json(const rpi_tensor_piece *piece);
/* The name is borrowed from `json`, which may contain anything. RP_CORRUPT. */
rp_status rpi_piece_from_json(const struct cJSON *json, rpi_tensor_piece *out_piece);

#endif
