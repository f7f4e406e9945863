/* The launcher, over shell scripts as programs: codes, words, signals, and nothing left. */
#include "cli/run.h"

#include "base/clock.h"
#include "cli/first_failure.h"
#include "harness/check.h"
#include "harness/process.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OUTPUT_BYTES = 16384, ALIVE = -1 };

/* ---- a launcher in a process of its own ---- */

static char output[OUTPUT_BYTES];

static const char *output_path(void) {
    static char path[300];
    snprintf(path, sizeof path, "%s/output", check_folder());
    return path;
}

/* What the next launchers have done and met before they launch. */
static struct {
    const char *printed;
    rlim_t descriptors; /* 0: as many as here */
} before;

static void prepare(void) {
    struct rlimit limit;
    if (before.printed) printf("%s", before.printed);
    if (!before.descriptors || getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = before.descriptors;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

static pid_t start(rpi_launch_options options) {
    unlink(output_path());
    fflush(NULL);
    pid_t pid = fork();
    if (pid != 0) return pid;
    signal(SIGINT, SIG_DFL); /* a script's background ignores it */
    signal(SIGQUIT, SIG_DFL);
    int fd = open(output_path(), O_CREAT | O_WRONLY | O_APPEND, 0600);
    int null = open("/dev/null", O_RDONLY);
    dup2(null, STDIN_FILENO);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    options.name = "launcher";
    prepare();
    int code = rpi_launch(&options);
    fflush(NULL);
    _exit(code); /* exit() would remove the test's folder */
}

static const char *read_output(void) {
    memset(output, 0, sizeof output);
    int fd = open(output_path(), O_RDONLY);
    if (fd < 0) return output;
    ssize_t got = read(fd, output, sizeof output - 1);
    CHECK(got >= 0);
    close(fd);
    return output;
}

/* Exit code, or 128 + signal; ALIVE when it is still there after 30 s (and then killed). */
static int finish(pid_t pid) {
    int status = 0;
    int64_t deadline_ns = rpi_deadline_ns(30);
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (rpi_now_ns() > deadline_ns) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            return ALIVE;
        }
        rpi_sleep_until_ns(rpi_now_ns() + 2000000);
    }
    read_output();
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static rpi_launch_options shell(int ranks, const char *script) {
    static char *argv[4];
    argv[0] = (char *)(uintptr_t) "sh";
    argv[1] = (char *)(uintptr_t) "-c";
    argv[2] = (char *)(uintptr_t)script;
    return (rpi_launch_options){.ranks = ranks, .argv = argv, .grace_s = 0.3};
}

static bool wait_for_output(const char *text, int times) {
    int64_t deadline_ns = rpi_deadline_ns(20);
    while (rpi_now_ns() < deadline_ns) {
        int count = 0;
        for (const char *at = read_output(); (at = strstr(at, text)) != NULL; at++) count++;
        if (count >= times) return true;
        rpi_sleep_until_ns(rpi_now_ns() + 5000000);
    }
    check_failed(__FILE__, __LINE__, "'%s' did not come %d times in: %s", text, times, output);
    return false;
}

/* ---- cases ---- */

static void codes_and_words(void) {
    static const struct {
        int ranks;
        const char *script;
        int code;
        const char *says, *lacks;
    } runs[] = {
        {1, "exit 0", 0, "", "launcher: rank"},
        {2, "echo I am $RANK of $WORLD_SIZE", 0, "[1] I am 1 of 2\n", "ended"},
        {3, "echo $LOCAL_RANK/$LOCAL_WORLD_SIZE at $MASTER_ADDR", 0, "[2] 2/3 at 127.0.0.1\n",
         NULL},
        {2, "test -n \"$MASTER_PORT\" && test -n \"$REDPOLL_STORE\"", 0, "", "ended"},
        {2, "test \"$REDPOLL_STORE\" != 127.0.0.1:$MASTER_PORT", 0, "", "ended"},
        {2, "printf 'no end of line'", 0, "[0] no end of line\n", NULL},
        {1, "printf 'a\\r\\nb\\rc\\n\\nd'", 0, "[0] a\n[0] b\n[0] c\n[0] \n[0] d\n", NULL},
        {1, "printf 'a\\r'; sleep 0.1; printf '\\nb\\r\\r\\n\\r\\nc\\n'", 0,
         "[0] a\n[0] b\n[0] \n[0] c\n", NULL},
        {1, "printf 'a\\033[2Jb\\0c\\302\\n'", 0, "[0] a\033[2Jb", NULL}, /* no terminal */
        {2, "echo to stderr >&2", 0, "[1] to stderr\n", NULL},
        {1, "cat; echo end", 0, "[0] end\n", NULL},
        {3, "test $RANK = 1 && exit 7; exit 0", 7, "launcher: rank 1 ended with exit code 7\n",
         "still running"},
        {2, "test $RANK = 1 && exit 3; exec sleep 100", 3,
         "1 rank still running: sending SIGTERM", "SIGKILL"},
    };
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        CHECK_MSG(finish(start(shell(runs[i].ranks, runs[i].script))) == runs[i].code,
                  "'%s' did not end with %d: %s", runs[i].script, runs[i].code, output);
        CHECK_MSG(strstr(output, runs[i].says), "'%s' says: %s", runs[i].script, output);
        CHECK_MSG(!runs[i].lacks || !strstr(output, runs[i].lacks), "'%s' says: %s",
                  runs[i].script, output);
    }
}

/* They end when the launcher has waited for the one that was killed. */
static void who_fails_of_a_death_did_not_fail_first(void) {
    char script[600];
    snprintf(script, sizeof script,
             "test $RANK = 2 && { echo $$ >%s/dead; kill -9 $$; }; "
             "until test -s %s/dead && ! kill -0 $(cat %s/dead) 2>/dev/null; "
             "do sleep 0.02; done; exit 1",
             check_folder(), check_folder(), check_folder());
    rpi_launch_options options = shell(3, script);
    options.grace_s = 20;
    CHECK_EQ(finish(start(options)), 128 + SIGKILL);
    CHECK_MSG(strstr(output, "launcher: rank 2 was killed by signal 9 (Killed)\n") &&
                  !strstr(output, "rank 0 ended"),
              "it says: %s", output);
}

/* It may be seen to end before the other, but not when that has been said. */
static void a_death_goes_before_a_failure(void) {
    enum { FAILED = 1 << 8 }; /* exit code 1, as waitpid() tells it */
    rpi_first_failure first = {.rank = -1};
    rpi_first_failure_note(&first, 0, FAILED, false);
    CHECK_EQ(first.rank, 0);
    rpi_first_failure_note(&first, 2, SIGTERM, true);
    CHECK_EQ(first.rank, 0);
    rpi_first_failure_note(&first, 1, SIGKILL, false);
    CHECK_EQ(first.rank, 1);
    CHECK_EQ(rpi_exit_code_of(first.status), 128 + SIGKILL);
    CHECK_EQ(rpi_first_failure_code(&first, SIGINT), 128 + SIGKILL); /* by itself */
    CHECK(rpi_first_failure_is_due(&first)); /* nothing goes before a death */
    rpi_first_failure_note(&first, 0, FAILED, false);
    CHECK_EQ(first.rank, 1);
    first = (rpi_first_failure){.rank = -1};
    rpi_first_failure_note(&first, 0, FAILED, false);
    first.is_named = true;
    rpi_first_failure_note(&first, 1, SIGKILL, false);
    CHECK_EQ(first.rank, 0);
}

/* The launcher's own stands in the place of an inherited one, which goes on where it has none.
 */
static void a_launch_within_a_launch(void) {
    rpi_launch_options options =
        shell(1, "tr '\\0' '\\n' </proc/$$/environ | grep -E '^REDPOLL_(RESTART|GENERATION)='");
    options.survives_deaths = true;
    setenv("REDPOLL_RESTART", "7", 1);
    setenv("REDPOLL_GENERATION", "3", 1);
    CHECK_EQ(finish(start(options)), 0);
    CHECK_MSG(strstr(output, "REDPOLL_RESTART=7\n"), "%s", output);
    options.restarts = 2;
    CHECK_EQ(finish(start(options)), 0);
    CHECK_MSG(strstr(output, "REDPOLL_RESTART=2\n") && !strstr(output, "REDPOLL_RESTART=7"),
              "%s", output);
    CHECK_MSG(!strstr(output, "REDPOLL_GENERATION"), "%s", output);
    unsetenv("REDPOLL_RESTART");
    unsetenv("REDPOLL_GENERATION");
}

/* SIGTERM comes before the failure has been named. */
static void who_dies_of_our_signal_did_not_fail_first(void) {
    rpi_launch_options options = shell(3, "test $RANK = 2 && exit 7; echo up; exec sleep 100");
    options.grace_s = 0.02;
    CHECK_EQ(finish(start(options)), 7);
    CHECK_MSG(strstr(output, "rank 2 ended with exit code 7"), "it says: %s", output);
}

/* It lies in a buffer that every process begun here inherits. */
static void what_was_printed_before_comes_once(void) {
    before.printed = "before\n";
    CHECK_EQ(finish(start(shell(2, "echo from $RANK"))), 0);
    before.printed = NULL;
    const char *found = strstr(output, "before\n");
    CHECK_MSG(found && !strstr(found + 1, "before\n"), "it says: %s", output);
    CHECK_MSG(strstr(output, "[0] from 0\n") && strstr(output, "[1] from 1\n"), "%s", output);
}

/* Each takes two pipes: the launcher raises its limit, up to the hard one. */
static void many_ranks_within_few_descriptors(void) {
    enum { RANKS = 20 };
    before.descriptors = 32;
    CHECK_EQ(finish(start(shell(RANKS, "echo from $RANK"))), 0);
    before.descriptors = 0;
    for (int rank = 0; rank < RANKS; rank++) {
        char line[32];
        snprintf(line, sizeof line, "[%d] from %d\n", rank, rank);
        CHECK_MSG(strstr(output, line), "without %s: %s", line, output);
    }
}

static void programs_that_cannot_run(void) {
    static const struct {
        const char *program;
        int code;
        const char *says;
    } runs[] = {{"/no/such/program", 127, "cannot run '/no/such/program': No such file"},
                {"no-such-program", 127, "cannot run 'no-such-program': No such file"},
                {"/etc/passwd", 126, "is it an executable file?"},
                {"/tmp", 126, "cannot run '/tmp'"}};
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        char *argv[] = {(char *)(uintptr_t)runs[i].program, NULL};
        CHECK_EQ(finish(start((rpi_launch_options){.ranks = 2, .argv = argv})), runs[i].code);
        CHECK_MSG(strstr(output, runs[i].says), "%s", output);
    }
    static const int64_t counts[] = {0, -1, RPI_LAUNCH_MAX_RANKS + 1, 1000000};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        CHECK_FAILS(rpi_launch_check_ranks(counts[i]), INVALID, "1 to 1024 ranks");
    CHECK_OK(rpi_launch_check_ranks(1));
}

static void a_path_and_another_name(void) {
    char *argv[] = {(char *)(uintptr_t) "renamed", (char *)(uintptr_t) "-c",
                    (char *)(uintptr_t) "echo \"I am $0\"", NULL};
    rpi_launch_options options = {.ranks = 1, .path = "/bin/sh", .argv = argv};
    CHECK_EQ(finish(start(options)), 0);
    CHECK_MSG(strstr(output, "I am renamed"), "%s", output);
}

static void output_without_prefix(void) {
    rpi_launch_options options = shell(3, "echo rank $RANK");
    options.output = RPI_LAUNCH_PLAIN;
    CHECK_EQ(finish(start(options)), 0);
    CHECK_MSG(strstr(output, "rank 2\n") && !strchr(output, '['), "%s", output);
    options.output = RPI_LAUNCH_PREFIX_OTHERS;
    CHECK_EQ(finish(start(options)), 0);
    CHECK_MSG(!strstr(output, "[0]") && strstr(output, "[2] rank 2\n"), "%s", output);
}

static void long_lines_and_many_lines(void) {
    rpi_launch_options options =
        shell(2, "i=0; while test $i -lt 300; do echo line $i of rank $RANK; i=$((i+1)); done");
    CHECK_EQ(finish(start(options)), 0);
    CHECK(strstr(output, "[0] line 299 of rank 0\n") &&
          strstr(output, "[1] line 299 of rank 1\n"));
    options = shell(1, "head -c 10000 /dev/zero | tr '\\0' x");
    CHECK_EQ(finish(start(options)), 0);
    CHECK_EQ(strlen(output), 10000 + 2 * strlen("[0] \n"));
}

/* A character stays whole where a line is broken, and the end of a line of just that length is
 * no line of its own. */
static void long_lines_break_between_characters(void) {
    rpi_launch_options options = shell(1, "head -c 8191 /dev/zero | tr '\\0' x; echo é");
    CHECK_EQ(finish(start(options)), 0);
    CHECK_MSG(strstr(output, "x\n[0] é\n"), "it ends with: %s", output + 8180);
    options = shell(1, "head -c 8192 /dev/zero | tr '\\0' x; echo; echo y");
    CHECK_EQ(finish(start(options)), 0);
    CHECK_MSG(strstr(output, "x\n[0] y\n"), "it ends with: %s", output + 8180);
}

static const char *file_text(const char *folder, int rank) {
    static char text[2 * OUTPUT_BYTES];
    char path[400];
    snprintf(path, sizeof path, "%s/rank-%d.log", folder, rank);
    memset(text, 0, sizeof text);
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    CHECK(read(fd, text, sizeof text - 1) >= 0);
    close(fd);
    return text;
}

/* Of each stream; where both are within a line, the other one's begins on a line of its own. */
static void files_have_the_bytes(void) {
    static const struct {
        const char *script, *text;
    } files[] = {
        {"printf 'no end'", "no end"},
        {"printf 'a\\r\\nb\\rc\\033[1m\\n\\n\\302'", "a\r\nb\rc\033[1m\n\n\302"},
        {"head -c 8200 /dev/zero | tr '\\0' x; sleep .2; echo e >&2; sleep .2; echo y", NULL},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        rpi_launch_options options = shell(1, files[i].script);
        options.output = RPI_LAUNCH_FILES;
        options.output_folder = check_folder();
        CHECK_EQ(finish(start(options)), 0);
        const char *text = file_text(options.output_folder, 0);
        if (files[i].text)
            CHECK_MSG(strcmp(text, files[i].text) == 0, "'%s' leaves: %s", files[i].script,
                      text);
        else
            CHECK_MSG(strcmp(text + strspn(text, "x"), "\ne\nxxxxxxxxy\n") == 0,
                      "it leaves: %s", text + strspn(text, "x"));
    }
}

/* ---- signals and leftovers ---- */

static bool ends_soon(pid_t pid) {
    int64_t deadline_ns = rpi_deadline_ns(20);
    while (process_runs(pid)) {
        if (rpi_now_ns() >= deadline_ns) return false;
        rpi_sleep_until_ns(rpi_now_ns() + 2000000);
    }
    return true;
}

/* "pid 123" in what was printed, the index-th. */
static pid_t printed_pid(int index) {
    const char *at = output;
    for (int i = 0; i <= index; i++) {
        at = strstr(at, "pid ");
        if (!at) return 0;
        at += 4;
    }
    return (pid_t)atoi(at);
}

static void signals_are_passed_on(void) {
    static const struct {
        const char *script;
        int signal, code;
        const char *says;
    } runs[] = {
        {"echo pid $$; exec sleep 100", SIGTERM, 128 + SIGTERM, "signal 15 (Terminated)"},
        {"echo pid $$; exec sleep 100", SIGINT, 128 + SIGINT, "signal 2 (Interrupt)"},
        {"trap 'echo caught; exit 0' TERM; echo pid $$; while :; do sleep 0.05; done", SIGTERM,
         128 + SIGTERM, "[1] caught"},
        {"trap '' TERM; echo pid $$; while :; do sleep 0.05; done", SIGTERM, 128 + SIGTERM,
         "sending SIGKILL"},
        {"trap 'echo user; exit 4' USR1; echo pid $$; while :; do sleep 0.05; done", SIGUSR1, 4,
         "user"},
    };
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        pid_t launcher = start(shell(2, runs[i].script));
        if (!wait_for_output("pid ", 2)) {
            finish(launcher);
            return;
        }
        pid_t ranks[2] = {printed_pid(0), printed_pid(1)};
        kill(launcher, runs[i].signal);
        CHECK_MSG(finish(launcher) == runs[i].code, "'%s' did not end with %d: %s",
                  runs[i].script, runs[i].code, output);
        CHECK_MSG(strstr(output, runs[i].says), "'%s' says: %s", runs[i].script, output);
        CHECK(!process_runs(ranks[0]) && !process_runs(ranks[1]));
    }
}

/* Ranks that do not heed the first are killed at once, for it. */
static void a_second_signal_kills_for_the_first(void) {
    rpi_launch_options options =
        shell(2, "trap '' INT; echo pid $$; while :; do sleep 0.05; done");
    options.grace_s = 600;
    pid_t launcher = start(options);
    if (wait_for_output("pid ", 2)) {
        kill(launcher, SIGINT);
        if (wait_for_output("stopping the ranks: signal 2", 1)) kill(launcher, SIGINT);
    }
    CHECK_EQ(finish(launcher), 128 + SIGINT);
    CHECK_MSG(!strstr(output, "was killed by"), "it says: %s", output);
}

/* As under nohup: the launcher is not ended by the signal, nor are its ranks. */
static void what_is_ignored_stays_ignored(void) {
    signal(SIGHUP, SIG_IGN);
    signal(SIGCHLD, SIG_IGN); /* and this must not hide the ranks' ends */
    pid_t launcher = start(shell(2, "echo pid $$; kill -HUP $$; sleep 0.2; echo went on"));
    signal(SIGHUP, SIG_DFL);
    signal(SIGCHLD, SIG_DFL);
    if (wait_for_output("pid ", 2)) kill(launcher, SIGHUP);
    CHECK_EQ(finish(launcher), 0);
    CHECK_MSG(strstr(output, "[0] went on") && strstr(output, "[1] went on"), "%s", output);
}

static void a_killed_launcher_takes_its_ranks_along(void) {
    pid_t launcher = start(shell(3, "echo pid $$; exec sleep 100"));
    if (wait_for_output("pid ", 3)) {
        pid_t ranks[3] = {printed_pid(0), printed_pid(1), printed_pid(2)};
        kill(launcher, SIGKILL);
        for (int i = 0; i < 3; i++) CHECK(ends_soon(ranks[i]));
    }
    CHECK_EQ(finish(launcher), 128 + SIGKILL);
}

/* What a rank may have below itself; each prints the ids of two processes a rank and stays. */
static const char *const trees[] = {
    /* A shell that waits for its program. */
    "echo pid $$; sh -c 'echo pid $$; sleep 100; true'; true",
    "echo pid $$; sh -c 'sh -c \"echo pid \\$\\$; sleep 100; true\"; true'; true",
    /* Jobs in the background, one of which takes no SIGTERM or SIGHUP. */
    "sleep 100 & echo pid $!; (trap '' TERM HUP; sleep 100; true) & echo pid $!; wait",
    /* A session of its own, and a group of its own within it. */
    "echo pid $$; setsid -w sh -c 'echo pid $$; sleep 100; true'; true",
    /* Daemons: their parents have ended. */
    "echo pid $$; (setsid sh -c 'echo pid $$; sleep 100; true' &); sleep 100; true",
    "echo pid $$; (sh -c '(sleep 100 & echo pid $!)' &); sleep 100; true",
    /* Stopped ones. */
    "echo pid $$; sh -c 'echo pid $$; kill -STOP $$; sleep 100; true'; true",
    "echo pid $$; setsid -w sh -c 'echo pid $$; kill -STOP $$; sleep 100; true'; true",
};
enum { TREES = sizeof trees / sizeof trees[0], TREE_PIDS = 4 };

/* Which of the launcher's two processes is lost? */
typedef enum victim { FIRST, SECOND } victim;

/* The launcher's second process: the only child of the first. */
static pid_t second_of(pid_t launcher) {
    char path[64];
    int second = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)launcher, (int)launcher);
    FILE *file = fopen(path, "r");
    if (!file || fscanf(file, "%d", &second) != 1) second = 0;
    if (file) fclose(file);
    return second;
}

static void lose(victim which, const char *tree) {
    pid_t launcher = start(shell(2, tree));
    if (wait_for_output("pid ", TREE_PIDS)) {
        pid_t pids[TREE_PIDS], second = second_of(launcher);
        for (int i = 0; i < TREE_PIDS; i++) pids[i] = printed_pid(i);
        CHECK(second > 0);
        kill(which == FIRST ? launcher : second, SIGKILL);
        for (int i = 0; i < TREE_PIDS; i++)
            CHECK_MSG(ends_soon(pids[i]), "process %d of '%s' is left", i, tree);
        CHECK(ends_soon(second));
    }
    CHECK_EQ(finish(launcher), 128 + SIGKILL);
    CHECK_MSG(which == FIRST || strstr(output, "was killed by signal 9"), "%s", output);
}

static void a_killed_launcher_takes_whole_trees_along(void) {
    for (int i = 0; i < TREES; i++) lose(FIRST, trees[i]);
}

static void so_does_its_second_process(void) {
    for (int i = 0; i < TREES; i++) lose(SECOND, trees[i]);
}

/* Nobody reads what the launcher prints, so that it blocks in writing when it is killed. */
static void a_launcher_that_cannot_write_does_too(void) {
    int ends[2], null = open("/dev/null", O_WRONLY);
    CHECK(pipe(ends) == 0);
    fflush(NULL);
    pid_t launcher = fork();
    if (launcher == 0) {
        dup2(ends[1], STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        rpi_launch_options options =
            shell(2, "sh -c 'echo pid $$; while :; do echo many words; done'; true");
        options.name = "launcher";
        _exit(rpi_launch(&options));
    }
    close(ends[1]);
    close(null);
    ssize_t got = 0;
    char text[64] = "";
    while (!strchr(text, '\n')) {
        got = read(ends[0], text + strlen(text), sizeof text - 1 - strlen(text));
        if (got <= 0) break;
    }
    pid_t below = (pid_t)atoi(strstr(text, "pid ") ? strstr(text, "pid ") + 4 : "0");
    CHECK(below > 0);
    rpi_sleep_until_ns(rpi_now_ns() + RPI_SECOND_NS / 3); /* pipes fill */
    pid_t second = second_of(launcher);
    kill(launcher, SIGKILL);
    CHECK(ends_soon(below));
    CHECK(ends_soon(second));
    CHECK_EQ(finish(launcher), 128 + SIGKILL);
    close(ends[0]);
}

static void children_of_ranks_do_not_stay(void) {
    static const char *const scripts[] = {
        "sleep 100 & echo pid $!",
        "setsid sleep 100 & echo pid $!",
        "f=$(mktemp -u); (setsid sh -c 'echo pid $$; : >\"$0\"; exec sleep 100' $f &); "
        "until [ -e $f ]; do sleep 0.01; done; rm $f",
        "f=$(mktemp -u); "
        "(trap '' TERM HUP; setsid sh -c 'echo pid $$; : >\"$0\"; kill -STOP $$' $f &); "
        "until [ -e $f ]; do sleep 0.01; done; rm $f",
    };
    for (size_t s = 0; s < sizeof scripts / sizeof scripts[0]; s++) {
        CHECK_EQ(finish(start(shell(2, scripts[s]))), 0);
        for (int i = 0; i < 2; i++) {
            CHECK(printed_pid(i) > 0);
            CHECK_MSG(!process_runs(printed_pid(i)), "'%s' is left", scripts[s]);
        }
    }
}

/* Told to end, ranks take along what does not hear of it: it has a session of its own. */
static void what_hears_no_signal_ends_with_its_rank(void) {
    pid_t launcher = start(shell(2, "setsid sleep 100 & echo pid $!; wait"));
    if (wait_for_output("pid ", 2)) kill(launcher, SIGTERM);
    CHECK_EQ(finish(launcher), 128 + SIGTERM);
    for (int i = 0; i < 2; i++) CHECK(!process_runs(printed_pid(i)));
}

static int children_of(pid_t parent) {
    char path[64];
    int children = 0, pid;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    FILE *file = fopen(path, "r");
    while (file && fscanf(file, "%d", &pid) == 1) children++;
    if (file) fclose(file);
    return children;
}

/* Children whose parents ended are the launcher's to reap, as they end. */
static void no_zombies_meanwhile(void) {
    pid_t launcher = start(
        shell(1, "for i in 1 2 3 4 5; do (sleep 0 &); done; echo pid $$; sleep 100; true"));
    if (wait_for_output("pid ", 1)) {
        int64_t deadline_ns = rpi_deadline_ns(20);
        process_look rank = {0};
        CHECK(process_look_at(printed_pid(0), &rank));
        CHECK_EQ(rank.parent, second_of(launcher));
        while (children_of(rank.parent) != 1 && rpi_now_ns() < deadline_ns)
            rpi_sleep_until_ns(rpi_now_ns() + RPI_SECOND_NS / 200);
        CHECK_EQ(children_of(rank.parent), 1);
    }
    kill(launcher, SIGTERM);
    CHECK_EQ(finish(launcher), 128 + SIGTERM);
}

static void a_stopped_rank_does_not_hold_up_the_end(void) {
    pid_t launcher = start(shell(2, "test $RANK = 1 && exit 5; kill -STOP $$"));
    CHECK_EQ(finish(launcher), 5);
}

static rpi_launch_options outliving(int ranks, const char *script) {
    rpi_launch_options options = shell(ranks, script);
    options.survives_deaths = true;
    return options;
}

/* Also below a shell; and the run has ended well. */
static void a_rank_that_is_stopped_for_ever_does_not_either(void) {
    static const char *const scripts[] = {
        "test $RANK = 1 && kill -STOP $$; exit 0",
        "test $RANK = 1 && sh -c 'kill -STOP $$'; exit 0",
        "test $RANK = 1 && { sleep 100 & kill -STOP $$; }; test $RANK = 2 && kill -STOP $$; "
        "exit 0",
    };
    for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++) {
        CHECK_EQ(finish(start(outliving(i == 2 ? 7 : 3, scripts[i]))), 0);
        CHECK_MSG(strstr(output, "rank 1 is stopped, and the others have ended well: it is "
                                 "killed"),
                  "it says: %s", output);
    }
}

/* Not while another one works; and not for good, when it goes on. */
static void a_rank_that_is_stopped_for_a_while_is_left_alone(void) {
    static const char *const scripts[] = {
        "test $RANK = 0 && exit 0; test $RANK = 2 && exec sleep 1.5; "
        "(sleep 1.2; kill -CONT $$) & kill -STOP $$; wait; exit 0",
        "test $RANK = 0 && exit 0; test $RANK = 2 && exec sleep 2; "
        "for i in 1 2 3; do (sleep 0.4; kill -CONT $$) & kill -STOP $$; wait; done; exit 0",
    };
    for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++) {
        CHECK_EQ(finish(start(outliving(3, scripts[i]))), 0);
        CHECK_MSG(!strstr(output, "it is killed"), "it says: %s", output);
    }
}

/* All of them, of whom none has ended; or one of a launch that waits for whatever comes. */
static void who_is_stopped_while_nothing_has_ended_well_is_left_alone(void) {
    static const struct {
        const char *script;
        bool survives_deaths;
    } runs[] = {
        {"(sleep 1.8; kill -CONT $$) & kill -STOP $$; wait; exit 0", true},
        {"test $RANK = 0 && exit 0; (sleep 1.8; kill -CONT $$) & kill -STOP $$; wait; exit 0",
         false},
    };
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        rpi_launch_options options = shell(2, runs[i].script);
        options.survives_deaths = runs[i].survives_deaths;
        CHECK_EQ(finish(start(options)), 0);
        CHECK_MSG(!strstr(output, "it is killed"), "it says: %s", output);
    }
}

/* With --on-loss continue the order in which ranks end does not tell the exit code. */
static void the_order_of_ends_does_not_matter(void) {
    static const struct {
        const char *script;
        int code;
    } runs[] = {
        {"test $RANK = 1 && kill -9 $$; sleep 0.3; exit 0", 0},
        {"test $RANK = 1 && sleep 0.3 && kill -9 $$; exit 0", 0},
        {"test $RANK = 1 || exit 0; sleep 0.3; exit 3", 3},
        {"test $RANK = 1 && exit 3; kill -9 $$", 3},
        {"kill -9 $$", 128 + SIGKILL},
    };
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++)
        CHECK_MSG(finish(start(outliving(3, runs[i].script))) == runs[i].code,
                  "'%s' did not end with %d: %s", runs[i].script, runs[i].code, output);
}

/* The run has ended, and nobody takes it back. */
static void who_is_killed_when_others_have_ended_is_not_started_again(void) {
    rpi_launch_options options =
        outliving(2, "test $RANK = 0 && exit 0; sleep 0.5; echo life; kill -9 $$");
    options.restarts = 3;
    CHECK_EQ(finish(start(options)), 0);
    CHECK_MSG(strstr(output, "rank 1 was killed by signal 9 (Killed); the others have ended"),
              "it says: %s", output);
    CHECK_MSG(!strstr(strstr(output, "life") + 1, "life"), "it says: %s", output);
}

/* It has said that it waits for the others, who have ended; not one that is back, or says
 * nothing. */
static void who_comes_back_too_late_is_told_so(void) {
    static const struct {
        const char *words;
        bool told;
    } kinds[] = {{"printf w >/proc/self/fd/$fd", true},
                 {"printf wb >/proc/self/fd/$fd", false},
                 {"true", false}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        char script[600];
        snprintf(script, sizeof script,
                 "if [ $RANK = 0 ]; then until grep -q 'started again' %s; do sleep .05; done; "
                 "exit 0; fi; [ -z \"$REDPOLL_GENERATION\" ] && kill -9 $$; "
                 "fd=${REDPOLL_RETURN_PIPE%%:*}; %s; exec sleep %s",
                 output_path(), kinds[i].words, kinds[i].told ? "100" : "2");
        rpi_launch_options options = outliving(2, script);
        options.restarts = 1;
        CHECK_EQ(finish(start(options)), 0);
        CHECK_MSG(!strstr(output,
                          "rank 1 was started again, and the others have ended: the run "
                          "is over, and it is told to end") == !kinds[i].told,
                  "'%s': it says: %s", kinds[i].words, output);
    }
}

/* SIGTERM ends it at once, if it can. */
static void a_stopped_rank_hears_that_it_is_to_end(void) {
    rpi_launch_options options =
        outliving(2, "trap 'echo told; exit 0' TERM; echo up; kill -STOP $$; sleep 100");
    options.grace_s = 20;
    pid_t launcher = start(options);
    CHECK(wait_for_output("up", 2));
    kill(launcher, SIGTERM);
    CHECK_EQ(finish(launcher), 128 + SIGTERM);
    CHECK_MSG(strstr(output, "told") && !strstr(output, "SIGKILL"), "it says: %s", output);
}

/* Its second process is stopped, or cannot write to who does not read: told twice it ends, too.
 */
static pid_t child_of(pid_t pid) {
    char path[64], line[64] = "";
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    char *read = fgets(line, sizeof line, file);
    fclose(file);
    return read ? (pid_t)atoi(line) : 0;
}
static void a_launcher_that_is_held_ends(void) {
    pid_t launcher = start(shell(2, "trap '' TERM; echo pid $$; while :; do sleep 0.1; done"));
    CHECK(wait_for_output("pid", 2));
    pid_t keeper = child_of(launcher), rank = printed_pid(0);
    if (!keeper) {
        kill(launcher, SIGKILL);
        (void)finish(launcher);
        check_skip("the kernel lists no children");
        return;
    }
    kill(keeper, SIGSTOP);
    kill(launcher, SIGTERM);
    CHECK_EQ(finish(launcher), 128 + SIGTERM);
    CHECK_MSG(strstr(output, "did not end in time"), "it says: %s", output);
    CHECK(ends_soon(rank));
}

CASES({"codes_and_words", codes_and_words},
      {"who_fails_of_a_death_did_not_fail_first", who_fails_of_a_death_did_not_fail_first},
      {"a_death_goes_before_a_failure", a_death_goes_before_a_failure},
      {"a_launch_within_a_launch", a_launch_within_a_launch},
      {"who dies of our signal did not fail first", who_dies_of_our_signal_did_not_fail_first},
      {"what_was_printed_before_comes_once", what_was_printed_before_comes_once},
      {"many_ranks_within_few_descriptors", many_ranks_within_few_descriptors},
      {"programs_that_cannot_run", programs_that_cannot_run},
      {"a_path_and_another_name", a_path_and_another_name},
      {"output_without_prefix", output_without_prefix},
      {"long_lines_and_many_lines", long_lines_and_many_lines},
      {"long lines break between characters", long_lines_break_between_characters},
      {"files have the bytes", files_have_the_bytes},
      {"signals_are_passed_on", signals_are_passed_on},
      {"a_second_signal_kills_for_the_first", a_second_signal_kills_for_the_first},
      {"what_is_ignored_stays_ignored", what_is_ignored_stays_ignored},
      {"a_killed_launcher_takes_its_ranks_along", a_killed_launcher_takes_its_ranks_along},
      {"a_killed_launcher_takes_whole_trees_along", a_killed_launcher_takes_whole_trees_along},
      {"so_does_its_second_process", so_does_its_second_process},
      {"a_launcher_that_cannot_write_does_too", a_launcher_that_cannot_write_does_too},
      {"children_of_ranks_do_not_stay", children_of_ranks_do_not_stay},
      {"what_hears_no_signal_ends_with_its_rank", what_hears_no_signal_ends_with_its_rank},
      {"no_zombies_meanwhile", no_zombies_meanwhile},
      {"a_stopped_rank_does_not_hold_up_the_end", a_stopped_rank_does_not_hold_up_the_end},
      {"a rank that is stopped for ever does not either",
       a_rank_that_is_stopped_for_ever_does_not_either},
      {"a rank that is stopped for a while is left alone",
       a_rank_that_is_stopped_for_a_while_is_left_alone},
      {"who is stopped while nothing has ended well is left alone",
       who_is_stopped_while_nothing_has_ended_well_is_left_alone},
      {"the order of ends does not matter", the_order_of_ends_does_not_matter},
      {"who is killed when others have ended is not started again",
       who_is_killed_when_others_have_ended_is_not_started_again},
      {"who comes back too late is told so", who_comes_back_too_late_is_told_so},
      {"a stopped rank hears that it is to end", a_stopped_rank_hears_that_it_is_to_end},
      {"a launcher that is held ends", a_launcher_that_is_held_ends})
