#include "plan/split.h"

#include "base/memory.h"

#include <limits.h>
#include <math.h>
#include <stdbool.h>

/* Segments that may be cut anywhere are cut so that both sides start on a cache line (when the
 * segment does): writers of neighbouring parts then share none. */
static size_t cut_elements(const rpi_split_segment *segment) {
    if (segment->granule > 1 || segment->element_bytes >= RPI_ALIGNMENT)
        return segment->granule;
    return RPI_ALIGNMENT / segment->element_bytes;
}

static size_t cut_bytes(const rpi_split_segment *segment) {
    return cut_elements(segment) / segment->granule * segment->granule_bytes;
}

static size_t units(const rpi_split_segment *segment) {
    size_t elements = cut_elements(segment);
    return segment->count / elements + (segment->count % elements != 0);
}

/* Adds the weight of a segment's encoding to the bytes before it. */
static rp_status weigh(const rpi_split_segment *segment, int i, size_t before,
                       size_t *out_after) {
    if (!segment->granule || !segment->element_bytes || !segment->granule_bytes)
        return RP_FAIL(INVALID, "segment %d: granule and sizes must be at least 1", i);
    if (segment->granule_bytes > SIZE_MAX / RPI_ALIGNMENT ||
        units(segment) > (SIZE_MAX - before) / cut_bytes(segment))
        return RP_FAIL(INVALID, "segment %d: its encoding exceeds the address space", i);
    *out_after = before + units(segment) * cut_bytes(segment);
    return RP_OK;
}

static rp_status check_parts(const rpi_split_segment *segments, int segment_count, int parts) {
    int last = 0;
    for (int i = 0; i < segment_count; i++) {
        int part = segments[i].part;
        if (part < last || part >= parts)
            return RP_FAIL(INVALID, "segment %d belongs to part %d; %d to %d are allowed there",
                           i, part, last, parts - 1);
        last = part;
    }
    return RP_OK;
}

static rp_status init(const rpi_split_segment *segments, int segment_count,
                      rpi_split_layout layout, int chunks, int parts, rpi_split *out_split) {
    *out_split = (rpi_split){0};
    if (segment_count < 0 || chunks < 1 || parts < 1)
        return RP_FAIL(INVALID, "cannot cut %d segments into %d chunks of %d parts",
                       segment_count, chunks, parts);
    if (layout == RPI_SPLIT_BLOCKS && segment_count != parts)
        return RP_FAIL(INVALID, "%d segments for %d parts; one each is needed", segment_count,
                       parts);
    if (layout == RPI_SPLIT_RANKED) RP_TRY(check_parts(segments, segment_count, parts));
    size_t *before = NULL;
    RP_TRY(rpi_alloc_array((size_t)segment_count + 1, sizeof *before, "a split", &before));
    for (int i = 0; i < segment_count; i++) {
        rp_status status = weigh(&segments[i], i, before[i], &before[i + 1]);
        if (status != RP_OK) {
            rpi_free(before);
            return status;
        }
    }
    *out_split = (rpi_split){.segments = segments,
                             .segment_count = segment_count,
                             .layout = layout,
                             .chunks = chunks,
                             .parts = parts,
                             .before = before};
    return RP_OK;
}

rp_status rpi_split_init(const rpi_split_segment *segments, int segment_count,
                         rpi_split_layout layout, int chunks, int parts, rpi_split *out_split) {
    *out_split = (rpi_split){0};
    if (layout == RPI_SPLIT_BLOCKS)
        return RP_FAIL(INVALID, "blocks are cut by the length of a piece, not into %d chunks",
                       chunks);
    return init(segments, segment_count, layout, chunks, parts, out_split);
}

/* Places to cut (units) in a full piece of a segment; never more than the segment has. */
static size_t piece_units(const rpi_split *split, int part) {
    const rpi_split_segment *segment = &split->segments[part];
    size_t wanted = split->piece_bytes / cut_bytes(segment), all = units(segment);
    if (wanted < 1) wanted = 1;
    return wanted < all ? wanted : all;
}

static size_t count_pieces(const rpi_split *split, int part) {
    size_t all = units(&split->segments[part]);
    if (all == 0) return 0;
    size_t each = piece_units(split, part);
    return all / each + (all % each != 0);
}

rp_status rpi_split_init_blocks(const rpi_split_segment *segments, int parts,
                                size_t piece_bytes, rpi_split *out_split) {
    RP_TRY(init(segments, parts, RPI_SPLIT_BLOCKS, 1, parts, out_split));
    out_split->piece_bytes = piece_bytes ? piece_bytes : RPI_PART_BYTES;
    for (int part = 0; part < parts; part++) {
        size_t pieces = count_pieces(out_split, part);
        if (pieces > INT_MAX) {
            rp_status status =
                RP_FAIL(INVALID, "segment %d has %zu pieces of %zu bytes, more than %d", part,
                        pieces, out_split->piece_bytes, INT_MAX);
            rpi_split_free(out_split);
            return status;
        }
        if ((int)pieces > out_split->chunks) out_split->chunks = (int)pieces;
    }
    return RP_OK;
}

int rpi_split_pieces(const rpi_split *split, int part) {
    return (int)count_pieces(split, part);
}

void rpi_split_free(rpi_split *split) {
    rpi_free(split->before);
    *split = (rpi_split){0};
}

typedef struct cut {
    int segment;
    size_t element;
} cut;

/* floor(total * k / n) without overflow for k <= n < 2^32. */
static size_t share(size_t total, uint64_t k, uint64_t n) {
    return (size_t)(total / n * k + total % n * k / n);
}

/* The place in a segment at or before an offset in its encoding where it may be cut. */
static size_t element_at(const rpi_split_segment *segment, size_t encoded_offset) {
    size_t unit = encoded_offset / cut_bytes(segment);
    return unit >= units(segment) ? segment->count : unit * cut_elements(segment);
}

/* Segments first ... last - 1 are one behind the other. */
typedef struct stretch {
    int first, last;
} stretch;

/* The last segment of a stretch that starts at or before an offset. */
static int segment_at(const rpi_split *split, stretch of, size_t encoded_offset) {
    int low = of.first, high = of.last - 1;
    while (low < high) {
        int middle = low + (high - low + 1) / 2;
        if (split->before[middle] <= encoded_offset)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Cut k of `pieces` of a stretch: floors of a rising sequence rise, the first is the start and
 * the last the end, so every element is between exactly two neighbours. */
static cut cut_at(const rpi_split *split, stretch of, uint64_t k, uint64_t pieces) {
    size_t start = split->before[of.first], bytes = split->before[of.last] - start;
    size_t offset = start + share(bytes, k, pieces);
    int segment = segment_at(split, of, offset);
    return (cut){segment,
                 element_at(&split->segments[segment], offset - split->before[segment])};
}

/* Piece k of `pieces` of a stretch that has segments. */
static rpi_split_cursor stretch_piece(const rpi_split *split, stretch of, uint64_t k,
                                      uint64_t pieces) {
    cut begin = cut_at(split, of, k, pieces), end = cut_at(split, of, k + 1, pieces);
    return (rpi_split_cursor){split, begin.segment, end.segment, begin.element, end.element};
}

/* The first segment of a part, or of those behind it. */
static int first_of_part(const rpi_split *split, int part) {
    int low = 0, high = split->segment_count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (split->segments[middle].part < part)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static stretch stretch_of_part(const rpi_split *split, int part) {
    return (stretch){first_of_part(split, part), first_of_part(split, part + 1)};
}

static rpi_split_cursor block_piece(const rpi_split *split, int piece, int part) {
    const rpi_split_segment *segment = &split->segments[part];
    if ((size_t)piece >= count_pieces(split, part))
        return (rpi_split_cursor){split, part, part, segment->count, segment->count};
    size_t each = piece_units(split, part), first = (size_t)piece * each;
    bool last = units(segment) - first <= each;
    return (rpi_split_cursor){split, part, part, first * cut_elements(segment),
                              last ? segment->count : (first + each) * cut_elements(segment)};
}

rpi_split_cursor rpi_split_piece(const rpi_split *split, int chunk, int part) {
    if (split->layout == RPI_SPLIT_BLOCKS) return block_piece(split, chunk, part);
    bool ranked = split->layout == RPI_SPLIT_RANKED;
    stretch of = ranked ? stretch_of_part(split, part) : (stretch){0, split->segment_count};
    if (of.first == of.last) return (rpi_split_cursor){.split = split, .last_segment = -1};
    uint64_t chunks = (uint64_t)split->chunks, parts = (uint64_t)split->parts;
    uint64_t k = (uint64_t)chunk;
    if (ranked) return stretch_piece(split, of, k, chunks);
    return stretch_piece(split, of, k * parts + (uint64_t)part, chunks * parts);
}

int rpi_split_next(rpi_split_cursor *cursor, rpi_split_range *out_range) {
    const rpi_split *split = cursor->split;
    while (cursor->segment <= cursor->last_segment && cursor->segment < split->segment_count) {
        int segment = cursor->segment++;
        size_t first = cursor->first;
        size_t last =
            segment == cursor->last_segment ? cursor->last : split->segments[segment].count;
        cursor->first = 0;
        if (first >= last) continue;
        *out_range = (rpi_split_range){segment, first, last - first};
        return 1;
    }
    return 0;
}

/* A piece is a share rounded at both ends, each time down by less than one unit: what the share
 * lacks of a whole byte is in that. */
static size_t largest_of(size_t total, uint64_t pieces, size_t unit_bytes) {
    size_t most = total / pieces + unit_bytes;
    return most < total ? most : total;
}

static size_t largest_block(const rpi_split *split) {
    size_t largest = 0;
    for (int part = 0; part < split->parts; part++) {
        size_t bytes = piece_units(split, part) * cut_bytes(&split->segments[part]);
        if (bytes > largest) largest = bytes;
    }
    return largest;
}

/* Of any of the `pieces` of a stretch. */
static size_t largest_in(const rpi_split *split, stretch of, uint64_t pieces) {
    size_t unit_bytes = 0, bytes = split->before[of.last] - split->before[of.first];
    for (int i = of.first; i < of.last; i++) {
        size_t unit = cut_bytes(&split->segments[i]);
        if (unit > unit_bytes && split->before[i + 1] > split->before[i]) unit_bytes = unit;
    }
    return largest_of(bytes, pieces, unit_bytes);
}

size_t rpi_split_largest(const rpi_split *split) {
    if (split->layout == RPI_SPLIT_BLOCKS) return largest_block(split);
    uint64_t chunks = (uint64_t)split->chunks, parts = (uint64_t)split->parts;
    if (split->layout == RPI_SPLIT_VECTOR)
        return largest_in(split, (stretch){0, split->segment_count}, chunks * parts);
    size_t largest = 0;
    for (int part = 0; part < split->parts; part++) {
        size_t most = largest_in(split, stretch_of_part(split, part), chunks);
        if (most > largest) largest = most;
    }
    return largest;
}

/* With a granule more it fits a frame as it is, too, as it travels inside a host. */
enum { PART_BYTES_MAX = RPI_PART_BYTES / 8 * 15 };

size_t rpi_split_part_bytes(size_t bytes, size_t encoded) {
    if (bytes == 0 || encoded == 0) return RPI_PART_BYTES;
    double ratio = (double)encoded / (double)bytes;
    double segments = floor(RPI_PART_BYTES * ratio / RPI_SEGMENT_BYTES + 0.5);
    double part_bytes = fmax(segments, 1) * RPI_SEGMENT_BYTES / ratio;
    return (size_t)fmin(part_bytes, PART_BYTES_MAX);
}

int rpi_split_chunks(size_t bytes, size_t encoded, size_t chunk_bytes, int parts) {
    if (!chunk_bytes) chunk_bytes = (size_t)parts * rpi_split_part_bytes(bytes, encoded);
    size_t chunks = bytes / chunk_bytes + (bytes % chunk_bytes != 0);
    if (chunks > INT_MAX) return INT_MAX;
    return chunks ? (int)chunks : 1;
}
