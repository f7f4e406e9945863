/* Who takes rank 0's place when it leaves or dies, so that the others' heartbeats and failures
 * still reach each other.
 *
 *      a rank                SEEKS ------ SEEK_BEATS later ------> the next in line
 *                              ^  judges for itself meanwhile       |    | is this rank
 *                              |                                  CALLS  v
 *                              |                  welcome is said   |   LEADS     nobody is
 *                              |                                    v    |         left: ALONE
 *                              |-- it leaves, dies, is silent -- FOLLOWS |
 *                              |-- it is not there, or says no welcome in time
 *                              '-- a caller has gone on to the next one -'
 *
 * A hub that is stopped keeps its connections and says nothing: who has heard nothing from it
 * for a second longer than a stopped rank is given (control.h) says goodbye, and goes on to the
 * next. Once it comes to itself it reads that, and follows the others as one like any other. In
 * line are ranks 1, 2 and so on, up to RPI_CONTROL_SUCCESSORS of them; where they listen has
 * rank 0 told everybody at the beginning. Whoever cannot be reached has left, or has died: all
 * come to the same one, since a listener that is closed is closed for all. A successor that has
 * not noticed yet takes callers in, and welcomes them once it has. */
#include "net/control/control_state.h"

#include "base/clock.h"
#include "base/log.h"
#include "net/socket/addresses.h"
#include "net/socket/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEEK_BEATS = 1 };
#define CALL_NS     RPI_SECOND_NS
/* Beyond what a stopped rank is given: to go on for a rank that is only busy costs one in line.
 */
#define PATIENCE_NS RPI_SECOND_NS
#define SHARE_NS    (RPI_SECOND_NS / 4) /* of each address */

bool rpi_control_is_successor(int rank, int world) {
    return rank > RPI_CONTROL_HUB && rank <= RPI_CONTROL_SUCCESSORS && rank < world - 1;
}

/* ---- where they listen ---- */

void rpi_control_listen(rpi_control *control, const char *bind_host) {
    int port = 0;
    if (!rpi_control_is_successor(control->rank, control->world)) return;
    if (rpi_stream_listen(bind_host, 0, &control->listener, &port) != RP_OK) {
        rpi_log(RP_LOG_INFO, "rank %d cannot take rank 0's place, should it leave: %s",
                control->rank, rp_last_error()->message);
        control->listener = -1;
        return;
    }
    snprintf(control->addresses[control->rank], RPI_CONTROL_ADDRESS_BYTES, "%d %.250s", port,
             bind_host ? bind_host : "127.0.0.1");
}

void rpi_control_note_address(rpi_control *control, int rank, const char *text) {
    if (!rpi_control_is_successor(rank, control->world) || rank == control->rank) return;
    snprintf(control->addresses[rank], RPI_CONTROL_ADDRESS_BYTES, "%.*s",
             RPI_CONTROL_ADDRESS_BYTES - 1, text);
}

void rpi_control_tell_addresses(const rpi_control *control, rpi_control_line *line) {
    for (int rank = 1; rank <= RPI_CONTROL_SUCCESSORS; rank++) {
        rpi_control_record record = {.kind = RPI_CONTROL_ADDRESS, .rank = rank};
        if (!control->addresses[rank][0] || rank == line->rank) continue;
        snprintf(record.text, sizeof record.text, "%s", control->addresses[rank]);
        record.text_bytes = (uint16_t)strlen(record.text);
        (void)rpi_control_line_queue(line, &record);
    }
}

/* ---- calling one ---- */

static rp_status dial(const char *address, int *out_fd) {
    rpi_addresses addresses;
    char *host = NULL;
    long port = strtol(address, &host, 10);
    if (*host != ' ' || port < 1 || port > 65535)
        return RP_FAIL(CORRUPT, "'%.40s' is no address of a control connection", address);
    RP_TRY(rpi_addresses_find(host + 1, (int)port, 0, &addresses));
    int fd = -1;
    for (const struct addrinfo *at = addresses.first; at && fd < 0; at = at->ai_next)
        fd = rpi_stream_dial_once(at, rpi_now_ns() + SHARE_NS);
    rpi_addresses_free(&addresses);
    if (fd < 0) return RP_FAIL(PEER, "nobody answers there");
    *out_fd = fd;
    return RP_OK;
}

/* Proves and says hello; the welcome comes when the other side knows that it is the hub. */
static rp_status call(rpi_control *control, int rank) {
    rpi_control_line *line = &control->lines[0];
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
    RP_TRY(dial(control->addresses[rank], &line->fd));
    line->rank = rank;
    line->goodbye = false;
    line->in_bytes = line->in_taken = line->out_bytes = 0;
    rp_status status =
        rpi_channel_call(&line->channel, &control->secret, &terms, rpi_now_ns() + CALL_NS);
    if (status == RP_OK) status = rpi_control_line_send(line, &hello);
    if (status == RP_OK) return RP_OK;
    rpi_control_line_close(line);
    line->rank = -1;
    return status;
}

/* ---- the next in line ---- */

static void note_served(rpi_control *control, int by) {
    pthread_mutex_lock(&control->lock);
    control->served_by = by;
    control->served_ns = control->served_heard_ns = rpi_now_ns();
    pthread_mutex_unlock(&control->lock);
}

static void become_hub(rpi_control *control) {
    rpi_control_record welcome = {.kind = RPI_CONTROL_WELCOME};
    rpi_control_enter_role(control, RPI_CONTROL_LEADS);
    control->hub = control->rank;
    control->seek_ns = control->welcome_by_ns = RPI_NEVER_NS;
    note_served(control, control->rank);
    for (int i = 0; i < control->line_count; i++)
        if (control->lines[i].rank >= 0) {
            (void)rpi_control_line_send(&control->lines[i], &welcome);
            rpi_control_tell_verdicts(control, &control->lines[i]);
        }
}

void rpi_control_hear_hub(rpi_control *control, bool is_welcome) {
    if (is_welcome) {
        rpi_control_enter_role(control, RPI_CONTROL_FOLLOWS);
        control->welcome_by_ns = RPI_NEVER_NS;
        note_served(control, control->hub);
        rpi_control_tell_own_verdicts(control, &control->lines[0]);
        return;
    }
    pthread_mutex_lock(&control->lock);
    control->served_heard_ns = rpi_now_ns();
    pthread_mutex_unlock(&control->lock);
}

void rpi_control_drop_line(rpi_control *control, rpi_control_line *line) {
    if (!rpi_control_is_up(control, line) && line->rank >= 0) {
        control->line_of[line->rank] = -1;
        rpi_scopes_forget(control, line->rank);
    }
    rpi_control_line_close(line);
    line->rank = -1;
}

static void say_going_on(rpi_control *control, rpi_control_line *line) {
    rpi_control_record record = {
        .kind = RPI_CONTROL_GOODBYE, .rank = control->rank, .number = 1};
    (void)rpi_control_line_send(line, &record);
    rpi_control_drop_line(control, line);
}

static void begin_to_seek(rpi_control *control) {
    pthread_mutex_lock(&control->lock);
    control->lost_hub = control->hub;
    control->served_by = RPI_HUB_SOUGHT;
    pthread_mutex_unlock(&control->lock);
    rpi_control_enter_role(control, RPI_CONTROL_SEEKS);
    control->welcome_by_ns = RPI_NEVER_NS;
}

static bool has_heir(const rpi_control *control) {
    for (int rank = control->hub + 1; rank <= RPI_CONTROL_SUCCESSORS; rank++)
        if (control->addresses[rank][0] && (rank != control->rank || !control->passed_over))
            return true;
    return false;
}

/* By our own beats: while this process was stopped, nobody was silent. */
static bool is_hub_silent(rpi_control *control) {
    pthread_mutex_lock(&control->lock);
    bool serves = rpi_control_was_open(control) && control->served_by == control->hub;
    int64_t silent_ns = control->heard_ns[control->rank] - control->served_heard_ns;
    pthread_mutex_unlock(&control->lock);
    return serves && silent_ns > control->silence_ns + PATIENCE_NS;
}

void rpi_control_watch_hub(rpi_control *control) {
    if (rpi_control_is_hub(control) || control->duty == RPI_CONTROL_LEAVES) return;
    bool is_late = rpi_now_ns() >= control->welcome_by_ns;
    if (!is_late && (!is_hub_silent(control) || !has_heir(control))) return;
    rpi_log(RP_LOG_INFO, "rank %d has heard nothing from rank %d, which passes on heartbeats",
            control->rank, control->hub);
    say_going_on(control, &control->lines[0]);
    begin_to_seek(control);
    control->seek_ns = rpi_now_ns();
}

void rpi_control_resign(rpi_control *control) {
    control->passed_over = true;
    if (!rpi_control_is_hub(control)) return;
    for (int i = 1; i < control->line_count; i++)
        if (control->lines[i].rank >= 0) say_going_on(control, &control->lines[i]);
    rpi_scopes_free(control);
    begin_to_seek(control);
    if (control->duty != RPI_CONTROL_LEAVES) control->seek_ns = rpi_now_ns();
}

void rpi_control_lose_hub(rpi_control *control) {
    begin_to_seek(control);
    if (control->duty != RPI_CONTROL_LEAVES)
        control->seek_ns = rpi_now_ns() + SEEK_BEATS * control->beat_ns;
}

void rpi_control_seek_hub(rpi_control *control) {
    control->seek_ns = RPI_NEVER_NS;
    while (++control->hub <= RPI_CONTROL_SUCCESSORS) {
        bool is_own = control->hub == control->rank;
        if (is_own && control->listener >= 0 && !control->passed_over) {
            become_hub(control);
            return;
        }
        if (is_own || call(control, control->hub) != RP_OK) continue;
        rpi_control_enter_role(control, RPI_CONTROL_CALLS);
        control->welcome_by_ns = rpi_now_ns() + control->silence_ns + PATIENCE_NS;
        return;
    }
    rpi_control_enter_role(control, RPI_CONTROL_ALONE);
    note_served(control, RPI_HUB_NONE);
}
