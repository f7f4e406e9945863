/* Cutting a vector into pieces: which elements are part p of chunk c.
 *
 * Pure arithmetic on descriptions, the same on every rank; plan knows neither codecs nor data.
 * A piece is a list of ranges, each inside one segment. Cuts lie on granules of the segment's
 * codec; segments of granule 1 are cut at multiples of 64 bytes. Every element is in exactly
 * one piece; pieces follow each other in the order of the segments; where there are fewer
 * places to cut than pieces, some pieces are empty. */
#ifndef RPI_PLAN_SPLIT_H
#define RPI_PLAN_SPLIT_H

#include "base/status.h"

#include <stddef.h>

typedef struct rpi_split_segment {
    size_t count;         /* elements, 0 is fine */
    size_t granule;       /* elements; at least 1 */
    size_t element_bytes; /* in memory; at least 1 */
    size_t granule_bytes; /* encoded, of a full granule; a short last one is weighed as full */
    int part;             /* RANKED: which part it belongs to; else not looked at */
} rpi_split_segment;

typedef enum rpi_split_layout {
    /* One long vector: chunk after chunk, each cut into parts of equal encoded size, to within
     * a granule. For all-reduce, broadcast and send/recv. */
    RPI_SPLIT_VECTOR,
    /* Part p (what rank p gives or gets) is the segments that name it, one behind the other:
     * several, one or none. Segments come in the order of their parts, and each part is cut
     * into chunks of equal encoded size by itself. For all-gather and reduce-scatter. */
    RPI_SPLIT_RANKED,
    /* Segment p is part p, cut by itself into pieces of one length; chunk c of part p is piece
     * c, empty past the last. For gather, scatter and all-to-all, where only the two ranks
     * that share a part know how long it is: how it is cut depends on nothing else. */
    RPI_SPLIT_BLOCKS
} rpi_split_layout;

typedef struct rpi_split {
    const rpi_split_segment *segments; /* borrowed */
    int segment_count;
    rpi_split_layout layout;
    int chunks, parts;
    size_t *before;     /* [segment_count + 1]: encoded bytes before segment i; owned */
    size_t piece_bytes; /* BLOCKS: encoded, of a full piece; else 0 */
} rpi_split;

typedef struct rpi_split_range {
    int segment;
    size_t first, count; /* elements of the segment; count > 0 */
} rpi_split_range;

/* Ranges of one piece, one after the other: zeros mean nothing to callers. */
typedef struct rpi_split_cursor {
    const rpi_split *split;
    int segment, last_segment;
    size_t first, last; /* where the next range starts; where the piece ends in last_segment */
} rpi_split_cursor;

/* chunks and parts at least 1; segments borrowed until rpi_split_free. RP_INVALID: a granule,
 * size or number out of range, or segments that are not in the order of parts; RP_NOMEM. One
 * allocation, none later. O(segments). */
rp_status rpi_split_init(const rpi_split_segment *segments, int segment_count,
                         rpi_split_layout layout, int chunks, int parts, rpi_split *out_split);
/* BLOCKS, with a part for each segment. piece_bytes: encoded, rounded down to where the segment
 * may be cut, but at least to one granule (or 64 bytes); 0: RPI_PART_BYTES. Afterwards
 * out_split->chunks is how many chunks this rank needs: the pieces of its longest part, at
 * least 1; other ranks may need more or fewer. Else as rpi_split_init, which refuses BLOCKS. */
rp_status rpi_split_init_blocks(const rpi_split_segment *segments, int parts,
                                size_t piece_bytes, rpi_split *out_split);
void rpi_split_free(rpi_split *split); /* zeros are fine */

/* Walk the ranges of a piece: O(log segments), then O(1) a range.
 *     rpi_split_cursor cursor = rpi_split_piece(&split, chunk, part);
 *     for (rpi_split_range range; rpi_split_next(&cursor, &range);) ... */
rpi_split_cursor rpi_split_piece(const rpi_split *split, int chunk, int part);
int rpi_split_next(rpi_split_cursor *cursor, rpi_split_range *out_range);

/* BLOCKS: how many pieces a part has, 0 where it is empty. Chunks from there on, up to any
 * number, find it empty. */
int rpi_split_pieces(const rpi_split *split, int part);

/* No piece encodes to more bytes than this (short granules weighed as full). */
size_t rpi_split_largest(const rpi_split *split);

/* When nobody says otherwise: about so many bytes of elements make a part worth a frame of its
 * own, and so many chunks run at once. */
enum { RPI_PART_BYTES = 256 * 1024, RPI_CHUNKS_IN_FLIGHT = 4 };

/* What Linux hands a network card as one piece (segmentation offload: whole packets of 1500 or
 * 9000 bytes, 64 KiB with their headers at most), less a frame's header and a granule. A frame
 * that is a little longer goes as two pieces, each of which costs the same. */
enum { RPI_SEGMENT_BYTES = 62000 };

/* Elements' bytes of a part of a vector of `bytes` that encodes to `encoded`: about
 * RPI_PART_BYTES, such that its encoding fills whole segments, at least one; but less than
 * twice RPI_PART_BYTES, which fits a frame as it is. */
size_t rpi_split_part_bytes(size_t bytes, size_t encoded);

/* And of such encoded bytes for memory of a GPU, which is asked for as much by a short part as
 * by a long one: nearly as many as a frame takes. */
enum { RPI_DEVICE_PART_BYTES = 480 * 1024 };

/* How many chunks such a vector is cut into: ceil(bytes / chunk_bytes), at least 1.
 * chunk_bytes 0: parts * rpi_split_part_bytes(). */
int rpi_split_chunks(size_t bytes, size_t encoded, size_t chunk_bytes, int parts);

#endif
