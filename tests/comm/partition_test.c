/* Partitions of segment lists: every element in exactly one part, no part longer than a frame.
 */
#include "comm/core/request.h"
#include "comm/values/partition.h"

#include "base/memory.h"
#include "base/rng.h"
#include "comm/core/communicator.h"
#include "comm/values/values.h"
#include "harness/check.h"

#include <stdlib.h>

static const char *const codecs[] = {"fp32", "bf16",          "q1",
                                     "q4",   "q4:bucket=100", "q8:bucket=2048"};

static void fill_runs(rpi_partition *partition, rpi_rng *rng) {
    for (size_t i = 0; i < partition->count; i++) {
        rpi_extent *extent = &partition->extents[i];
        *extent = (rpi_extent){.count = rpi_rng_below(rng, 3) ? rpi_rng_below(rng, 70000)
                                                              : rpi_rng_below(rng, 3),
                               .dtype = RP_F32};
        CHECK_OK(rp_codec_parse(codecs[rpi_rng_below(rng, 6)], &extent->codec));
    }
}

/* Slices come in order, so that covering means each starts where the one before has ended. */
static void check_covered(const rpi_partition *partition, int level, size_t limit) {
    size_t *next = calloc(partition->count + 1, sizeof *next);
    for (int chunk = 0; chunk < partition->split.chunks; chunk++)
        for (int part = 0; part < partition->split.parts; part++) {
            size_t bytes = 0;
            rpi_slice slice;
            for (rpi_walk walk = rpi_partition_walk(partition, (uint32_t)chunk, part, level);
                 rpi_walk_next(&walk, &slice);) {
                size_t run = (size_t)(slice.extent - partition->extents);
                CHECK(slice.offset == next[run] && slice.count > 0);
                CHECK_EQ(slice.offset % rp_codec_granule(&slice.extent->codec), 0);
                next[run] += slice.count;
                bytes += slice.bytes;
            }
            CHECK_EQ(bytes, rpi_partition_part_bytes(partition, (uint32_t)chunk, part, level));
            CHECK_MSG(bytes <= limit, "a part of %zu bytes", bytes);
        }
    for (size_t i = 0; i < partition->count; i++)
        CHECK_EQ(next[i], partition->extents[i].count);
    free(next);
}

/* A chunk of the first owner is followed by the next chunk of the same one. */
static void check_covered_by_owners(const rpi_partition *partition, size_t limit) {
    size_t run = 0, offset = 0;
    for (int part = 0; part < partition->split.parts; part++)
        for (int chunk = 0; chunk < partition->split.chunks; chunk++) {
            rpi_slice slice;
            for (rpi_walk walk =
                     rpi_partition_walk(partition, (uint32_t)chunk, part, RPI_LEVEL_WORLD);
                 rpi_walk_next(&walk, &slice);) {
                while (offset == partition->extents[run].count) run++, offset = 0;
                CHECK(slice.extent == &partition->extents[run] && slice.offset == offset);
                CHECK_EQ(slice.extent->part, part);
                CHECK_EQ(slice.offset % rp_codec_granule(&slice.extent->codec), 0);
                offset += slice.count;
            }
            CHECK(rpi_partition_part_bytes(partition, (uint32_t)chunk, part, RPI_LEVEL_WORLD) <=
                  limit);
            if (partition->inside)
                CHECK(rpi_partition_part_values(partition, (uint32_t)chunk, part) <= limit);
        }
    while (run < partition->count && offset == partition->extents[run].count) run++, offset = 0;
    CHECK_EQ(run, partition->count);
}

static void parts_cover_every_element_once(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 0);
    rpi_partition partition = {0};
    for (int round = 0; round < 300; round++) {
        size_t limit = round % 2 ? 4096 : 65536, chunk = round % 3 ? 0 : 20000;
        REQUIRE_OK(rpi_partition_reserve(&partition, rpi_rng_below(&rng, 12)));
        fill_runs(&partition, &rng);
        int parts = 1 + (int)rpi_rng_below(&rng, 9);
        REQUIRE_OK(rpi_partition_make(&partition, RPI_SPLIT_VECTOR, parts, chunk, limit));
        check_covered(&partition, RPI_LEVEL_WORLD, limit);
        rpi_partition_clear(&partition);
    }
    rpi_partition_free(&partition);
}

/* Runs in any order of their owners: each part is those of its owner, in their order. */
static void owners_have_their_runs(void) {
    enum { LIMIT = 40000 };
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 2);
    rpi_partition partition = {0};
    for (int round = 0; round < 200; round++) {
        int parts = 1 + (int)rpi_rng_below(&rng, 7);
        REQUIRE_OK(rpi_partition_reserve(&partition, rpi_rng_below(&rng, 12)));
        fill_runs(&partition, &rng);
        for (size_t i = 0; i < partition.count; i++) {
            partition.extents[i].part = (int)rpi_rng_below(&rng, (uint32_t)parts);
            partition.extents[i].tensor = (uint32_t)i;
        }
        partition.inside = round % 2;
        REQUIRE_OK(rpi_partition_make(&partition, RPI_SPLIT_RANKED, parts,
                                      round % 3 ? 0 : 20000, LIMIT));
        for (size_t i = 1; i < partition.count; i++) {
            const rpi_extent *extent = &partition.extents[i], *last = extent - 1;
            CHECK(extent->part > last->part ||
                  (extent->part == last->part && extent->tensor > last->tensor));
        }
        check_covered_by_owners(&partition, LIMIT);
        rpi_partition_clear(&partition);
    }
    rpi_partition_free(&partition);
}

static void owners_need_memory_only_out_of_order(void) {
    rpi_partition partition = {0};
    REQUIRE_OK(rpi_partition_reserve(&partition, 2));
    for (int fail = 1; fail <= 2; fail++) {
        for (int i = 0; i < 2; i++)
            partition.extents[i] = (rpi_extent){.count = 100, .dtype = RP_F32, .part = 1 - i};
        rpi_memory_fail_after(fail);
        CHECK_FAILS(rpi_partition_make(&partition, RPI_SPLIT_RANKED, 2, 0, 40000), NOMEM, "");
        rpi_memory_fail_after(0);
        CHECK_EQ(partition.extents[0].part, 1);
    }
    rpi_partition_free(&partition);
}

/* Cut by encoded bytes, and yet as it is no part is longer than a frame. */
static void exact_parts_fit_too(void) {
    enum { LIMIT = 40000 };
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    rpi_partition partition = {0};
    for (int round = 0; round < 100; round++) {
        REQUIRE_OK(rpi_partition_reserve(&partition, 1 + rpi_rng_below(&rng, 5)));
        fill_runs(&partition, &rng);
        partition.inside = true;
        REQUIRE_OK(rpi_partition_make(&partition, RPI_SPLIT_VECTOR, 1 + round % 7, 0, LIMIT));
        check_covered(&partition, RPI_LEVEL_WORLD, LIMIT);
        check_covered(&partition, RPI_LEVEL_HOST, LIMIT);
        rpi_partition_clear(&partition);
    }
    REQUIRE_OK(rpi_partition_reserve(&partition, 1));
    partition.extents[0] = (rpi_extent){.count = 200000, .dtype = RP_F32};
    REQUIRE_OK(rp_codec_parse("q4:bucket=65536", &partition.extents[0].codec));
    CHECK_FAILS(rpi_partition_make(&partition, RPI_SPLIT_VECTOR, 4, 0, LIMIT), UNSUPPORTED,
                "a part of 262144 bytes does not fit a frame");
    partition.inside = false;
    CHECK_OK(rpi_partition_make(&partition, RPI_SPLIT_VECTOR, 4, 0, LIMIT));
    rpi_partition_free(&partition);
}

static void a_granule_that_fits_no_frame_is_refused(void) {
    rpi_partition partition = {0};
    REQUIRE_OK(rpi_partition_reserve(&partition, 1));
    partition.extents[0] = (rpi_extent){.count = 10000000, .dtype = RP_F32};
    CHECK_OK(rp_codec_parse("q8:bucket=262136", &partition.extents[0].codec));
    CHECK_FAILS(rpi_partition_make(&partition, RPI_SPLIT_VECTOR, 4, 0, 65536), UNSUPPORTED,
                "smaller bucket");
    rpi_partition_free(&partition);
}

/* Bytes of a chunk: as asked for; else, on one host, what stays in caches, which lossy parts of
 * RPI_PART_BYTES do; else 0: the default of split.h. */
static void chunks_are_as_long_as_is_asked_for(void) {
    enum { KIB = 1024 };
    const struct {
        size_t given;
        bool one_host, lossy;
        rpi_split_layout layout;
        int parts;
        size_t wanted;
        rp_memory memory; /* of most elements */
    } cases[] = {
        {5000, true, false, RPI_SPLIT_VECTOR, 4, 5000, RP_MEMORY_HOST},
        {5000, true, false, RPI_SPLIT_BLOCKS, 4, 5000, RP_MEMORY_HOST},
        {5000, true, true, RPI_SPLIT_VECTOR, 4, 5000, RP_MEMORY_HOST},
        {5000, false, false, RPI_SPLIT_VECTOR, 4, 5000, RP_MEMORY_HOST},
        {0, false, false, RPI_SPLIT_VECTOR, 4, 0, RP_MEMORY_HOST},
        {0, false, true, RPI_SPLIT_VECTOR, 4, 0, RP_MEMORY_HOST},
        {0, true, true, RPI_SPLIT_VECTOR, 4, 4 * 256 * KIB, RP_MEMORY_HOST},
        {0, true, true, RPI_SPLIT_BLOCKS, 4, 0, RP_MEMORY_HOST},
        {0, true, false, RPI_SPLIT_VECTOR, 1, 128 * KIB, RP_MEMORY_HOST},
        {0, true, false, RPI_SPLIT_VECTOR, 2, 2 * 128 * KIB, RP_MEMORY_HOST},
        {0, true, false, RPI_SPLIT_VECTOR, 4, 4 * 32 * KIB, RP_MEMORY_HOST},
        {0, true, false, RPI_SPLIT_VECTOR, 8, 8 * 16 * KIB, RP_MEMORY_HOST},
        {0, true, false, RPI_SPLIT_BLOCKS, 4, 32 * KIB, RP_MEMORY_HOST},
        {0, true, false, RPI_SPLIT_BLOCKS, 8, 16 * KIB, RP_MEMORY_HOST},
        {0, true, false, RPI_SPLIT_VECTOR, 4, 0, RP_MEMORY_CUDA},
        {0, true, true, RPI_SPLIT_VECTOR, 4, 0, RP_MEMORY_CUDA},
        {5000, true, true, RPI_SPLIT_VECTOR, 4, 5000, RP_MEMORY_CUDA},
        {0, true, false, RPI_SPLIT_BLOCKS, 4, 32 * KIB, RP_MEMORY_CUDA},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        static rpi_context context;
        static rp_comm comm = {.context = &context};
        context.memory = cases[i].memory;
        comm.chunk_bytes = cases[i].given;
        comm.one_host = cases[i].one_host;
        size_t bytes =
            rpi_comm_chunk_bytes(&comm, cases[i].layout, cases[i].parts, cases[i].lossy);
        CHECK_MSG(bytes == cases[i].wanted, "case %zu: %zu bytes, not %zu", i, bytes,
                  cases[i].wanted);
    }
}

static void means_are_true_divisions(void) {
    for (int world = 1; world <= 9; world++) {
        float x[64], wanted[64];
        double y[64];
        for (int i = 0; i < 64; i++) {
            x[i] = ldexpf(1 + (float)i / 97, (i - 32) * 4);
            y[i] = x[i];
            wanted[i] = x[i] / (float)world;
        }
        rpi_values_divide(x, RP_F32, 64, world);
        rpi_values_divide(y, RP_F64, 64, world);
        CHECK(memcmp(x, wanted, sizeof x) == 0);
        for (int i = 0; i < 64; i++) CHECK_NEAR(y[i] / wanted[i], 1, 1e-6);
    }
}

static void narrowing_overflows_to_infinity(void) {
    float x[] = {65504, 1e6f, -1e6f, 1};
    uint16_t narrow[4];
    float back[4];
    rpi_values_convert(x, RP_F32, narrow, RP_F16, 4);
    rpi_values_convert(narrow, RP_F16, back, RP_F32, 4);
    CHECK(back[0] == 65504 && isinf(back[1]) && isinf(back[2]) && back[2] < 0 && back[3] == 1);
}

/* For a network a part's encoding is a little less than what a network card takes at once. */
static void encodings_fill_segments(void) {
    const char *const names[] = {"fp32", "bf16", "q8", "q4"};
    const int segments[] = {4, 2, 1, 1};
    for (int i = 0; i < 4; i++) {
        rpi_partition partition = {0};
        REQUIRE_OK(rpi_partition_reserve(&partition, 2));
        for (int run = 0; run < 2; run++) {
            partition.extents[run] = (rpi_extent){.count = 10000000, .dtype = RP_F32};
            CHECK_OK(rp_codec_parse(names[i], &partition.extents[run].codec));
        }
        REQUIRE_OK(rpi_partition_make(&partition, RPI_SPLIT_VECTOR, 2, 0, RPI_FRAME_PAYLOAD));
        size_t bytes = RPI_FRAME_HEADER_BYTES + rpi_split_largest(&partition.split);
        double taken = segments[i] * 7.0 * 8948; /* by packets of 9000 bytes */
        CHECK_MSG((double)bytes > 0.98 * taken && (double)bytes <= taken,
                  "%s: %zu bytes a frame for %g", names[i], bytes, taken);
        rpi_partition_free(&partition);
    }
}

CASES({"parts cover every element once", parts_cover_every_element_once},
      {"owners have their runs", owners_have_their_runs},
      {"owners need memory only out of order", owners_need_memory_only_out_of_order},
      {"exact parts fit, too", exact_parts_fit_too},
      {"a granule that fits no frame is refused", a_granule_that_fits_no_frame_is_refused},
      {"chunks are as long as is asked for", chunks_are_as_long_as_is_asked_for},
      {"means are true divisions", means_are_true_divisions},
      {"encodings fill segments", encodings_fill_segments},
      {"narrowing overflows to infinity", narrowing_overflows_to_infinity})
