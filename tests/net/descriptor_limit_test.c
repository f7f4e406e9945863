/* Whether a rank may open what it will need, by the limits of this process: each row sets them
 * anew, the hard one only downward, as a user may. */
#include "net/bytes/descriptor_limit.h"

#include "harness/check.h"

#include <stdbool.h>
#include <sys/resource.h>

enum { SOFT = 512, HARD = 2048 };

static bool lower_limits(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max < HARD) {
        check_skip("this process may have less than %d open files", HARD);
        return false;
    }
    limit = (struct rlimit){.rlim_cur = SOFT, .rlim_max = HARD};
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    return true;
}

/* What a rank is told that needs so many in all, with those that are open. */
static const char *told(long in_all) {
    rp_status status = rpi_descriptors_check(1, 3, in_all - check_descriptors());
    return status == RP_OK ? NULL : rp_last_error()->message;
}

static void the_limit_itself_is_allowed(void) {
    if (!lower_limits()) return;
    CHECK(!told(SOFT));
    REQUIRE(told(SOFT + 1) != NULL);
    CHECK(strstr(told(SOFT + 1), "rank 1 of 3 needs about"));
    CHECK(strstr(told(SOFT + 1), "may have 512"));
}

static void what_to_ask_for_is_a_round_number(void) {
    static const struct {
        long in_all;
        const char *advice;
        bool is_above_hard;
    } rows[] = {{SOFT + 1, "`ulimit -n 1024`", false}, {1024, "`ulimit -n 1024`", false},
                {1025, "`ulimit -n 2048`", false},     {HARD, "`ulimit -n 2048`", false},
                {HARD + 1, "`ulimit -n 3072`", true},  {5000, "`ulimit -n 5120`", true}};
    if (!lower_limits()) return;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *text = told(rows[i].in_all);
        REQUIRE(text != NULL);
        CHECK_MSG(strstr(text, rows[i].advice), "row %zu: %s", i, text);
        CHECK_MSG(!strstr(text, "hard limit") == !rows[i].is_above_hard, "row %zu: %s", i,
                  text);
    }
}

CASES({"the limit itself is allowed", the_limit_itself_is_allowed},
      {"what to ask for is a round number", what_to_ask_for_is_a_round_number})
