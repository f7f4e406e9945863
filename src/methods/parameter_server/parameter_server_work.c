/* The worker, and how a span of steps begins. */
#include "methods/parameter_server/parameter_server_object.h"

#include "base/clock.h"
#include "base/fpenv.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

static bool is_local(const rp_parameter_server *s, int server) {
    return server == s->server;
}

rp_status rpi_push_fail(rp_parameter_server *s, rp_status status) {
    rpi_kept_error why;
    rpi_error_keep(&why);
    rp_parameter_server_abort(s, status, why.message);
    (void)rpi_push_serve_join(s);
    s->has_begun = false;
    rpi_error_put_back(&why);
    return status;
}

static rp_status explain(const rp_parameter_server *s, int server, rp_status status) {
    return status == RP_OK ? RP_OK : rpi_push_explain(s, status, server);
}

/* ---- messages to one server ---- */

static rp_status send_payload(rp_parameter_server *s, int server) {
    rpi_push_uplink *link = &s->uplinks[server];
    link->is_sent = true;
    if (is_local(s, server)) return RP_OK;
    return rp_send_start(link->comm, link->payload, s->shards[server].payload_bytes, RP_U8, 0,
                         RPI_PUSH_PAYLOAD, &link->sent_payload);
}

static rp_status send_header(rp_parameter_server *s, int server,
                             const rpi_push_message *message) {
    rpi_push_uplink *link = &s->uplinks[server];
    if (!is_local(s, server)) {
        link->header = *message;
        return rp_send_start(link->comm, &link->header, RPI_MESSAGE_DOUBLES, RP_F64, 0,
                             RPI_PUSH_HEADER, &link->sent_header);
    }
    pthread_mutex_lock(&s->handover.lock);
    link->header = *message;
    s->handover.has_come = true;
    s->handover.is_answered = false;
    pthread_mutex_unlock(&s->handover.lock);
    rp_completions_wake(s->at.queue);
    return RP_OK;
}

static rp_status expect_answer(rp_parameter_server *s, int server, bool with_values) {
    rpi_push_uplink *link = &s->uplinks[server];
    const rpi_push_shard *shard = &s->shards[server];
    if (is_local(s, server)) return RP_OK;
    RP_TRY(rp_recv_start(link->comm, &link->answer, RPI_MESSAGE_DOUBLES, RP_F64, 0,
                         RPI_PUSH_ANSWER, &link->answered));
    if (!with_values) return RP_OK;
    return rp_recv_start(link->comm, s->values + shard->first, shard->count, RP_F32, 0,
                         RPI_PUSH_VALUES, &link->values);
}

static rp_status wait_here(rp_parameter_server *s) {
    pthread_mutex_lock(&s->handover.lock);
    while (!s->handover.is_answered && !s->handover.failed)
        pthread_cond_wait(&s->handover.changed, &s->handover.lock);
    bool failed = !s->handover.is_answered;
    pthread_mutex_unlock(&s->handover.lock);
    if (!failed) return RP_OK;
    /* The thread that serves has failed, and its error says why. */
    RP_TRY(rpi_push_serve_join(s));
    return RP_FAIL(CANCELLED, "parameter server: this rank's server has failed");
}

static rp_status wait_for(rp_parameter_server *s, int server) {
    rpi_push_uplink *link = &s->uplinks[server];
    if (is_local(s, server)) {
        RP_TRY(wait_here(s));
    } else {
        rp_request **all[] = {&link->answered, &link->values, &link->sent_header,
                              &link->sent_payload};
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
            if (*all[i]) RP_TRY(explain(s, server, rp_request_wait(all[i])));
    }
    if ((uint64_t)link->answer.number != s->number)
        return RP_FAIL(CORRUPT, "parameter server: rank %d acknowledges push %g, not %llu",
                       server, link->answer.number, (unsigned long long)s->number);
    link->may_push = (int)link->answer.kind == RPI_MESSAGE_GO_ON;
    link->is_sent = false;
    return RP_OK;
}

/* ---- a push ---- */

static rp_status check_pushing(const rp_parameter_server *s) {
    if (!s) return RP_FAIL(INVALID, "server is NULL");
    if (!s->has_begun) return RP_FAIL(STATE, "parameter server: no steps have begun");
    if (!rp_parameter_server_goes_on(s))
        return RP_FAIL(STATE, "parameter server: no push is expected of this rank");
    return RP_OK;
}

/* Shards whose last element lies before `end` leave. */
static rp_status send_final(rp_parameter_server *s, size_t end) {
    for (int server = 0; server < s->server_count; server++) {
        rpi_push_uplink *link = &s->uplinks[server];
        const rpi_push_shard *shard = &s->shards[server];
        if (link->is_sent || shard->first + shard->count > end) continue;
        RP_TRY(rpi_push_encode(s, server, s->number + 1, link->payload));
        RP_TRY(explain(s, server, send_payload(s, server)));
    }
    return RP_OK;
}

rp_status rp_parameter_server_final(rp_parameter_server *s, size_t end) {
    RPI_FPENV_SCOPE;
    RP_TRY(check_pushing(s));
    if (end > s->count)
        return RP_FAIL(INVALID, "parameter server: %zu of %zu elements are final", end,
                       s->count);
    rp_status status = send_final(s, end);
    return status == RP_OK ? RP_OK : rpi_push_fail(s, status);
}

/* Servers [from, to). */
static rp_status tell(rp_parameter_server *s, int from, int to, const rpi_push_message *message,
                      bool with_values) {
    for (int server = from; server < to; server++) {
        rp_status status = expect_answer(s, server, with_values);
        if (status == RP_OK) status = send_header(s, server, message);
        RP_TRY(explain(s, server, status));
    }
    return RP_OK;
}

static rp_status hear(rp_parameter_server *s, int from, int to) {
    rp_status status = RP_OK;
    for (int server = from; server < to && status == RP_OK; server++) {
        rpi_push_await(s, server);
        status = wait_for(s, server);
    }
    rpi_push_await(s, -1);
    return status;
}

static rp_status ask(rp_parameter_server *s, int from, int to, const rpi_push_message *message,
                     bool with_values) {
    RP_TRY(tell(s, from, to, message, with_values));
    return hear(s, from, to);
}

/* See parameter_server_object.h for why not all at once. */
static rp_status ask_in_turn(rp_parameter_server *s, const rpi_push_message *message) {
    int all = s->server_count;
    bool pushes = (int)message->kind == RPI_MESSAGE_PUSH;
    rpi_push_message fetch = {.kind = RPI_MESSAGE_GREET, .number = message->number};
    if (pushes) RP_TRY(tell(s, 1, all, message, false));
    if (pushes && !s->first_merges) RP_TRY(hear(s, 1, all));
    RP_TRY(ask(s, 0, 1, message, true));
    if (pushes && s->first_merges) RP_TRY(hear(s, 1, all));
    if (s->first_merges) fetch.version = s->uplinks[0].answer.version;
    return s->uplinks[0].may_push ? ask(s, 1, all, &fetch, true) : RP_OK;
}

static rp_status ask_all(rp_parameter_server *s, const rpi_push_message *message) {
    return s->first_decides ? ask_in_turn(s, message)
                            : ask(s, 0, s->server_count, message, true);
}

static rp_status push(rp_parameter_server *s, double weight, const double *notes,
                      rp_parameter_report *report) {
    rpi_push_message message = {.kind = RPI_MESSAGE_PUSH, .weight = weight};
    if (notes) memcpy(message.notes, notes, sizeof message.notes);
    RP_TRY(send_final(s, s->count));
    message.number = (double)++s->number;
    int64_t start = rpi_now_ns();
    RP_TRY(ask_all(s, &message));
    if (report)
        *report = (rp_parameter_report){.wait_s = rpi_seconds(rpi_now_ns() - start),
                                        .staleness = (int64_t)s->uplinks[0].answer.staleness,
                                        .updates = (int64_t)s->uplinks[0].answer.updates};
    return RP_OK;
}

rp_status rp_parameter_server_push(rp_parameter_server *s, double weight, const double *notes,
                                   rp_parameter_report *report) {
    RPI_FPENV_SCOPE;
    RP_TRY(check_pushing(s));
    if (!(weight >= 0))
        return RP_FAIL(INVALID, "parameter server: a push that counts %g; 0 or more", weight);
    rp_status status = push(s, weight, notes, report);
    return status == RP_OK ? RP_OK : rpi_push_fail(s, status);
}

int rp_parameter_server_goes_on(const rp_parameter_server *s) {
    if (!s) (void)RP_FAIL(INVALID, "server is NULL");
    return s && s->has_begun && s->uplinks && s->uplinks[0].may_push;
}

/* ---- the begin of a span ---- */

static rp_status begin(rp_parameter_server *s, uint64_t first_step, uint64_t steps) {
    s->handover.has_come = s->handover.is_answered = s->handover.failed = false;
    if (s->server >= 0) RP_TRY(rpi_push_server_begin(s, first_step, steps));
    if (s->worker < 0) return RP_OK;
    if (s->server >= 0) RP_TRY(rpi_push_serve_aside(s));
    rpi_push_message message = {.kind = RPI_MESSAGE_GREET, .number = (double)s->number};
    return ask_all(s, &message);
}

rp_status rp_parameter_server_begin(rp_parameter_server *s, float *values, uint64_t first_step,
                                    uint64_t steps) {
    RPI_FPENV_SCOPE;
    if (!s) return RP_FAIL(INVALID, "server is NULL");
    if (!values) return RP_FAIL(INVALID, "parameter server: values are NULL");
    if (s->has_begun)
        return RP_FAIL(STATE, "parameter server: the steps before have not ended");
    s->values = values;
    s->has_begun = true;
    rp_status status = begin(s, first_step, steps);
    return status == RP_OK ? RP_OK : rpi_push_fail(s, status);
}

/* ---- the end of work ---- */

/* A server that has said go on expects a payload. */
static rp_status say_end(rp_parameter_server *s) {
    rpi_push_message message = {.kind = RPI_MESSAGE_END, .number = (double)s->number};
    for (int server = 0; server < s->server_count; server++) {
        rpi_push_uplink *link = &s->uplinks[server];
        rp_status status = RP_OK;
        if (link->may_push && !link->is_sent) status = send_payload(s, server);
        if (status == RP_OK) status = send_header(s, server, &message);
        RP_TRY(explain(s, server, status));
        link->may_push = link->is_sent = false;
    }
    return RP_OK;
}

static rp_status wait_for_sends(rp_parameter_server *s) {
    for (int server = 0; server < s->server_count; server++) {
        rpi_push_uplink *link = &s->uplinks[server];
        rpi_push_await(s, server);
        if (link->sent_header) RP_TRY(explain(s, server, rp_request_wait(&link->sent_header)));
        if (link->sent_payload)
            RP_TRY(explain(s, server, rp_request_wait(&link->sent_payload)));
    }
    return RP_OK;
}

rp_status rpi_push_end_work(rp_parameter_server *s) {
    RP_TRY(say_end(s));
    rp_status status = wait_for_sends(s);
    if (status == RP_OK && s->server >= 0) {
        rpi_push_await(s, s->server);
        status = rpi_push_serve_join(s);
    }
    rpi_push_await(s, -1);
    return status;
}
