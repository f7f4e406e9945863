#include "cli/guard.h"

#include "cli/command.h"
#include "cli/descendants.h"
#include "net/quiet_thread.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- in the second process ---- */

/* Standard error may be a pipe that nobody reads any more. */
static void say_if_possible(const char *name) {
    struct pollfd room = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&room, 1, 0) == 1 && (room.revents & POLLOUT))
        dprintf(STDERR_FILENO, "%s: the launcher was killed: its ranks have been ended\n",
                name);
}

typedef struct lifeline {
    int fd; /* its other end is the first process's */
    const char *name;
} lifeline;

/* A thread of its own: the others may be blocked in writing. */
static void *watch_first(void *context) {
    const lifeline *line = context;
    char byte;
    ssize_t got;
    do got = read(line->fd, &byte, 1);
    while (got < 0 && errno == EINTR);
    rpi_descendants_kill();
    say_if_possible(line->name);
    _exit(128 + SIGKILL);
}

static _Noreturn void be_second(const rpi_guard_options *options, int fd) {
    static lifeline line; /* of a thread that ends with the process */
    pthread_t thread;
    sigset_t background;
    line = (lifeline){.fd = fd, .name = options->name};
    setpgid(0, 0);
    prctl(PR_SET_NAME, "rank-keeper"); /* killall -9 redpoll shall not end both */
    /* A terminal with `stty tostop` stops background groups that write, but for this. */
    sigemptyset(&background);
    sigaddset(&background, SIGTTOU);
    sigprocmask(SIG_BLOCK, &background, NULL);
    rpi_descendants_adopt();
    rp_status status = rpi_quiet_thread("the launcher", watch_first, &line, &thread);
    int code = status == RP_OK ? options->work(options->context) : rpi_command_failed(status);
    rpi_descendants_kill();
    code = rpi_command_finish(
        code); /* what is printed here is not the first one's to look after */
    fflush(NULL);
    _exit(code);
}

/* ---- in the first ---- */

static int end_with(const rpi_guard_options *options, int status) {
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    int number = WTERMSIG(status);
    rpi_descendants_kill();
    if (number == SIGPIPE) { /* whoever read our output has had enough */
        signal(SIGPIPE, SIG_DFL);
        raise(SIGPIPE);
    }
    fprintf(stderr,
            "%s: the process that kept the ranks was killed by signal %d (%s): they have "
            "been ended\n",
            options->name, number, strsignal(number));
    return 128 + number;
}

static int wait_for_second(const rpi_guard_options *options, pid_t second) {
    struct signalfd_siginfo news;
    int status = 0;
    for (;;) {
        struct pollfd wait = {.fd = options->signals, .events = POLLIN};
        (void)poll(&wait, 1, -1);
        while (read(options->signals, &news, sizeof news) == sizeof news)
            if (news.ssi_signo != SIGCHLD) kill(second, (int)news.ssi_signo);
        if (waitpid(second, &status, WNOHANG) == second) return end_with(options, status);
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
