/* Running many programs, and telling of one that fails. */
#include "comm/random_program.h"
#include "harness/check.h"

#include "base/clock.h"

#include <stdlib.h>

char program_failure[PROGRAM_RANKS * PROGRAM_WORDS];

bool program_read(const char *path, program *out) {
    char text[PROGRAM_TEXT];
    FILE *file = fopen(path, "r");
    if (!file) return false;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return program_parse(text, out);
}

bool program_write(const char *path, const program *p) {
    char text[PROGRAM_TEXT];
    FILE *file = fopen(path, "w");
    if (!file) return false;
    fputs(program_text(p, text, sizeof text), file);
    return fclose(file) == 0;
}

/* How long to look for a smaller program. */
enum { SHRINK_S = 100 };

static void report(const program *original, uint64_t seed, const char *case_name,
                   program_fails fails) {
    program smallest = *original;
    char text[PROGRAM_TEXT], path[512];
    smallest.timeout_s = 4; /* a deadlock is to show soon */
    program_shrink(&smallest, fails, SHRINK_S);
    snprintf(path, sizeof path, "/tmp/redpoll-program-%llu.txt", (unsigned long long)seed);
    (void)program_write(path, &smallest);
    check_failed(__FILE__, __LINE__,
                 "a program of %d steps fails; of these %d suffice:", original->count,
                 smallest.count);
    fprintf(stderr, "%s%s", program_text(&smallest, text, sizeof text), program_failure);
    fprintf(stderr,
            "  replay: REDPOLL_TEST_PROGRAM=%s PROGRAM 'one from a file', or the whole one: "
            "REDPOLL_TEST_SEED=%llu PROGRAM '%s'\n",
            path, (unsigned long long)seed, case_name);
}

/* Program k of seed s is the first of seed s + k. */
void program_run_many(const program_limits *limits, double seconds, const char *case_name,
                      program_fails fails) {
    program_set_secret();
    int64_t end_ns = rpi_deadline_ns(seconds);
    uint64_t seed = check_seed();
    int count = 0;
    do {
        program p;
        program_make(seed + (uint64_t)count, limits, &p);
        if (fails(&p)) {
            report(&p, seed + (uint64_t)count, case_name, fails);
            return;
        }
        count++;
    } while (rpi_now_ns() < end_ns);
    fprintf(stderr, "  %d programs from seed %llu on\n", count, (unsigned long long)seed);
}

void program_run_file(program_fails fails) {
    program_set_secret();
    const char *path = getenv("REDPOLL_TEST_PROGRAM");
    program p;
    if (!path) {
        check_skip("REDPOLL_TEST_PROGRAM names no program");
        return;
    }
    REQUIRE(program_read(path, &p));
    for (int i = 0; i < 20 && !check_failures(); i++)
        CHECK_MSG(!fails(&p), "run %d fails:\n%s", i + 1, program_failure);
}
