/* The thread of the control connection: it accepts callers, reads connections that have
 * something, and knows when to beat and to leave. control_records.c handles records,
 * control_arbiter.c the consequences of a death or a failure, control_beats.c the beats. */
#include "net/control/control_state.h"

#include "base/clock.h"
#include "base/event.h"
#include "base/fpenv.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "net/socket/stream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LEAVE_S     3.0 /* a busy machine may be slow to close */
#define BREATHER_NS (RPI_SECOND_NS / 50)

/* ---- callers ---- */

/* True after a caller has proved that it belongs to this job; if it cannot, its connection is
 * closed. */
static bool receive_proof(rpi_control *control, rpi_control_connection *connection) {
    rpi_proof_terms terms = {.purpose = RPI_PROOF_CONTROL,
                             .callee = control->rank,
                             .world = control->world,
                             .session = control->session};
    if (connection->rank >= 0 || connection->proved || !control->secret.is_set) return true;
    rp_status status = rpi_channel_receive_proof(&connection->channel, &connection->proof,
                                                 &control->secret, &terms);
    connection->proved = status == RP_OK;
    if (status == RP_MISMATCH)
        rpi_proof_log_refusal(connection->fd, "the control connection", &control->refusals);
    if (status < 0) rpi_control_connection_close(connection);
    return connection->proved;
}

/* ---- lines ---- */

/* The connection ended: a death, unless a goodbye came before. A coordinator that has not sent
 * a welcome may have been about to leave when it was called. Its listener then closes with this
 * rank in its queue, which nobody has accepted, and this means no more than a refused
 * connection. */
static void lose_connection(rpi_control *control, rpi_control_connection *connection,
                            bool closing) {
    int rank = connection->rank;
    bool expected = connection->goodbye || closing,
         is_up = rpi_control_is_up(control, connection),
         is_unheard = is_up && control->role == RPI_CONTROL_CALLS;
    rpi_control_drop_connection(control, connection);
    if (is_up) rpi_control_lose_coordinator(control);
    if (rank < 0 || expected || is_unheard) return;
    if (is_up && !rpi_control_is_welcome(control))
        rpi_control_decide_unwelcome(control, "rank 0 ended, or refused this rank's control "
                                              "connection");
    else
        rpi_control_suspect(control, rank);
}

static void receive_from(rpi_control *control, rpi_control_connection *connection,
                         bool closing) {
    rpi_control_record record;
    rp_status status = RP_OK;
    if (!receive_proof(control, connection)) return;
    if (connection->out_bytes) status = rpi_control_connection_flush(connection);
    /* Records that arrived before the end of a connection are taken before the end. */
    while (connection->fd >= 0) {
        status = rpi_control_connection_receive(connection, &record);
        if (status != RP_OK) break;
        if (rpi_control_is_up(control, connection))
            rpi_control_receive_coordinator(control, false);
        rpi_control_take_record(control, connection, &record);
    }
    if (connection->fd < 0 || status >= 0) return;
    if (status == RP_CORRUPT && connection->rank < 0 && rpi_proof_is_call(connection->in))
        rpi_proof_decline(connection->fd, RPI_PROOF_CONTROL); /* here is no secret */
    lose_connection(control, connection, closing);
}

/* ---- beats ---- */

/* Beats are sent both ways all the time, so there are always bytes to acknowledge. */
static void look_for_lost_hosts(rpi_control *control) {
    for (int i = 0; i < control->connection_count; i++) {
        rpi_control_connection *connection = &control->connections[i];
        if (connection->rank < 0 || connection->fd < 0) continue;
        if (!rpi_stream_is_unanswered(connection->fd, control->lost_ns)) continue;
        pthread_mutex_lock(&control->lock);
        control->lost[connection->rank] = true;
        pthread_mutex_unlock(&control->lock);
        lose_connection(control, connection, false);
    }
}

static void beat(rpi_control *control) {
    bool closing =
        control->duty == RPI_CONTROL_LEAVES; /* our side of the connections is shut */
    rpi_control_beat_once(control, !closing);
    if (!closing && rpi_control_is_coordinator(control)) rpi_control_arbitrate_waits(control);
    if (!closing) look_for_lost_hosts(control);
    control->beat_at_ns = rpi_now_ns() + control->beat_ns;
}

/* ---- the thread ---- */

static void let_everybody_in(rpi_control *control) {
    rpi_control_record record = {.kind = RPI_CONTROL_WELCOME};
    for (int i = 0; i < control->connection_count; i++) {
        rpi_control_connection *connection = &control->connections[i];
        if (connection->rank >= 0) {
            rpi_control_send_addresses(control, connection);
            (void)rpi_control_connection_send(connection, &record);
        } else {
            rpi_control_connection_close(connection); /* a stranger that never sent anything */
        }
    }
    close(control->listener);
    control->listener = -1;
    rpi_control_enter_duty(control, RPI_CONTROL_SERVES);
}

static rpi_control_connection *oldest_stranger(rpi_control *control) {
    rpi_control_connection *oldest = NULL;
    for (int i = 0; i < control->connection_count; i++) {
        rpi_control_connection *connection = &control->connections[i];
        if (connection->fd >= 0 && connection->rank < 0 &&
            (!oldest || connection->since_ns < oldest->since_ns))
            oldest = connection;
    }
    return oldest;
}

/* For a caller: not the connection to the coordinator. */
static rpi_control_connection *free_connection(rpi_control *control) {
    for (int i = 1; i < control->connection_count; i++)
        if (control->connections[i].fd < 0) return &control->connections[i];
    return NULL;
}

/* If there is no room for the next caller, the oldest that has not said who it is is closed,
 * but not one that has just connected; returns until when to sleep. */
static int64_t make_place(rpi_control *control) {
    int64_t now_ns = rpi_now_ns();
    for (rpi_control_connection *oldest; (oldest = oldest_stranger(control)) != NULL;) {
        int64_t stay_ns =
            free_connection(control) ? RPI_STRANGER_MOST_NS : RPI_STRANGER_LEAST_NS;
        if (now_ns < oldest->since_ns + stay_ns) return oldest->since_ns + stay_ns;
        rpi_control_connection_close(oldest);
    }
    return RPI_NEVER_NS;
}

/* Recorded here at once; a thread that waits for the callers in vain passes it on to all that
 * have connected. It fails nothing, because strangers may have taken the descriptors or memory
 * for a moment. */
static void note_lack(rpi_control *control, int error) {
    char lack[sizeof control->lack];
    errno = error;
    (void)RP_FAIL_ERRNO(IO, "rank %d cannot accept a connection", control->rank);
    snprintf(lack, sizeof lack, "%s", rp_last_error()->message);
    pthread_mutex_lock(&control->lock);
    bool is_new = !control->lack[0];
    memcpy(control->lack, lack, sizeof lack);
    pthread_mutex_unlock(&control->lock);
    if (is_new) rpi_log(RP_LOG_WARNING, "%s", lack);
}

static void accept_callers(rpi_control *control) {
    rpi_control_connection *connection = NULL;
    while ((connection = free_connection(control)) != NULL) {
        int fd = rpi_stream_accept(control->listener);
        if (fd < 0) {
            /* Without descriptors, or dead, the listener stays readable: pause instead of
             * spinning. */
            if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
                note_lack(control, errno);
                rpi_sleep_until_ns(rpi_now_ns() + BREATHER_NS);
            }
            return;
        }
        *connection = (rpi_control_connection){
            .channel = {.fd = fd}, .rank = -1, .poll = -1, .since_ns = rpi_now_ns()};
    }
}

static void send_goodbye(rpi_control *control) {
    rpi_control_record record = {.kind = RPI_CONTROL_GOODBYE, .rank = control->rank};
    (void)rpi_control_end_suspicion(control, RPI_NEVER_NS - 1);
    for (int i = 0; i < control->connection_count; i++) {
        rpi_control_connection *connection = &control->connections[i];
        if (connection->fd < 0) continue;
        (void)rpi_control_connection_send(connection, &record);
        if (connection->rank < 0) rpi_control_connection_close(connection);
    }
    if (control->listener >= 0)
        close(control->listener); /* others need not connect here any more */
    control->listener = -1;
    control->elect_ns = control->welcome_by_ns = RPI_NEVER_NS;
    control->leave_by_ns = rpi_deadline_ns(LEAVE_S);
    rpi_control_enter_duty(control, RPI_CONTROL_LEAVES);
}

/* No heartbeat comes from it, so it will not close either. */
static bool is_silent(rpi_control *control, int rank) {
    rpi_control_beat beat;
    rpi_control_beat_of(&control->everybody, rank, &beat);
    int64_t since_ns = beat.heard_ns ? beat.heard_ns : control->opened_ns;
    return rpi_now_ns() - since_ns > control->silence_ns;
}

/* Everything has been sent and the other sides have closed, so closing now resets nothing that
 * they have still to read. */
static bool has_left(rpi_control *control) {
    bool over = true;
    for (int i = 0; i < control->connection_count; i++) {
        rpi_control_connection *connection = &control->connections[i];
        if (connection->fd < 0) continue;
        if (!connection->out_bytes) rpi_channel_shut(&connection->channel);
        if (!is_silent(control, connection->rank)) over = false;
    }
    return over || rpi_now_ns() >= control->leave_by_ns;
}

/* What callers have requested of the thread since it looked last; true while it is to continue.
 */
static bool receive_callers(rpi_control *control) {
    pthread_mutex_lock(&control->lock);
    bool has_come = rpi_control_was_open(control);
    bool closing = control->phase >= RPI_CONTROL_CLOSING;
    pthread_mutex_unlock(&control->lock);
    if (has_come && control->duty == RPI_CONTROL_GATHERS) let_everybody_in(control);
    rpi_control_send_reports(control);
    if (closing && control->duty != RPI_CONTROL_LEAVES) send_goodbye(control);
    return !closing || !has_left(control);
}

static int64_t keep_time(rpi_control *control) {
    int64_t now_ns = rpi_now_ns();
    rpi_control_arbitrate_overdue(control);
    rpi_control_watch_coordinator(control);
    if (now_ns >= control->elect_ns) rpi_control_elect(control);
    int64_t suspicion_ns = rpi_control_end_suspicion(control, now_ns);
    if (now_ns >= control->beat_at_ns) beat(control);
    int64_t next_ns = control->beat_at_ns, report_ns = rpi_control_next_report_ns(control);
    if (suspicion_ns < next_ns) next_ns = suspicion_ns;
    if (report_ns < next_ns) next_ns = report_ns;
    if (control->elect_ns < next_ns) next_ns = control->elect_ns;
    if (control->welcome_by_ns < next_ns) next_ns = control->welcome_by_ns;
    if (control->leave_by_ns < next_ns) next_ns = control->leave_by_ns;
    return next_ns;
}

static void sleep_until(rpi_control *control, int64_t time_ns) {
    struct pollfd *polls = control->polls;
    int64_t due_ns = control->listener >= 0 ? make_place(control) : RPI_NEVER_NS;
    if (due_ns < time_ns) time_ns = due_ns;
    polls[0] = (struct pollfd){.fd = control->wake, .events = POLLIN};
    bool room = control->listener >= 0 && free_connection(control);
    polls[1] = (struct pollfd){.fd = room ? control->listener : -1, .events = POLLIN};
    int count = 2;
    for (int i = 0; i < control->connection_count; i++) {
        rpi_control_connection *connection = &control->connections[i];
        connection->poll = connection->fd >= 0 ? count : -1;
        if (connection->fd < 0)
            continue; /* poll() takes no more entries than the limit of open files */
        short events = connection->out_bytes ? POLLIN | POLLOUT : POLLIN;
        polls[count++] = (struct pollfd){.fd = connection->fd, .events = events};
    }
    if (poll(polls, (nfds_t)count, rpi_poll_ms(time_ns)) < 0)
        for (int i = 0; i < count; i++) polls[i].revents = 0;
}

void *rpi_control_run(void *context) {
    rpi_control *control = context;
    rpi_fpenv_default();
    while (receive_callers(control)) {
        sleep_until(control, keep_time(control));
        if (control->polls[0].revents) rpi_event_clear(control->wake);
        if (control->polls[1].revents) accept_callers(control);
        bool closing = control->duty == RPI_CONTROL_LEAVES;
        for (int i = 0; i < control->connection_count; i++) {
            rpi_control_connection *connection = &control->connections[i];
            if (connection->fd >= 0 && connection->poll >= 0 &&
                control->polls[connection->poll].revents)
                receive_from(control, connection, closing);
        }
    }
    return NULL;
}
