/* `redpoll doctor --agent`: reports the facts of its host, and calls others or is called by
 * them, one at a time, as the launcher says. */
#include "cli/doctor/host_facts.h"

#include "base/append.h"
#include "base/clock.h"
#include "base/memory.h"
#include "cli/command.h"
#include "cli/hosts/agent.h"
#include "net/link/transport.h"
#include "net/socket/addresses.h"
#include "net/socket/interfaces.h"
#include "net/trust/handshake.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* For the launcher's next order. It ends long before that, and so does the connection. */
#define MEETING_S    3600.0
/* Seconds for each of several addresses in the first round; only in later rounds do they get
 * more. */
#define FIRST_DIAL_S 1.0

#define REDIAL_NS (RPI_SECOND_NS / 50)

enum { STRANGERS_MAX = 64, MISSED_BYTES = 200 };

typedef struct doctor_agent {
    rpi_agent agent; /* its link and the secret */
    int self, hosts; /* which of how many we are */
    int listener;    /* -1: none yet */
} doctor_agent;

static int64_t number_of(const rpi_agent_frame *frame, const char *name) {
    return strtoll(rpi_agent_value(frame, name), NULL, 10);
}

static rpi_proof_terms terms_of(const doctor_agent *own, int caller, int callee) {
    return (rpi_proof_terms){
        .purpose = RPI_PROOF_LINK, .caller = caller, .callee = callee, .world = own->hosts};
}

/* ---- facts ---- */

static rp_status examine(doctor_agent *own, const rpi_agent_frame *frame) {
    const char *name = NULL, *value = NULL;
    rpi_agent_words words = {0};
    own->self = (int)number_of(frame, "self");
    own->hosts = (int)number_of(frame, "hosts");
    for (size_t at = 0; rpi_agent_next_pair(frame->text, frame->bytes, &at, &name, &value);) {
        if (strcmp(name, "variable") == 0) RP_TRY(rpi_agent_set_variable(value));
        if (strcmp(name, "secret") == 0)
            RP_TRY(
                rpi_secret_make("the secret of this examination", value, &own->agent.secret));
        if (strcmp(name, "tls") == 0) RP_TRY(rpi_secret_ask_for_tls(&own->agent.secret));
    }
    rp_status status = rpi_host_facts_say(&words);
    if (status == RP_OK) return rpi_agent_send_words(&own->agent.link, RPI_AGENT_FACTS, &words);
    rpi_free(words.text);
    return status;
}

static rp_status serve(doctor_agent *own, const rpi_agent_frame *frame) {
    rpi_agent_words words = {0};
    char address[RPI_HOST_BYTES];
    int port = 0;
    if (own->listener >= 0) return RP_FAIL(CORRUPT, "the launcher asks twice to listen");
    snprintf(address, sizeof address, "%.*s", (int)frame->bytes, frame->text);
    RP_TRY(rpi_stream_listen(address, 0, &own->listener, &port));
    rpi_agent_add_number(&words, "port", port);
    return rpi_agent_send_words(&own->agent.link, RPI_AGENT_SERVED, &words);
}

/* ---- being called ---- */

typedef struct callers {
    rpi_channel channels[STRANGERS_MAX];
    rpi_proof proofs[STRANGERS_MAX];
    int count;
    unsigned refused;
} callers;

static void drop(callers *all, int index) {
    rpi_channel_close(&all->channels[index]);
    all->count--;
    for (int i = index; i < all->count; i++) {
        all->channels[i] = all->channels[i + 1];
        all->proofs[i] = all->proofs[i + 1];
    }
}

/* True: this is the expected caller, and its connection is no longer among them. */
static bool admit_caller(const doctor_agent *own, callers *all, int index, int caller,
                         rpi_channel *out_channel) {
    rpi_proof_terms terms = terms_of(own, -1, own->self);
    rpi_proof *proof = &all->proofs[index];
    rp_status status = own->agent.secret.is_set
                           ? rpi_channel_receive_proof(&all->channels[index], proof,
                                                       &own->agent.secret, &terms)
                           : RP_OK;
    if (status == RP_PENDING) return false;
    bool is_caller = status == RP_OK &&
                     (!own->agent.secret.is_set ||
                      (proof->claim.caller == caller && proof->claim.callee == own->self));
    if (status != RP_OK)
        rpi_proof_log_refusal(all->channels[index].fd, "an examination", &all->refused);
    if (is_caller) {
        *out_channel = all->channels[index];
        all->channels[index] = (rpi_channel){.fd = -1};
    }
    drop(all, index);
    return is_caller;
}

/* The caller that makes room if there is none: the oldest that has sent nothing, if there is
 * one. */
static int oldest_silent(const callers *all) {
    for (int i = 0; i < all->count; i++)
        if (!all->proofs[i].answered && all->proofs[i].got == 0) return i;
    return 0;
}

static void accept_caller(const doctor_agent *own, callers *all) {
    int fd = rpi_stream_accept(own->listener);
    if (fd < 0) return;
    if (all->count == STRANGERS_MAX) drop(all, oldest_silent(all));
    all->channels[all->count] = (rpi_channel){.fd = fd};
    all->proofs[all->count++] = (rpi_proof){.answered = false};
}

static rp_status wait_for_callers(const doctor_agent *own, callers *all,
                                  struct pollfd polls[2 + STRANGERS_MAX], int64_t deadline_ns) {
    polls[0] = (struct pollfd){.fd = own->agent.link.in, .events = POLLIN};
    polls[1] = (struct pollfd){.fd = own->listener, .events = POLLIN};
    for (int i = 0; i < all->count; i++)
        polls[2 + i] = (struct pollfd){.fd = all->channels[i].fd, .events = POLLIN};
    int ready = poll(polls, 2 + (nfds_t)all->count, rpi_poll_ms(deadline_ns));
    if (ready == 0) return RP_FAIL(TIMEOUT, "timed out: nobody called");
    if (polls[0].revents) return RP_FAIL(PEER, "the caller has given up");
    return RP_OK;
}

/* A caller that cannot prove its identity keeps nobody else out. */
static rp_status await_caller(const doctor_agent *own, callers *all, int caller,
                              int64_t deadline_ns, rpi_channel *out_channel) {
    struct pollfd polls[2 + STRANGERS_MAX];
    for (;;) {
        RP_TRY(wait_for_callers(own, all, polls, deadline_ns));
        for (int i = all->count - 1; i >= 0; i--)
            if (polls[2 + i].revents && admit_caller(own, all, i, caller, out_channel))
                return RP_OK;
        if (polls[1].revents) accept_caller(own, all);
    }
}

static void add_end(rpi_agent_words *words, int fd) {
    rpi_doctor_end end;
    rpi_doctor_end_find(fd, &end);
    rpi_agent_add(words, "address", end.address);
    rpi_agent_add(words, "interface", end.interface);
    rpi_agent_add_number(words, "mtu", end.mtu);
}

/* The number of connections of a link: as many as ranks would make. */
static int streams_of(const rpi_agent_frame *frame) {
    int64_t streams = number_of(frame, "streams");
    return streams < 1 ? 1 : streams > RPI_STREAMS_MAX ? RPI_STREAMS_MAX : (int)streams;
}

static void close_streams(rpi_channel *channels, int streams) {
    for (int i = 0; i < streams; i++) rpi_channel_close(&channels[i]);
}

static rp_status expect(doctor_agent *own, const rpi_agent_frame *frame) {
    callers all = {.count = 0};
    rpi_agent_words words = {0};
    int64_t deadline_ns = rpi_deadline_ns((double)number_of(frame, "limit-ms") / 1000);
    int caller = (int)number_of(frame, "caller"), streams = streams_of(frame), come = 0;
    rpi_channel channels[RPI_STREAMS_MAX];
    rp_status status = RP_OK;
    while (come < streams && status == RP_OK) {
        status = await_caller(own, &all, caller, deadline_ns, &channels[come]);
        come += status == RP_OK;
    }
    while (all.count) drop(&all, 0);
    if (come > 0) add_end(&words, channels[0].fd);
    if (status == RP_OK) status = rpi_probe_answer(channels, streams, deadline_ns);
    close_streams(channels, come);
    if (status != RP_OK) rpi_agent_add(&words, "error", rp_last_error()->message);
    return rpi_agent_send_words(&own->agent.link, RPI_AGENT_MEASURED, &words);
}

/* ---- calling ---- */

typedef struct call {
    int callee, port, address_count;
    const char *addresses[2 * RPI_INTERFACES_MAX];
    rpi_probe_limits limits;
    double connect_s;
} call;

static void read_call(const rpi_agent_frame *frame, call *c) {
    const char *name = NULL, *value = NULL;
    c->callee = (int)number_of(frame, "callee");
    c->port = (int)number_of(frame, "port");
    c->connect_s = (double)number_of(frame, "connect-ms") / 1000;
    c->limits.bytes = number_of(frame, "bytes");
    c->limits.time_s = (double)number_of(frame, "time-ms") / 1000;
    c->limits.deadline_ns = rpi_deadline_ns((double)number_of(frame, "limit-ms") / 1000);
    for (size_t at = 0; rpi_agent_next_pair(frame->text, frame->bytes, &at, &name, &value);)
        if (strcmp(name, "address") == 0 && c->address_count < 2 * RPI_INTERFACES_MAX)
            c->addresses[c->address_count++] = value;
}

static rp_status dial_one(const doctor_agent *own, const call *c, const char *address,
                          int64_t deadline_ns, rpi_channel *channel) {
    rpi_proof_terms terms = terms_of(own, own->self, c->callee);
    RP_TRY(rpi_stream_dial(address, c->port, deadline_ns, &channel->fd));
    rp_status status = rpi_channel_call(channel, &own->agent.secret, &terms, deadline_ns);
    if (status == RP_OK) return RP_OK;
    rpi_channel_close(channel);
    return rpi_fail_context(
        status, "what answers at %s:%d does not prove to be that host: ", address, c->port);
}

/* Calls each address in turn, beginning with that of the stream; false: none is an address of
 * that host. */
static bool dial_all(const doctor_agent *own, const call *c, int stream, double each_s,
                     int64_t end_ns, rpi_channel *channel, const char **out_address) {
    char why[RPI_DOCTOR_TEXT_BYTES] = "";
    for (int i = 0; i < c->address_count && (i == 0 || rpi_now_ns() < end_ns); i++) {
        int64_t limit_ns = rpi_deadline_ns(each_s);
        *out_address = c->addresses[(stream + i) % c->address_count];
        if (dial_one(own, c, *out_address, limit_ns < end_ns ? limit_ns : end_ns, channel) ==
            RP_OK)
            return true;
        rpi_append(why, sizeof why, "%s%s", *why ? "; " : "", rp_last_error()->message);
    }
    (void)RP_FAIL(TIMEOUT, "%s", why);
    return false;
}

/* The first address that answers and proves to be that host's. Each gets a second at first, so
 * that an unreachable one costs no more. A host that closes the connection may have had too
 * many callers. */
static rp_status dial(const doctor_agent *own, const call *c, int stream, rpi_channel *channel,
                      const char **out_address) {
    int64_t end_ns = rpi_deadline_ns(c->connect_s);
    double each_s = c->address_count > 1 ? FIRST_DIAL_S : c->connect_s;
    for (;;) {
        if (dial_all(own, c, stream, each_s, end_ns, channel, out_address)) return RP_OK;
        if (rpi_now_ns() + REDIAL_NS >= end_ns) return rp_last_error()->status;
        rpi_sleep_until_ns(rpi_now_ns() + REDIAL_NS);
        each_s = c->connect_s;
    }
}

static void add_result(rpi_agent_words *words, const rpi_probe_result *result) {
    rpi_agent_add_number(words, "latency-ns", (int64_t)(result->latency_s * 1e9));
    rpi_agent_add_number(words, "offset-ns", (int64_t)(result->offset_s * 1e9));
    rpi_agent_add_number(words, "bytes", result->bytes);
    rpi_agent_add_number(words, "rate", (int64_t)result->rate);
    rpi_agent_add_number(words, "packets", result->packets);
    rpi_agent_add_number(words, "resent", result->resent);
}

/* Notes which way a stream has taken, and which one it should have taken. */
static void note_way(const call *c, int stream, int fd, const char *address, char *ways,
                     char *missed) {
    const char *wanted = c->addresses[stream % c->address_count];
    if (stream > 0) rpi_append(ways, RPI_DOCTOR_TEXT_BYTES, ", ");
    rpi_append_way(fd, ways, RPI_DOCTOR_TEXT_BYTES);
    if (address != wanted && !strstr(missed, wanted))
        rpi_append(missed, MISSED_BYTES, "%s%s", *missed ? ", " : "", wanted);
}

/* Makes all connections of a link; returns how many were made. */
static rp_status dial_streams(const doctor_agent *own, const call *c, rpi_channel *channels,
                              int streams, rpi_agent_words *words, int *out_made) {
    char ways[RPI_DOCTOR_TEXT_BYTES] = "", missed[MISSED_BYTES] = "";
    const char *address = "";
    if (c->address_count < 1) return RP_FAIL(CORRUPT, "the call names no address of that host");
    for (int i = 0; i < streams; i++) {
        channels[i] = (rpi_channel){.fd = -1};
        RP_TRY(dial(own, c, i, &channels[i], &address));
        if (i == 0) add_end(words, channels[i].fd);
        if (i == 0) rpi_agent_add(words, "called", address);
        note_way(c, i, channels[i].fd, address, ways, missed);
        *out_made = i + 1;
    }
    rpi_agent_add(words, "ways", ways);
    if (streams > 1) rpi_agent_add(words, "missed", missed);
    return RP_OK;
}

static rp_status probe(doctor_agent *own, const rpi_agent_frame *frame) {
    call c = {.callee = 0};
    rpi_agent_words words = {0};
    rpi_channel channels[RPI_STREAMS_MAX];
    int streams = streams_of(frame), made = 0;
    read_call(frame, &c);
    rp_status status = dial_streams(own, &c, channels, streams, &words, &made);
    if (status == RP_OK) {
        rpi_probe_result result;
        status = rpi_probe_call(channels, streams, &c.limits, &result);
        add_result(&words, &result);
    }
    close_streams(channels, made);
    if (status != RP_OK) rpi_agent_add(&words, "error", rp_last_error()->message);
    return rpi_agent_send_words(&own->agent.link, RPI_AGENT_MEASURED, &words);
}

/* ---- the agent ---- */

/* The launcher's end of the connection is closed: the result of the measurement is not wanted
 * any more. */
static void *leave_with_launcher(void *unused) {
    struct pollfd end = {.fd = STDIN_FILENO}; /* no events: only whether it was closed */
    (void)unused;
    while (poll(&end, 1, -1) < 0 && errno == EINTR) {
    }
    _exit(RPI_EXIT_FAILED);
}

static rp_status follow(doctor_agent *own) {
    rpi_agent_frame frame;
    RP_TRY(rpi_agent_greet(&own->agent.link));
    for (;;) {
        own->agent.deadline_ns = rpi_deadline_ns(MEETING_S);
        RP_TRY(rpi_agent_hear(&own->agent, &frame));
        switch (frame.word) {
        case RPI_AGENT_EXAMINE: RP_TRY(examine(own, &frame)); break;
        case RPI_AGENT_SERVE: RP_TRY(serve(own, &frame)); break;
        case RPI_AGENT_EXPECT: RP_TRY(expect(own, &frame)); break;
        case RPI_AGENT_PROBE: RP_TRY(probe(own, &frame)); break;
        case RPI_AGENT_DISMISS: break; /* it came too late to matter */
        default: return RP_FAIL(CORRUPT, "the launcher says what no doctor's agent is told");
        }
    }
}

int rpi_doctor_agent_main(void) {
    doctor_agent own = {.agent = {.signals = -1}, .listener = -1};
    rpi_agent_link *link = &own.agent.link;
    pthread_t watch;
    rpi_agent_link_open(link, STDIN_FILENO, STDOUT_FILENO);
    if (pthread_create(&watch, NULL, leave_with_launcher, NULL) == 0) pthread_detach(watch);
    rp_status status = follow(&own);
    bool is_over = link->in < 0; /* as it is meant to end */
    if (status != RP_OK && !is_over) {
        const char *message = rp_last_error()->message;
        (void)rpi_agent_send(link, RPI_AGENT_FAILED, 0, message, strlen(message));
    }
    if (own.listener >= 0) close(own.listener);
    rpi_agent_finish(&own.agent);
    return is_over ? RPI_EXIT_DONE : RPI_EXIT_FAILED;
}
