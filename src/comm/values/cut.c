#include "comm/values/cut.h"

#include "base/memory.h"
#include "base/status.h"
#include "codec/codec.h"
#include "comm/values/values.h"

#include <string.h>

rp_status rpi_cut_reserve(rpi_cut *cut, size_t count) {
    if (count > cut->room) {
        cut->room = 0;
        RP_TRY(rpi_grow_array(0, count, sizeof *cut->runs, "a list of segments", &cut->runs));
        RP_TRY(rpi_grow_array(0, count, sizeof *cut->segments, "a list of segments",
                              &cut->segments));
        cut->room = count;
    }
    cut->count = count;
    return RP_OK;
}

/* Returns what all runs encode to, at most. */
static size_t describe_runs(rpi_cut *cut) {
    size_t encoded = 0;
    cut->varies = false;
    cut->bytes = 0;
    for (size_t i = 0; i < cut->count; i++) {
        const rpi_run *run = &cut->runs[i];
        cut->varies |= rpi_codec_kind_of(&run->codec)->varies;
        size_t granule = rp_codec_granule(&run->codec);
        cut->segments[i] = (rpi_split_segment){
            .count = run->count,
            .granule = granule,
            .element_bytes = rp_dtype_bytes(run->dtype),
            .granule_bytes = rp_codec_encoded_bytes(&run->codec, run->dtype, granule),
            .part = run->part};
        cut->bytes += run->count * rp_dtype_bytes(run->dtype);
        encoded += rp_codec_encoded_bytes(&run->codec, run->dtype, run->count);
    }
    return encoded;
}

static bool is_in_order(const rpi_cut *cut) {
    for (size_t i = 1; i < cut->count; i++)
        if (cut->runs[i].part < cut->runs[i - 1].part) return false;
    return true;
}

/* places: room for the place of each part's first run, zeros. */
static void place_runs(rpi_cut *cut, int parts, const rpi_run *from, size_t *places) {
    size_t before = 0;
    for (size_t i = 0; i < cut->count; i++) places[from[i].part]++;
    for (int part = 0; part < parts; part++) {
        size_t runs = places[part];
        places[part] = before;
        before += runs;
    }
    for (size_t i = 0; i < cut->count; i++) cut->runs[places[from[i].part]++] = from[i];
}

static rp_status sort_runs(rpi_cut *cut, int parts) {
    if (is_in_order(cut)) return RP_OK;
    rpi_run *copy = NULL;
    size_t *places = NULL;
    rp_status status = rpi_alloc_array(cut->count, sizeof *copy, "a list of segments", &copy);
    if (status == RP_OK)
        status = rpi_alloc_array((size_t)parts, sizeof *places, "their owners", &places);
    if (status == RP_OK) {
        memcpy(copy, cut->runs, cut->count * sizeof *copy);
        place_runs(cut, parts, copy, places);
    }
    rpi_free(copy);
    rpi_free(places);
    return status;
}

static rp_status make_blocks(rpi_cut *cut, size_t piece_bytes, size_t limit_bytes) {
    describe_runs(cut);
    if (piece_bytes > limit_bytes) piece_bytes = limit_bytes;
    rpi_split_free(&cut->split);
    return rpi_split_init_blocks(cut->segments, (int)cut->count, piece_bytes, &cut->split);
}

static size_t most_of(size_t a, size_t b) {
    return a > b ? a : b;
}

/* In a frame: at most, with lengths, or as it is. */
static size_t largest_part(const rpi_cut *cut) {
    size_t largest = rpi_split_largest(&cut->split);
    if (!cut->inside && !cut->varies) return largest;
    for (int chunk = 0; chunk < cut->split.chunks; chunk++)
        for (int part = 0; part < cut->split.parts; part++) {
            uint32_t c = (uint32_t)chunk;
            if (cut->inside) largest = most_of(largest, rpi_cut_part_values(cut, c, part));
            if (cut->varies)
                largest = most_of(largest, rpi_cut_part_bytes(cut, c, part, RPI_LEVEL_WORLD));
        }
    return largest;
}

rp_status rpi_cut_make(rpi_cut *cut, rpi_split_layout layout, int parts, size_t chunk_bytes,
                       size_t limit_bytes) {
    if (layout == RPI_SPLIT_BLOCKS) return make_blocks(cut, chunk_bytes, limit_bytes);
    if (layout == RPI_SPLIT_RANKED) RP_TRY(sort_runs(cut, parts));
    size_t encoded = describe_runs(cut);
    int chunks = rpi_split_chunks(cut->bytes, encoded, chunk_bytes, parts);
    for (;;) {
        rpi_split_free(&cut->split);
        RP_TRY(
            rpi_split_init(cut->segments, (int)cut->count, layout, chunks, parts, &cut->split));
        size_t largest = largest_part(cut);
        if (largest <= limit_bytes) return RP_OK;
        /* Halving cannot help any more once a part is about a granule long. */
        if ((size_t)chunks > 2 * (cut->bytes / limit_bytes + 1) * 64)
            return RP_FAIL(UNSUPPORTED,
                           "a part of %zu bytes does not fit a frame (%zu): "
                           "use a smaller bucket",
                           largest, limit_bytes);
        chunks *= 2;
    }
}

void rpi_cut_clear(rpi_cut *cut) {
    rpi_split_free(&cut->split);
    rpi_free(cut->staged);
    cut->staged = NULL;
}

void rpi_cut_free(rpi_cut *cut) {
    rpi_cut_clear(cut);
    rpi_free(cut->runs);
    rpi_free(cut->segments);
    *cut = (rpi_cut){0};
}

rpi_walk rpi_cut_walk(const rpi_cut *cut, uint32_t chunk, int part, int level) {
    return (rpi_walk){
        .cut = cut, .level = level, .cursor = rpi_split_piece(&cut->split, (int)chunk, part)};
}

bool rpi_walk_next(rpi_walk *walk, rpi_piece *out_piece) {
    static const rp_codec exact = {0};
    rpi_split_range range;
    if (!rpi_split_next(&walk->cursor, &range)) return false;
    const rpi_run *run = &walk->cut->runs[range.segment];
    bool inside = walk->level == RPI_LEVEL_HOST;
    const rp_codec *codec = inside ? &exact : &run->codec;
    *out_piece =
        (rpi_piece){.run = run,
                    .codec = codec,
                    .residual = run->residual && !inside ? run->residual + range.first : NULL,
                    .offset = range.first,
                    .count = range.count,
                    .bytes = rp_codec_encoded_bytes(codec, run->dtype, range.count),
                    .varies = rpi_codec_kind_of(codec)->varies,
                    .sum_offset = walk->sum_offset};
    walk->sum_offset += rpi_align_up(range.count * rp_dtype_bytes(rpi_sum_dtype(run->dtype)));
    return true;
}

size_t rpi_cut_part_bytes(const rpi_cut *cut, uint32_t chunk, int part, int level) {
    size_t bytes = 0;
    rpi_piece piece;
    for (rpi_walk walk = rpi_cut_walk(cut, chunk, part, level); rpi_walk_next(&walk, &piece);)
        bytes += piece.bytes + (piece.varies ? RPI_LENGTH_BYTES : 0);
    return bytes;
}

/* ---- encodings of any length ---- */

void rpi_piece_put_length(void *at, size_t length) {
    uint32_t number = (uint32_t)length;
    memcpy(at, &number, RPI_LENGTH_BYTES);
}

size_t rpi_piece_take_length(const rpi_piece *piece, const unsigned char **bytes) {
    if (!piece->varies) return piece->bytes;
    uint32_t length;
    memcpy(&length, *bytes, RPI_LENGTH_BYTES);
    *bytes += RPI_LENGTH_BYTES;
    return length;
}

static rp_status check_piece(const rpi_piece *piece, const unsigned char **at,
                             const unsigned char *end) {
    if (end - *at < (piece->varies ? RPI_LENGTH_BYTES : 0))
        return RP_FAIL(CORRUPT, "it ends before the length of an encoding");
    size_t length = rpi_piece_take_length(piece, at), left = (size_t)(end - *at);
    if (length > left)
        return RP_FAIL(CORRUPT, "an encoding of %zu bytes has %zu left", length, left);
    const unsigned char *in = *at;
    *at += length;
    if (!piece->varies) return RP_OK;
    return rpi_codec_check_encoding(piece->codec, piece->run->dtype, in, length, piece->count);
}

rp_status rpi_cut_check_part(const rpi_cut *cut, uint32_t chunk, int part, int level,
                             const void *payload, size_t bytes) {
    const unsigned char *at = payload, *end = at + bytes;
    rpi_piece piece;
    for (rpi_walk walk = rpi_cut_walk(cut, chunk, part, level); rpi_walk_next(&walk, &piece);)
        RP_TRY(check_piece(&piece, &at, end));
    if (at == end) return RP_OK;
    return RP_FAIL(CORRUPT, "%zu bytes are behind its last encoding", (size_t)(end - at));
}

size_t rpi_cut_part_values(const rpi_cut *cut, uint32_t chunk, int part) {
    size_t bytes = 0;
    rpi_piece piece;
    for (rpi_walk walk = rpi_cut_walk(cut, chunk, part, RPI_LEVEL_WORLD);
         rpi_walk_next(&walk, &piece);)
        bytes += piece.count * rp_dtype_bytes(piece.run->dtype);
    return bytes;
}

bool rpi_cut_is_past(const rpi_cut *cut, uint32_t chunk, int part) {
    return chunk && cut->split.layout == RPI_SPLIT_BLOCKS &&
           chunk >= (uint32_t)rpi_split_pieces(&cut->split, part);
}

size_t rpi_cut_sum_bytes(const rpi_cut *cut, uint32_t chunk, int part) {
    rpi_walk walk = rpi_cut_walk(cut, chunk, part, RPI_LEVEL_WORLD);
    for (rpi_piece piece; rpi_walk_next(&walk, &piece);) {
    }
    return walk.sum_offset;
}
