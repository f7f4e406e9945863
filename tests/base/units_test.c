#include "base/units.h"

#include "base/suggest.h"
#include "harness/check.h"

static void counts_are_binary(void) {
    static const struct {
        const char *text;
        long long value;
    } good[] = {{"0", 0},       {"25557032", 25557032}, {"64K", 65536},       {"16M", 16777216},
                {"1.5K", 1536}, {"1e6", 1000000},       {"2T", 2199023255552}};
    int64_t value;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        CHECK_OK(rpi_parse_count(good[i].text, &value));
        CHECK_EQ(value, good[i].value);
    }
    static const char *const bad[] = {"", "x", "1.5", "12Q", "nan", "inf", "-inf", " 5", "0x"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK_FAILS(rpi_parse_count(bad[i], &value), INVALID, "whole number");
}

static void what_is_too_large_is_said(void) {
    static const char *const large[] = {"1e30", "99999999999999999999", "1e400", "8589934592G"};
    int64_t value;
    double real;
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++) {
        CHECK_FAILS(rpi_parse_count(large[i], &value), INVALID, "' is too large");
        CHECK_FAILS(rpi_parse_bytes(large[i], &value), INVALID, "' is too large");
    }
    CHECK_FAILS(rpi_parse_count("-1e30", &value), INVALID, "'-1e30' is too small");
    CHECK_FAILS(rpi_parse_real("1e400", &real), INVALID, "'1e400' is too large");
    CHECK_FAILS(rpi_parse_real("-1e400", &real), INVALID, "'-1e400' is too small");
    CHECK_FAILS(rpi_parse_real("inf", &real), INVALID, "not a number");
    CHECK_FAILS(rpi_parse_real("-inf", &real), INVALID, "not a number");
    CHECK_FAILS(rpi_parse_seconds("1e400", &real), INVALID, "is too large");
    CHECK_FAILS(rpi_parse_seconds("1e308h", &real), INVALID, "is too large");
    CHECK_FAILS(rpi_parse_duration("1e400ms", &real), INVALID, "is too large");
}

static void sizes_know_both_worlds(void) {
    int64_t value;
    CHECK_OK(rpi_parse_bytes("100MB", &value));
    CHECK_EQ(value, 100000000);
    CHECK_OK(rpi_parse_bytes("4MiB", &value));
    CHECK_EQ(value, 4194304);
    CHECK_OK(rpi_parse_bytes("8M", &value));
    CHECK_EQ(value, 8388608);
    CHECK_OK(rpi_parse_bytes("1.5TB", &value));
    CHECK_EQ(value, 1500000000000);
    CHECK_OK(rpi_parse_bytes("2TiB", &value));
    CHECK_EQ(value, 2199023255552);
    CHECK_OK(rpi_parse_bytes("2T", &value));
    CHECK_EQ(value, 2199023255552);
    CHECK_FAILS(rpi_parse_bytes("64KB", &value), INVALID, "did you mean '64kB'");
    CHECK_FAILS(rpi_parse_bytes("4mib", &value), INVALID, "did you mean '4MiB'");
    CHECK_FAILS(rpi_parse_count("16m", &value), INVALID, "did you mean '16M'");
    CHECK_FAILS(rpi_parse_bytes("-1", &value), INVALID, "not a size");
    CHECK_FAILS(rpi_parse_bytes("1Gbit", &value), INVALID, "not a size");
}

static void durations_have_units(void) {
    double value;
    CHECK_OK(rpi_parse_seconds("10min", &value));
    CHECK_NEAR(value, 600, 0);
    CHECK_OK(rpi_parse_seconds("50us", &value));
    CHECK_NEAR(value, 50e-6, 1e-12);
    CHECK_FAILS(rpi_parse_seconds("soon", &value), INVALID, "not a duration");
    CHECK_FAILS(rpi_parse_seconds("-3", &value), INVALID, "not a duration");
}

static void spans_need_a_unit(void) {
    double value = 0;
    CHECK_OK(rpi_parse_span("30d", &value));
    CHECK(value == 30 * 86400.0);
    CHECK_OK(rpi_parse_span("1.5h", &value));
    CHECK(value == 5400);
    CHECK_OK(rpi_parse_span("0", &value));
    CHECK(value == 0);
    CHECK_FAILS(rpi_parse_span("30", &value), INVALID, "did you mean '30s', '30min' or '30h'");
    CHECK_FAILS(rpi_parse_span("-30s", &value), INVALID, "is negative");
    CHECK_FAILS(rpi_parse_span("30D", &value), INVALID, "did you mean '30d'");
    CHECK_FAILS(rpi_parse_span("soon", &value), INVALID, "write 30s, 10min, 1h or 30d");
    CHECK_FAILS(rpi_parse_span("1e400h", &value), INVALID, "is too large");
}

static void short_durations_need_a_unit(void) {
    double value;
    CHECK_OK(rpi_parse_duration("50us", &value));
    CHECK_NEAR(value, 50e-6, 1e-12);
    CHECK_OK(rpi_parse_duration("0", &value));
    CHECK_NEAR(value, 0, 0);
    CHECK_FAILS(rpi_parse_duration("50", &value), INVALID, "did you mean '50us' or '50ms'");
    CHECK_FAILS(rpi_parse_duration("50US", &value), INVALID, "did you mean '50us'");
    CHECK_FAILS(rpi_parse_duration("-1us", &value), INVALID, "not a duration");
    CHECK_FAILS(rpi_parse_duration("", &value), INVALID, "not a duration");
}

static const char *const birds[] = {"redpoll", "siskin", "goldfinch", NULL};

static const char *bird_at(const void *context, int index) {
    return ((const char *const *)context)[index];
}

static void the_nearest_name_is_found(void) {
    CHECK(strcmp(rpi_suggest("redpol", bird_at, birds), "redpoll") == 0);
    CHECK(strcmp(rpi_suggest("sisikn", bird_at, birds), "siskin") == 0);
    CHECK(rpi_suggest("albatross", bird_at, birds) == NULL);
    char text[64];
    CHECK(strcmp(rpi_suggest_text("goldfich", bird_at, birds, text, sizeof text),
                 "; did you mean 'goldfinch'?") == 0);
    CHECK(strcmp(rpi_suggest_text("zzz", bird_at, birds, text, sizeof text), "") == 0);
}

CASES({"counts are binary", counts_are_binary},
      {"what is too large is said", what_is_too_large_is_said},
      {"sizes know both worlds", sizes_know_both_worlds},
      {"durations have units", durations_have_units},
      {"short durations need a unit", short_durations_need_a_unit},
      {"spans need a unit", spans_need_a_unit},
      {"the nearest name is found", the_nearest_name_is_found})
