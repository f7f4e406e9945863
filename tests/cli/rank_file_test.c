/* A rank's file: what is in it, and what comes back to the launcher when it is full. */
#include "cli/rank_file.h"

#include "base/regular_file.h"
#include "harness/check.h"

#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const int out, err; /* two writers */

static void check_text(const char *folder, const char *wanted) {
    char path[700], *text = NULL;
    size_t bytes = 0;
    snprintf(path, sizeof path, "%s/rank-3.log", folder);
    REQUIRE_OK(rpi_regular_file_read(path, 1 << 20, &text, &bytes));
    CHECK_MSG(bytes == strlen(wanted) && memcmp(text, wanted, bytes) == 0, "'%.*s', not '%s'",
              (int)bytes, text, wanted);
    free(text);
}

static size_t put(rpi_rank_file *file, const int *writer, const char *text) {
    return rpi_rank_file_write(file, writer, text, strlen(text));
}

/* Another's line begins on its own, wherever the one before has ended. */
static void lines_of_two_writers(void) {
    rpi_rank_file file;
    REQUIRE_OK(rpi_rank_file_open(&file, "launcher", check_folder(), 3));
    CHECK_EQ(put(&file, &out, "a"), 1);
    CHECK_EQ(put(&file, &out, "b"), 1);
    CHECK_EQ(put(&file, &err, ""), 0);
    CHECK_EQ(put(&file, &err, "c\n"), 2);
    CHECK_EQ(put(&file, &out, "d\r"), 2);
    CHECK_EQ(put(&file, &err, "e"), 1);
    rpi_rank_file_end_writers(&file);
    CHECK_EQ(put(&file, &err, "f"), 1); /* of the next process */
    CHECK(rpi_rank_file_close(&file));
    CHECK_EQ(put(&file, &err, "g"), 0);
    CHECK(rpi_rank_file_close(&file)); /* again, of nothing */
    check_text(check_folder(), "ab\nc\nd\re\nf");
}

/* A file of at most so many bytes: whole lines that are in it need not be shown again. */
static void what_a_full_file_has_not_comes_back(void) {
    static const struct {
        int room;
        const char *before, *text;
        size_t kept;
        const char *is_there;
    } cases[] = {
        {8, "", "abc\ndefgh\nijk", 4, "abc\ndefg"},
        {4, "", "abc\ndefgh\nijk", 4, "abc\n"},
        {3, "", "abc\ndefgh\nijk", 0, "abc"},
        {3, "x\n", "\rabc", 1, "x\n\r"},
        {2, "x\n", "abc\n", 0, "x\n"},
        {20, "", "abc\ndefgh\nijk", 13, "abc\ndefgh\nijk"},
    };
    signal(SIGXFSZ, SIG_IGN);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rpi_rank_file file;
        struct rlimit limit, small;
        REQUIRE_OK(rpi_rank_file_open(&file, "launcher", check_folder(), 3));
        CHECK_EQ(put(&file, &out, cases[i].before), strlen(cases[i].before));
        REQUIRE(getrlimit(RLIMIT_FSIZE, &limit) == 0);
        small = limit;
        small.rlim_cur = (rlim_t)cases[i].room;
        REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
        size_t kept = put(&file, &out, cases[i].text);
        CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
        bool is_whole = cases[i].kept == strlen(cases[i].text);
        CHECK_MSG(kept == cases[i].kept, "case %zu: %zu", i, kept);
        CHECK_EQ(put(&file, &out, ""), 0);
        if (!is_whole) CHECK_EQ(put(&file, &out, "later\n"), 0); /* all of it is shown */
        CHECK_EQ(rpi_rank_file_close(&file), is_whole);
        check_text(check_folder(), cases[i].is_there);
    }
}

/* As where a network file system finds out at last. */
static void a_file_that_cannot_be_closed(void) {
    rpi_rank_file file;
    REQUIRE_OK(rpi_rank_file_open(&file, "launcher", check_folder(), 3));
    CHECK_EQ(put(&file, &out, "a\n"), 2);
    CHECK(close(file.fd) == 0);
    CHECK(!rpi_rank_file_close(&file));
    CHECK(!rpi_rank_file_close(&file)); /* it stays so */
}

static void folders_that_cannot_be(void) {
    static char longest[PATH_MAX + 2];
    rpi_rank_file file;
    memset(longest, 'x', sizeof longest - 1);
    CHECK_FAILS(rpi_rank_file_open(&file, "launcher", longest, 3), IO, "x... is longer than ");
    CHECK(strlen(rp_last_error()->message) < 300);
    CHECK_FAILS(rpi_rank_file_open(&file, "launcher", "/nowhere", 3), IO,
                "cannot write rank 3's file /nowhere/rank-3.log");
    CHECK_EQ(put(&file, &out, "a"), 0);
    CHECK(rpi_rank_file_close(&file));
}

CASES({"lines of two writers", lines_of_two_writers},
      {"what a full file has not comes back", what_a_full_file_has_not_comes_back},
      {"a file that cannot be closed", a_file_that_cannot_be_closed},
      {"folders that cannot be", folders_that_cannot_be})
