/* The unit-test harness: a table of cases, checks that count, one line a case.
 *
 *     static void adds(void) { CHECK(1 + 1 == 2); }
 *     CASES({"adds", adds})
 *
 * `prog` runs all cases, `prog NAME...` those named, `prog --list` lists them. Exit 0 passed,
 * 1 failed, 77 when every case was skipped. REDPOLL_TEST_SEED replays a seed. */
#ifndef HARNESS_CHECK_H
#define HARNESS_CHECK_H

#include "base/status.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct check_case {
    const char *name;
    void (*run)(void);
} check_case;

void check_failed(const char *file, int line, const char *format, ...) RP_PRINTF(3, 4);
/* Mark the running case as skipped, for a reason that is printed; then return from it. */
void check_skip(const char *format, ...) RP_PRINTF(1, 2);
int check_failures(void);  /* of the running case so far */
uint64_t check_seed(void); /* random a run, or REDPOLL_TEST_SEED; printed on failure */
int check_main(int argc, char **argv, const check_case *cases, int count);
/* REDPOLL_LONG_TESTS=1, as `make check-long` sets it. CMake: redpoll_test(... LONG 900). */
int check_long(void);
/* How long a test program that could go on for ever shall go on: REDPOLL_TEST_SECONDS, else
 * `long_s` in the long tests, else `short_s`. */
double check_seconds(double short_s, double long_s);
/* A fresh empty folder of this test, removed at exit when it passed. Static. */
const char *check_folder(void);
/* A file in it with these bytes, anew; its path, until the fourth call behind this one. */
const char *check_file(const char *name, const void *bytes, size_t count);
const char *check_text_file(const char *name, const char *text);
/* Open descriptors of this process, for tests that nothing leaks. */
int check_descriptors(void);
/* Run something in a process as some daemons start it, without a standard input: whatever opens
 * a descriptor first gets 0, which serves like any other and is to be closed like any other. */
void check_without_stdin(void (*run)(void));
/* Threads of this process. A joined one needs a moment more to leave the kernel's list: the
 * second waits for that, ten seconds at most, and returns how many there are then. */
int check_threads(void);
int check_settled_threads(int expected);

#define CHECK(condition)                                                                       \
    do {                                                                                       \
        if (!(condition)) check_failed(__FILE__, __LINE__, "%s", #condition);                  \
    } while (0)
#define CHECK_MSG(condition, ...)                                                              \
    do {                                                                                       \
        if (!(condition)) check_failed(__FILE__, __LINE__, __VA_ARGS__);                       \
    } while (0)
/* Stops the case: for what the rest depends on. */
#define REQUIRE(condition)                                                                     \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            check_failed(__FILE__, __LINE__, "%s", #condition);                                \
            return;                                                                            \
        }                                                                                      \
    } while (0)
#define REQUIRE_OK(expression)                                                                 \
    do {                                                                                       \
        rp_status check_status = (expression);                                                 \
        if (check_status != RP_OK) {                                                           \
            check_failed(__FILE__, __LINE__, "%s: %s: %s", #expression,                        \
                         rp_status_name(check_status), rp_last_error()->message);              \
            return;                                                                            \
        }                                                                                      \
    } while (0)
#define CHECK_OK(expression)                                                                   \
    do {                                                                                       \
        rp_status check_status = (expression);                                                 \
        if (check_status != RP_OK)                                                             \
            check_failed(__FILE__, __LINE__, "%s: %s: %s", #expression,                        \
                         rp_status_name(check_status), rp_last_error()->message);              \
    } while (0)
/* The call fails with this status and its message holds `part`. */
#define CHECK_FAILS(expression, wanted, part)                                                  \
    do {                                                                                       \
        rp_status check_status = (expression);                                                 \
        if (check_status != RP_##wanted)                                                       \
            check_failed(__FILE__, __LINE__, "%s: %s, not %s", #expression,                    \
                         rp_status_name(check_status), #wanted);                               \
        else if (!strstr(rp_last_error()->message, part))                                      \
            check_failed(__FILE__, __LINE__, "message '%s' lacks '%s'",                        \
                         rp_last_error()->message, part);                                      \
    } while (0)
#define CHECK_EQ(a, b)                                                                         \
    do {                                                                                       \
        long long check_a = (long long)(a), check_b = (long long)(b);                          \
        if (check_a != check_b)                                                                \
            check_failed(__FILE__, __LINE__, "%s is %lld, %s is %lld", #a, check_a, #b,        \
                         check_b);                                                             \
    } while (0)
#define CHECK_NEAR(a, b, tolerance)                                                            \
    do {                                                                                       \
        double check_a = (a), check_b = (b);                                                   \
        if (!(fabs(check_a - check_b) <= (tolerance)))                                         \
            check_failed(__FILE__, __LINE__, "%s is %.9g, %s is %.9g (tolerance %g)", #a,      \
                         check_a, #b, check_b, (double)(tolerance));                           \
    } while (0)

#define CASES(...)                                                                             \
    int main(int argc, char **argv) {                                                          \
        static const check_case cases[] = {__VA_ARGS__};                                       \
        return check_main(argc, argv, cases, (int)(sizeof cases / sizeof cases[0]));           \
    }

#endif
