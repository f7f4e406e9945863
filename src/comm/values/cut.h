/* Which elements each part of each chunk of an operation holds: plan/split.h applied to the
 * caller's memory and codecs. All ranks cut alike, by encoded bytes. */
#ifndef RPI_COMM_CUT_H
#define RPI_COMM_CUT_H

#include "plan/plan.h"
#include "plan/split.h"
#include "redpoll/comm.h"

#include <stdbool.h>

/* A segment as the executor sees it. */
typedef struct rpi_run {
    const void *in; /* NULL where this rank has none */
    void *out;      /* NULL where this rank wants none */
    size_t count;
    rp_dtype dtype;
    rp_codec codec;
    float *residual;
    uint32_t tensor;
    uint64_t first;
    int part;       /* RANKED: the rank that owns it; else not looked at */
    bool unencoded; /* this rank's values count as they are, whatever the codec */
} rpi_run;

typedef struct rpi_cut {
    rpi_run *runs;
    rpi_split_segment *segments; /* what plan knows of the runs */
    size_t count, room;
    size_t bytes; /* of all runs: their elements */
    rpi_split split;
    bool varies;  /* some encodings may be shorter than their pieces' bytes */
    bool inside;  /* parts also travel as they are (RPI_LEVEL_HOST): they fit a frame so, too */
    void *staged; /* inputs that are not the caller's: owned; NULL for none */
} rpi_cut;

/* Elements of one run that a part of a chunk holds. */
typedef struct rpi_piece {
    const rpi_run *run;
    const rp_codec *codec; /* of the level that was asked for */
    float *residual;       /* of the piece's first element; NULL: no error feedback */
    size_t offset, count;  /* in the run */
    size_t bytes;          /* encoded, at most */
    bool varies;           /* may be less: its length stands before it */
    size_t sum_offset;     /* bytes into the part's accumulator */
} rpi_piece;

typedef struct rpi_walk {
    const rpi_cut *cut;
    int level; /* RPI_LEVEL_WORLD, RPI_LEVEL_HOST */
    rpi_split_cursor cursor;
    size_t sum_offset;
} rpi_walk;

/* Of the length before an encoding that may be shorter than it could be. */
enum { RPI_LENGTH_BYTES = 4 };
void rpi_piece_put_length(void *at, size_t length);
/* How long a piece's encoding is; *bytes is moved on to where it begins. */
size_t rpi_piece_take_length(const rpi_piece *piece, const unsigned char **bytes);
/* RP_CORRUPT, with the reason: these are not the encodings of a part. */
rp_status rpi_cut_check_part(const rpi_cut *cut, uint32_t chunk, int part, int level,
                             const void *payload, size_t bytes);

/* Room for `count` runs, kept for the next operation. */
rp_status rpi_cut_reserve(rpi_cut *cut, size_t count);
/* Cut the runs; those of RANKED are put into the order of their parts, and within a part stay
 * in the order in which they are. chunk_bytes: elements' bytes a chunk (of a block: a piece), 0
 * for the default; more chunks are made where a part would encode to more than limit_bytes.
 * RP_UNSUPPORTED: a granule does. */
rp_status rpi_cut_make(rpi_cut *cut, rpi_split_layout layout, int parts, size_t chunk_bytes,
                       size_t limit_bytes);
void rpi_cut_clear(rpi_cut *cut); /* after the operation; keeps the room */
void rpi_cut_free(rpi_cut *cut);

rpi_walk rpi_cut_walk(const rpi_cut *cut, uint32_t chunk, int part, int level);
bool rpi_walk_next(rpi_walk *walk, rpi_piece *out_piece);
/* Encoded by the codec of a level, at most; as they are. */
size_t rpi_cut_part_bytes(const rpi_cut *cut, uint32_t chunk, int part, int level);
size_t rpi_cut_part_values(const rpi_cut *cut, uint32_t chunk, int part);
/* Of blocks, whose other ranks may need more or fewer chunks: this part ends before this chunk,
 * and neither of its ends sends a frame. Never so in chunk 0. */
bool rpi_cut_is_past(const rpi_cut *cut, uint32_t chunk, int part);
size_t rpi_cut_sum_bytes(const rpi_cut *cut, uint32_t chunk, int part); /* its accumulator's */

#endif
