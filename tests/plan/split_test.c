#include "plan/split.h"

#include "base/memory.h"
#include "base/rng.h"
#include "harness/check.h"

enum { MOST_SEGMENTS = 8 };

static const rpi_split_segment kinds[] = {
    {.granule = 1, .element_bytes = 4, .granule_bytes = 4},     /* f32 */
    {.granule = 1, .element_bytes = 2, .granule_bytes = 2},     /* f16 */
    {.granule = 1, .element_bytes = 8, .granule_bytes = 8},     /* f64 */
    {.granule = 1, .element_bytes = 1, .granule_bytes = 1},     /* i8 */
    {.granule = 1, .element_bytes = 4, .granule_bytes = 2},     /* f32 as bf16 */
    {.granule = 512, .element_bytes = 4, .granule_bytes = 264}, /* q4 */
    {.granule = 128, .element_bytes = 2, .granule_bytes = 24},  /* q1, f16 */
    {.granule = 7, .element_bytes = 4, .granule_bytes = 15},    /* an odd bucket */
};

static int is_multiple(size_t a, size_t b) {
    return a % b == 0;
}

static size_t cut_unit(const rpi_split_segment *segment) {
    return segment->granule > 1 ? segment->granule : 64 / segment->element_bytes;
}

/* Bytes of a range, short granules and cache lines weighed as full. */
static size_t weight(const rpi_split_segment *segment, size_t count) {
    size_t unit = cut_unit(segment);
    return (count + unit - 1) / unit * (unit / segment->granule) * segment->granule_bytes;
}

typedef struct walk {
    int segment;
    size_t element;
    size_t smallest, largest; /* pieces, by weight */
} walk;

/* One piece: it begins where the one before ended, and is cut only where it may be. */
static void walk_piece(walk *w, const rpi_split *split, int chunk, int part) {
    size_t bytes = 0;
    rpi_split_cursor cursor = rpi_split_piece(split, chunk, part);
    for (rpi_split_range range; rpi_split_next(&cursor, &range);) {
        while (w->segment < split->segment_count &&
               w->element == split->segments[w->segment].count) {
            w->segment++;
            w->element = 0;
        }
        const rpi_split_segment *segment = &split->segments[range.segment];
        CHECK_EQ(range.segment, w->segment);
        CHECK_EQ(range.first, w->element);
        CHECK(range.count > 0 && range.first + range.count <= segment->count);
        CHECK(is_multiple(range.first, cut_unit(segment)));
        w->element = range.first + range.count;
        CHECK(w->element == segment->count || is_multiple(w->element, cut_unit(segment)));
        bytes += weight(segment, range.count);
    }
    CHECK(bytes <= rpi_split_largest(split));
    if (bytes > w->largest) w->largest = bytes;
    if (bytes < w->smallest) w->smallest = bytes;
}

static void check_end(walk *w, const rpi_split *split) {
    while (w->segment < split->segment_count &&
           w->element == split->segments[w->segment].count) {
        w->segment++;
        w->element = 0;
    }
    CHECK_EQ(w->segment, split->segment_count);
}

static void check_vector(const rpi_split_segment *segments, int count, int chunks, int parts) {
    rpi_split split;
    walk w = {.smallest = SIZE_MAX};
    size_t unit = 0;
    REQUIRE_OK(rpi_split_init(segments, count, RPI_SPLIT_VECTOR, chunks, parts, &split));
    for (int chunk = 0; chunk < chunks; chunk++)
        for (int part = 0; part < parts; part++) walk_piece(&w, &split, chunk, part);
    check_end(&w, &split);
    for (int i = 0; i < count; i++)
        if (weight(&segments[i], 1) > unit) unit = weight(&segments[i], 1);
    CHECK_MSG(w.largest - w.smallest <= 2 * unit, "pieces of %zu to %zu bytes, unit %zu",
              w.smallest, w.largest, unit);
    rpi_split_free(&split);
}

/* Each part is its segments, cut into chunks of equal weight, and nothing else. */
static void check_ranked(const rpi_split_segment *segments, int count, int chunks, int parts) {
    rpi_split split;
    int first = 0;
    REQUIRE_OK(rpi_split_init(segments, count, RPI_SPLIT_RANKED, chunks, parts, &split));
    for (int part = 0; part < parts; part++) {
        walk w = {.segment = first, .smallest = SIZE_MAX};
        size_t unit = 0;
        for (int chunk = 0; chunk < chunks; chunk++) walk_piece(&w, &split, chunk, part);
        while (w.segment < count && w.element == segments[w.segment].count &&
               segments[w.segment].part == part) {
            w.segment++;
            w.element = 0;
        }
        for (; first < count && segments[first].part == part; first++)
            if (weight(&segments[first], 1) > unit) unit = weight(&segments[first], 1);
        CHECK_EQ(w.segment, first);
        CHECK_EQ(w.element, 0);
        CHECK(w.largest - w.smallest <= 2 * unit);
    }
    CHECK_EQ(first, count);
    rpi_split_free(&split);
}

/* Encoded bytes of a full piece. */
static size_t full_piece(const rpi_split_segment *segment, size_t piece_bytes) {
    size_t unit = weight(segment, 1);
    return piece_bytes < unit ? unit : piece_bytes / unit * unit;
}

/* Pieces follow each other, all but the last full, and chunks behind the last are empty. */
static void check_block(const rpi_split *split, int part, size_t piece_bytes) {
    const rpi_split_segment *segment = &split->segments[part];
    size_t full = full_piece(segment, piece_bytes), done = 0;
    int pieces = rpi_split_pieces(split, part);
    CHECK(pieces <= split->chunks);
    for (int piece = 0; piece < pieces; piece++) {
        rpi_split_cursor cursor = rpi_split_piece(split, piece, part);
        rpi_split_range range = {0}, more;
        CHECK(rpi_split_next(&cursor, &range) && !rpi_split_next(&cursor, &more));
        CHECK(range.segment == part && range.first == done && range.count > 0);
        size_t bytes = weight(segment, range.count);
        CHECK(bytes <= rpi_split_largest(split));
        CHECK_MSG(piece < pieces - 1 ? bytes == full : bytes <= full,
                  "piece %d of %d has %zu bytes, a full one %zu", piece, pieces, bytes, full);
        done += range.count;
    }
    CHECK_EQ(done, segment->count);
    const int beyond[] = {pieces, pieces + 1, split->chunks + 1000, INT32_MAX};
    for (size_t i = 0; i < sizeof beyond / sizeof beyond[0]; i++) {
        rpi_split_cursor cursor = rpi_split_piece(split, beyond[i], part);
        rpi_split_range range;
        CHECK(!rpi_split_next(&cursor, &range));
    }
}

static void check_blocks(const rpi_split_segment *segments, int parts, size_t piece_bytes) {
    rpi_split split;
    int most = 1;
    REQUIRE_OK(rpi_split_init_blocks(segments, parts, piece_bytes, &split));
    CHECK_EQ(split.parts, parts);
    for (int part = 0; part < parts; part++) {
        check_block(&split, part, piece_bytes);
        if (rpi_split_pieces(&split, part) > most) most = rpi_split_pieces(&split, part);
    }
    CHECK_EQ(split.chunks, most);
    rpi_split_free(&split);
}

/* Uneven blocks, empty ones among them; pieces from shorter than a granule to all there is. */
static void random_blocks(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 2);
    for (int trial = 0; trial < 3000; trial++) {
        rpi_split_segment segments[MOST_SEGMENTS];
        int parts = 1 + (int)rpi_rng_below(&rng, MOST_SEGMENTS);
        uint32_t bound = rpi_rng_below(&rng, 2) ? 40 : 60000;
        for (int i = 0; i < parts; i++) {
            segments[i] = kinds[rpi_rng_below(&rng, sizeof kinds / sizeof kinds[0])];
            segments[i].count = rpi_rng_below(&rng, 4) ? rpi_rng_below(&rng, bound) : 0;
        }
        check_blocks(segments, parts, 1 + rpi_rng_below(&rng, 4 * bound));
    }
}

/* The two ranks that share a block cut it alike, whatever else each of them has. */
static void both_ends_cut_a_block_alike(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 3);
    for (int trial = 0; trial < 1000; trial++) {
        rpi_split_segment here[3], there[2];
        for (int i = 0; i < 3; i++) here[i] = kinds[rpi_rng_below(&rng, 8)];
        for (int i = 0; i < 3; i++) here[i].count = rpi_rng_below(&rng, 10000);
        there[0] = here[2];
        there[1] = here[rpi_rng_below(&rng, 2)];
        there[1].count = rpi_rng_below(&rng, 100000);
        size_t piece_bytes = 1 + rpi_rng_below(&rng, 5000);
        rpi_split sender, receiver;
        REQUIRE_OK(rpi_split_init_blocks(here, 3, piece_bytes, &sender));
        REQUIRE_OK(rpi_split_init_blocks(there, 2, piece_bytes, &receiver));
        CHECK_EQ(rpi_split_pieces(&sender, 2), rpi_split_pieces(&receiver, 0));
        for (int piece = 0; piece < rpi_split_pieces(&sender, 2); piece++) {
            rpi_split_cursor one = rpi_split_piece(&sender, piece, 2);
            rpi_split_cursor other = rpi_split_piece(&receiver, piece, 0);
            rpi_split_range a = {0}, b = {0};
            CHECK(rpi_split_next(&one, &a) && rpi_split_next(&other, &b));
            CHECK(a.first == b.first && a.count == b.count);
        }
        rpi_split_free(&sender);
        rpi_split_free(&receiver);
    }
}

/* A length given is kept exactly where it is a whole number of granules or lines. */
static void particular_blocks(void) {
    static const struct {
        int kind;
        size_t count, piece_bytes;
        int pieces;
        size_t largest;
    } cases[] = {
        {0, 0, 256, 0, 0},         {0, 1, 256, 1, 64},        {0, 64, 256, 1, 256},
        {0, 65, 256, 2, 256},      {0, 64, 255, 2, 192},      {0, 64, 1, 4, 64},
        {5, 512, 264, 1, 264},     {5, 513, 264, 2, 264},     {5, 2048, 1000, 2, 792},
        {5, 2048, 100, 4, 264},    {4, 1000, 64, 32, 64},     {7, 15, 30, 2, 30},
        {0, 65536, 0, 1, 1 << 18}, {0, 65537, 0, 2, 1 << 18},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rpi_split split;
        rpi_split_segment segment = kinds[cases[i].kind];
        segment.count = cases[i].count;
        REQUIRE_OK(rpi_split_init_blocks(&segment, 1, cases[i].piece_bytes, &split));
        CHECK_EQ(rpi_split_pieces(&split, 0), cases[i].pieces);
        CHECK_EQ(split.chunks, cases[i].pieces ? cases[i].pieces : 1);
        CHECK_EQ(rpi_split_largest(&split), cases[i].largest);
        rpi_split_free(&split);
    }
}

static void bad_blocks(void) {
    rpi_split split = {.chunks = 1};
    rpi_split_segment segments[2] = {kinds[0], kinds[3]};
    CHECK_FAILS(rpi_split_init(segments, 2, RPI_SPLIT_BLOCKS, 2, 2, &split), INVALID,
                "length of a piece");
    CHECK(!split.before && !split.chunks);
    CHECK_FAILS(rpi_split_init_blocks(segments, 0, 64, &split), INVALID, "0 parts");
    segments[1].count = SIZE_MAX - 128;
    CHECK_FAILS(rpi_split_init_blocks(segments, 2, 64, &split), INVALID, "segment 1 has");
    CHECK(!split.before);
    check_blocks(segments + 1, 1, SIZE_MAX / 7);
    segments[0].granule_bytes = 0;
    CHECK_FAILS(rpi_split_init_blocks(segments, 2, 64, &split), INVALID, "segment 0");
    segments[0] = kinds[0];
    rpi_memory_fail_after(1);
    CHECK_FAILS(rpi_split_init_blocks(segments, 1, 64, &split), NOMEM, "split");
    rpi_memory_fail_after(0);
    CHECK(!split.before);
}

static void small_counts_in_every_world(void) {
    for (size_t kind = 0; kind < sizeof kinds / sizeof kinds[0]; kind++) {
        for (int world = 1; world <= 33; world++) {
            for (size_t count = 0; count <= 4 * (size_t)world; count++) {
                rpi_split_segment segment = kinds[kind], granules = kinds[kind];
                segment.count = count;
                granules.count = count * cut_unit(&granules) - (count > 1);
                check_vector(&segment, 1, 1, world);
                check_vector(&granules, 1, 1 + (int)count % 3, world);
            }
        }
    }
}

static void random_segments(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    for (int trial = 0; trial < 3000; trial++) {
        rpi_split_segment segments[MOST_SEGMENTS];
        int count = (int)rpi_rng_below(&rng, MOST_SEGMENTS + 1);
        uint32_t bound = rpi_rng_below(&rng, 2) ? 40 : 60000;
        for (int i = 0; i < count; i++) {
            segments[i] = kinds[rpi_rng_below(&rng, sizeof kinds / sizeof kinds[0])];
            segments[i].count = rpi_rng_below(&rng, bound);
        }
        int chunks = 1 + (int)rpi_rng_below(&rng, 9);
        check_vector(segments, count, chunks, 1 + (int)rpi_rng_below(&rng, 12));
        for (int i = 0; i < count; i++) segments[i].part = i;
        if (count) check_ranked(segments, count, chunks, count);
        int parts = 1 + (int)rpi_rng_below(&rng, 6), part = 0;
        for (int i = 0; i < count; i++) {
            part += (int)rpi_rng_below(&rng, (uint32_t)(parts - part));
            segments[i].part = part;
            if (rpi_rng_below(&rng, 4) == 0) segments[i].count = 0;
        }
        check_ranked(segments, count, chunks, parts);
    }
}

/* Equal counts are cut alike, whatever the rank that a part belongs to. */
static void ranks_are_cut_alike(void) {
    rpi_split_segment segments[5];
    rpi_split split;
    for (int i = 0; i < 5; i++) segments[i] = kinds[5];
    for (int i = 0; i < 5; i++) segments[i].count = 100003;
    for (int i = 0; i < 5; i++) segments[i].part = i;
    REQUIRE_OK(rpi_split_init(segments, 5, RPI_SPLIT_RANKED, 7, 5, &split));
    for (int chunk = 0; chunk < 7; chunk++) {
        rpi_split_cursor first = rpi_split_piece(&split, chunk, 0);
        rpi_split_range a = {0}, b = {0};
        CHECK(rpi_split_next(&first, &a));
        for (int part = 1; part < 5; part++) {
            rpi_split_cursor other = rpi_split_piece(&split, chunk, part);
            CHECK(rpi_split_next(&other, &b));
            CHECK(b.segment == part && a.first == b.first && a.count == b.count);
        }
    }
    rpi_split_free(&split);
}

/* No intermediate product overflows where the vector itself is possible. */
static void huge_vectors(void) {
    rpi_split_segment segment = kinds[5];
    segment.count = SIZE_MAX / 8;
    check_vector(&segment, 1, 100, 33);
    segment = kinds[3];
    segment.count = SIZE_MAX - 128;
    check_vector(&segment, 1, 100, 33);
}

static void bad_arguments(void) {
    rpi_split split;
    rpi_split_segment segment = kinds[0];
    CHECK_FAILS(rpi_split_init(&segment, 1, RPI_SPLIT_VECTOR, 0, 1, &split), INVALID,
                "0 chunks");
    CHECK_FAILS(rpi_split_init(&segment, 1, RPI_SPLIT_VECTOR, 1, 0, &split), INVALID,
                "0 parts");
    rpi_split_segment two[2] = {kinds[0], kinds[0]};
    two[0].part = 1;
    CHECK_FAILS(rpi_split_init(two, 2, RPI_SPLIT_RANKED, 1, 2, &split), INVALID,
                "segment 1 belongs to part 0; 1 to 1");
    two[1].part = 2;
    CHECK_FAILS(rpi_split_init(two, 2, RPI_SPLIT_RANKED, 1, 2, &split), INVALID,
                "segment 1 belongs to part 2");
    two[0].part = -1;
    CHECK_FAILS(rpi_split_init(two, 2, RPI_SPLIT_RANKED, 1, 2, &split), INVALID,
                "segment 0 belongs to part -1; 0 to 1");
    CHECK(!split.before);
    segment.granule = 0;
    CHECK_FAILS(rpi_split_init(&segment, 1, RPI_SPLIT_VECTOR, 1, 1, &split), INVALID,
                "granule");
    segment = (rpi_split_segment){SIZE_MAX, 1, 4, 4, 0};
    CHECK_FAILS(rpi_split_init(&segment, 1, RPI_SPLIT_VECTOR, 1, 1, &split), INVALID,
                "address space");
    rpi_memory_fail_after(1);
    segment.count = 1;
    CHECK_FAILS(rpi_split_init(&segment, 1, RPI_SPLIT_VECTOR, 1, 1, &split), NOMEM, "split");
    rpi_memory_fail_after(0);
    rpi_split_free(&split);
}

static void chunk_counts(void) {
    CHECK_EQ(rpi_split_chunks(0, 0, 1024, 4), 1);
    CHECK_EQ(rpi_split_chunks(1024, 1024, 1024, 4), 1);
    CHECK_EQ(rpi_split_chunks(1025, 1025, 1024, 4), 2);
    CHECK_EQ(rpi_split_chunks(SIZE_MAX, SIZE_MAX, 1, 1), INT32_MAX);
    CHECK_EQ(rpi_split_chunks(0, 0, 0, 4), 1);
    CHECK_EQ(rpi_split_chunks(400 * 4 * RPI_SEGMENT_BYTES, 400 * 4 * RPI_SEGMENT_BYTES, 0, 4),
             100);
    CHECK_EQ(rpi_split_chunks(400 * 4 * RPI_SEGMENT_BYTES + 1, 400 * 4 * RPI_SEGMENT_BYTES + 1,
                              0, 4),
             101);
}

/* Whatever the codec makes of it, a part's encoding fills whole segments or stays below one. */
static void parts_fill_segments(void) {
    enum { BYTES = 1 << 30 };
    static const struct {
        const char *codec;
        double ratio; /* of the encoded bytes to those of the elements */
        int segments;
    } rows[] = {{"fp32", 1, 4},        {"bf16", 0.5, 2},      {"q8", 0.25390625, 1},
                {"q6", 0.19140625, 1}, {"q5", 0.16015625, 1}, {"q4", 0.12890625, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t part = rpi_split_part_bytes(BYTES, (size_t)(BYTES * rows[i].ratio));
        double filled = (double)part * rows[i].ratio / RPI_SEGMENT_BYTES;
        CHECK_MSG(filled <= rows[i].segments && filled > rows[i].segments - 0.01,
                  "%s fills %g segments", rows[i].codec, filled);
    }
    for (double ratio = 0.001; ratio < 2; ratio *= 1.1) {
        size_t part = rpi_split_part_bytes(BYTES, (size_t)(BYTES * ratio));
        CHECK_MSG(part > RPI_PART_BYTES / 2 && part < 2 * RPI_PART_BYTES, "%zu bytes at %g",
                  part, ratio);
    }
    CHECK_EQ(rpi_split_part_bytes(0, 0), RPI_PART_BYTES);
    CHECK_EQ(rpi_split_part_bytes(BYTES, 0), RPI_PART_BYTES);
}

CASES({"small counts in every world", small_counts_in_every_world},
      {"random segments", random_segments}, {"ranks are cut alike", ranks_are_cut_alike},
      {"random blocks", random_blocks},
      {"both ends cut a block alike", both_ends_cut_a_block_alike},
      {"particular blocks", particular_blocks}, {"bad blocks", bad_blocks},
      {"huge vectors", huge_vectors}, {"bad arguments", bad_arguments},
      {"chunk counts", chunk_counts}, {"parts fill segments", parts_fill_segments})
