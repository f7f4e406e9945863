/* Memory that another process may have filled with anything. */
#include "net/memory/ring_pair.h"

#include "base/memory.h"
#include "base/rng.h"
#include "harness/check.h"

#include <sys/eventfd.h>
#include <unistd.h>

enum { FRAME_BYTES = 1000, AREA = 256 * 1024 };

typedef struct both {
    void *memory;
    rpi_ring_pair sides[2];
} both;

static void join_with(both *b, size_t frame_bytes, int wake_fd) {
    *b = (both){0};
    CHECK_OK(rpi_alloc(rpi_ring_pair_bytes(frame_bytes), "memory", &b->memory));
    for (int side = 0; side < 2; side++)
        rpi_ring_pair_join(&b->sides[side], b->memory, side, frame_bytes, wake_fd);
}

static void join(both *b) {
    join_with(b, FRAME_BYTES, -1);
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

/* Four frames fit, of whatever length; what is too long for all of them is refused. */
static void the_area_grows_with_the_frames(void) {
    static const struct {
        size_t frame_bytes, area;
    } lengths[] = {
        {1, AREA}, {64 * 1024, AREA}, {64 * 1024 + 1, AREA + 4 * 64}, {1000000, 4 * 1000000}};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        CHECK_EQ(rpi_ring_pair_bytes(lengths[i].frame_bytes), 4352 + 2 * lengths[i].area);
    both b;
    void *region = NULL;
    join(&b);
    CHECK_FAILS(rpi_ring_pair_reserve(&b.sides[0], 0, &region), INVALID, "a frame of 0 bytes");
    CHECK_FAILS(rpi_ring_pair_reserve(&b.sides[0], FRAME_BYTES + 1, &region), INVALID,
                "1 to 1000 are allowed");
    CHECK_OK(rpi_ring_pair_reserve(&b.sides[0], FRAME_BYTES, &region));
    CHECK_FAILS(rpi_ring_pair_commit(&b.sides[0], 0), STATE, "0 bytes posted");
    CHECK_FAILS(rpi_ring_pair_commit(&b.sides[0], FRAME_BYTES + 1), STATE, "a region of 1000");
    CHECK_OK(rpi_ring_pair_commit(&b.sides[0], FRAME_BYTES));
    CHECK_FAILS(rpi_ring_pair_commit(&b.sides[0], 1), STATE, "a region of 0"); /* used up */
    rpi_free(b.memory);
    join_with(&b, AREA / 4, -1);
    for (int i = 0; i < 4; i++) {
        REQUIRE_OK(rpi_ring_pair_reserve(&b.sides[0], AREA / 4, &region));
        REQUIRE_OK(rpi_ring_pair_commit(&b.sides[0], AREA / 4));
    }
    CHECK_EQ(rpi_ring_pair_reserve(&b.sides[0], 1, &region), RP_PENDING);
    for (int i = 0; i < 4; i++) { /* the last one ends where the area does */
        const void *frame = NULL;
        size_t bytes = 0;
        REQUIRE_OK(rpi_ring_pair_peek(&b.sides[1], &frame, &bytes));
        CHECK(frame == b.sides[1].in + (size_t)i * (AREA / 4) && bytes == AREA / 4);
        rpi_ring_pair_release(&b.sides[1]);
    }
    rpi_free(b.memory);
}

/* A long frame waits behind two of its kind; a short one does not, nor one that is not bulk. */
static void bulk_leaves_room(void) {
    enum { LONG = 4096 };
    both b;
    void *region = NULL;
    const void *frame = NULL;
    size_t bytes = 0;
    join_with(&b, 2 * LONG, -1);
    rpi_ring_pair *from = &b.sides[0];
    REQUIRE_OK(rpi_ring_pair_reserve_bulk(from, LONG, &region));
    REQUIRE_OK(rpi_ring_pair_commit(from, LONG));
    REQUIRE_OK(rpi_ring_pair_reserve_bulk(from, LONG - 1, &region));
    REQUIRE_OK(rpi_ring_pair_commit(from, LONG - 1)); /* short, and so it does not count */
    REQUIRE_OK(rpi_ring_pair_reserve_bulk(from, LONG, &region));
    REQUIRE_OK(rpi_ring_pair_commit(from, LONG));
    CHECK(!rpi_ring_pair_is_starved(from) && !rpi_ring_pair_asks(from));
    CHECK_EQ(rpi_ring_pair_reserve_bulk(from, LONG, &region), RP_PENDING);
    CHECK(rpi_ring_pair_is_starved(from) && rpi_ring_pair_asks(from));
    CHECK(!rpi_ring_pair_arm(from)); /* there is no room yet: it is woken for that */
    CHECK(atomic_load(&from->mine->asleep) & RPI_WISH_ROOM);
    rpi_ring_pair_disarm(from);
    CHECK_EQ(atomic_load(&from->mine->asleep), 0);
    REQUIRE_OK(rpi_ring_pair_peek(&b.sides[1], &frame, &bytes));
    CHECK(rpi_ring_pair_asks(&b.sides[1])); /* it holds a frame */
    rpi_ring_pair_release(&b.sides[1]);
    CHECK(!rpi_ring_pair_asks(&b.sides[1]));
    CHECK(rpi_ring_pair_arm(from)); /* now there is, which is told once */
    CHECK(!rpi_ring_pair_is_starved(from) && !rpi_ring_pair_arm(from));
    REQUIRE_OK(rpi_ring_pair_reserve_bulk(from, LONG, &region));
    REQUIRE_OK(rpi_ring_pair_commit(from, LONG));
    CHECK_EQ(rpi_ring_pair_reserve_bulk(from, LONG, &region), RP_PENDING);
    REQUIRE_OK(rpi_ring_pair_reserve_bulk(from, LONG - 1, &region));
    REQUIRE_OK(rpi_ring_pair_commit(from, LONG - 1));
    REQUIRE_OK(rpi_ring_pair_reserve(from, LONG, &region));
    rpi_free(b.memory);
}

/* Who takes a frame back while the other side writes to where its payload lies waits for that,
 * and for that alone. */
static void who_writes_is_waited_for(void) {
    both b;
    void *region = NULL;
    const void *frame = NULL;
    size_t bytes = 0;
    uint32_t numbers[3];
    join(&b);
    rpi_ring_pair *from = &b.sides[0], *to = &b.sides[1];
    rpi_ring_pair_take_places(to);
    for (int i = 0; i < 3; i++) {
        REQUIRE_OK(rpi_ring_pair_reserve(from, 88, &region));
        REQUIRE_OK(rpi_ring_pair_commit_place(from, 88, &numbers[i]));
    }
    REQUIRE_OK(rpi_ring_pair_peek(to, &frame, &bytes));
    CHECK(!rpi_ring_pair_is_writing_to(from, numbers[0]));
    CHECK(rpi_ring_pair_begin_write(to));
    CHECK(rpi_ring_pair_is_writing_to(from, numbers[0]));
    CHECK(!rpi_ring_pair_is_writing_to(from, numbers[1])); /* only the oldest is peeked at */
    CHECK_EQ(rpi_ring_pair_revoke(from, numbers[1]), RP_OK);
    CHECK(rpi_ring_pair_is_valid(to));
    CHECK_EQ(rpi_ring_pair_revoke(from, numbers[0]), RP_PENDING);
    CHECK(!rpi_ring_pair_is_valid(to));
    rpi_ring_pair_end_write(to);
    CHECK(!rpi_ring_pair_is_writing_to(from, numbers[0]));
    CHECK_EQ(rpi_ring_pair_revoke(from, numbers[0]), RP_OK);
    CHECK(!rpi_ring_pair_begin_write(to));
    CHECK_EQ(atomic_load(&to->mine->writing), 0); /* and so nobody waits for it */
    rpi_ring_pair_release(to);
    CHECK(rpi_ring_pair_is_completed(from, numbers[0]) == RP_OK);
    REQUIRE_OK(rpi_ring_pair_peek(to, &frame, &bytes));
    CHECK(!rpi_ring_pair_is_valid(to));
    rpi_ring_pair_release(to);
    REQUIRE_OK(rpi_ring_pair_peek(to, &frame, &bytes));
    CHECK(rpi_ring_pair_begin_write(to));
    CHECK(!rpi_ring_pair_is_writing_to(from, numbers[1])); /* it is back, whoever writes now */
    CHECK(rpi_ring_pair_is_writing_to(from, numbers[2]));
    rpi_ring_pair_end_write(to);
    rpi_ring_pair_release(to);
    CHECK_EQ(rpi_ring_pair_revoke(from, numbers[2]), RP_OK);
    rpi_free(b.memory);
}

/* Who was given back all that named a place waits for no payload any more. */
static void nothing_is_asked_for_once_places_are_back(void) {
    both b;
    void *region = NULL;
    const void *frame = NULL;
    size_t bytes = 0;
    uint32_t number = 0;
    join(&b);
    rpi_ring_pair_take_places(&b.sides[1]);
    CHECK(!rpi_ring_pair_asks(&b.sides[0]));
    REQUIRE_OK(rpi_ring_pair_reserve(&b.sides[0], 88, &region));
    REQUIRE_OK(rpi_ring_pair_commit_place(&b.sides[0], 88, &number));
    CHECK(!rpi_ring_pair_arm(&b.sides[0]) && rpi_ring_pair_asks(&b.sides[0]));
    REQUIRE_OK(rpi_ring_pair_peek(&b.sides[1], &frame, &bytes));
    rpi_ring_pair_release(&b.sides[1]);
    CHECK(rpi_ring_pair_arm(&b.sides[0]) && !rpi_ring_pair_asks(&b.sides[0]));
    CHECK(!rpi_ring_pair_arm(&b.sides[0]));
    atomic_store(&b.sides[1].mine->released, 7); /* of one: a fault is news */
    b.sides[0].has_places = true;
    CHECK(rpi_ring_pair_arm(&b.sides[0]) && !rpi_ring_pair_asks(&b.sides[0]));
    rpi_free(b.memory);
}

static void notes_are_heard_once(void) {
    both b;
    join(&b);
    CHECK(!rpi_ring_pair_has_notes(&b.sides[1]));
    rpi_ring_pair_note(&b.sides[0], 3);
    rpi_ring_pair_note(&b.sides[0], 3);
    CHECK(rpi_ring_pair_has_notes(&b.sides[1]));
    CHECK(!rpi_ring_pair_has_notes(&b.sides[1]) && !rpi_ring_pair_has_notes(&b.sides[0]));
    rpi_ring_pair_note(&b.sides[0], 4);
    CHECK(rpi_ring_pair_has_notes(&b.sides[1]));
    rpi_free(b.memory);
}

static void send_one(both *b) {
    void *region = NULL;
    CHECK_OK(rpi_ring_pair_reserve(&b->sides[0], 64, &region));
    CHECK_OK(rpi_ring_pair_commit(&b->sides[0], 64));
}

static void give_one_back(both *b) {
    const void *frame = NULL;
    size_t bytes = 0;
    void *region = NULL;
    CHECK_OK(rpi_ring_pair_reserve(&b->sides[1], 64, &region));
    CHECK_OK(rpi_ring_pair_commit(&b->sides[1], 64));
    CHECK_OK(rpi_ring_pair_peek(&b->sides[0], &frame, &bytes));
    rpi_ring_pair_release(&b->sides[0]);
}

static void close_one(both *b) {
    rpi_ring_pair_wake(&b->sides[0]);
}

/* Add a row: what side 0 does, and what side 1 sleeps for when it is woken by that. */
static const struct {
    const char *name;
    void (*act)(both *b);
    unsigned wakes;
} news[] = {
    {"a frame", send_one, RPI_WISH_FRAMES},
    {"room", give_one_back, RPI_WISH_ROOM},
    {"the end", close_one, RPI_WISH_CLOSING},
};

static void who_sleeps_is_woken_for_what_it_wishes(void) {
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    for (size_t i = 0; i < sizeof news / sizeof news[0]; i++)
        for (unsigned wishes = 0; wishes < 8; wishes++) {
            both b;
            uint64_t count = 0;
            join_with(&b, FRAME_BYTES, fd);
            atomic_store(&b.sides[1].mine->asleep, wishes);
            news[i].act(&b);
            bool woken = read(fd, &count, sizeof count) == sizeof count;
            CHECK_MSG(woken == ((wishes & news[i].wakes) != 0), "%s, wishes %u", news[i].name,
                      wishes);
            CHECK_EQ(atomic_load(&b.sides[1].mine->asleep), woken ? 0 : wishes); /* once */
            rpi_free(b.memory);
        }
    close(fd);
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
      {"the_area_grows_with_the_frames", the_area_grows_with_the_frames},
      {"bulk_leaves_room", bulk_leaves_room},
      {"who_writes_is_waited_for", who_writes_is_waited_for},
      {"nothing_is_asked_for_once_places_are_back", nothing_is_asked_for_once_places_are_back},
      {"notes_are_heard_once", notes_are_heard_once},
      {"who_sleeps_is_woken_for_what_it_wishes", who_sleeps_is_woken_for_what_it_wishes},
      {"noise_leads_nowhere", noise_leads_nowhere},
      {"pieces_in_use_do_not_overlap", pieces_in_use_do_not_overlap})
