/* Distances that ranks may have, and those that are told. */
#include "train/consensus_watch.h"

#include "harness/check.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *what;
    double distances[8]; /* up to the first 0 */
    int told;            /* which of them, from 1; 0: none */
    const char *words;
} rows[] = {
    {"ranks that agree", {.001, .002, .003, .004, .006, .009, .02, .03}, 0, ""},
    {"a plateau", {.01, .05, .2, .25, .26, .25, .26}, 0, ""},
    {"one that is far", {.05, .31}, 2, "0.31 of the norm"},
    {"far at once", {9.6}, 1, "9.6 of the norm"},
    {"growth", {.01, .02, .04, .08, .16}, 5, "has grown"},
    {"growth that pauses", {.05, .1, .15, .15, .2, .25}, 0, ""},
};

static void what_is_told(void) {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rpi_consensus_watch watch = {0};
        int told = 0;
        for (int k = 0; k < 8 && rows[i].distances[k] > 0; k++) {
            const char *text =
                rpi_consensus_watch_take(&watch, 10 * (k + 1), rows[i].distances[k]);
            if (text) {
                CHECK_MSG(strstr(text, rows[i].words), "%s: '%s'", rows[i].what, text);
                CHECK_MSG(told == 0, "%s: told twice", rows[i].what);
                told = k + 1;
            }
        }
        CHECK_MSG(told == rows[i].told, "%s: told at %d, not %d", rows[i].what, told,
                  rows[i].told);
    }
}

static void nothing_of_what_is_none(void) {
    rpi_consensus_watch watch = {0};
    CHECK(rpi_consensus_watch_take(&watch, 5, NAN) == NULL && watch.step == 0);
    CHECK(rpi_consensus_watch_take(&watch, 5, .2) == NULL);
    CHECK(rpi_consensus_watch_take(&watch, 5, .9) == NULL); /* measured twice behind a step */
}

CASES({"what is told", what_is_told}, {"nothing of what is none", nothing_of_what_is_none})
