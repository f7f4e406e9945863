/* What is lacking where a call fails, by its error: a row for each that is told apart. */
#include "base/lacking.h"

#include "harness/check.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>

static const struct {
    int error;
    const char *call, *threads, *text; /* a part; "": nothing is said */
} rows[] = {
    {ENOSYS, "a seccomp profile or an old kernel forbids: allow it", "", ""},
    {EPERM, "a seccomp profile or an old kernel forbids", "forbids clone3(): allow it", ""},
    {EACCES, "a seccomp profile or an old kernel forbids", "", ""},
    {EAGAIN, "", "`ulimit -u`, or the pids limit of the container", ""},
    {EMFILE, "", "", "raise the limit where it is started, by `ulimit -n "},
    {ENFILE, "", "", "sysctl fs.file-max is its limit"},
    {ENOMEM, "", "", "`ulimit -v`) is used up"},
    {ENOBUFS, "", "", "sysctl net.ipv4.tcp_mem is its limit"},
    {EINVAL, "", "", ""},
    {0, "", "", ""},
};

static void check_part(int error, const char *said, const char *part) {
    CHECK_MSG(*part ? strstr(said, part) != NULL : !*said, "error %d: '%s', not '%s'", error,
              said, part);
}

static void errors_are_told_apart(void) {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[400];
        check_part(rows[i].error, rpi_lacking_call(rows[i].error), rows[i].call);
        check_part(rows[i].error, rpi_lacking_threads(rows[i].error), rows[i].threads);
        check_part(rows[i].error, rpi_lacking_text(rows[i].error, text, sizeof text),
                   rows[i].text);
    }
}

static void check_files(rlim_t limit, const char *wanted) {
    char text[400];
    struct rlimit before, now;
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    now = before;
    now.rlim_cur = limit;
    REQUIRE(setrlimit(RLIMIT_NOFILE, &now) == 0);
    (void)rpi_lacking_text(EMFILE, text, sizeof text);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK_MSG(strcmp(text, wanted) == 0, "'%s', not '%s'", text, wanted);
}

#define OPEN(have, wanted)                                                                     \
    "; the " have " that this process may have are open: raise the limit where it is "         \
    "started, by `ulimit -n " wanted "`"

/* As many as there are, as many as a rank of the largest world needs, and what is left of a
 * round number for the program. */
static void files_are_counted_for_the_largest_world(void) {
    check_files(64, OPEN("64", "1024"));
    rpi_lacking_note_world(8, 100);
    check_files(64, OPEN("64", "1024") " (a rank of 8 needs about 100, besides what the "
                                       "program opens)");
    rpi_lacking_note_world(2, 20);
    check_files(64, OPEN("64", "1024") " (a rank of 8 needs about 100, besides what the "
                                       "program opens)");
    rpi_lacking_note_world(512, 2000);
    check_files(47, OPEN("47", "2048") " (a rank of 512 needs about 2000, besides what the "
                                       "program opens)");
    check_files(48, OPEN("48", "3072") " (a rank of 512 needs about 2000, besides what the "
                                       "program opens)");
}

/* What is longer than there is room for is cut, and nothing behind the room is touched. */
static void texts_keep_to_their_room(void) {
    for (size_t room = 1; room < 300; room++) {
        char text[400];
        memset(text, '#', sizeof text);
        (void)rpi_lacking_text(EMFILE, text, room);
        CHECK(strlen(text) < room && text[room] == '#');
    }
}

CASES({"errors are told apart", errors_are_told_apart},
      {"files are counted for the largest world", files_are_counted_for_the_largest_world},
      {"texts keep to their room", texts_keep_to_their_room})
