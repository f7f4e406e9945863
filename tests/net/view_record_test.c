/* Views and statements as text: what is written is read, and nothing else is. */
#include "net/world/view_record.h"

#include "base/rng.h"
#include "harness/check.h"

#include <stdlib.h>

static rpi_view_record record, read_back;
static char text[RPI_VIEW_RECORD_BYTES];

static void fill(int count, int left, const char *name) {
    record = (rpi_view_record){
        .number = UINT32_MAX, .first = 4000000000u, .count = count, .left_count = left};
    for (int i = 0; i < count; i++) {
        record.members[i] = (rp_member){.id = UINT32_MAX - (uint32_t)i, .previous = i - 1};
        snprintf(record.members[i].name, RP_MEMBER_NAME, "%s", name);
    }
    for (int i = 0; i < left; i++) {
        record.left[i] = (rp_member){.id = 1000000000u + (uint32_t)i,
                                     .previous = i,
                                     .departure = RP_MEMBER_LEFT + i % RP_MEMBER_LATE};
        snprintf(record.left[i].name, RP_MEMBER_NAME, "%s", name);
    }
}

static void the_largest_record_has_room(void) {
    char name[RP_MEMBER_NAME];
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = '\0';
    fill(RP_WORLD_MOST, RP_WORLD_MOST, name);
    size_t bytes = rpi_view_record_write(&record, text);
    CHECK(bytes < sizeof text && strlen(text) == bytes);
    REQUIRE_OK(rpi_view_record_read(text, &read_back));
    CHECK_EQ(read_back.count, RP_WORLD_MOST);
    CHECK_EQ(read_back.left_count, RP_WORLD_MOST);
    CHECK(memcmp(&record, &read_back, sizeof record) == 0);
}

static void what_is_written_is_read(void) {
    fill(3, 2, "host-a:12 (gpu 0)");
    rpi_view_record_write(&record, text);
    REQUIRE_OK(rpi_view_record_read(text, &read_back));
    CHECK(read_back.number == record.number && read_back.first == record.first);
    for (int i = 0; i < 3; i++)
        CHECK(memcmp(&record.members[i], &read_back.members[i], sizeof(rp_member)) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(memcmp(&record.left[i], &read_back.left[i], sizeof(rp_member)) == 0);
    CHECK_EQ(rpi_view_record_find(&record, UINT32_MAX - 2), 2);
    CHECK_EQ(rpi_view_record_find(&record, 7), -1);
    REQUIRE_OK(rpi_view_record_read("", &read_back));
    CHECK(read_back.number == 0 && read_back.count == 0);
}

/* Add a row: what is no record. */
static const char *const wrong_records[] = {
    " ",
    "x",
    "1",
    "0 1 1 0\n1 -1 0 a\n",          /* number 0 is no view */
    "4294967296 1 1 0\n1 -1 0 a\n", /* beyond 32 bits */
    "-1 1 1 0\n1 -1 0 a\n",
    "1 1 0 0\n", /* no member */
    "1 1 513 0\n1 -1 0 a\n",
    "1 1 1 513\n1 -1 0 a\n",
    "1 1 1 -1\n1 -1 0 a\n",
    "1 1 2 0\n1 -1 0 a\n",           /* a line is missing */
    "1 1 1 0\n1 -1 0 a\n2 -1 0 b\n", /* one too many */
    "1 1 1 0\n1 -1 0 a",
    "1 1 1 0\n0 -1 0 a\n", /* no id */
    "1 1 1 0\n1 -2 0 a\n",
    "1 1 1 0\n1 512 0 a\n",
    "1 1 1 0\n1 -1 1 a\n",          /* a member that has left */
    "1 1 1 1\n1 -1 0 a\n2 0 0 b\n", /* one that has left and stays */
    "1 1 1 1\n1 -1 0 a\n2 0 5 b\n",
    "1 1 1 1\n1 -1 0 a\n2 -1 1 b\n",
    "1 1 2 0\n1 -1 0 a\n1 -1 0 b\n", /* twice */
    "1 1 1 1\n1 -1 0 a\n1 0 1 b\n",
    "1 1 1 0\n1 -1 0 \n",
    "1 1 1 0\n1 -1 0  a\n",
    "1 1 1 0\n1 -1 0 a\tb\n",
    "1 1 1 0\n1 -1 0 1234567890123456789012345678901234567890\n",
    "+1 1 1 0\n1 -1 0 a\n",
    "1  1 1 0\n1 -1 0 a\n",
};

static const char *const wrong_statements[] = {
    "",
    " ",
    "1 2 3 0",
    "1 2 3 0 ",
    "-1 2 -1 0 a",
    "1 -2 -1 0 a",
    "1 2 -2 0 a",
    "1 2 512 0 a",
    "1 2 -1 2 a",
    "1 2 -1 0 \x7f",
    "1 2 -1 0 a\n",
    "x 2 -1 0 a",
    "1 2 -1 0  a",
    "9999999999999999999 2 -1 0 a",
    "1 2 -1 0 1234567890123456789012345678901234567890",
};

static void nothing_else_is_a_record(void) {
    for (size_t i = 0; i < sizeof wrong_records / sizeof wrong_records[0]; i++)
        CHECK_MSG(rpi_view_record_read(wrong_records[i], &read_back) == RP_CORRUPT,
                  "row %zu is read: '%s'", i, wrong_records[i]);
}

static void nothing_else_is_a_statement(void) {
    rpi_statement says;
    for (size_t i = 0; i < sizeof wrong_statements / sizeof wrong_statements[0]; i++)
        CHECK_MSG(rpi_statement_read(wrong_statements[i], &says) == RP_CORRUPT,
                  "row %zu is read: '%s'", i, wrong_statements[i]);
}

static void statements_are_read_as_they_were_written(void) {
    static const rpi_statement rows[] = {
        {.beats = 0, .making = 0, .lost = -1, .leaving = false, .name = "a"},
        {.beats = INT64_MAX, .making = UINT32_MAX, .lost = 511, .leaving = true, .name = "b c"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char line[RPI_STATEMENT_BYTES];
        rpi_statement got = {0};
        rpi_statement_write(&rows[i], line);
        REQUIRE_OK(rpi_statement_read(line, &got));
        CHECK(got.beats == rows[i].beats && got.making == rows[i].making &&
              got.lost == rows[i].lost && got.leaving == rows[i].leaving &&
              strcmp(got.name, rows[i].name) == 0);
    }
}

/* Bytes that are damaged anywhere: read or refused, and what is read is within limits. */
static void damaged_records_do_no_harm(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 0);
    fill(5, 3, "member");
    for (int i = 0; i < 20000; i++) {
        size_t bytes = rpi_view_record_write(&record, text);
        for (int hits = 0; hits < 3; hits++)
            text[rpi_rng_below(&rng, (uint32_t)bytes)] = (char)rpi_rng_below(&rng, 256);
        if (rpi_view_record_read(text, &read_back) != RP_OK) continue;
        CHECK(read_back.count >= 0 && read_back.count <= RP_WORLD_MOST);
        CHECK(read_back.left_count >= 0 && read_back.left_count <= RP_WORLD_MOST);
    }
}

static void names_are_checked(void) {
    CHECK_OK(rpi_member_name_check("node-7:1234"));
    CHECK_FAILS(rpi_member_name_check(""), INVALID, "0 bytes");
    CHECK_FAILS(rpi_member_name_check("1234567890123456789012345678901234567890"), INVALID,
                "40 bytes");
    CHECK_FAILS(rpi_member_name_check("a\nb"), INVALID, "printable");
    CHECK_FAILS(rpi_member_name_check("\xc3\xa4"), INVALID, "printable");
    CHECK_FAILS(rpi_member_name_check(" a"), INVALID, "blank");
}

CASES({"the_largest_record_has_room", the_largest_record_has_room},
      {"what_is_written_is_read", what_is_written_is_read},
      {"nothing_else_is_a_record", nothing_else_is_a_record},
      {"nothing_else_is_a_statement", nothing_else_is_a_statement},
      {"statements_are_read_as_they_were_written", statements_are_read_as_they_were_written},
      {"damaged_records_do_no_harm", damaged_records_do_no_harm},
      {"names_are_checked", names_are_checked})
