#include "base/memory.h"

#include "harness/check.h"

#include <sys/mman.h>

static void memory_is_aligned_and_zero(void) {
    for (size_t bytes = 0; bytes < 300; bytes += 37) {
        unsigned char *memory;
        REQUIRE_OK(rpi_alloc(bytes, "a test", &memory));
        CHECK_EQ((uintptr_t)memory % RPI_ALIGNMENT, 0);
        for (size_t i = 0; i < bytes; i++) CHECK_EQ(memory[i], 0);
        rpi_free(memory);
    }
}

static void absurd_sizes_fail_by_name(void) {
    void *memory;
    CHECK_FAILS(rpi_alloc(SIZE_MAX, "the moon", &memory), NOMEM, "the moon");
    CHECK_FAILS(rpi_alloc_array(SIZE_MAX / 2, 8, "the stars", &memory), NOMEM, "the stars");
}

static void the_nth_allocation_fails_on_demand(void) {
    void *a = NULL, *b = NULL;
    rpi_memory_fail_after(2);
    CHECK_OK(rpi_alloc(8, "first", &a));
    CHECK_FAILS(rpi_alloc(8, "second", &b), NOMEM, "second");
    CHECK_OK(rpi_alloc(8, "third", &b));
    CHECK_EQ(rpi_memory_fail_after(0), 3);
    rpi_free(a);
    rpi_free(b);
}

static void growing_keeps_and_zeroes(void) {
    int *numbers = NULL;
    REQUIRE_OK(rpi_grow_array(0, 3, sizeof *numbers, "numbers", &numbers));
    for (int i = 0; i < 3; i++) numbers[i] = i + 1;
    REQUIRE_OK(rpi_grow_array(3, 100, sizeof *numbers, "numbers", &numbers));
    for (int i = 0; i < 100; i++) CHECK_EQ(numbers[i], i < 3 ? i + 1 : 0);
    rpi_free(numbers);
}

static void an_arena_hands_out_separate_pieces(void) {
    rpi_arena *arena;
    REQUIRE_OK(rpi_arena_create(1024, &arena));
    unsigned char *pieces[50];
    for (int i = 0; i < 50; i++) {
        REQUIRE_OK(rpi_arena_alloc(arena, (size_t)(i * 100), &pieces[i]));
        CHECK_EQ((uintptr_t)pieces[i] % RPI_ALIGNMENT, 0);
        memset(pieces[i], i, (size_t)(i * 100));
    }
    for (int i = 1; i < 50; i++) CHECK(pieces[i][0] == i && pieces[i][i * 100 - 1] == i);
    rpi_arena_destroy(arena);
    rpi_arena_destroy(NULL);
}

/* 1 GiB of which two pages are touched. */
static void pages_cost_memory_once_touched(void) {
    enum { PAGE = 4096, PAGES = 262144, GIB = PAGES * PAGE };
    static unsigned char resident[PAGES];
    unsigned char *pages = NULL;
    int count = 0;
    REQUIRE_OK(rpi_alloc_pages(GIB, "a test", &pages));
    CHECK_EQ((uintptr_t)pages % RPI_ALIGNMENT, 0);
    CHECK(pages[0] == 0 && pages[GIB - 1] == 0);
    pages[0] = pages[GIB - 1] = 1;
    CHECK_EQ(mincore(pages, GIB, resident), 0);
    for (int i = 0; i < PAGES; i++) count += resident[i] & 1;
    CHECK_MSG(count >= 2 && count <= 1024, "%d pages are resident", count); /* huge ones: 512 */
    rpi_free_pages(pages, GIB);
    rpi_free_pages(NULL, 1);
    rpi_memory_fail_after(1);
    CHECK_FAILS(rpi_alloc_pages(PAGE, "a test", &pages), NOMEM, "a test (4096 bytes)");
    rpi_memory_fail_after(0);
}

CASES({"memory is aligned and zero", memory_is_aligned_and_zero},
      {"absurd sizes fail by name", absurd_sizes_fail_by_name},
      {"the nth allocation fails on demand", the_nth_allocation_fails_on_demand},
      {"growing keeps and zeroes", growing_keeps_and_zeroes},
      {"pages cost memory once touched", pages_cost_memory_once_touched},
      {"an arena hands out separate pieces", an_arena_hands_out_separate_pieces})
