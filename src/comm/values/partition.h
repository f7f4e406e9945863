/* Which elements each part of each chunk of an operation has: plan/split.h applied to the
 * caller's memory and codecs. All ranks cut in the same way, by encoded bytes. */
#ifndef RPI_COMM_PARTITION_H
#define RPI_COMM_PARTITION_H

#include "plan/plan.h"
#include "plan/split.h"
#include "redpoll/comm.h"

#include <stdbool.h>

/* A segment as the executor sees it. */
typedef struct rpi_extent {
    const void *in; /* NULL where this rank has none */
    void *out;      /* NULL if this rank wants none */
    size_t count;
    rp_dtype dtype;
    rp_codec codec;
    float *residual;
    uint32_t tensor;
    uint64_t first;
    int part;       /* RANKED: the rank that owns it; else ignored */
    bool unencoded; /* this rank's values are used unencoded, whatever the codec */
} rpi_extent;

typedef struct rpi_partition {
    rpi_extent *extents;
    rpi_split_segment *segments; /* what plan knows of the extents */
    size_t count, room;
    size_t bytes; /* of all extents: their elements */
    rpi_split split;
    bool varies;       /* some encodings may be shorter than their slices' bytes */
    size_t part_bytes; /* of a part's encoding, where nobody has said chunk_bytes; 0: as plan
                          has it */
    bool inside;  /* parts are also sent as they are (RPI_LEVEL_HOST): they fit into a frame so,
                   * too */
    void *staged; /* inputs that are not the caller's memory: owned; NULL for none */
} rpi_partition;

/* Elements of one extent that a part of a chunk holds. */
typedef struct rpi_slice {
    const rpi_extent *extent;
    const rp_codec *codec; /* of the requested level */
    float *residual;       /* of the slice's first element; NULL: no error feedback */
    size_t offset, count;  /* in the extent */
    size_t bytes;          /* encoded, at most */
    bool varies;           /* may be less: its length precedes it */
    size_t sum_offset;     /* bytes into the part's accumulator */
} rpi_slice;

typedef struct rpi_walk {
    const rpi_partition *partition;
    int level; /* RPI_LEVEL_WORLD, RPI_LEVEL_HOST */
    rpi_split_cursor cursor;
    size_t sum_offset;
} rpi_walk;

/* Of the length before an encoding that may be shorter than its limit. */
enum { RPI_LENGTH_BYTES = 4 };
void rpi_slice_put_length(void *at, size_t length);
/* The length of a slice's encoding; *bytes is moved on to where it begins. */
size_t rpi_slice_take_length(const rpi_slice *slice, const unsigned char **bytes);
/* RP_CORRUPT, with the reason: these are not the encodings of a part. */
rp_status rpi_partition_check_part(const rpi_partition *partition, uint32_t chunk, int part,
                                   int level, const void *payload, size_t bytes);

/* Room for `count` extents, kept for the next operation. */
rp_status rpi_partition_reserve(rpi_partition *partition, size_t count);
/* Cut the extents. Those of RANKED are put into the order of their parts, and within a part
 * stay in order. chunk_bytes: bytes of elements in a chunk (of a block: in a slice), 0 for the
 * default; more chunks are made if a part would encode to more than limit_bytes.
 * RP_UNSUPPORTED: a granule does. */
rp_status rpi_partition_make(rpi_partition *partition, rpi_split_layout layout, int parts,
                             size_t chunk_bytes, size_t limit_bytes);
void rpi_partition_clear(rpi_partition *partition); /* after the operation; keeps the room */
void rpi_partition_free(rpi_partition *partition);

rpi_walk rpi_partition_walk(const rpi_partition *partition, uint32_t chunk, int part,
                            int level);
bool rpi_walk_next(rpi_walk *walk, rpi_slice *out_slice);
/* Encoded by the codec of a level, at most; unencoded. */
size_t rpi_partition_part_bytes(const rpi_partition *partition, uint32_t chunk, int part,
                                int level);
size_t rpi_partition_part_values(const rpi_partition *partition, uint32_t chunk, int part);
/* For blocks, of which other ranks may need more or fewer chunks: this part ends before this
 * chunk, and neither of its ends sends a frame. Never so in chunk 0. */
bool rpi_partition_is_past(const rpi_partition *partition, uint32_t chunk, int part);
size_t rpi_partition_sum_bytes(const rpi_partition *partition, uint32_t chunk,
                               int part); /* its accumulator's */

#endif
