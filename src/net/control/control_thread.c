/* The thread of the control connection: who calls, which lines have something, when to beat and
 * to leave. What a record does is control_records.c's, what follows from a death or a failure
 * control_judge.c's, beats are control_beats.c's. */
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

#define LEAVE_S     3.0 /* a machine that is busy may be slow to hang up */
#define BREATHER_NS (RPI_SECOND_NS / 50)

/* ---- callers ---- */

/* True once a caller has proved that it is of this job; it is hung up on when it cannot. */
static bool hear_proof(rpi_control *control, rpi_control_line *line) {
    rpi_proof_terms terms = {.purpose = RPI_PROOF_CONTROL,
                             .callee = control->rank,
                             .world = control->world,
                             .session = control->session};
    if (line->rank >= 0 || line->proved || !control->secret.is_set) return true;
    rp_status status = rpi_channel_hear(&line->channel, &line->proof, &control->secret, &terms);
    line->proved = status == RP_OK;
    if (status == RP_MISMATCH)
        rpi_proof_log_refusal(line->fd, "the control connection", &control->refusals);
    if (status < 0) rpi_control_line_close(line);
    return line->proved;
}

/* ---- lines ---- */

/* The connection ended: a death, unless a goodbye came before. */
static void lose_line(rpi_control *control, rpi_control_line *line, bool closing) {
    int rank = line->rank;
    bool expected = line->goodbye || closing, is_up = rpi_control_is_up(control, line);
    rpi_control_drop_line(control, line);
    if (is_up) rpi_control_lose_hub(control);
    if (rank < 0 || expected) return;
    if (is_up && !rpi_control_is_welcome(control))
        rpi_control_decide(control,
                           &(rpi_failure){.status = RP_PEER,
                                          .rank = RPI_CONTROL_HUB,
                                          .finder = control->rank,
                                          .text = "connection closed by peer: rank 0 ended, or "
                                                  "refused this rank's control connection"});
    else
        rpi_control_suspect(control, rank);
}

static void hear_line(rpi_control *control, rpi_control_line *line, bool closing) {
    rpi_control_record record;
    rp_status status = RP_OK;
    if (!hear_proof(control, line)) return;
    if (line->out_bytes) status = rpi_control_line_flush(line);
    /* Records that came before the end of a connection are heard before its end. */
    while (line->fd >= 0) {
        status = rpi_control_line_receive(line, &record);
        if (status != RP_OK) break;
        if (rpi_control_is_up(control, line)) rpi_control_hear_hub(control, false);
        rpi_control_take_record(control, line, &record);
    }
    if (line->fd < 0 || status >= 0) return;
    if (status == RP_CORRUPT && line->rank < 0 && rpi_proof_is_call(line->in))
        rpi_proof_decline(line->fd, RPI_PROOF_CONTROL); /* here is no secret */
    lose_line(control, line, closing);
}

/* ---- beats ---- */

/* Beats go both ways all the time, so that there is always something to be answered. */
static void look_for_lost_hosts(rpi_control *control) {
    for (int i = 0; i < control->line_count; i++) {
        rpi_control_line *line = &control->lines[i];
        if (line->rank < 0 || line->fd < 0) continue;
        if (!rpi_stream_is_unanswered(line->fd, control->lost_ns)) continue;
        pthread_mutex_lock(&control->lock);
        control->lost[line->rank] = true;
        pthread_mutex_unlock(&control->lock);
        lose_line(control, line, false);
    }
}

static void beat(rpi_control *control) {
    bool closing = control->duty == RPI_CONTROL_LEAVES; /* our side of the lines is shut */
    rpi_control_beat_once(control, !closing);
    if (!closing && rpi_control_is_hub(control)) rpi_control_judge_waits(control);
    if (!closing) look_for_lost_hosts(control);
    control->beat_at_ns = rpi_now_ns() + control->beat_ns;
}

/* ---- the thread ---- */

static void let_everybody_in(rpi_control *control) {
    rpi_control_record record = {.kind = RPI_CONTROL_WELCOME};
    for (int i = 0; i < control->line_count; i++) {
        rpi_control_line *line = &control->lines[i];
        if (line->rank >= 0) {
            rpi_control_tell_addresses(control, line);
            (void)rpi_control_line_send(line, &record);
        } else {
            rpi_control_line_close(line); /* a stranger who never said a word */
        }
    }
    close(control->listener);
    control->listener = -1;
    rpi_control_enter_duty(control, RPI_CONTROL_SERVES);
}

static rpi_control_line *oldest_stranger(rpi_control *control) {
    rpi_control_line *oldest = NULL;
    for (int i = 0; i < control->line_count; i++) {
        rpi_control_line *line = &control->lines[i];
        if (line->fd >= 0 && line->rank < 0 && (!oldest || line->since_ns < oldest->since_ns))
            oldest = line;
    }
    return oldest;
}

/* For a caller: not the line to the hub. */
static rpi_control_line *free_line(rpi_control *control) {
    for (int i = 1; i < control->line_count; i++)
        if (control->lines[i].fd < 0) return &control->lines[i];
    return NULL;
}

/* Who holds a line and does not say who it is makes place for the next when there is none left,
 * though not one that has just come; until when to sleep. */
static int64_t make_place(rpi_control *control) {
    int64_t now_ns = rpi_now_ns();
    for (rpi_control_line *oldest; (oldest = oldest_stranger(control)) != NULL;) {
        int64_t stay_ns = free_line(control) ? RPI_STRANGER_MOST_NS : RPI_STRANGER_LEAST_NS;
        if (now_ns < oldest->since_ns + stay_ns) return oldest->since_ns + stay_ns;
        rpi_control_line_close(oldest);
    }
    return RPI_NEVER_NS;
}

/* Said at once here; whoever waits for the callers in vain passes it on to all who have come.
 * It fails nothing: callers that are strangers may have taken what is lacking, for a moment. */
static void note_lack(rpi_control *control, int error) {
    char lack[sizeof control->lack];
    errno = error;
    (void)RP_FAIL_ERRNO(IO, "rank %d cannot accept a connection", control->rank);
    snprintf(lack, sizeof lack, "%s", rp_last_error()->message);
    pthread_mutex_lock(&control->lock);
    bool is_news = !control->lack[0];
    memcpy(control->lack, lack, sizeof lack);
    pthread_mutex_unlock(&control->lock);
    if (is_news) rpi_log(RP_LOG_WARNING, "%s", lack);
}

static void accept_callers(rpi_control *control) {
    rpi_control_line *line = NULL;
    while ((line = free_line(control)) != NULL) {
        int fd = rpi_stream_accept(control->listener);
        if (fd < 0) {
            /* Out of descriptors, or dead, the listener stays readable: rest, do not spin. */
            if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
                note_lack(control, errno);
                rpi_sleep_until_ns(rpi_now_ns() + BREATHER_NS);
            }
            return;
        }
        *line = (rpi_control_line){
            .channel = {.fd = fd}, .rank = -1, .poll = -1, .since_ns = rpi_now_ns()};
    }
}

static void say_goodbye(rpi_control *control) {
    rpi_control_record record = {.kind = RPI_CONTROL_GOODBYE, .rank = control->rank};
    (void)rpi_control_end_grace(control, RPI_NEVER_NS - 1);
    for (int i = 0; i < control->line_count; i++) {
        rpi_control_line *line = &control->lines[i];
        if (line->fd < 0) continue;
        (void)rpi_control_line_send(line, &record);
        if (line->rank < 0) rpi_control_line_close(line);
    }
    if (control->listener >= 0)
        close(control->listener); /* others need not come here any more */
    control->listener = -1;
    control->seek_ns = control->welcome_by_ns = RPI_NEVER_NS;
    control->leave_by_ns = rpi_deadline_ns(LEAVE_S);
    rpi_control_enter_duty(control, RPI_CONTROL_LEAVES);
}

/* No heartbeat comes from it: it will not hang up either. */
static bool is_silent(rpi_control *control, int rank) {
    rpi_control_beat beat;
    rpi_control_beat_of(&control->everybody, rank, &beat);
    int64_t since_ns = beat.heard_ns ? beat.heard_ns : control->opened_ns;
    return rpi_now_ns() - since_ns > control->silence_ns;
}

/* All that was said has left, and the other sides have hung up: closing now resets nothing that
 * they have still to read. */
static bool has_left(rpi_control *control) {
    bool over = true;
    for (int i = 0; i < control->line_count; i++) {
        rpi_control_line *line = &control->lines[i];
        if (line->fd < 0) continue;
        if (!line->out_bytes) rpi_channel_shut(&line->channel);
        if (!is_silent(control, line->rank)) over = false;
    }
    return over || rpi_now_ns() >= control->leave_by_ns;
}

/* What callers want of the thread since it last looked; true while it is to go on. */
static bool hear_callers(rpi_control *control) {
    pthread_mutex_lock(&control->lock);
    bool has_come = rpi_control_was_open(control);
    bool closing = control->phase >= RPI_CONTROL_CLOSING;
    pthread_mutex_unlock(&control->lock);
    if (has_come && control->duty == RPI_CONTROL_GATHERS) let_everybody_in(control);
    rpi_control_tell_accounts(control);
    if (closing && control->duty != RPI_CONTROL_LEAVES) say_goodbye(control);
    return !closing || !has_left(control);
}

static int64_t keep_time(rpi_control *control) {
    int64_t now_ns = rpi_now_ns();
    rpi_control_judge_overdue(control);
    rpi_control_watch_hub(control);
    if (now_ns >= control->seek_ns) rpi_control_seek_hub(control);
    int64_t grace_ns = rpi_control_end_grace(control, now_ns);
    if (now_ns >= control->beat_at_ns) beat(control);
    int64_t next_ns = control->beat_at_ns, account_ns = rpi_control_next_account_ns(control);
    if (grace_ns < next_ns) next_ns = grace_ns;
    if (account_ns < next_ns) next_ns = account_ns;
    if (control->seek_ns < next_ns) next_ns = control->seek_ns;
    if (control->welcome_by_ns < next_ns) next_ns = control->welcome_by_ns;
    if (control->leave_by_ns < next_ns) next_ns = control->leave_by_ns;
    return next_ns;
}

static void sleep_until(rpi_control *control, int64_t time_ns) {
    struct pollfd *polls = control->polls;
    int64_t due_ns = control->listener >= 0 ? make_place(control) : RPI_NEVER_NS;
    if (due_ns < time_ns) time_ns = due_ns;
    polls[0] = (struct pollfd){.fd = control->wake, .events = POLLIN};
    bool room = control->listener >= 0 && free_line(control);
    polls[1] = (struct pollfd){.fd = room ? control->listener : -1, .events = POLLIN};
    int count = 2;
    for (int i = 0; i < control->line_count; i++) {
        rpi_control_line *line = &control->lines[i];
        line->poll = line->fd >= 0 ? count : -1;
        if (line->fd < 0)
            continue; /* poll() takes no more entries than open files are allowed */
        short events = line->out_bytes ? POLLIN | POLLOUT : POLLIN;
        polls[count++] = (struct pollfd){.fd = line->fd, .events = events};
    }
    if (poll(polls, (nfds_t)count, rpi_poll_ms(time_ns)) < 0)
        for (int i = 0; i < count; i++) polls[i].revents = 0;
}

void *rpi_control_run(void *context) {
    rpi_control *control = context;
    rpi_fpenv_default();
    while (hear_callers(control)) {
        sleep_until(control, keep_time(control));
        if (control->polls[0].revents) rpi_event_clear(control->wake);
        if (control->polls[1].revents) accept_callers(control);
        bool closing = control->duty == RPI_CONTROL_LEAVES;
        for (int i = 0; i < control->line_count; i++) {
            rpi_control_line *line = &control->lines[i];
            if (line->fd >= 0 && line->poll >= 0 && control->polls[line->poll].revents)
                hear_line(control, line, closing);
        }
    }
    return NULL;
}
