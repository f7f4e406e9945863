/* Structs that begin with their size, as callers of every version pass them. */
#include "base/sized_options.h"

#include "harness/check.h"

#include <string.h>

/* Version 1 had `first`, this library knows `second`, a later one has `third`. */
typedef struct first_version {
    size_t size;
    int first;
} first_version;
typedef struct this_version {
    size_t size;
    int first;
    double second;
} this_version;
typedef struct later_version {
    size_t size;
    int first;
    double second;
    const char *third;
} later_version;

static const rpi_sized sized = {.name = "some_options",
                                .initializer = "SOME_OPTIONS",
                                .least = RPI_SIZE_UP_TO(this_version, first),
                                .known = sizeof(this_version)};

static void callers_of_all_versions_are_read(void) {
    this_version own;
    memset(&own, 0x55, sizeof own);
    CHECK_OK(rpi_sized_read(&sized, NULL, &own));
    CHECK(own.size == sizeof own && own.first == 0 && own.second == 0);
    first_version before = {.size = RPI_SIZE_UP_TO(first_version, first), .first = 7};
    memset(&own, 0x55, sizeof own);
    CHECK_OK(rpi_sized_read(&sized, &before, &own));
    CHECK(own.size == sizeof own && own.first == 7 && own.second == 0);
    this_version now = {.size = sizeof now, .first = 8, .second = 9};
    CHECK_OK(rpi_sized_read(&sized, &now, &own));
    CHECK(own.size == sizeof own && own.first == 8 && own.second == 9);
    later_version after = {.size = sizeof after, .first = 1, .second = 2};
    CHECK_OK(rpi_sized_read(&sized, &after, &own));
    CHECK(own.size == sizeof own && own.first == 1 && own.second == 2);
    after.third = "what this library cannot do";
    CHECK_FAILS(rpi_sized_read(&sized, &after, &own), UNSUPPORTED, "some_options of");
}

static void no_sizes_are_refused_by_name(void) {
    const size_t sizes[] = {0,
                            1,
                            sizeof(size_t),
                            RPI_SIZE_UP_TO(this_version, first) - 1,
                            sizeof(this_version) + 4096,
                            (size_t)(uintptr_t) "a pointer",
                            SIZE_MAX};
    this_version own = {.first = 5};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        this_version given = {.size = sizes[i]};
        CHECK_FAILS(rpi_sized_read(&sized, &given, &own), INVALID, "some_options.size is ");
        CHECK(strstr(rp_last_error()->message, "SOME_OPTIONS()") != NULL);
        CHECK_EQ(own.first, 5);
    }
}

/* What is filled for a caller is not more than that has, and not less. */
static void callers_of_all_versions_are_filled(void) {
    const this_version own = {.first = 7, .second = 9};
    first_version before = {.size = RPI_SIZE_UP_TO(first_version, first), .first = 5};
    CHECK_OK(rpi_sized_write(&sized, &own, &before));
    CHECK(before.size == RPI_SIZE_UP_TO(first_version, first) && before.first == 7);
    this_version now = {.size = sizeof now, .first = 5, .second = 5};
    CHECK_OK(rpi_sized_write(&sized, &own, &now));
    CHECK(now.size == sizeof now && now.first == 7 && now.second == 9);
    later_version after = {.size = sizeof after, .first = 5, .third = "left behind"};
    CHECK_OK(rpi_sized_write(&sized, &own, &after));
    CHECK(after.size == sizeof after && after.first == 7 && after.second == 9 && !after.third);
    now = (this_version){.first = 5};
    CHECK_FAILS(rpi_sized_write(&sized, &own, &now), INVALID, "some_options.size is 0");
    CHECK(now.size == 0 && now.first == 5);
}

CASES({"callers of all versions are read", callers_of_all_versions_are_read},
      {"callers of all versions are filled", callers_of_all_versions_are_filled},
      {"no sizes are refused by name", no_sizes_are_refused_by_name})
