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

static void check_ranked(const rpi_split_segment *segments, int chunks, int parts) {
    rpi_split split;
    REQUIRE_OK(rpi_split_init(segments, parts, RPI_SPLIT_RANKED, chunks, parts, &split));
    for (int part = 0; part < parts; part++) {
        walk w = {.segment = part, .smallest = SIZE_MAX};
        for (int chunk = 0; chunk < chunks; chunk++) walk_piece(&w, &split, chunk, part);
        CHECK(segments[part].count == 0 || w.element == segments[part].count);
        CHECK(w.largest - w.smallest <= 2 * weight(&segments[part], 1));
    }
    rpi_split_free(&split);
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
        if (count) check_ranked(segments, chunks, count);
    }
}

/* Equal counts are cut alike, whatever the rank that a part belongs to. */
static void ranks_are_cut_alike(void) {
    rpi_split_segment segments[5];
    rpi_split split;
    for (int i = 0; i < 5; i++) segments[i] = kinds[5];
    for (int i = 0; i < 5; i++) segments[i].count = 100003;
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
    CHECK_FAILS(rpi_split_init(&segment, 1, RPI_SPLIT_RANKED, 1, 2, &split), INVALID,
                "2 parts");
    segment.granule = 0;
    CHECK_FAILS(rpi_split_init(&segment, 1, RPI_SPLIT_VECTOR, 1, 1, &split), INVALID,
                "granule");
    segment = (rpi_split_segment){SIZE_MAX, 1, 4, 4};
    CHECK_FAILS(rpi_split_init(&segment, 1, RPI_SPLIT_VECTOR, 1, 1, &split), INVALID,
                "address space");
    rpi_memory_fail_after(1);
    segment.count = 1;
    CHECK_FAILS(rpi_split_init(&segment, 1, RPI_SPLIT_VECTOR, 1, 1, &split), NOMEM, "split");
    rpi_memory_fail_after(0);
    rpi_split_free(&split);
}

static void chunk_counts(void) {
    CHECK_EQ(rpi_split_chunks(0, 1024, 4), 1);
    CHECK_EQ(rpi_split_chunks(1024, 1024, 4), 1);
    CHECK_EQ(rpi_split_chunks(1025, 1024, 4), 2);
    CHECK_EQ(rpi_split_chunks(100 << 20, 0, 4), 100);
    CHECK_EQ(rpi_split_chunks(SIZE_MAX, 1, 1), INT32_MAX);
}

CASES({"small counts in every world", small_counts_in_every_world},
      {"random segments", random_segments}, {"ranks are cut alike", ranks_are_cut_alike},
      {"huge vectors", huge_vectors}, {"bad arguments", bad_arguments},
      {"chunk counts", chunk_counts})
