/* Which GPUs run what a list of architectures gives: a row for each. */
#include "cuda/capability.h"

#include "harness/check.h"

#include <stdlib.h>
#include <string.h>

typedef struct row {
    const char *architectures, *text;
    const char *fit, *not ; /* capabilities */
} row;

static const row rows[] = {
    {"75-real;80-real;90-real;100;120", "7.5, 8.0, 9.0, 10.0 and later, 12.0 and later",
     "75 80 86 87 89 90 100 103 110 120 121 130", "50 61 70 72"},
    {"75-real 80-real 90", "7.5, 8.0, 9.0 and later", "75 80 86 89 90 100 120", "70 72"},
    {"80-real;90-real", "8.0, 9.0", "80 86 89 90", "75 100 120"},
    {"86-real", "8.6", "86 89", "80 90"},
    {"90a", "9.0", "90", "89 100 120"},
    {"100f-real;103f", "10.0, 10.3", "100 103", "90 110 120"},
    {"80-virtual", "8.0 and later", "80 86 90 120", "75"},
    {"native", "native", "50 90", ""},
    {"", "", "90", ""},
};

static void check(const row *r, const char *capabilities, bool wanted) {
    char *end;
    for (const char *at = capabilities; *at; at = end) {
        int capability = (int)strtol(at, &end, 10);
        CHECK_MSG(rpi_capability_fits(r->architectures, capability) == wanted,
                  "%s on a GPU of %d", r->architectures, capability);
    }
}

static void which_gpus(void) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[128];
        check(&rows[i], rows[i].fit, true);
        check(&rows[i], rows[i].not, false);
        rpi_capability_text(rows[i].architectures, text, sizeof text);
        CHECK_MSG(strcmp(text, rows[i].text) == 0, "%s: %s", rows[i].architectures, text);
    }
}

static void a_short_place(void) {
    char text[8];
    rpi_capability_text(rows[0].architectures, text, sizeof text);
    CHECK(strcmp(text, "7.5, 8.") == 0);
}

CASES({"which_gpus", which_gpus}, {"a_short_place", a_short_place})
