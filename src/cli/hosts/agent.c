#include "cli/hosts/agent.h"

#include "base/clock.h"
#include "base/memory.h"
#include "cli/hosts/find_program.h"
#include "net/link/transport.h"
#include "net/socket/stream.h"
#include "net/store/store_tcp.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How long an agent waits for the launcher, which gives up long before. */
#define MEETING_S    600.0
/* Seconds for each address of the store in the first round over all of them; later rounds take
 * longer. */
#define FIRST_DIAL_S 1.0
#define DIAL_S       4.0
#define FLUSH_S      10.0

enum { DIAL_ROUNDS = 2 };

/* ---- hearing ---- */

static rp_status wait_for_word(rpi_agent *agent) {
    struct pollfd polls[3];
    rpi_agent_poll(&agent->link, polls);
    polls[2] = (struct pollfd){.fd = agent->signals, .events = POLLIN};
    int ready = poll(polls, 3, rpi_poll_ms(agent->deadline_ns));
    if (ready == 0) return RP_FAIL(TIMEOUT, "timed out: the launcher says nothing");
    if (polls[2].revents) return RP_FAIL(PEER, "told to end before ranks were started");
    if (polls[1].revents) rpi_agent_flush(&agent->link);
    return polls[0].revents ? rpi_agent_fill(&agent->link) : RP_OK;
}

rp_status rpi_agent_hear(rpi_agent *agent, rpi_agent_frame *frame) {
    for (bool found = false;;) {
        RP_TRY(rpi_agent_next(&agent->link, frame, &found));
        if (found) return RP_OK;
        if (agent->link.in < 0)
            return RP_FAIL(PEER, "connection closed by peer: the launcher has gone");
        RP_TRY(wait_for_word(agent));
    }
}

/* ---- can it be run here? ---- */

static rp_status check_program(const char *name) {
    const char *folders = getenv("PATH");
    if (rpi_program_exists(name)) return RP_OK;
    if (strchr(name, '/')) {
        if (access(name, F_OK) == 0)
            return RP_FAIL(IO, "%s cannot be executed; chmod +x would allow it", name);
        return RP_FAIL(IO, "there is no program %s; put it there, at the same path", name);
    }
    return RP_FAIL(IO,
                   "there is no program '%s' in the PATH there (%s); -x PATH takes this "
                   "host's along, or give a whole path",
                   name, folders ? folders : "none is set");
}

static rp_status enter_folder(const char *folder) {
    if (chdir(folder) == 0) return setenv("PWD", folder, 1), RP_OK;
    return RP_FAIL_ERRNO(IO, "cannot enter the working folder %s (--wdir FOLDER names another)",
                         folder);
}

rp_status rpi_agent_set_variable(const char *text) {
    char name[256];
    const char *equals = strchr(text, '=');
    if (!equals || equals == text || (size_t)(equals - text) >= sizeof name)
        return RP_FAIL(CORRUPT, "'%.60s' is no variable with its value", text);
    snprintf(name, sizeof name, "%.*s", (int)(equals - text), text);
    return setenv(name, equals + 1, 1) == 0 ? RP_OK : RP_FAIL_ERRNO(IO, "cannot set %s", name);
}

typedef struct job {
    const char *folder, *secret;
    int argc;
} job;

static rp_status take_pair(rpi_agent *agent, job *j, rpi_launch_options *options,
                           rpi_launch_world *world, const char *name, const char *value) {
    if (strcmp(name, "argument") == 0)
        agent->argv[j->argc++] = (char *)(uintptr_t)value;
    else if (strcmp(name, "variable") == 0)
        return rpi_agent_set_variable(value);
    else if (strcmp(name, "folder") == 0)
        j->folder = value;
    else if (strcmp(name, "secret") == 0)
        j->secret = value;
    else if (strcmp(name, "ranks") == 0)
        agent->ranks = (int)strtol(value, NULL, 10);
    else if (strcmp(name, "first") == 0)
        world->first_rank = (int)strtol(value, NULL, 10);
    else if (strcmp(name, "world") == 0)
        world->ranks = (int)strtol(value, NULL, 10);
    else if (strcmp(name, "bind-to") == 0)
        return rpi_binding_find(value, &options->binding);
    else if (strcmp(name, "report-bindings") == 0)
        options->reports_bindings = true;
    else if (strcmp(name, "grace-ms") == 0)
        options->grace_s = (double)strtol(value, NULL, 10) / 1000;
    else if (strcmp(name, "on-loss") == 0)
        options->survives_deaths = strcmp(value, "continue") == 0;
    else if (strcmp(name, "restart") == 0)
        options->restarts = (int)strtol(value, NULL, 10);
    else
        return RP_FAIL(CORRUPT, "this redpoll does not know what '%s' in a job is", name);
    return RP_OK;
}

static rp_status take_job(rpi_agent *agent, rpi_launch_options *options,
                          rpi_launch_world *world) {
    rpi_agent_frame frame;
    job j = {0};
    const char *name = NULL, *value = NULL;
    RP_TRY(rpi_agent_hear(agent, &frame));
    if (frame.word != RPI_AGENT_JOB) return RP_FAIL(CORRUPT, "the launcher sends no job");
    RP_TRY(rpi_alloc(frame.bytes, "a job", &agent->job));
    memcpy(agent->job, frame.text, frame.bytes);
    RP_TRY(rpi_alloc_array(frame.bytes / 2 + 1, sizeof *agent->argv, "a job", &agent->argv));
    for (size_t at = 0; rpi_agent_next_pair(agent->job, frame.bytes, &at, &name, &value);)
        RP_TRY(take_pair(agent, &j, options, world, name, value));
    RP_TRY(rpi_launch_check_ranks(agent->ranks));
    if (!j.folder || j.argc == 0) return RP_FAIL(CORRUPT, "the job is not complete");
    RP_TRY(rpi_bind_check(options->binding, agent->ranks));
    RP_TRY(enter_folder(j.folder));
    RP_TRY(check_program(agent->argv[0]));
    options->argv = agent->argv;
    if (!j.secret) return RP_OK;
    snprintf(world->secret, sizeof world->secret, "%s", j.secret);
    RP_TRY(rpi_secret_make("the job's secret", j.secret, &agent->secret));
    return rpi_secret_obey_environment(&agent->secret);
}

/* ---- where are we? ---- */

/* The address of this host to which the ssh of the launcher connected. */
static const char *dialled_address(char text[RPI_HOST_BYTES]) {
    const char *connection = getenv("SSH_CONNECTION"); /* "FROM PORT TO PORT" */
    text[0] = '\0';
    if (connection) (void)sscanf(connection, "%*s %*s %255s", text);
    return text;
}

rp_status rpi_agent_addresses(rpi_interface list[RPI_INTERFACES_MAX], int *out_count) {
    char dialled[RPI_HOST_BYTES];
    RP_TRY(rpi_interfaces_list(getenv("REDPOLL_SOCKET_IFNAME"), list, out_count));
    dialled_address(dialled);
    int at = 0;
    while (at < *out_count && strcmp(list[at].address, dialled) != 0) at++;
    if (at == *out_count) return RP_OK;
    rpi_interface first = list[at];
    memmove(list + 1, list, (size_t)at * sizeof *list);
    list[0] = first;
    return RP_OK;
}

static rp_status say_ready(rpi_agent *agent) {
    rpi_interface list[RPI_INTERFACES_MAX];
    rpi_agent_words words = {0};
    rpi_peer_info self;
    int count = 0;
    RP_TRY(rpi_peer_info_self(&self));
    RP_TRY(rpi_agent_addresses(list, &count));
    rpi_agent_add(&words, "host", self.host);
    for (int i = 0; i < count; i++) rpi_agent_add(&words, "address", list[i].address);
    return rpi_agent_send_words(&agent->link, RPI_AGENT_READY, &words);
}

/* ---- the store ---- */

static rp_status serve(rpi_agent *agent, const rpi_agent_frame *frame,
                       rp_store_server **out_server) {
    rpi_agent_words words = {0};
    int port = 0, master_port = 0;
    char listen[RPI_HOST_BYTES];
    snprintf(listen, sizeof listen, "%.*s", (int)frame->bytes, frame->text);
    RP_TRY(rpi_store_serve(listen, 0, &agent->secret, out_server, &port));
    /* A port at which the program of rank 0 may listen, as that of a rank of torchrun may. */
    RP_TRY(rpi_stream_reserve(listen, &master_port));
    rpi_agent_add_number(&words, "store", port);
    rpi_agent_add_number(&words, "master", master_port);
    return rpi_agent_send_words(&agent->link, RPI_AGENT_SERVED, &words);
}

/* The first of the store's addresses that answers, and proves to be this job's. */
static rp_status dial(rpi_agent *agent, const rpi_agent_frame *frame) {
    int port = (int)strtol(rpi_agent_value(frame, "port"), NULL, 10);
    const char *name = NULL, *value = NULL;
    rp_store store;
    for (int round = 0; round < DIAL_ROUNDS; round++) {
        double limit_s = round == 0 ? FIRST_DIAL_S : DIAL_S;
        for (size_t at = 0;
             rpi_agent_next_pair(frame->text, frame->bytes, &at, &name, &value);) {
            if (strcmp(name, "address") != 0) continue;
            if (rpi_store_connect(value, port, limit_s, &agent->secret, &store) != RP_OK)
                continue;
            rp_store_close(&store);
            rpi_agent_words words = {0};
            rpi_agent_add(&words, "address", value);
            return rpi_agent_send_words(&agent->link, RPI_AGENT_REACHED, &words);
        }
    }
    return rpi_fail_context(RP_TIMEOUT,
                            "cannot reach the host of rank 0, whose store listens at port %d "
                            "of the addresses it has (a firewall between them? an interface "
                            "that REDPOLL_SOCKET_IFNAME should name?): ",
                            port);
}

static rp_status go(const rpi_agent_frame *frame, rpi_launch_world *world) {
    snprintf(world->store_host, sizeof world->store_host, "%s", rpi_agent_value(frame, "host"));
    world->store_port = (int)strtol(rpi_agent_value(frame, "store"), NULL, 10);
    world->master_port = (int)strtol(rpi_agent_value(frame, "master"), NULL, 10);
    return RP_OK;
}

static rp_status meet(rpi_agent *agent, rpi_launch_options *options, rpi_launch_world *world,
                      rp_store_server **out_server) {
    rpi_agent_frame frame;
    RP_TRY(rpi_agent_greet(&agent->link));
    RP_TRY(take_job(agent, options, world));
    RP_TRY(say_ready(agent));
    for (;;) {
        RP_TRY(rpi_agent_hear(agent, &frame));
        switch (frame.word) {
        case RPI_AGENT_SERVE: RP_TRY(serve(agent, &frame, out_server)); break;
        case RPI_AGENT_DIAL: RP_TRY(dial(agent, &frame)); break;
        case RPI_AGENT_GO: return go(&frame, world);
        default: return RP_FAIL(CORRUPT, "the launcher says what no agent is told");
        }
    }
}

rp_status rpi_agent_meet(rpi_agent *agent, rpi_launch_options *options, rpi_launch_world *world,
                         rp_store_server **out_server) {
    agent->deadline_ns = rpi_deadline_ns(MEETING_S);
    rp_status status = meet(agent, options, world, out_server);
    if (status == RP_OK || agent->link.in < 0) return status;
    const char *message = rp_last_error()->message;
    (void)rpi_agent_send(&agent->link, RPI_AGENT_FAILED, 0, message, strlen(message));
    return status;
}

/* ---- meanwhile ---- */

void rpi_agent_output(rpi_agent *agent, int rank, bool is_error, const char *text,
                      size_t bytes) {
    rpi_agent_word word = is_error ? RPI_AGENT_ERR : RPI_AGENT_OUT;
    if (rpi_agent_send(&agent->link, word, rank, text, bytes) != RP_OK) agent->is_over = true;
}

void rpi_agent_ended(rpi_agent *agent, const rpi_ending *ending) {
    char numbers[RPI_ENDING_BYTES];
    rpi_ending_write(ending, numbers);
    if (rpi_agent_send(&agent->link, RPI_AGENT_ENDED, ending->rank, numbers, sizeof numbers) !=
        RP_OK)
        agent->is_over = true;
}

void rpi_agent_beat(rpi_agent *agent, int idle, bool stopped) {
    agent->beat_ns = rpi_deadline_ns(RPI_AGENT_BEAT_S);
    if (rpi_agent_has_room(&agent->link) &&
        rpi_agent_send(&agent->link, RPI_AGENT_ALIVE, stopped ? idle | RPI_AGENT_STOPPED : idle,
                       NULL, 0) != RP_OK)
        agent->is_over = true;
}

int64_t rpi_agent_beat_ns(const rpi_agent *agent) {
    return agent->beat_ns;
}

bool rpi_agent_order(rpi_agent *agent, rpi_agent_word *out_word, int *out_number) {
    rpi_agent_frame frame;
    bool found = false;
    rp_status status = rpi_agent_next(&agent->link, &frame, &found);
    if (status != RP_OK || agent->link.in < 0 || agent->link.out < 0) agent->is_over = true;
    if (status != RP_OK || !found) return false;
    *out_word = frame.word;
    *out_number = frame.rank;
    return true;
}

void rpi_agent_finish(rpi_agent *agent) {
    int64_t deadline_ns = rpi_deadline_ns(FLUSH_S);
    struct pollfd polls[2];
    for (;;) {
        rpi_agent_flush(&agent->link);
        rpi_agent_poll(&agent->link, polls);
        if (polls[1].fd < 0 || agent->link.in < 0 || rpi_now_ns() > deadline_ns) break;
        if (poll(polls, 2, rpi_poll_ms(deadline_ns)) > 0 && polls[0].revents &&
            rpi_agent_fill(&agent->link) != RP_OK)
            break;
    }
    rpi_agent_link_close(&agent->link);
    rpi_free(agent->job);
    rpi_free(agent->argv);
}

int rpi_agent_main(void) {
    rpi_agent agent = {.ranks = 1};
    rpi_agent_link_open(&agent.link, STDIN_FILENO, STDOUT_FILENO);
    return rpi_launch(&(rpi_launch_options){
        .name = "redpoll run", .ranks = 1, .output = RPI_LAUNCH_PREFIX, .agent = &agent});
}
