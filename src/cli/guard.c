#include "cli/guard.h"

#include "base/clock.h"
#include "cli/command.h"
#include "cli/descendants.h"
#include "net/bytes/signal_masked_thread.h"
#include "net/socket/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- in both processes ---- */

/* Standard error may be a pipe that nobody reads any more. */
static void say_if_possible(const char *name, const char *what) {
    struct pollfd room = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&room, 1, 0) == 1 && (room.revents & POLLOUT))
        dprintf(STDERR_FILENO, "%s: %s\n", name, what);
}

/* ---- in the second process ---- */

static atomic_bool is_orphan;

bool rpi_guard_is_orphan(void) {
    return atomic_load(&is_orphan);
}

typedef struct lifeline {
    int fd; /* a pipe, of which the first process has the other end */
    const char *name;
} lifeline;

/* Runs in a thread of its own, because the others may be blocked in writing. */
static void *watch_first(void *context) {
    const lifeline *line = context;
    char byte;
    ssize_t got;
    do got = read(line->fd, &byte, 1);
    while (got < 0 && errno == EINTR);
    /* Set before anybody can see that a rank has ended because of it. */
    atomic_store(&is_orphan, true);
    rpi_descendants_kill();
    say_if_possible(line->name, "the launcher was killed: its ranks have been ended");
    _exit(128 + SIGKILL);
}

static _Noreturn void be_second(const rpi_guard_options *options, int fd) {
    static lifeline line; /* static: its thread lives as long as the process */
    pthread_t thread;
    sigset_t background;
    line = (lifeline){.fd = fd, .name = options->name};
    setpgid(0, 0);
    prctl(PR_SET_NAME, "rank-keeper"); /* another name, so that killall -9 redpoll does not end
                                          both processes */
    /* A terminal with `stty tostop` stops processes in the background that write to it, unless
     * they block SIGTTOU. */
    sigemptyset(&background);
    sigaddset(&background, SIGTTOU);
    sigprocmask(SIG_BLOCK, &background, NULL);
    rpi_descendants_adopt();
    rp_status status = rpi_signal_masked_thread("the launcher", watch_first, &line, &thread);
    int code = status == RP_OK ? options->work(options->context) : rpi_command_failed(status);
    rpi_descendants_kill();
    code = rpi_command_finish(
        code); /* the first process does not look after what is printed here */
    fflush(NULL);
    _exit(code);
}

/* ---- in the first ---- */

static int end_with(const rpi_guard_options *options, int status) {
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    int number = WTERMSIG(status);
    rpi_descendants_kill();
    if (number == SIGPIPE) { /* the reader of the output has gone */
        signal(SIGPIPE, SIG_DFL);
        raise(SIGPIPE);
    }
    fprintf(stderr,
            "%s: the process that kept the ranks was killed by signal %d (%s): they have "
            "been ended\n",
            options->name, number, strsignal(number));
    return 128 + number;
}

/* The signals that have come, and when the time of the second process is over. */
typedef struct ending {
    int told; /* the first signal; 0: none */
    int64_t kill_ns;
} ending;

static void limit_end(ending *e, double limit_s) {
    int64_t at_ns = rpi_deadline_ns(limit_s);
    if (at_ns < e->kill_ns) e->kill_ns = at_ns;
}

static void take_signals(const rpi_guard_options *options, pid_t second, ending *e) {
    struct signalfd_siginfo news;
    while (read(options->signals, &news, sizeof news) == sizeof news) {
        int number = (int)news.ssi_signo;
        if (number == SIGCHLD) continue;
        kill(second, number);
        if (number == SIGUSR1 || number == SIGUSR2) continue;
        limit_end(e, e->told ? RPI_GUARD_AGAIN_S : options->end_s);
        if (!e->told) e->told = number;
    }
}

/* Ends the second process, which may be stopped, or blocked in writing to a reader that does
 * not read. */
static int kill_second(const rpi_guard_options *options, pid_t second, const ending *e) {
    kill(second, SIGKILL);
    (void)waitpid(second, NULL, 0);
    rpi_descendants_kill();
    say_if_possible(options->name,
                    "the process that kept the ranks did not end in time: it was "
                    "killed, and they with it");
    return e->told ? 128 + e->told : 128 + SIGKILL;
}

static int wait_for_second(const rpi_guard_options *options, pid_t second) {
    ending e = {.kill_ns = RPI_NEVER_NS};
    int status = 0;
    bool is_called = options->caller >= 0;
    for (;;) {
        struct pollfd waits[] = {{.fd = options->signals, .events = POLLIN},
                                 {.fd = is_called ? options->caller : -1}};
        (void)poll(waits, 2, rpi_poll_ms(e.kill_ns));
        take_signals(options, second, &e);
        if (waits[1].revents & (POLLHUP | POLLERR)) {
            is_called = false;
            limit_end(&e, RPI_GUARD_AGAIN_S);
        }
        if (waitpid(second, &status, WNOHANG) == second) return end_with(options, status);
        if (rpi_now_ns() >= e.kill_ns) return kill_second(options, second, &e);
    }
}

int rpi_guard(const rpi_guard_options *options) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return rpi_command_failed(RP_FAIL_ERRNO(IO, "cannot make a pipe"));
    rpi_descendants_adopt();
    fflush(NULL);
    pid_t second = fork();
    if (second == 0) {
        close(ends[1]);
        be_second(options, ends[0]);
    }
    close(ends[0]);
    int code = second < 0 ? rpi_command_failed(RP_FAIL_ERRNO(IO, "cannot start a process"))
                          : wait_for_second(options, second);
    close(ends[1]);
    return code;
}
