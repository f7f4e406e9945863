/* What a launcher does with its hosts for any purpose: agents are started on all of them at
 * once, and asked at the same time, each question with a deadline. */
#include "cli/hosts/host_launch.h"

#include "base/clock.h"
#include "base/memory.h"
#include "cli/file_limit.h"
#include "cli/hosts/agent.h"
#include "cli/visible_text.h"
#include "redpoll/version.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* The output of a remote shell may arrive a moment after its end. */
#define LAST_WORDS_S 2.0

void rpi_hosts_fail(rpi_remote *remote, const char *format, ...) {
    va_list arguments;
    if (remote->state == RPI_HOST_FAILED) return;
    remote->state = RPI_HOST_FAILED;
    va_start(arguments, format);
    vsnprintf(remote->failure, sizeof remote->failure, format, arguments);
    va_end(arguments);
}

/* ---- before and after ---- */

static void raise_descriptor_limit(rlim_t wanted) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
    limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
    /* If this fails, making a pipe fails later, and reports it. */
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

rp_status rpi_hosts_open(rpi_host_launch *launch, int files) {
    const rpi_host_list *list = launch->options->hosts;
    size_t hosts = (size_t)list->count;
    RP_TRY(rpi_alloc_array(hosts, sizeof *launch->remotes, "hosts", &launch->remotes));
    RP_TRY(rpi_alloc_array(1 + hosts * RPI_HOST_POLLS, sizeof *launch->polls, "hosts",
                           &launch->polls));
    launch->hosts = list->count;
    for (int i = 0; i < list->count; i++) {
        launch->remotes[i] = (rpi_remote){.host = &list->hosts[i],
                                          .first_rank = launch->ranks,
                                          .link = {.in = -1, .out = -1},
                                          .errors = {.fd = -1, .sink = stderr}};
        launch->remotes[i].errors.name = list->hosts[i].name;
        launch->remotes[i].errors.is_shown =
            rpi_output_is_shown(stderr, launch->options->is_raw);
        launch->ranks += list->hosts[i].slots;
    }
    raise_descriptor_limit((rlim_t)launch->hosts * 4 + 64 + (rlim_t)files);
    return RP_OK;
}

void rpi_hosts_close(rpi_host_launch *launch) {
    for (int i = 0; i < launch->hosts; i++) {
        rpi_remote *remote = &launch->remotes[i];
        rpi_agent_link_close(&remote->link);
        if (remote->errors.fd >= 0) rpi_rank_output_finish(&remote->errors);
        rpi_free(remote->answer);
    }
    rpi_free(launch->remotes);
    rpi_free(launch->polls);
    launch->hosts = 0;
}

/* ---- starting ---- */

static _Noreturn void become_shell(const rpi_host_launch *launch, const rpi_remote *remote,
                                   char *const *words, const int *pair, int errors,
                                   pid_t parent) {
    char *const own[] = {(char *)(uintptr_t) "redpoll",
                         (char *)(uintptr_t)launch->options->shell.agent,
                         (char *)(uintptr_t) "--agent", NULL};
    setpgid(0, 0); /* so that Ctrl-C reaches only this process, which passes it on */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    dup2(pair[1], STDIN_FILENO);
    dup2(pair[1], STDOUT_FILENO);
    dup2(errors, STDERR_FILENO);
    rpi_file_limit_restore();
    sigprocmask(SIG_SETMASK, &launch->mask_before, NULL);
    if (rpi_is_this_host(remote->host->name))
        execv("/proc/self/exe", own);
    else
        execvp(words[0], words);
    perror("exec");
    _exit(127);
}

static rp_status fork_shell(rpi_host_launch *launch, rpi_remote *remote, char *const *words,
                            int pair[2], int errors[2]) {
    pid_t parent = getpid();
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0 ||
        pipe2(errors, O_CLOEXEC) != 0)
        return RP_FAIL_ERRNO(IO, "cannot make a pipe");
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) become_shell(launch, remote, words, pair, errors[1], parent);
    if (pid < 0) return RP_FAIL_ERRNO(IO, "cannot start a process");
    remote->pid = pid;
    rpi_agent_link_open(&remote->link, dup(pair[0]), pair[0]);
    (void)fcntl(remote->link.in, F_SETFD, FD_CLOEXEC);
    fcntl(errors[0], F_SETFL, O_NONBLOCK);
    remote->errors.fd = errors[0];
    pair[0] = errors[0] = -1;
    return RP_OK;
}

rp_status rpi_hosts_start(rpi_host_launch *launch, rpi_remote *remote) {
    rpi_remote_words words;
    int fds[4] = {-1, -1, -1, -1};
    RP_TRY(rpi_remote_shell_words(&launch->options->shell, remote->host->name, &words));
    rp_status status = fork_shell(launch, remote, words.argv, fds, fds + 2);
    for (int i = 0; i < 4; i++)
        if (fds[i] >= 0) close(fds[i]);
    rpi_remote_shell_free(&words);
    return status;
}

/* ---- hearing ---- */

static void keep_answer(rpi_remote *remote, const rpi_agent_frame *frame) {
    rpi_free(remote->answer);
    remote->answer = NULL;
    remote->answer_bytes = 0;
    if (rpi_alloc(frame->bytes + 1, "an answer", &remote->answer) != RP_OK) {
        rpi_hosts_fail(remote, "%s", rp_last_error()->message);
        return;
    }
    memcpy(remote->answer, frame->text, frame->bytes);
    remote->answer_bytes = frame->bytes;
    remote->state = RPI_HOST_ANSWERED;
}

static void take_greeting(rpi_remote *remote) {
    char version[64];
    int protocol = 0;
    if (!rpi_agent_take_greeting(&remote->link, &protocol, version, sizeof version)) return;
    remote->state = RPI_HOST_ASKED;
    if (protocol != RPI_AGENT_PROTOCOL || strcmp(version, rp_version()) != 0)
        rpi_hosts_fail(
            remote,
            "has redpoll %s, and this is %s: install the same version, or name it with "
            "--remote-redpoll PATH",
            version, rp_version());
}

static void take_frame(rpi_host_launch *launch, rpi_remote *remote,
                       const rpi_agent_frame *frame) {
    if (remote->state == RPI_HOST_RUNNING)
        rpi_hosts_hear(launch, remote, frame);
    else if (frame->word == RPI_AGENT_FAILED)
        rpi_hosts_fail(remote, "%.*s", (int)frame->bytes, frame->text);
    else if (frame->word == launch->expected && remote->state == RPI_HOST_ASKED)
        keep_answer(remote, frame);
    else
        rpi_hosts_fail(remote, "its agent says what was not asked");
}

static rp_status take_link(rpi_host_launch *launch, rpi_remote *remote) {
    RP_TRY(rpi_agent_fill(&remote->link));
    remote->heard_ns = rpi_now_ns();
    if (remote->state == RPI_HOST_GREETING) take_greeting(remote);
    while (remote->state != RPI_HOST_GREETING && remote->state != RPI_HOST_FAILED) {
        rpi_agent_frame frame;
        bool found = false;
        if (rpi_agent_next(&remote->link, &frame, &found) != RP_OK) {
            if (remote->state != RPI_HOST_RUNNING)
                rpi_hosts_fail(remote, "%s", rp_last_error()->message);
            rpi_agent_link_close(&remote->link);
            break;
        }
        if (!found) break;
        take_frame(launch, remote, &frame);
    }
    if (remote->link.in < 0 && remote->state == RPI_HOST_RUNNING) rpi_hosts_end(launch, remote);
    return RP_OK;
}

/* Keeps a line for the message about the failure of this host. */
static void keep_words(rpi_remote *remote, const char *line) {
    memset(remote->said, 0, sizeof remote->said);
    FILE *sink = fmemopen(remote->said, sizeof remote->said - 1, "w");
    if (!sink) return;
    rpi_visible_put(line, strlen(line), sink);
    fclose(sink);
}

/* Takes the output of ssh and the agent on standard error: it is shown while ranks run, and
 * kept before that for the message about a failure. */
static void take_errors(rpi_remote *remote) {
    char text[4096];
    if (remote->state == RPI_HOST_RUNNING || remote->state == RPI_HOST_OVER) {
        rpi_rank_output_take(&remote->errors);
        return;
    }
    ssize_t got = read(remote->errors.fd, text, sizeof text - 1);
    if (got == 0) {
        close(remote->errors.fd);
        remote->errors.fd = -1;
    }
    if (got <= 0) return;
    text[got] = '\0';
    for (char *line = strtok(text, "\r\n"); line; line = strtok(NULL, "\r\n"))
        if (line[strspn(line, " \t")]) keep_words(remote, line);
}

rp_status rpi_hosts_pump(rpi_host_launch *launch, int64_t until_ns) {
    struct pollfd *polls = launch->polls;
    polls[0] = (struct pollfd){.fd = launch->signals, .events = POLLIN};
    for (int i = 0; i < launch->hosts; i++) {
        struct pollfd *own = &polls[1 + i * RPI_HOST_POLLS];
        rpi_agent_poll(&launch->remotes[i].link, own);
        own[2] = (struct pollfd){.fd = launch->remotes[i].errors.fd, .events = POLLIN};
    }
    nfds_t count = 1 + (nfds_t)launch->hosts * RPI_HOST_POLLS;
    if (poll(polls, count, rpi_poll_ms(until_ns)) < 0) return RP_OK;
    for (int i = 0; i < launch->hosts; i++) {
        struct pollfd *own = &polls[1 + i * RPI_HOST_POLLS];
        rpi_remote *remote = &launch->remotes[i];
        if (own[2].revents) take_errors(remote);
        if (own[1].revents) rpi_agent_flush(&remote->link);
        if (own[0].revents) RP_TRY(take_link(launch, remote));
    }
    if (polls[0].revents) rpi_hosts_take_signals(launch);
    return RP_OK;
}

/* ---- asking ---- */

bool rpi_hosts_is_waited_for(const rpi_remote *remote) {
    return remote->state == RPI_HOST_GREETING || remote->state == RPI_HOST_ASKED;
}

static bool is_urgent(const rpi_remote *remote) {
    return rpi_hosts_is_waited_for(remote) && !remote->may_be_late;
}

static const char *explain(const rpi_host_launch *launch, const rpi_remote *remote, int code,
                           char *text, size_t bytes) {
    if (remote->state == RPI_HOST_GREETING)
        return rpi_remote_shell_explain(&launch->options->shell, remote->host->name, code,
                                        remote->said, text, bytes);
    snprintf(text, bytes, "%s%s%s",
             code < 0 ? "its agent did not answer in time" : "the connection was lost",
             *remote->said ? ": " : "", remote->said);
    return text;
}

/* An agent that has ended without an answer has failed, once all its output has arrived. */
static void note_end(rpi_host_launch *launch, rpi_remote *remote) {
    char text[1100];
    if (!rpi_hosts_is_waited_for(remote) || remote->pid) return;
    if (remote->last_words_ns == 0) remote->last_words_ns = rpi_deadline_ns(LAST_WORDS_S);
    bool heard = remote->errors.fd < 0 && remote->link.in < 0;
    if (!heard && rpi_now_ns() < remote->last_words_ns) return;
    rpi_hosts_fail(
        remote, "%s",
        explain(launch, remote, rpi_exit_code_of(remote->status), text, sizeof text));
}

/* Waits until each host that was asked has answered or failed. */
rp_status rpi_hosts_wait(rpi_host_launch *launch, double limit_s) {
    int64_t deadline_ns = rpi_deadline_ns(limit_s);
    char text[1100];
    for (;;) {
        int waited_for = 0;
        int64_t until_ns = deadline_ns;
        for (int i = 0; i < launch->hosts; i++) {
            rpi_remote *remote = &launch->remotes[i];
            note_end(launch, remote);
            waited_for += is_urgent(remote);
            if (rpi_hosts_is_waited_for(remote) && remote->last_words_ns &&
                remote->last_words_ns < until_ns)
                until_ns = remote->last_words_ns;
        }
        if (waited_for == 0 || launch->stop_signal || rpi_now_ns() >= deadline_ns) break;
        RP_TRY(rpi_hosts_pump(launch, until_ns));
    }
    for (int i = 0; i < launch->hosts && !launch->stop_signal; i++) {
        rpi_remote *remote = &launch->remotes[i];
        if (is_urgent(remote))
            rpi_hosts_fail(remote, "%s", explain(launch, remote, -1, text, sizeof text));
    }
    return RP_OK;
}

void rpi_hosts_ask(rpi_remote *remote, rp_status sent) {
    if (sent != RP_OK)
        rpi_hosts_fail(remote, "%s", rp_last_error()->message);
    else if (remote->state == RPI_HOST_ANSWERED)
        remote->state = RPI_HOST_ASKED;
}
