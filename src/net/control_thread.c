/* The thread of the control connection: hears lines, beats, and on rank 0 judges. */
#include "net/control_state.h"

#include "base/clock.h"
#include "base/fpenv.h"
#include "net/stream.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FAREWELL_S   3.0 /* a machine that is busy may be slow to hang up */
#define BREATHER_NS  (RPI_SECOND_NS / 50)
/* A hub that is stopped gives no verdict: then a leaf goes by its own account. */
#define HUB_SILENT_S (RPI_CONTROL_VERDICT_S / 2)

/* ---- the verdict ---- */

static void send_failure(rpi_control_line *line, const rpi_failure *failure) {
    rpi_control_record record = {.kind = RPI_CONTROL_FAILURE,
                                 .rank = failure->rank,
                                 .number = failure->finder,
                                 .a = (uint64_t) - (int64_t)failure->status};
    snprintf(record.text, sizeof record.text, "%s", failure->text);
    record.text_bytes = (uint16_t)strlen(record.text);
    (void)rpi_control_line_send(line, &record); /* who cannot hear is gone or going */
}

static void clear_flag(int fd) {
    uint64_t count;
    ssize_t taken = read(fd, &count, sizeof count);
    (void)taken; /* nothing there is fine */
}

/* This is the world's first failure: known here, and on the hub told to everybody. */
static bool is_decided(rpi_control *control) {
    return atomic_load(&control->known);
}

/* The hub tells the others before it lets its own callers know: they may end the process. */
static void decide(rpi_control *control, const rpi_failure *failure) {
    control->suspect_ns = control->mine_ns = RPI_NEVER_NS;
    control->accused = false;
    if (is_decided(control)) return;
    for (int i = 0; control->rank == RPI_CONTROL_HUB && i < control->line_count; i++)
        if (control->lines[i].rank >= 0) send_failure(&control->lines[i], failure);
    pthread_mutex_lock(&control->lock);
    rpi_control_keep(control, failure);
    pthread_mutex_unlock(&control->lock);
}

/* A published failure before the judge. While a death is in its moment of grace only an account
 * of that same death is heard: anything else is its consequence. */
static void judge(rpi_control *control, const rpi_failure *failure) {
    if (is_decided(control)) return;
    if (control->suspect_ns != RPI_NEVER_NS && failure->rank != control->suspect.rank) return;
    decide(control, failure);
}

static void suspect_death(rpi_control *control, int rank) {
    if (is_decided(control) || control->suspect_ns != RPI_NEVER_NS) return;
    rpi_control_beat beat;
    rpi_control_beat_of(control, rank, &beat);
    control->suspect = (rpi_failure){.status = RP_PEER, .rank = rank, .finder = -1};
    char *text = control->suspect.text;
    size_t bytes = sizeof control->suspect.text;
    if (beat.sequence)
        snprintf(text, bytes, "rank %d is gone (its process ended) in operation %llu", rank,
                 (unsigned long long)beat.sequence);
    else
        snprintf(text, bytes, "rank %d is gone (its process ended)", rank);
    control->suspect_ns = rpi_deadline_ns(RPI_CONTROL_GRACE_S);
    if (control->accused) judge(control, &control->mine);
}

/* Our own account of a failure: the hub judges it, a leaf sends it there. */
static void accuse(rpi_control *control, const rpi_failure *failure) {
    if (control->rank == RPI_CONTROL_HUB || control->hub_left ||
        control->suspect_ns != RPI_NEVER_NS) {
        judge(control, failure);
        return;
    }
    if (is_decided(control)) return;
    send_failure(&control->lines[0], failure);
    control->mine = *failure;
    control->accused = true;
    control->mine_ns = rpi_deadline_ns(HUB_SILENT_S);
}

/* ---- callers ---- */

/* True once a caller has proved that it is of this job; it is hung up on when it cannot. */
static bool hear_proof(rpi_control *control, rpi_control_line *line) {
    rpi_proof_terms terms = {.purpose = RPI_PROOF_CONTROL,
                             .callee = RPI_CONTROL_HUB,
                             .world = control->world,
                             .session = control->session};
    if (line->rank >= 0 || line->proved || !control->secret.is_set) return true;
    rp_status status = rpi_proof_hear(&line->proof, line->fd, &control->secret, &terms);
    line->proved = status == RP_OK;
    if (status == RP_MISMATCH)
        rpi_proof_log_refusal(line->fd, "the control connection", &control->refusals);
    if (status < 0) rpi_control_line_close(line);
    return line->proved;
}

/* What a caller said in its proof holds for its first record, too. */
static bool is_as_proved(const rpi_control *control, const rpi_control_line *line,
                         const rpi_control_record *record) {
    const rpi_proof_terms *claim = &line->proof.claim;
    return !control->secret.is_set ||
           (claim->caller == record->rank && claim->callee == RPI_CONTROL_HUB &&
            claim->session == record->a && claim->world == record->number);
}

/* ---- records ---- */

static void drop_line(rpi_control *control, rpi_control_line *line) {
    if (control->rank == RPI_CONTROL_HUB && line->rank >= 0) control->line_of[line->rank] = -1;
    rpi_control_line_close(line);
    line->rank = -1;
}

static void take_hello(rpi_control *control, rpi_control_line *line,
                       const rpi_control_record *record) {
    bool known = record->kind == RPI_CONTROL_HELLO && record->a == control->session &&
                 record->number == control->world && record->rank > RPI_CONTROL_HUB &&
                 record->rank < control->world && control->line_of[record->rank] < 0 &&
                 is_as_proved(control, line, record);
    if (!known) { /* a stranger, or a rank that came twice */
        drop_line(control, line);
        return;
    }
    line->rank = record->rank;
    control->line_of[record->rank] = (int)(line - control->lines);
    pthread_mutex_lock(&control->lock);
    control->present[record->rank] = true;
    control->arrived++;
    pthread_cond_broadcast(&control->changed);
    pthread_mutex_unlock(&control->lock);
}

static void take_beat(rpi_control *control, const rpi_control_record *record) {
    if (record->rank < 0 || record->rank >= control->world) return;
    bool in_world = record->number > 0 && record->number <= control->world;
    rpi_control_gap gap = {.from = in_world ? record->number - 1 : -1, .step = record->b};
    pthread_mutex_lock(&control->lock);
    control->beats[record->rank] =
        (rpi_control_beat){.heard_ns = rpi_now_ns(), .sequence = record->a, .gap = gap};
    pthread_mutex_unlock(&control->lock);
    control->fresh[record->rank] = true;
}

static void take_failure(rpi_control *control, const rpi_control_line *line,
                         const rpi_control_record *record) {
    bool is_status = record->a >= 1 && record->a <= (uint64_t) - (int64_t)RP_INTERNAL;
    rpi_failure failure = {
        .status = is_status ? (rp_status) - (int64_t)record->a : RP_INTERNAL,
        .rank = record->rank >= -1 && record->rank < control->world ? record->rank : -1,
        .finder = control->rank == RPI_CONTROL_HUB ? line->rank : record->number};
    snprintf(failure.text, sizeof failure.text, "%s", record->text);
    if (control->rank == RPI_CONTROL_HUB)
        judge(control, &failure);
    else
        decide(control, &failure);
}

static bool is_welcome(rpi_control *control) {
    pthread_mutex_lock(&control->lock);
    bool welcome = control->welcome;
    pthread_mutex_unlock(&control->lock);
    return welcome;
}

static void take_welcome(rpi_control *control) {
    pthread_mutex_lock(&control->lock);
    control->welcome = true;
    pthread_cond_broadcast(&control->changed);
    pthread_mutex_unlock(&control->lock);
}

/* A leaf that says goodbye hangs up itself; when the hub does, the leaf hangs up for it. */
static void take_goodbye(rpi_control *control, rpi_control_line *line) {
    line->goodbye = true;
    if (control->rank == RPI_CONTROL_HUB) return;
    control->hub_left = true;
    drop_line(control, line);
    if (control->accused) decide(control, &control->mine);
    if (!is_welcome(control))
        decide(control, &(rpi_failure){
                            .status = RP_PEER,
                            .rank = RPI_CONTROL_HUB,
                            .finder = control->rank,
                            .text = "rank 0 gave up before all control connections were open"});
}

static void take_record(rpi_control *control, rpi_control_line *line,
                        rpi_control_record *record) {
    if (line->rank < 0) {
        take_hello(control, line, record);
        return;
    }
    switch ((rpi_control_kind)record->kind) {
    case RPI_CONTROL_HELLO: break; /* once was enough */
    case RPI_CONTROL_WELCOME: take_welcome(control); break;
    case RPI_CONTROL_BEAT:
        if (control->rank == RPI_CONTROL_HUB) record->rank = line->rank;
        take_beat(control, record);
        break;
    case RPI_CONTROL_FAILURE: take_failure(control, line, record); break;
    case RPI_CONTROL_GOODBYE: take_goodbye(control, line); break;
    }
}

/* The connection ended: a death, unless a goodbye came before. */
static void lose_line(rpi_control *control, rpi_control_line *line, bool closing) {
    int rank = line->rank;
    bool expected = line->goodbye || closing;
    drop_line(control, line);
    if (control->rank != RPI_CONTROL_HUB) control->hub_left = true;
    if (rank < 0 || expected) return;
    if (control->rank != RPI_CONTROL_HUB && !is_welcome(control))
        decide(control, &(rpi_failure){
                            .status = RP_PEER,
                            .rank = RPI_CONTROL_HUB,
                            .finder = control->rank,
                            .text = "rank 0 ended, or refused this rank's control connection"});
    else
        suspect_death(control, rank);
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
        take_record(control, line, &record);
    }
    if (line->fd < 0 || status >= 0) return;
    if (status == RP_CORRUPT && line->rank < 0 && rpi_proof_is_call(line->in))
        rpi_proof_decline(line->fd, RPI_PROOF_CONTROL); /* here is no secret */
    lose_line(control, line, closing);
}

/* ---- beats ---- */

static void send_beats_to(rpi_control *control, rpi_control_line *line) {
    if (line->rank < 0 || line->fd < 0 || line->out_bytes) return; /* a full line waits */
    for (int rank = 0; rank < control->world; rank++) {
        if (!control->fresh[rank] || rank == line->rank) continue;
        if (control->rank != RPI_CONTROL_HUB && rank != control->rank)
            continue; /* heard from the hub */
        rpi_control_beat beat;
        rpi_control_beat_of(control, rank, &beat);
        rpi_control_record record = {.kind = RPI_CONTROL_BEAT,
                                     .rank = rank,
                                     .number = beat.gap.from + 1,
                                     .a = beat.sequence,
                                     .b = beat.gap.step};
        (void)rpi_control_line_send(line, &record); /* the end of a line is heard by reading */
    }
}

static void beat(rpi_control *control) {
    uint64_t gap = atomic_load(&control->gap);
    rpi_control_record own = {.rank = control->rank,
                              .number = (int32_t)(gap & 0xffffff),
                              .a = atomic_load(&control->sequence),
                              .b = gap >> 24};
    take_beat(control, &own);
    bool closing = control->farewell_ns != RPI_NEVER_NS; /* our side of the lines is shut */
    for (int i = 0; i < control->line_count && !closing; i++)
        send_beats_to(control, &control->lines[i]);
    memset(control->fresh, 0, (size_t)control->world * sizeof *control->fresh);
    control->beat_at_ns = rpi_now_ns() + control->beat_ns;
}

/* ---- the thread ---- */

static void let_everybody_in(rpi_control *control) {
    rpi_control_record record = {.kind = RPI_CONTROL_WELCOME};
    for (int i = 0; i < control->line_count; i++) {
        rpi_control_line *line = &control->lines[i];
        if (line->rank >= 0)
            (void)rpi_control_line_send(line, &record);
        else
            rpi_control_line_close(line); /* a stranger who never said a word */
    }
    close(control->listener);
    control->listener = -1;
    control->let_in = true;
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

static rpi_control_line *free_line(rpi_control *control) {
    for (int i = 0; i < control->line_count; i++)
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

static void answer_the_door(rpi_control *control) {
    rpi_control_line *line = NULL;
    while ((line = free_line(control)) != NULL) {
        int fd = rpi_stream_accept(control->listener);
        if (fd < 0) {
            /* Out of descriptors, or dead, the listener stays readable: rest, do not spin. */
            if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
                rpi_sleep_until_ns(rpi_now_ns() + BREATHER_NS);
            return;
        }
        *line = (rpi_control_line){.fd = fd, .rank = -1, .since_ns = rpi_now_ns()};
    }
}

static void say_goodbye(rpi_control *control) {
    rpi_control_record record = {.kind = RPI_CONTROL_GOODBYE, .rank = control->rank};
    if (control->suspect_ns != RPI_NEVER_NS) decide(control, &control->suspect);
    for (int i = 0; i < control->line_count; i++) {
        rpi_control_line *line = &control->lines[i];
        if (line->fd < 0) continue;
        (void)rpi_control_line_send(line, &record);
        if (line->rank < 0) rpi_control_line_close(line);
    }
    control->farewell_ns = rpi_deadline_ns(FAREWELL_S);
}

/* No heartbeat comes from it: it will not hang up either. */
static bool is_silent(rpi_control *control, int rank) {
    rpi_control_beat beat;
    rpi_control_beat_of(control, rank, &beat);
    int64_t since_ns = beat.heard_ns ? beat.heard_ns : control->opened_ns;
    return rpi_now_ns() - since_ns > control->silence_ns;
}

/* All that was said has left, and the other sides have hung up: closing now resets nothing that
 * they have still to read. */
static bool farewell_is_over(rpi_control *control) {
    bool over = true;
    for (int i = 0; i < control->line_count; i++) {
        rpi_control_line *line = &control->lines[i];
        if (line->fd < 0) continue;
        if (!line->out_bytes) shutdown(line->fd, SHUT_WR);
        if (!is_silent(control, line->rank)) over = false;
    }
    return over || rpi_now_ns() >= control->farewell_ns;
}

/* What callers want of the thread since it last looked; true while it is to go on. */
static bool hear_callers(rpi_control *control) {
    pthread_mutex_lock(&control->lock);
    bool outbox_full = control->outbox_full, closing = control->closing;
    bool let_in = control->rank == RPI_CONTROL_HUB && control->welcome && !control->let_in;
    rpi_failure outbox = control->outbox;
    control->outbox_full = false;
    pthread_mutex_unlock(&control->lock);
    if (let_in) let_everybody_in(control);
    if (outbox_full) accuse(control, &outbox);
    if (closing && control->farewell_ns == RPI_NEVER_NS) say_goodbye(control);
    return !closing || !farewell_is_over(control);
}

static int64_t keep_time(rpi_control *control) {
    int64_t now_ns = rpi_now_ns();
    if (now_ns >= control->suspect_ns) decide(control, &control->suspect);
    if (now_ns >= control->mine_ns) decide(control, &control->mine);
    if (now_ns >= control->beat_at_ns) beat(control);
    int64_t next_ns = control->beat_at_ns;
    if (control->suspect_ns < next_ns) next_ns = control->suspect_ns;
    if (control->mine_ns < next_ns) next_ns = control->mine_ns;
    if (control->farewell_ns < next_ns) next_ns = control->farewell_ns;
    return next_ns;
}

static void sleep_until(rpi_control *control, int64_t time_ns) {
    struct pollfd *polls = control->polls;
    int64_t due_ns = control->listener >= 0 ? make_place(control) : RPI_NEVER_NS;
    if (due_ns < time_ns) time_ns = due_ns;
    polls[0] = (struct pollfd){.fd = control->wake, .events = POLLIN};
    bool room = control->listener >= 0 && free_line(control);
    polls[1] = (struct pollfd){.fd = room ? control->listener : -1, .events = POLLIN};
    for (int i = 0; i < control->line_count; i++) {
        short events = control->lines[i].out_bytes ? POLLIN | POLLOUT : POLLIN;
        polls[2 + i] = (struct pollfd){.fd = control->lines[i].fd, .events = events};
    }
    if (poll(polls, (nfds_t)control->line_count + 2, rpi_poll_ms(time_ns)) < 0)
        for (int i = 0; i < control->line_count + 2; i++) polls[i].revents = 0;
}

void *rpi_control_run(void *context) {
    rpi_control *control = context;
    rpi_fpenv_default();
    while (hear_callers(control)) {
        sleep_until(control, keep_time(control));
        if (control->polls[0].revents) clear_flag(control->wake);
        if (control->polls[1].revents) answer_the_door(control);
        bool closing = control->farewell_ns != RPI_NEVER_NS;
        for (int i = 0; i < control->line_count; i++)
            if (control->polls[2 + i].revents && control->lines[i].fd >= 0)
                hear_line(control, &control->lines[i], closing);
    }
    return NULL;
}
