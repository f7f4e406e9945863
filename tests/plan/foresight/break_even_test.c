/* Thresholds that are known, found again. */
#include "plan/foresight/break_even.h"

#include "base/status.h"
#include "harness/check.h"

static rp_status is_below(void *context, double value, bool *out_holds) {
    *out_holds = value < *(double *)context;
    return RP_OK;
}

static rp_status cannot_say(void *context, double value, bool *out_holds) {
    (void)context;
    *out_holds = true;
    return value > 5 ? RP_FAIL(UNSUPPORTED, "%g is beyond me", value) : RP_OK;
}

static void thresholds_are_found(void) {
    for (int i = 0; i < 10; i++) {
        double threshold = 2 * pow(7.3, i), found = -1;
        CHECK_OK(rpi_break_even(is_below, &threshold, 1, 1e10, &found));
        CHECK_NEAR(found / threshold, 1, .001);
    }
}

static void beyond_both_ends(void) {
    double threshold = .5, found = -1;
    CHECK_OK(rpi_break_even(is_below, &threshold, 1, 10, &found));
    CHECK(found == 0);
    threshold = 11;
    CHECK_OK(rpi_break_even(is_below, &threshold, 1, 10, &found));
    CHECK(isinf(found));
    CHECK_FAILS(rpi_break_even(cannot_say, NULL, 1, 10, &found), UNSUPPORTED, "beyond me");
}

CASES({"thresholds are found", thresholds_are_found}, {"beyond both ends", beyond_both_ends})
