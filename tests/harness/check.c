#include "harness/check.h"

#include "base/clock.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

static atomic_int failures; /* ranks may be threads */
static atomic_int skipped;
static char folder[256];
static _Atomic uint64_t seed; /* 0: nobody has asked for it */

void check_failed(const char *file, int line, const char *format, ...) {
    char message[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    int before = atomic_fetch_add(&failures, 1);
    if (before < 20) fprintf(stderr, "  %s:%d: %s\n", file, line, message);
    if (before == 20) fprintf(stderr, "  ... further failures of this case are not shown\n");
}

void check_skip(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "  skipped: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    atomic_store(&skipped, 1);
}

int check_failures(void) {
    return atomic_load(&failures);
}

/* Ranks that are threads may ask at once: the first answer counts. */
uint64_t check_seed(void) {
    uint64_t known = atomic_load(&seed);
    if (known) return known;
    const char *text = getenv("REDPOLL_TEST_SEED");
    uint64_t mine =
        text ? strtoull(text, NULL, 10) : ((uint64_t)rpi_now_ns() ^ (uint64_t)getpid()) | 1;
    return atomic_compare_exchange_strong(&seed, &known, mine) ? mine : known;
}

int check_long(void) {
    const char *text = getenv("REDPOLL_LONG_TESTS");
    return text && *text && strcmp(text, "0") != 0;
}

double check_seconds(double short_s, double long_s) {
    const char *text = getenv("REDPOLL_TEST_SECONDS");
    if (text && atof(text) > 0) return atof(text);
    return check_long() ? long_s : short_s;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *walk) {
    (void)info, (void)type, (void)walk;
    return remove(path);
}

static void remove_folder(void) {
    if (folder[0] && !getenv("REDPOLL_TEST_KEEP"))
        nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

const char *check_folder(void) {
    if (folder[0]) return folder;
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/redpoll-test-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(folder)) {
        perror(folder);
        exit(1);
    }
    atexit(remove_folder);
    return folder;
}

const char *check_file(const char *name, const void *bytes, size_t count) {
    enum { KEPT = 4 };
    static char paths[KEPT][sizeof folder + 300];
    static int next;
    char *path = paths[next++ % KEPT];
    snprintf(path, sizeof paths[0], "%s/%s", check_folder(), name);
    FILE *stream = fopen(path, "wb");
    bool is_written = stream && fwrite(bytes, 1, count, stream) == count;
    if (!stream || fclose(stream) != 0 || !is_written) {
        perror(path);
        exit(1);
    }
    return path;
}

const char *check_text_file(const char *name, const char *text) {
    return check_file(name, text, strlen(text));
}

static int count_entries(const char *path) {
    int count = 0;
    DIR *entries = opendir(path);
    while (entries && readdir(entries)) count++;
    if (entries) closedir(entries);
    return count - 2; /* "." and ".." */
}

int check_descriptors(void) {
    return count_entries("/proc/self/fd") - 1; /* the folder's own */
}

void check_without_stdin(void (*run)(void)) {
    int kept = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (kept >= 0) close(STDIN_FILENO);
    run();
    if (fcntl(STDIN_FILENO, F_GETFD) >= 0)
        check_failed(__FILE__, __LINE__, "who had descriptor 0 has not given it back");
    if (kept < 0) return;
    dup2(kept, STDIN_FILENO);
    close(kept);
}

int check_threads(void) {
    return count_entries("/proc/self/task");
}

int check_settled_threads(int expected) {
    int64_t deadline_ns = rpi_deadline_ns(10);
    while (check_threads() > expected && rpi_now_ns() < deadline_ns)
        rpi_sleep_until_ns(rpi_now_ns() + 1000000);
    return check_threads();
}

static int wanted(int argc, char **argv, const char *name) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], name) == 0) return 1;
    return argc <= 1;
}

int check_main(int argc, char **argv, const check_case *cases, int count) {
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (int i = 0; i < count; i++) puts(cases[i].name);
        return 0;
    }
    int ran = 0, failed = 0, skips = 0;
    for (int i = 0; i < count; i++) {
        if (!wanted(argc, argv, cases[i].name)) continue;
        atomic_store(&failures, 0);
        atomic_store(&skipped, 0);
        cases[i].run();
        const char *result = failures ? "FAILED" : skipped ? "skipped" : "ok";
        fprintf(stderr, "%-8s %s\n", result, cases[i].name);
        ran++;
        failed += failures != 0;
        skips += !failures && skipped;
    }
    if (failed && seed)
        fprintf(stderr, "replay with REDPOLL_TEST_SEED=%llu\n", (unsigned long long)seed);
    fprintf(stderr, "%d cases: %d passed, %d failed, %d skipped\n", ran, ran - failed - skips,
            failed, skips);
    if (ran == 0) {
        fprintf(stderr, "no such case; --list names them\n");
        return 2;
    }
    if (failed) return 1;
    return skips == ran ? 77 : 0;
}
