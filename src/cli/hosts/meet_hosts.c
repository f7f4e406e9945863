/* Before the first rank: agents are started on all hosts at once, and asked in turns. Those
 * that are not fit are all named. */
#include "cli/hosts/host_launch.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "cli/hosts/agent.h"
#include "redpoll/version.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* For agents to serve and reach the store: FIRST_DIAL_S and DIAL_S of agent.c for each of
 * several addresses. */
#define STORE_S      120.0
/* What a remote shell that has ended said may come a moment later. */
#define LAST_WORDS_S 2.0

static void fail_host(rpi_remote *remote, const char *format, ...) RP_PRINTF(2, 3);
static void fail_host(rpi_remote *remote, const char *format, ...) {
    va_list arguments;
    if (remote->state == RPI_HOST_FAILED) return;
    remote->state = RPI_HOST_FAILED;
    va_start(arguments, format);
    vsnprintf(remote->failure, sizeof remote->failure, format, arguments);
    va_end(arguments);
}

/* ---- starting ---- */

static _Noreturn void become_shell(const rpi_host_launch *launch, const rpi_remote *remote,
                                   char *const *words, const int *pair, int errors,
                                   pid_t parent) {
    static char *const own[] = {(char *)(uintptr_t) "redpoll", (char *)(uintptr_t) "run",
                                (char *)(uintptr_t) "--agent", NULL};
    setpgid(0, 0); /* a terminal's Ctrl-C is ours to pass on */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    dup2(pair[1], STDIN_FILENO);
    dup2(pair[1], STDOUT_FILENO);
    dup2(errors, STDERR_FILENO);
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

static rp_status start_shell(rpi_host_launch *launch, rpi_remote *remote) {
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
        fail_host(remote, "%s", rp_last_error()->message);
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
        fail_host(remote,
                  "has redpoll %s, and this is %s: install the same version, or name it with "
                  "--remote-redpoll PATH",
                  version, rp_version());
}

static void take_frame(rpi_host_launch *launch, rpi_remote *remote,
                       const rpi_agent_frame *frame) {
    if (remote->state == RPI_HOST_RUNNING)
        rpi_hosts_hear(launch, remote, frame);
    else if (frame->word == RPI_AGENT_FAILED)
        fail_host(remote, "%.*s", (int)frame->bytes, frame->text);
    else if (frame->word == launch->expected && remote->state == RPI_HOST_ASKED)
        keep_answer(remote, frame);
    else
        fail_host(remote, "its agent says what was not asked");
}

static rp_status take_link(rpi_host_launch *launch, rpi_remote *remote) {
    RP_TRY(rpi_agent_fill(&remote->link));
    if (remote->state == RPI_HOST_GREETING) take_greeting(remote);
    while (remote->state != RPI_HOST_GREETING && remote->state != RPI_HOST_FAILED) {
        rpi_agent_frame frame;
        bool found = false;
        if (rpi_agent_next(&remote->link, &frame, &found) != RP_OK) {
            if (remote->state != RPI_HOST_RUNNING)
                fail_host(remote, "%s", rp_last_error()->message);
            rpi_agent_link_close(&remote->link);
            break;
        }
        if (!found) break;
        take_frame(launch, remote, &frame);
    }
    if (remote->link.in < 0 && remote->state == RPI_HOST_RUNNING) rpi_hosts_end(launch, remote);
    return RP_OK;
}

/* Lines of ssh and of the agent: shown while ranks run, else kept for when they explain. */
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
        if (line[strspn(line, " \t")]) snprintf(remote->said, sizeof remote->said, "%s", line);
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

static bool is_waited_for(const rpi_remote *remote) {
    return remote->state == RPI_HOST_GREETING || remote->state == RPI_HOST_ASKED;
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

/* One that has ended without an answer has failed, once all it said is here. */
static void note_end(rpi_host_launch *launch, rpi_remote *remote) {
    char text[1100];
    if (!is_waited_for(remote) || remote->pid) return;
    if (remote->last_words_ns == 0) remote->last_words_ns = rpi_deadline_ns(LAST_WORDS_S);
    bool heard = remote->errors.fd < 0 && remote->link.in < 0;
    if (!heard && rpi_now_ns() < remote->last_words_ns) return;
    fail_host(remote, "%s",
              explain(launch, remote, rpi_exit_code_of(remote->status), text, sizeof text));
}

/* Until everybody that was asked has answered or failed. */
static rp_status wait_for_answers(rpi_host_launch *launch, double limit_s) {
    int64_t deadline_ns = rpi_deadline_ns(limit_s);
    char text[1100];
    for (;;) {
        int waited_for = 0;
        int64_t until_ns = deadline_ns;
        for (int i = 0; i < launch->hosts; i++) {
            rpi_remote *remote = &launch->remotes[i];
            note_end(launch, remote);
            waited_for += is_waited_for(remote);
            if (is_waited_for(remote) && remote->last_words_ns &&
                remote->last_words_ns < until_ns)
                until_ns = remote->last_words_ns;
        }
        if (waited_for == 0 || launch->stop_signal || rpi_now_ns() >= deadline_ns) break;
        RP_TRY(rpi_hosts_pump(launch, until_ns));
    }
    for (int i = 0; i < launch->hosts && !launch->stop_signal; i++) {
        rpi_remote *remote = &launch->remotes[i];
        if (is_waited_for(remote))
            fail_host(remote, "%s", explain(launch, remote, -1, text, sizeof text));
    }
    return RP_OK;
}

/* RP_PEER, having named all that are not fit. */
static rp_status check_answers(rpi_host_launch *launch, bool *out_said) {
    int failed = 0;
    *out_said = true;
    if (launch->stop_signal) return RP_FAIL(PEER, "told to end");
    for (int i = 0; i < launch->hosts; i++)
        failed += launch->remotes[i].state == RPI_HOST_FAILED;
    *out_said = failed > 0;
    if (failed == 0) return RP_OK;
    rpi_hosts_say(launch, "nothing was started, for %d of %d host%s cannot take part:", failed,
                  launch->hosts, launch->hosts == 1 ? "" : "s");
    for (int i = 0; i < launch->hosts; i++)
        if (launch->remotes[i].state == RPI_HOST_FAILED)
            fprintf(stderr, "    %s: %s\n", launch->remotes[i].host->name,
                    launch->remotes[i].failure);
    return RP_FAIL(PEER, "hosts cannot take part");
}

static void ask(rpi_remote *remote, rp_status sent) {
    if (sent != RP_OK)
        fail_host(remote, "%s", rp_last_error()->message);
    else if (remote->state == RPI_HOST_ANSWERED)
        remote->state = RPI_HOST_ASKED;
}

static void send_job(rpi_host_launch *launch, rpi_remote *remote) {
    const rpi_hosts_options *options = launch->options;
    rpi_agent_words words = {0};
    rpi_agent_add(&words, "folder", options->folder);
    if (*launch->secret) rpi_agent_add(&words, "secret", launch->secret);
    rpi_agent_add_number(&words, "ranks", remote->host->slots);
    rpi_agent_add_number(&words, "first", remote->first_rank);
    rpi_agent_add_number(&words, "world", launch->ranks);
    rpi_agent_add(&words, "bind-to", options->bind_to);
    rpi_agent_add_number(&words, "grace-ms", (int64_t)(options->grace_s * 1000));
    for (int i = 0; options->argv[i]; i++) rpi_agent_add(&words, "argument", options->argv[i]);
    for (int i = 0; options->passed[i]; i++)
        rpi_agent_add(&words, "variable", options->passed[i]);
    /* The agent reads it when it has begun: what stands before its greeting is its own. */
    ask(remote, rpi_agent_send_words(&remote->link, RPI_AGENT_JOB, &words));
}

/* ---- where the store is ---- */

static rpi_agent_frame answer_of(const rpi_remote *remote) {
    return (rpi_agent_frame){.text = remote->answer, .bytes = remote->answer_bytes};
}

static bool is_one_machine(const rpi_host_launch *launch) {
    rpi_agent_frame first = answer_of(&launch->remotes[0]);
    for (int i = 1; i < launch->hosts; i++) {
        rpi_agent_frame other = answer_of(&launch->remotes[i]);
        if (strcmp(rpi_agent_value(&first, "host"), rpi_agent_value(&other, "host")) != 0)
            return false;
    }
    return true;
}

/* The first host's addresses, as words; and the one at which it listens for all of them. */
static int list_addresses(const rpi_remote *first, rpi_agent_words *words,
                          char listen[RPI_HOST_BYTES]) {
    const char *name = NULL, *value = NULL;
    bool has_v6 = false;
    int count = 0;
    for (size_t at = 0;
         rpi_agent_next_pair(first->answer, first->answer_bytes, &at, &name, &value);) {
        if (strcmp(name, "address") != 0) continue;
        rpi_agent_add(words, name, value);
        has_v6 = has_v6 || strchr(value, ':');
        if (count++ == 0) snprintf(listen, RPI_HOST_BYTES, "%s", value);
    }
    if (count > 1) snprintf(listen, RPI_HOST_BYTES, "%s", has_v6 ? "::" : "0.0.0.0");
    return count;
}

static rp_status serve_store(rpi_host_launch *launch, const char *listen, bool *out_said) {
    rpi_remote *first = &launch->remotes[0];
    launch->expected = RPI_AGENT_SERVED;
    ask(first, rpi_agent_send(&first->link, RPI_AGENT_SERVE, 0, listen, strlen(listen)));
    RP_TRY(wait_for_answers(launch, STORE_S));
    return check_answers(launch, out_said);
}

static rp_status reach_store(rpi_host_launch *launch, const rpi_agent_words *addresses,
                             bool *out_said) {
    launch->expected = RPI_AGENT_REACHED;
    for (int i = 1; i < launch->hosts; i++)
        ask(&launch->remotes[i], rpi_agent_send(&launch->remotes[i].link, RPI_AGENT_DIAL, 0,
                                                addresses->text, addresses->bytes));
    RP_TRY(wait_for_answers(launch, STORE_S));
    return check_answers(launch, out_said);
}

/* All that is left to say before ranks start. */
static rp_status go(rpi_host_launch *launch, const char *store, const char *master,
                    bool one_machine) {
    for (int i = 0; i < launch->hosts; i++) {
        rpi_remote *remote = &launch->remotes[i];
        /* The first host is reached by itself as by the second. */
        rpi_agent_frame reached =
            answer_of(&launch->remotes[i == 0 && launch->hosts > 1 ? 1 : i]);
        const char *host = one_machine ? "127.0.0.1" : rpi_agent_value(&reached, "address");
        rpi_agent_words words = {0};
        rpi_agent_add(&words, "host", host);
        rpi_agent_add(&words, "store", store);
        rpi_agent_add(&words, "master", master);
        if (i > 0)
            rpi_log(RP_LOG_INFO, "%s reaches %s at %s", remote->host->name,
                    launch->remotes[0].host->name, host);
        remote->alive = remote->host->slots;
        remote->state = RPI_HOST_RUNNING;
        RP_TRY(rpi_agent_send_words(&remote->link, RPI_AGENT_GO, &words));
    }
    return RP_OK;
}

static rp_status find_store(rpi_host_launch *launch, rpi_agent_words *addresses, char *store,
                            char *master, size_t bytes, bool *out_said) {
    rpi_remote *first = &launch->remotes[0];
    char listen[RPI_HOST_BYTES] = "127.0.0.1";
    bool one_machine = is_one_machine(launch);
    if (!one_machine && list_addresses(first, addresses, listen) == 0)
        return RP_FAIL(UNSUPPORTED,
                       "%s has no address but its loopback's, so other hosts cannot reach it",
                       first->host->name);
    RP_TRY(serve_store(launch, listen, out_said));
    rpi_agent_frame served = answer_of(first);
    snprintf(store, bytes, "%s", rpi_agent_value(&served, "store"));
    snprintf(master, bytes, "%s", rpi_agent_value(&served, "master"));
    rpi_agent_add(addresses, "port", store);
    RP_TRY(addresses->status);
    if (!one_machine) RP_TRY(reach_store(launch, addresses, out_said));
    return go(launch, store, master, one_machine);
}

rp_status rpi_hosts_meet(rpi_host_launch *launch, bool *out_said) {
    rpi_agent_words addresses = {0};
    char store[16], master[16];
    if (rpi_secret_is_supported()) RP_TRY(rpi_secret_draw(launch->secret));
    launch->expected = RPI_AGENT_READY;
    for (int i = 0; i < launch->hosts; i++) {
        RP_TRY(start_shell(launch, &launch->remotes[i]));
        send_job(launch, &launch->remotes[i]);
    }
    RP_TRY(wait_for_answers(launch, launch->options->answer_s));
    RP_TRY(check_answers(launch, out_said));
    rp_status status = find_store(launch, &addresses, store, master, sizeof store, out_said);
    rpi_free(addresses.text);
    return status;
}
