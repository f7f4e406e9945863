/* Who takes rank 0's place when it leaves or dies, so that the others' heartbeats and failures
 * still reach each other.
 *
 *      a rank                SEEKS ------ ELECT_BEATS later -----> the next in line
 *                              ^  decides for itself meanwhile      |    | is this rank
 *                              |                                  CALLS  v
 *                              |                  welcome is said   |   LEADS     nobody is
 *                              |                                    v    |         left: ALONE
 *                              |-- it leaves, dies, is silent -- FOLLOWS |
 *                              |-- it is not there, hangs up, or says no welcome in time
 *                              '-- a caller has gone on to the next one -'
 *
 * A coordinator that is stopped keeps its connections and says nothing: who has heard nothing
 * from it for a second longer than a stopped rank is given (control.h) says goodbye, and goes
 * on to the next. Once it comes to itself it reads that, and follows the others as one like any
 * other. In line are ranks 1, 2 and so on, up to RPI_CONTROL_SUCCESSORS of them; where they
 * listen has rank 0 told everybody at the beginning. Whoever cannot be reached has left, or has
 * died: all come to the same one, since a listener that is closed is closed for all. The same
 * goes for one that hangs up before its welcome, as it does with those in its queue when it
 * leaves: that it has died nobody can tell by it. A
 * successor that has not noticed yet takes callers in, and welcomes them once it has. */
#include "net/control/control_state.h"

#include "base/clock.h"
#include "base/log.h"
#include "net/socket/addresses.h"
#include "net/socket/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ELECT_BEATS = 1 };
#define CALL_NS             RPI_SECOND_NS
/* Added to the time that a stopped rank is given, because skipping a rank that is only busy
 * costs one in line. */
#define RESPONSE_TIMEOUT_NS RPI_SECOND_NS
#define SHARE_NS            (RPI_SECOND_NS / 4) /* of each address */

bool rpi_control_is_successor(int rank, int world) {
    return rank > RPI_CONTROL_COORDINATOR && rank <= RPI_CONTROL_SUCCESSORS && rank < world - 1;
}

/* ---- where they listen ---- */

void rpi_control_listen(rpi_control *control, const char *bind_host) {
    int port = 0;
    char numbers[RPI_CONTROL_ADDRESS_BYTES - 22];
    if (!rpi_control_is_successor(control->rank, control->world)) return;
    if (rpi_stream_listen(bind_host, 0, &control->listener, &port) != RP_OK) {
        rpi_log(RP_LOG_INFO, "rank %d cannot take rank 0's place, should it leave: %s",
                control->rank, rp_last_error()->message);
        control->listener = -1;
        return;
    }
    rpi_host_to_numbers(bind_host, numbers, sizeof numbers);
    snprintf(control->addresses[control->rank], RPI_CONTROL_ADDRESS_BYTES, "%d %s", port,
             numbers);
}

void rpi_control_note_address(rpi_control *control, int rank, const char *text) {
    if (!rpi_control_is_successor(rank, control->world) || rank == control->rank) return;
    snprintf(control->addresses[rank], RPI_CONTROL_ADDRESS_BYTES, "%.*s",
             RPI_CONTROL_ADDRESS_BYTES - 1, text);
}

void rpi_control_send_addresses(const rpi_control *control,
                                rpi_control_connection *connection) {
    for (int rank = 1; rank <= RPI_CONTROL_SUCCESSORS; rank++) {
        rpi_control_record record = {.kind = RPI_CONTROL_ADDRESS, .rank = rank};
        if (!control->addresses[rank][0] || rank == connection->rank) continue;
        snprintf(record.text, sizeof record.text, "%s", control->addresses[rank]);
        record.text_bytes = (uint16_t)strlen(record.text);
        (void)rpi_control_connection_queue(connection, &record);
    }
}

/* ---- calling one ---- */

/* Only by numbers (rpi_control_listen()): this thread beats, and must not wait for a name
 * server. */
static rp_status dial(const char *address, int *out_fd) {
    rpi_addresses addresses;
    char *host = NULL;
    long port = strtol(address, &host, 10);
    if (*host != ' ' || port < 1 || port > 65535)
        return RP_FAIL(CORRUPT, "'%.40s' is no address of a control connection", address);
    RP_TRY(rpi_addresses_find(host + 1, (int)port, AI_NUMERICHOST, &addresses));
    int fd = -1;
    for (const struct addrinfo *at = addresses.first; at && fd < 0; at = at->ai_next)
        fd = rpi_stream_dial_once(at, rpi_now_ns() + SHARE_NS);
    rpi_addresses_free(&addresses);
    if (fd < 0) return RP_FAIL(PEER, "nobody answers there");
    *out_fd = fd;
    return RP_OK;
}

/* Proves the secret and says hello; the welcome comes when the other side knows that it is the
 * coordinator. */
static rp_status call(rpi_control *control, int rank) {
    rpi_control_connection *connection = &control->connections[0];
    rpi_control_record hello = {.kind = RPI_CONTROL_HELLO,
                                .rank = control->rank,
                                .number = control->world,
                                .a = control->session};
    rpi_proof_terms terms = {.purpose = RPI_PROOF_CONTROL,
                             .caller = control->rank,
                             .callee = rank,
                             .world = control->world,
                             .session = control->session};
    if (!control->addresses[rank][0]) return RP_FAIL(PEER, "rank %d does not listen", rank);
    RP_TRY(dial(control->addresses[rank], &connection->fd));
    connection->rank = rank;
    connection->goodbye = false;
    connection->in_bytes = connection->in_taken = connection->out_bytes = 0;
    rp_status status = rpi_channel_call(&connection->channel, &control->secret, &terms,
                                        rpi_now_ns() + CALL_NS);
    if (status == RP_OK) status = rpi_control_connection_send(connection, &hello);
    if (status == RP_OK) return RP_OK;
    rpi_control_connection_close(connection);
    connection->rank = -1;
    return status;
}

/* ---- the next in line ---- */

static void note_served(rpi_control *control, int by) {
    pthread_mutex_lock(&control->lock);
    control->served_by = by;
    control->served_ns = control->served_heard_ns = rpi_now_ns();
    pthread_mutex_unlock(&control->lock);
}

static void become_coordinator(rpi_control *control) {
    rpi_control_record welcome = {.kind = RPI_CONTROL_WELCOME};
    rpi_control_enter_role(control, RPI_CONTROL_LEADS);
    control->coordinator = control->rank;
    control->elect_ns = control->welcome_by_ns = RPI_NEVER_NS;
    note_served(control, control->rank);
    for (int i = 0; i < control->connection_count; i++)
        if (control->connections[i].rank >= 0) {
            (void)rpi_control_connection_send(&control->connections[i], &welcome);
            rpi_control_send_decisions(control, &control->connections[i]);
        }
}

void rpi_control_receive_coordinator(rpi_control *control, bool is_welcome) {
    if (is_welcome) {
        rpi_control_enter_role(control, RPI_CONTROL_FOLLOWS);
        control->welcome_by_ns = RPI_NEVER_NS;
        note_served(control, control->coordinator);
        rpi_control_send_own_decisions(control, &control->connections[0]);
        return;
    }
    pthread_mutex_lock(&control->lock);
    control->served_heard_ns = rpi_now_ns();
    pthread_mutex_unlock(&control->lock);
}

void rpi_control_drop_connection(rpi_control *control, rpi_control_connection *connection) {
    if (!rpi_control_is_up(control, connection) && connection->rank >= 0) {
        control->connection_of[connection->rank] = -1;
        rpi_scopes_remove_rank(control, connection->rank);
    }
    rpi_control_connection_close(connection);
    connection->rank = -1;
}

static void send_going_on(rpi_control *control, rpi_control_connection *connection) {
    rpi_control_record record = {
        .kind = RPI_CONTROL_GOODBYE, .rank = control->rank, .number = 1};
    (void)rpi_control_connection_send(connection, &record);
    rpi_control_drop_connection(control, connection);
}

static void begin_to_elect(rpi_control *control) {
    pthread_mutex_lock(&control->lock);
    control->lost_coordinator = control->coordinator;
    control->served_by = RPI_COORDINATOR_SOUGHT;
    pthread_mutex_unlock(&control->lock);
    rpi_control_enter_role(control, RPI_CONTROL_SEEKS);
    control->welcome_by_ns = RPI_NEVER_NS;
}

static bool has_heir(const rpi_control *control) {
    for (int rank = control->coordinator + 1; rank <= RPI_CONTROL_SUCCESSORS; rank++)
        if (control->addresses[rank][0] && (rank != control->rank || !control->passed_over))
            return true;
    return false;
}

/* Counted by our own beats: while this process was stopped, no rank counts as silent. */
static bool is_coordinator_silent(rpi_control *control) {
    pthread_mutex_lock(&control->lock);
    bool serves = rpi_control_was_open(control) && control->served_by == control->coordinator;
    int64_t silent_ns = control->heard_ns[control->rank] - control->served_heard_ns;
    pthread_mutex_unlock(&control->lock);
    return serves && silent_ns > control->silence_ns + RESPONSE_TIMEOUT_NS;
}

void rpi_control_watch_coordinator(rpi_control *control) {
    if (rpi_control_is_coordinator(control) || control->duty == RPI_CONTROL_LEAVES) return;
    bool is_late = rpi_now_ns() >= control->welcome_by_ns;
    if (!is_late && (!is_coordinator_silent(control) || !has_heir(control))) return;
    rpi_log(RP_LOG_INFO, "rank %d has heard nothing from rank %d, which passes on heartbeats",
            control->rank, control->coordinator);
    send_going_on(control, &control->connections[0]);
    begin_to_elect(control);
    control->elect_ns = rpi_now_ns();
}

void rpi_control_resign(rpi_control *control) {
    control->passed_over = true;
    if (!rpi_control_is_coordinator(control)) return;
    for (int i = 1; i < control->connection_count; i++)
        if (control->connections[i].rank >= 0) send_going_on(control, &control->connections[i]);
    rpi_scopes_free(control);
    begin_to_elect(control);
    if (control->duty != RPI_CONTROL_LEAVES) control->elect_ns = rpi_now_ns();
}

void rpi_control_lose_coordinator(rpi_control *control) {
    begin_to_elect(control);
    if (control->duty != RPI_CONTROL_LEAVES)
        control->elect_ns = rpi_now_ns() + ELECT_BEATS * control->beat_ns;
}

void rpi_control_elect(rpi_control *control) {
    control->elect_ns = RPI_NEVER_NS;
    while (++control->coordinator <= RPI_CONTROL_SUCCESSORS) {
        bool is_own = control->coordinator == control->rank;
        if (is_own && control->listener >= 0 && !control->passed_over) {
            become_coordinator(control);
            return;
        }
        if (is_own || call(control, control->coordinator) != RP_OK) continue;
        rpi_control_enter_role(control, RPI_CONTROL_CALLS);
        control->welcome_by_ns = rpi_now_ns() + control->silence_ns + RESPONSE_TIMEOUT_NS;
        return;
    }
    rpi_control_enter_role(control, RPI_CONTROL_ALONE);
    note_served(control, RPI_COORDINATOR_NONE);
}
