/* Which regions fit, to the byte: at the end of the buffer, and in front of the oldest. */
#include "net/bytes/ring_allocator.h"

#include "harness/check.h"

enum { UNIT = RPI_RING_ALIGNMENT, UNITS = 8 };

static const size_t none = SIZE_MAX;

/* Where one of so many bytes would begin. */
static size_t place_of(rpi_ring_allocator *allocator, size_t bytes) {
    size_t offset = none;
    return rpi_ring_allocator_fit(allocator, bytes, &offset) ? offset : none;
}

/* Regions of so many units each, one behind the other; 0 ends them. */
static rpi_ring_allocator filled(const size_t units[UNITS]) {
    rpi_ring_allocator allocator = {.capacity = UNITS * UNIT};
    for (int i = 0; i < UNITS && units[i]; i++)
        rpi_ring_allocator_push(&allocator, place_of(&allocator, units[i] * UNIT),
                                units[i] * UNIT);
    return allocator;
}

static void an_empty_buffer_takes_its_capacity(void) {
    rpi_ring_allocator empty = filled((size_t[UNITS]){0});
    CHECK_EQ(place_of(&empty, UNITS * UNIT), 0);
    CHECK_EQ(place_of(&empty, UNITS * UNIT + 1), none);
}

static void the_end_is_taken_whole(void) {
    rpi_ring_allocator allocator = filled((size_t[UNITS]){3});
    CHECK_EQ(place_of(&allocator, 1), 3 * UNIT);
    CHECK_EQ(place_of(&allocator, 5 * UNIT), 3 * UNIT);
    CHECK_EQ(place_of(&allocator, 5 * UNIT + 1), none);
}

static void what_is_in_front_of_the_oldest_is_taken_whole(void) {
    rpi_ring_allocator allocator = filled((size_t[UNITS]){3, 4});
    rpi_ring_allocator_pop(&allocator);
    CHECK_EQ(place_of(&allocator, UNIT), 7 * UNIT);
    CHECK_EQ(place_of(&allocator, UNIT + 1), 0);
    CHECK_EQ(place_of(&allocator, 3 * UNIT), 0);
    CHECK_EQ(place_of(&allocator, 3 * UNIT + 1), none);
}

static void behind_what_is_in_front_there_is_room_up_to_the_oldest(void) {
    rpi_ring_allocator allocator = filled((size_t[UNITS]){5, 3});
    rpi_ring_allocator_pop(&allocator);
    rpi_ring_allocator_push(&allocator, place_of(&allocator, 2 * UNIT), 2 * UNIT);
    CHECK_EQ(place_of(&allocator, 3 * UNIT), 2 * UNIT);
    CHECK_EQ(place_of(&allocator, 3 * UNIT + 1), none);
    rpi_ring_allocator_push(&allocator, 2 * UNIT, 3 * UNIT);
    CHECK_EQ(place_of(&allocator, 1), none);
}

static void regions_are_counted(void) {
    rpi_ring_allocator allocator = {.capacity = 2 * RPI_RING_REGIONS * UNIT};
    for (int i = 0; i < RPI_RING_REGIONS; i++) {
        CHECK_EQ(place_of(&allocator, 1), (size_t)i * UNIT);
        rpi_ring_allocator_push(&allocator, (size_t)i * UNIT, 1);
    }
    CHECK_EQ(place_of(&allocator, 1), none);
    rpi_ring_allocator_pop(&allocator);
    CHECK_EQ(place_of(&allocator, 1), RPI_RING_REGIONS * UNIT);
}

CASES({"an empty buffer takes its capacity", an_empty_buffer_takes_its_capacity},
      {"the end is taken whole", the_end_is_taken_whole},
      {"what is in front of the oldest is taken whole",
       what_is_in_front_of_the_oldest_is_taken_whole},
      {"behind what is in front there is room up to the oldest",
       behind_what_is_in_front_there_is_room_up_to_the_oldest},
      {"regions are counted", regions_are_counted})
