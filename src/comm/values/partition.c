#include "comm/values/partition.h"

#include "base/memory.h"
#include "base/status.h"
#include "codec/codec.h"
#include "comm/values/values.h"

#include <string.h>

rp_status rpi_partition_reserve(rpi_partition *partition, size_t count) {
    if (count > partition->room) {
        partition->room = 0;
        RP_TRY(rpi_grow_array(0, count, sizeof *partition->extents, "a list of segments",
                              &partition->extents));
        RP_TRY(rpi_grow_array(0, count, sizeof *partition->segments, "a list of segments",
                              &partition->segments));
        partition->room = count;
    }
    partition->count = count;
    return RP_OK;
}

/* Returns the most bytes of all extents when encoded. */
static size_t describe_extents(rpi_partition *partition) {
    size_t encoded = 0;
    partition->varies = false;
    partition->bytes = 0;
    for (size_t i = 0; i < partition->count; i++) {
        const rpi_extent *extent = &partition->extents[i];
        partition->varies |= rpi_codec_kind_of(&extent->codec)->varies;
        size_t granule = rp_codec_granule(&extent->codec);
        partition->segments[i] = (rpi_split_segment){
            .count = extent->count,
            .granule = granule,
            .element_bytes = rp_dtype_bytes(extent->dtype),
            .granule_bytes = rp_codec_encoded_bytes(&extent->codec, extent->dtype, granule),
            .part = extent->part};
        partition->bytes += extent->count * rp_dtype_bytes(extent->dtype);
        encoded += rp_codec_encoded_bytes(&extent->codec, extent->dtype, extent->count);
    }
    return encoded;
}

static bool is_in_order(const rpi_partition *partition) {
    for (size_t i = 1; i < partition->count; i++)
        if (partition->extents[i].part < partition->extents[i - 1].part) return false;
    return true;
}

/* places: room for the place of each part's first extent, zeros. */
static void place_runs(rpi_partition *partition, int parts, const rpi_extent *from,
                       size_t *places) {
    size_t before = 0;
    for (size_t i = 0; i < partition->count; i++) places[from[i].part]++;
    for (int part = 0; part < parts; part++) {
        size_t extents = places[part];
        places[part] = before;
        before += extents;
    }
    for (size_t i = 0; i < partition->count; i++)
        partition->extents[places[from[i].part]++] = from[i];
}

static rp_status sort_runs(rpi_partition *partition, int parts) {
    if (is_in_order(partition)) return RP_OK;
    rpi_extent *copy = NULL;
    size_t *places = NULL;
    rp_status status =
        rpi_alloc_array(partition->count, sizeof *copy, "a list of segments", &copy);
    if (status == RP_OK)
        status = rpi_alloc_array((size_t)parts, sizeof *places, "their owners", &places);
    if (status == RP_OK) {
        memcpy(copy, partition->extents, partition->count * sizeof *copy);
        place_runs(partition, parts, copy, places);
    }
    rpi_free(copy);
    rpi_free(places);
    return status;
}

static rp_status make_blocks(rpi_partition *partition, size_t piece_bytes, size_t limit_bytes) {
    describe_extents(partition);
    if (piece_bytes > limit_bytes) piece_bytes = limit_bytes;
    rpi_split_free(&partition->split);
    return rpi_split_init_blocks(partition->segments, (int)partition->count, piece_bytes,
                                 &partition->split);
}

static size_t most_of(size_t a, size_t b) {
    return a > b ? a : b;
}

/* In a frame: at most, with lengths, or as they are. */
static size_t largest_part(const rpi_partition *partition) {
    size_t largest = rpi_split_largest(&partition->split);
    if (!partition->inside && !partition->varies) return largest;
    for (int chunk = 0; chunk < partition->split.chunks; chunk++)
        for (int part = 0; part < partition->split.parts; part++) {
            uint32_t c = (uint32_t)chunk;
            if (partition->inside)
                largest = most_of(largest, rpi_partition_part_values(partition, c, part));
            if (partition->varies)
                largest = most_of(
                    largest, rpi_partition_part_bytes(partition, c, part, RPI_LEVEL_WORLD));
        }
    return largest;
}

rp_status rpi_partition_make(rpi_partition *partition, rpi_split_layout layout, int parts,
                             size_t chunk_bytes, size_t limit_bytes) {
    if (layout == RPI_SPLIT_BLOCKS) return make_blocks(partition, chunk_bytes, limit_bytes);
    if (layout == RPI_SPLIT_RANKED) RP_TRY(sort_runs(partition, parts));
    size_t encoded = describe_extents(partition);
    bool by_part = partition->part_bytes && !chunk_bytes;
    int chunks = by_part ? rpi_split_chunks(encoded, encoded,
                                            (size_t)parts * partition->part_bytes, parts)
                         : rpi_split_chunks(partition->bytes, encoded, chunk_bytes, parts);
    for (;;) {
        rpi_split_free(&partition->split);
        RP_TRY(rpi_split_init(partition->segments, (int)partition->count, layout, chunks, parts,
                              &partition->split));
        size_t largest = largest_part(partition);
        if (largest <= limit_bytes) return RP_OK;
        /* Halving has no effect once a part is about a granule long. */
        if ((size_t)chunks > 2 * (partition->bytes / limit_bytes + 1) * 64)
            return RP_FAIL(UNSUPPORTED,
                           "a part of %zu bytes does not fit a frame (%zu): "
                           "use a smaller bucket",
                           largest, limit_bytes);
        chunks *= 2;
    }
}

void rpi_partition_clear(rpi_partition *partition) {
    rpi_split_free(&partition->split);
    rpi_free(partition->staged);
    partition->staged = NULL;
}

void rpi_partition_free(rpi_partition *partition) {
    rpi_partition_clear(partition);
    rpi_free(partition->extents);
    rpi_free(partition->segments);
    *partition = (rpi_partition){0};
}

rpi_walk rpi_partition_walk(const rpi_partition *partition, uint32_t chunk, int part,
                            int level) {
    return (rpi_walk){.partition = partition,
                      .level = level,
                      .cursor = rpi_split_piece(&partition->split, (int)chunk, part)};
}

bool rpi_walk_next(rpi_walk *walk, rpi_slice *out_slice) {
    static const rp_codec exact = {0};
    rpi_split_range range;
    if (!rpi_split_next(&walk->cursor, &range)) return false;
    const rpi_extent *extent = &walk->partition->extents[range.segment];
    bool inside = walk->level == RPI_LEVEL_HOST;
    const rp_codec *codec = inside ? &exact : &extent->codec;
    *out_slice = (rpi_slice){
        .extent = extent,
        .codec = codec,
        .residual = extent->residual && !inside ? extent->residual + range.first : NULL,
        .offset = range.first,
        .count = range.count,
        .bytes = rp_codec_encoded_bytes(codec, extent->dtype, range.count),
        .varies = rpi_codec_kind_of(codec)->varies,
        .sum_offset = walk->sum_offset};
    walk->sum_offset +=
        rpi_align_up(range.count * rp_dtype_bytes(rpi_sum_dtype(extent->dtype)));
    return true;
}

size_t rpi_partition_part_bytes(const rpi_partition *partition, uint32_t chunk, int part,
                                int level) {
    size_t bytes = 0;
    rpi_slice slice;
    for (rpi_walk walk = rpi_partition_walk(partition, chunk, part, level);
         rpi_walk_next(&walk, &slice);)
        bytes += slice.bytes + (slice.varies ? RPI_LENGTH_BYTES : 0);
    return bytes;
}

/* ---- encodings of any length ---- */

void rpi_slice_put_length(void *at, size_t length) {
    uint32_t number = (uint32_t)length;
    memcpy(at, &number, RPI_LENGTH_BYTES);
}

size_t rpi_slice_take_length(const rpi_slice *slice, const unsigned char **bytes) {
    if (!slice->varies) return slice->bytes;
    uint32_t length;
    memcpy(&length, *bytes, RPI_LENGTH_BYTES);
    *bytes += RPI_LENGTH_BYTES;
    return length;
}

static rp_status check_slice(const rpi_slice *slice, const unsigned char **at,
                             const unsigned char *end) {
    if (end - *at < (slice->varies ? RPI_LENGTH_BYTES : 0))
        return RP_FAIL(CORRUPT, "it ends before the length of an encoding");
    size_t length = rpi_slice_take_length(slice, at), left = (size_t)(end - *at);
    if (length > left)
        return RP_FAIL(CORRUPT, "an encoding of %zu bytes has %zu left", length, left);
    const unsigned char *in = *at;
    *at += length;
    if (!slice->varies) return RP_OK;
    return rpi_codec_check_encoding(slice->codec, slice->extent->dtype, in, length,
                                    slice->count);
}

rp_status rpi_partition_check_part(const rpi_partition *partition, uint32_t chunk, int part,
                                   int level, const void *payload, size_t bytes) {
    const unsigned char *at = payload, *end = at + bytes;
    rpi_slice slice;
    for (rpi_walk walk = rpi_partition_walk(partition, chunk, part, level);
         rpi_walk_next(&walk, &slice);)
        RP_TRY(check_slice(&slice, &at, end));
    if (at == end) return RP_OK;
    return RP_FAIL(CORRUPT, "%zu bytes are behind its last encoding", (size_t)(end - at));
}

size_t rpi_partition_part_values(const rpi_partition *partition, uint32_t chunk, int part) {
    size_t bytes = 0;
    rpi_slice slice;
    for (rpi_walk walk = rpi_partition_walk(partition, chunk, part, RPI_LEVEL_WORLD);
         rpi_walk_next(&walk, &slice);)
        bytes += slice.count * rp_dtype_bytes(slice.extent->dtype);
    return bytes;
}

bool rpi_partition_is_past(const rpi_partition *partition, uint32_t chunk, int part) {
    return chunk && partition->split.layout == RPI_SPLIT_BLOCKS &&
           chunk >= (uint32_t)rpi_split_pieces(&partition->split, part);
}

size_t rpi_partition_sum_bytes(const rpi_partition *partition, uint32_t chunk, int part) {
    rpi_walk walk = rpi_partition_walk(partition, chunk, part, RPI_LEVEL_WORLD);
    for (rpi_slice slice; rpi_walk_next(&walk, &slice);) {
    }
    return walk.sum_offset;
}
