/* Memory that another process may have filled with anything. */
#include "net/memory/ring_pair.h"

#include "base/memory.h"
#include "base/rng.h"
#include "harness/check.h"

enum { FRAME_BYTES = 1000, AREA = 256 * 1024 };

typedef struct both {
    void *memory;
    rpi_ring_pair sides[2];
} both;

static void join(both *b) {
    *b = (both){0};
    CHECK_OK(rpi_alloc(rpi_ring_pair_bytes(FRAME_BYTES), "memory", &b->memory));
    for (int side = 0; side < 2; side++)
        rpi_ring_pair_join(&b->sides[side], b->memory, side, FRAME_BYTES, -1);
}

/* docs/wire.md, so that two builds may share memory. */
static void the_layout_is_the_documented_one(void) {
    both b;
    join(&b);
    unsigned char *memory = b.memory;
    CHECK_EQ(rpi_ring_pair_bytes(FRAME_BYTES), 4352 + 2 * AREA);
    CHECK((unsigned char *)b.sides[0].mine == memory);
    CHECK((unsigned char *)b.sides[0].theirs == memory + 2176);
    CHECK((unsigned char *)b.sides[0].mine->posted == memory + 128);
    CHECK((unsigned char *)&b.sides[0].mine->takes_places == memory + 4);
    CHECK((unsigned char *)&b.sides[0].mine->notes == memory + 8);
    CHECK((unsigned char *)&b.sides[0].mine->released == memory + 64);
    CHECK((unsigned char *)&b.sides[0].mine->writing == memory + 68);
    CHECK(b.sides[0].out == memory + 4352 && b.sides[1].in == memory + 4352);
    CHECK(b.sides[1].out == memory + 4352 + AREA && b.sides[0].in == memory + 4352 + AREA);
    rpi_free(b.memory);
}

static void words_from_the_peer_are_checked(void) {
    static const struct {
        uint64_t offset, bytes;
    } words[] = {{0, 0},
                 {0, FRAME_BYTES + 1},
                 {0, UINT32_MAX},
                 {AREA, 1},
                 {AREA - 64, 65},
                 {(UINT64_C(1) << 37) - 64, 1000},
                 {(UINT64_C(1) << 37) - 64, 64}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        both b;
        const void *frame = NULL;
        size_t bytes = 0;
        join(&b);
        atomic_store(&b.sides[0].mine->posted[0],
                     UINT64_C(1) << 63 | (words[i].offset / 64) << 32 | words[i].bytes);
        CHECK_FAILS(rpi_ring_pair_peek(&b.sides[1], &frame, &bytes), CORRUPT,
                    "the peer posted");
        CHECK(frame == NULL);
        rpi_free(b.memory);
    }
}

static void places_are_for_who_takes_them(void) {
    both b;
    const void *frame = NULL;
    size_t bytes = 0;
    uint32_t number = 0;
    void *region = NULL;
    join(&b);
    CHECK(!rpi_ring_pair_may_name_places(&b.sides[0]));
    REQUIRE_OK(rpi_ring_pair_reserve(&b.sides[0], 88, &region));
    REQUIRE_OK(rpi_ring_pair_commit_place(&b.sides[0], 88, &number));
    atomic_store(&b.sides[1].mine->takes_places, 1); /* the other side could write it, too */
    CHECK_FAILS(rpi_ring_pair_peek(&b.sides[1], &frame, &bytes), CORRUPT, "but its place");
    rpi_ring_pair_take_places(&b.sides[1]);
    CHECK(rpi_ring_pair_may_name_places(&b.sides[0]));
    REQUIRE_OK(rpi_ring_pair_peek(&b.sides[1], &frame, &bytes));
    CHECK_EQ(bytes, 88);
    CHECK(b.sides[1].held_place);
    CHECK(rpi_ring_pair_is_completed(&b.sides[0], number) == RP_PENDING);
    rpi_ring_pair_release(&b.sides[1]);
    CHECK(rpi_ring_pair_is_completed(&b.sides[0], number) == RP_OK);
    rpi_free(b.memory);
}

/* Who waits for a payload has asked for it, then something else takes the frame back, and then
 * there is nothing left to ask for: the side does not sleep before it has looked once more. */
static void who_waits_for_a_payload_does_not_sleep_over_it(void) {
    both b;
    const void *frame = NULL;
    size_t bytes = 0;
    uint32_t number = 0;
    void *region = NULL;
    join(&b);
    rpi_ring_pair_take_places(&b.sides[1]);
    REQUIRE_OK(rpi_ring_pair_reserve(&b.sides[0], 88, &region));
    REQUIRE_OK(rpi_ring_pair_commit_place(&b.sides[0], 88, &number));
    CHECK(!rpi_ring_pair_arm(&b.sides[0]));
    rpi_ring_pair_disarm(&b.sides[0]);
    CHECK(rpi_ring_pair_is_completed(&b.sides[0], number) == RP_PENDING);
    REQUIRE_OK(rpi_ring_pair_peek(&b.sides[1], &frame, &bytes));
    rpi_ring_pair_release(&b.sides[1]);
    REQUIRE_OK(rpi_ring_pair_reserve(&b.sides[0], 64, &region)); /* takes it back */
    CHECK(rpi_ring_pair_arm(&b.sides[0]));
    rpi_ring_pair_disarm(&b.sides[0]);
    CHECK(!rpi_ring_pair_arm(&b.sides[0])); /* told once */
    rpi_ring_pair_disarm(&b.sides[0]);
    rpi_free(b.memory);
}

static void frames_given_back_are_counted(void) {
    both b;
    void *region = NULL;
    join(&b);
    for (int i = 0; i < 3; i++) {
        REQUIRE_OK(rpi_ring_pair_reserve(&b.sides[0], 64, &region));
        REQUIRE_OK(rpi_ring_pair_commit(&b.sides[0], 64));
    }
    atomic_store(&b.sides[1].mine->released, 4);
    CHECK_FAILS(rpi_ring_pair_reserve(&b.sides[0], 64, &region), CORRUPT,
                "gave back 4 frames of 3");
    atomic_store(&b.sides[1].mine->released, 3);
    CHECK_OK(rpi_ring_pair_reserve(&b.sides[0], 64, &region));
    CHECK(region == b.sides[0].out); /* all free: from the beginning, which is in the cache */
    rpi_free(b.memory);
}

/* Whatever the memory holds, a receiver stays inside of the peer's area. */
static void noise_leads_nowhere(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 0);
    both b;
    join(&b);
    for (int turn = 0; turn < 20000; turn++) {
        const void *frame = NULL;
        size_t bytes = 0;
        void *region = NULL;
        uint64_t word = (uint64_t)rpi_rng_u32(&rng) << 32 | rpi_rng_below(&rng, 2000);
        if (turn % 2) word &= ~(UINT64_C(0x7ffff000) << 32); /* now and then one that fits */
        atomic_store(&b.sides[0].mine->posted[rpi_rng_below(&rng, RPI_RING_REGIONS)], word);
        atomic_store(&b.sides[0].mine->released, rpi_rng_below(&rng, 8));
        if (rpi_ring_pair_peek(&b.sides[1], &frame, &bytes) == RP_OK) {
            const unsigned char *at = frame;
            CHECK(at >= b.sides[1].in && at + bytes <= b.sides[1].in + AREA);
            CHECK(bytes > 0 && bytes <= FRAME_BYTES);
            rpi_ring_pair_release(&b.sides[1]);
        }
        if (rpi_ring_pair_reserve(&b.sides[1], 64, &region) == RP_OK)
            rpi_ring_pair_commit(&b.sides[1], 64);
    }
    CHECK(b.sides[1].next > 0);
    rpi_free(b.memory);
}

/* Pieces handed out never overlap those still out, whatever their lengths. */
static void pieces_in_use_do_not_overlap(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    rpi_ring_allocator allocator = {.capacity = 4096};
    int fits = 0;
    for (int turn = 0; turn < 100000; turn++) {
        size_t bytes = 1 + rpi_rng_below(&rng, 1500), offset = 0;
        if (rpi_rng_below(&rng, 2) && allocator.count > 0) rpi_ring_allocator_pop(&allocator);
        if (!rpi_ring_allocator_fit(&allocator, bytes, &offset)) continue;
        fits++;
        CHECK(offset % 64 == 0 && offset + bytes <= allocator.capacity);
        for (uint32_t i = 0; i < allocator.count; i++) {
            const rpi_ring_region *other = rpi_ring_allocator_at(&allocator, i);
            CHECK(offset + bytes <= other->offset || other->offset + other->bytes <= offset);
        }
        rpi_ring_allocator_push(&allocator, offset, bytes);
    }
    CHECK(fits > 10000);
}

CASES({"the_layout_is_the_documented_one", the_layout_is_the_documented_one},
      {"words_from_the_peer_are_checked", words_from_the_peer_are_checked},
      {"places_are_for_who_takes_them", places_are_for_who_takes_them},
      {"who_waits_for_a_payload_does_not_sleep_over_it",
       who_waits_for_a_payload_does_not_sleep_over_it},
      {"frames_given_back_are_counted", frames_given_back_are_counted},
      {"noise_leads_nowhere", noise_leads_nowhere},
      {"pieces_in_use_do_not_overlap", pieces_in_use_do_not_overlap})
