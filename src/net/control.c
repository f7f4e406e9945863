#include "net/control.h"

#include "base/clock.h"
#include "base/memory.h"
#include "net/control_line.h"
#include "net/quiet_thread.h"
#include "net/stream.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HUB = 0, STRANGERS = 16, BIG_WORLD = 128 };
#define DEFAULT_BEAT_S 0.5
#define FAREWELL_S     0.5
#define BREATHER_NS    (RPI_SECOND_NS / 50)
/* A hub that is stopped gives no verdict: then a leaf goes by its own account. */
#define HUB_SILENT_S (RPI_CONTROL_VERDICT_S / 2)

struct rpi_control {
    int rank, world;
    uint64_t secret;
    int64_t beat_ns;
    pthread_t thread;
    bool has_thread;
    int wake;      /* eventfd: look at the fields under the lock again */
    int failed_fd; /* eventfd: readable once failed */
    atomic_ullong sequence, bytes;
    atomic_bool known; /* failed, for a look without the lock */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock. */
    int arrived;   /* hub: ranks that have come, */
    bool *present; /* [world] and which */
    bool welcome; /* hub: open() lets them in; leaf: the hub has */
    bool failed, published, outbox_full, closing;
    rpi_failure failure, outbox;
    rpi_control_beat *beats; /* [world] */

    /* The thread's own. */
    int listener;
    rpi_control_line *lines; /* hub: ranks and strangers; leaf: lines[0] to the hub */
    int line_count;
    int *line_of;   /* [world]: hub: a rank's line, -1 before it came */
    bool *fresh;    /* [world]: hub: a beat to pass on */
    bool let_in;    /* hub: WELCOME was sent */
    bool hub_left;  /* leaf: nobody judges any more */
    bool accused;   /* leaf: `mine` waits for a verdict */
    rpi_failure suspect, mine;
    int64_t suspect_ns; /* when the suspect's death becomes the verdict; RPI_NEVER_NS: none */
    int64_t mine_ns;    /* when `mine` does */
    int64_t beat_at_ns, farewell_ns;
    struct pollfd *polls; /* [line_count + 2] */
};

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

static void set_flag(int fd) {
    uint64_t one = 1;
    ssize_t written = write(fd, &one, sizeof one);
    (void)written; /* an eventfd takes a one, or is readable already */
}

static void clear_flag(int fd) {
    uint64_t count;
    ssize_t taken = read(fd, &count, sizeof count);
    (void)taken; /* nothing there is fine */
}

/* Under the lock. */
static void record_failure(rpi_control *control, const rpi_failure *failure) {
    control->failure = *failure;
    control->failed = true;
    atomic_store(&control->known, true);
    pthread_cond_broadcast(&control->changed);
    if (control->failed_fd >= 0) set_flag(control->failed_fd);
}

/* This is the world's first failure: known here, and on the hub told to everybody. */
static void decide(rpi_control *control, const rpi_failure *failure) {
    pthread_mutex_lock(&control->lock);
    bool first = !control->failed;
    if (first) record_failure(control, failure);
    pthread_mutex_unlock(&control->lock);
    control->suspect_ns = control->mine_ns = RPI_NEVER_NS;
    control->accused = false;
    if (!first || control->rank != HUB) return;
    for (int i = 0; i < control->line_count; i++)
        if (control->lines[i].rank >= 0) send_failure(&control->lines[i], failure);
}

static bool is_decided(rpi_control *control) {
    return atomic_load(&control->known);
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
    control->suspect = (rpi_failure){.status = RP_PEER, .rank = rank, .finder = control->rank};
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
    if (control->rank == HUB || control->hub_left || control->suspect_ns != RPI_NEVER_NS) {
        judge(control, failure);
        return;
    }
    if (is_decided(control)) return;
    send_failure(&control->lines[0], failure);
    control->mine = *failure;
    control->accused = true;
    control->mine_ns = rpi_deadline_ns(HUB_SILENT_S);
}

/* ---- records ---- */

static void drop_line(rpi_control *control, rpi_control_line *line) {
    if (control->rank == HUB && line->rank >= 0) control->line_of[line->rank] = -1;
    rpi_control_line_close(line);
    line->rank = -1;
}

static void take_hello(rpi_control *control, rpi_control_line *line,
                       const rpi_control_record *record) {
    bool known = record->kind == RPI_CONTROL_HELLO && record->a == control->secret &&
                 record->number == control->world && record->rank > HUB &&
                 record->rank < control->world && control->line_of[record->rank] < 0;
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
    pthread_mutex_lock(&control->lock);
    control->beats[record->rank] = (rpi_control_beat){
        .heard_ns = rpi_now_ns(), .sequence = record->a, .bytes = record->b};
    pthread_mutex_unlock(&control->lock);
    control->fresh[record->rank] = true;
}

static void take_failure(rpi_control *control, const rpi_control_line *line,
                         const rpi_control_record *record) {
    int64_t status = -(int64_t)record->a;
    rpi_failure failure = {
        .status = status < 0 && status >= RP_INTERNAL ? (rp_status)status : RP_INTERNAL,
        .rank = record->rank >= -1 && record->rank < control->world ? record->rank : -1,
        .finder = control->rank == HUB ? line->rank : record->number};
    snprintf(failure.text, sizeof failure.text, "%s", record->text);
    if (control->rank == HUB)
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
    if (control->rank == HUB) return;
    control->hub_left = true;
    drop_line(control, line);
    if (control->accused) decide(control, &control->mine);
    if (!is_welcome(control)) decide(control, &(rpi_failure){.status = RP_PEER, .rank = HUB,
        .finder = control->rank, .text = "rank 0 gave up before all control connections were open"});
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
        if (control->rank == HUB) record->rank = line->rank;
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
    if (control->rank != HUB) control->hub_left = true;
    if (rank < 0 || expected) return;
    if (control->rank != HUB && !is_welcome(control))
        decide(control, &(rpi_failure){.status = RP_PEER, .rank = HUB, .finder = control->rank,
            .text = "rank 0 ended, or refused this rank's control connection"});
    else
        suspect_death(control, rank);
}

static void hear_line(rpi_control *control, rpi_control_line *line, bool closing) {
    rpi_control_record record;
    rp_status status = RP_OK;
    if (line->out_bytes) status = rpi_control_line_flush(line);
    /* Records that came before the end of a connection are heard before its end. */
    while (line->fd >= 0) {
        status = rpi_control_line_receive(line, &record);
        if (status != RP_OK) break;
        take_record(control, line, &record);
    }
    if (line->fd >= 0 && status < 0) lose_line(control, line, closing);
}

/* ---- beats ---- */

static void send_beats_to(rpi_control *control, rpi_control_line *line) {
    if (line->rank < 0 || line->fd < 0 || line->out_bytes) return; /* a full line waits */
    for (int rank = 0; rank < control->world; rank++) {
        if (!control->fresh[rank] || rank == line->rank) continue;
        if (control->rank != HUB && rank != control->rank) continue; /* heard from the hub */
        rpi_control_beat beat;
        rpi_control_beat_of(control, rank, &beat);
        rpi_control_record record = {.kind = RPI_CONTROL_BEAT,
                                     .rank = rank,
                                     .a = beat.sequence,
                                     .b = beat.bytes};
        (void)rpi_control_line_send(line, &record); /* the end of a line is heard by reading */
    }
}

static void beat(rpi_control *control) {
    rpi_control_record own = {.rank = control->rank,
                              .a = atomic_load(&control->sequence),
                              .b = atomic_load(&control->bytes)};
    take_beat(control, &own);
    for (int i = 0; i < control->line_count; i++) send_beats_to(control, &control->lines[i]);
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

static rpi_control_line *free_line(rpi_control *control) {
    for (int i = 0; i < control->line_count; i++)
        if (control->lines[i].fd < 0) return &control->lines[i];
    return NULL;
}

static void answer_the_door(rpi_control *control) {
    rpi_control_line *line = NULL;
    while ((line = free_line(control)) != NULL) {
        int fd = rpi_stream_accept(control->listener);
        if (fd < 0) {
            /* Out of descriptors the listener stays readable: rest instead of spinning. */
            if (errno == EMFILE || errno == ENFILE)
                rpi_sleep_until_ns(rpi_now_ns() + BREATHER_NS);
            return;
        }
        *line = (rpi_control_line){.fd = fd, .rank = -1};
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

/* All that was said has left, and the other sides have hung up: closing now resets nothing that
 * they have still to read. */
static bool farewell_is_over(rpi_control *control) {
    bool over = true;
    for (int i = 0; i < control->line_count; i++) {
        rpi_control_line *line = &control->lines[i];
        if (line->fd < 0) continue;
        if (!line->out_bytes) shutdown(line->fd, SHUT_WR);
        over = false;
    }
    return over || rpi_now_ns() >= control->farewell_ns;
}

/* What callers want of the thread since it last looked; true while it is to go on. */
static bool hear_callers(rpi_control *control) {
    pthread_mutex_lock(&control->lock);
    bool outbox_full = control->outbox_full, closing = control->closing;
    bool let_in = control->rank == HUB && control->welcome && !control->let_in;
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

static void *run_control(void *context) {
    rpi_control *control = context;
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

/* ---- opening ---- */

static rp_status allocate(rpi_control *control) {
    control->line_count = control->rank == HUB ? control->world - 1 + STRANGERS : 1;
    size_t world = (size_t)control->world, lines = (size_t)control->line_count;
    RP_TRY(rpi_alloc_array(lines, sizeof *control->lines, "control lines", &control->lines));
    for (size_t i = 0; i < lines; i++) control->lines[i].fd = control->lines[i].rank = -1;
    RP_TRY(rpi_alloc_array(lines + 2, sizeof *control->polls, "control lines",
                           &control->polls));
    RP_TRY(rpi_alloc_array(world, sizeof *control->beats, "beats", &control->beats));
    RP_TRY(rpi_alloc_array(world, sizeof *control->fresh, "beats", &control->fresh));
    RP_TRY(rpi_alloc_array(world, sizeof *control->present, "ranks", &control->present));
    RP_TRY(rpi_alloc_array(world, sizeof *control->line_of, "control lines",
                           &control->line_of));
    for (size_t i = 0; i < world; i++) control->line_of[i] = -1;
    control->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    control->failed_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (control->wake < 0 || control->failed_fd < 0)
        return RP_FAIL_ERRNO(IO, "cannot open the control connection");
    return RP_OK;
}

static void initialise_locks(rpi_control *control) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&control->lock, NULL);
    pthread_cond_init(&control->changed, &attributes);
    pthread_condattr_destroy(&attributes);
}

static rp_status start_thread(rpi_control *control) {
    RP_TRY(rpi_quiet_thread("the control connection", run_control, control, &control->thread));
    control->has_thread = true;
    return RP_OK;
}

/* Sleep until something under the lock has changed; false once the deadline has come. */
static bool wait_change(rpi_control *control, int64_t deadline_ns) {
    if (deadline_ns == RPI_NEVER_NS)
        return pthread_cond_wait(&control->changed, &control->lock) == 0;
    struct timespec at = {.tv_sec = deadline_ns / RPI_SECOND_NS,
                          .tv_nsec = deadline_ns % RPI_SECOND_NS};
    return pthread_cond_timedwait(&control->changed, &control->lock, &at) == 0;
}

/* Under the lock: the ranks that have not come, as "rank 2, 3 did not ...". */
static void describe_missing(const rpi_control *control, double timeout_s,
                             rpi_failure *out_failure) {
    char list[200] = "";
    size_t used = 0;
    *out_failure = (rpi_failure){.status = RP_TIMEOUT, .rank = -1, .finder = HUB};
    for (int rank = 1; rank < control->world && used < sizeof list; rank++) {
        if (control->present[rank]) continue;
        if (out_failure->rank < 0) out_failure->rank = rank;
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%d", used ? ", " : "",
                                 rank);
    }
    snprintf(out_failure->text, sizeof out_failure->text,
             "rank %s did not open a control connection within %g s", list, timeout_s);
}

/* Sleep until everybody has come; if not, all who have hear of it. */
static rp_status wait_for_leaves(rpi_control *control, double timeout_s, int64_t deadline_ns) {
    rpi_failure failure = {0};
    pthread_mutex_lock(&control->lock);
    while (control->arrived < control->world - 1 && !control->failed)
        if (!wait_change(control, deadline_ns)) break;
    bool complete = control->arrived == control->world - 1;
    if (control->failed)
        failure = control->failure;
    else if (!complete)
        describe_missing(control, timeout_s, &failure);
    pthread_mutex_unlock(&control->lock);
    if (complete) return RP_OK;
    rpi_control_publish(control, &failure);
    return rpi_fail(failure.status, __FILE__, __LINE__, "%s", failure.text);
}

static rp_status open_hub(rpi_control *control, const rp_store *store, const char *key,
                          const rpi_control_options *options, int64_t deadline_ns) {
    char address[RPI_HOST_BYTES + 16];
    int port = 0;
    RP_TRY(rpi_stream_listen(options->bind_host, 0, &control->listener, &port));
    RP_TRY(start_thread(control));
    snprintf(address, sizeof address, "%d %s", port,
             options->bind_host ? options->bind_host : "127.0.0.1");
    RP_TRY(store->ops->set(store->context, key, address, strlen(address) + 1));
    rp_status status = wait_for_leaves(control, options->timeout_s, deadline_ns);
    /* Gone before anybody returns, so that a later world of this name cannot read it. */
    rp_status removed = store->ops->remove(store->context, key);
    if (status != RP_OK) return status;
    RP_TRY(removed);
    pthread_mutex_lock(&control->lock);
    control->welcome = true;
    pthread_mutex_unlock(&control->lock);
    set_flag(control->wake);
    return RP_OK;
}

static rp_status open_leaf(rpi_control *control, const rp_store *store, const char *key,
                           int64_t deadline_ns) {
    char address[RPI_HOST_BYTES + 16] = "";
    size_t bytes = 0;
    double left_s = rpi_seconds(deadline_ns - rpi_now_ns());
    RP_TRY(store->ops->get(store->context, key, left_s > 0 ? left_s : 0, address,
                           sizeof address - 1, &bytes));
    char *host = NULL;
    long port = strtol(address, &host, 10);
    if (*host != ' ' || port < 1 || port > 65535)
        return RP_FAIL(CORRUPT, "store key '%s' holds no address: '%s'", key, address);
    rpi_control_line *line = &control->lines[0];
    RP_TRY(rpi_stream_dial(host + 1, (int)port, deadline_ns, &line->fd));
    line->rank = HUB;
    rpi_control_record hello = {.kind = RPI_CONTROL_HELLO,
                                .rank = control->rank,
                                .number = control->world,
                                .a = control->secret};
    RP_TRY(rpi_control_line_send(line, &hello));
    RP_TRY(start_thread(control));
    pthread_mutex_lock(&control->lock);
    while (!control->welcome && !control->failed)
        if (!wait_change(control, deadline_ns)) break;
    bool welcome = control->welcome, failed = control->failed;
    rpi_failure failure = control->failure;
    pthread_mutex_unlock(&control->lock);
    if (welcome) return RP_OK;
    if (failed) return rpi_fail(failure.status, __FILE__, __LINE__, "%s", failure.text);
    return RP_FAIL(TIMEOUT, "rank 0 did not answer this rank's control connection in time");
}

static void stop_thread(rpi_control *control) {
    if (!control->has_thread) return;
    pthread_mutex_lock(&control->lock);
    control->closing = true;
    pthread_mutex_unlock(&control->lock);
    set_flag(control->wake);
    pthread_join(control->thread, NULL);
    control->has_thread = false;
}

static void destroy(rpi_control *control) {
    stop_thread(control);
    for (int i = 0; control->lines && i < control->line_count; i++)
        rpi_control_line_close(&control->lines[i]);
    if (control->listener >= 0) close(control->listener);
    if (control->wake >= 0) close(control->wake);
    if (control->failed_fd >= 0) close(control->failed_fd);
    pthread_cond_destroy(&control->changed);
    pthread_mutex_destroy(&control->lock);
    rpi_free(control->lines);
    rpi_free(control->polls);
    rpi_free(control->beats);
    rpi_free(control->fresh);
    rpi_free(control->present);
    rpi_free(control->line_of);
    rpi_free(control);
}

static rp_status open_control(rpi_control *control, const rp_store *store,
                              const rpi_control_options *options) {
    int64_t deadline_ns = rpi_deadline_ns(options->timeout_s);
    char key[RPI_HOST_BYTES];
    int length = snprintf(key, sizeof key, "%s/control", options->prefix);
    if (length < 0 || (size_t)length >= sizeof key)
        return RP_FAIL(INVALID, "the name '%.40s...' is too long", options->prefix);
    RP_TRY(allocate(control));
    if (control->rank == HUB) return open_hub(control, store, key, options, deadline_ns);
    rp_status status = open_leaf(control, store, key, deadline_ns);
    return status == RP_OK ? RP_OK : rpi_fail_context(status, "the control connection: ");
}

static int64_t beat_interval_ns(const rpi_control_options *options, int world) {
    if (options->beat_s > 0) return (int64_t)(options->beat_s * 1e9);
    double crowd = world > BIG_WORLD ? (double)world / BIG_WORLD : 1;
    return (int64_t)(DEFAULT_BEAT_S * crowd * 1e9);
}

rp_status rpi_control_open(const rp_store *store, int rank, int world,
                           const rpi_control_options *options, rpi_control **out_control) {
    rpi_control *control = NULL;
    RP_TRY(rpi_alloc(sizeof *control, "the control connection", &control));
    control->rank = rank;
    control->world = world;
    control->secret = options->secret;
    control->beat_ns = beat_interval_ns(options, world);
    control->wake = control->failed_fd = control->listener = -1;
    control->suspect_ns = control->mine_ns = control->farewell_ns = RPI_NEVER_NS;
    initialise_locks(control);
    rp_status status = world > 1 ? open_control(control, store, options) : RP_OK;
    if (status != RP_OK) {
        destroy(control);
        return status;
    }
    *out_control = control;
    return RP_OK;
}

void rpi_control_close(rpi_control *control) {
    if (control) destroy(control);
}

/* ---- for any thread ---- */

void rpi_control_publish(rpi_control *control, const rpi_failure *failure) {
    pthread_mutex_lock(&control->lock);
    if (!control->failed && !control->published) {
        control->published = true;
        control->outbox = *failure;
        control->outbox.finder = control->rank;
        control->outbox.text[sizeof control->outbox.text - 1] = '\0';
        control->outbox_full = true;
        if (!control->has_thread) record_failure(control, &control->outbox);
    }
    pthread_mutex_unlock(&control->lock);
    if (control->wake >= 0) set_flag(control->wake);
}

bool rpi_control_failed(rpi_control *control, rpi_failure *out_failure) {
    if (!is_decided(control)) return false;
    pthread_mutex_lock(&control->lock);
    *out_failure = control->failure;
    pthread_mutex_unlock(&control->lock);
    return true;
}

bool rpi_control_wait_failed(rpi_control *control, int64_t deadline_ns,
                             rpi_failure *out_failure) {
    pthread_mutex_lock(&control->lock);
    while (!control->failed && wait_change(control, deadline_ns)) {
    }
    bool failed = control->failed;
    if (failed) *out_failure = control->failure;
    pthread_mutex_unlock(&control->lock);
    return failed;
}

int rpi_control_fd(rpi_control *control) {
    return control->failed_fd;
}

void rpi_control_note(rpi_control *control, uint64_t sequence, uint64_t bytes) {
    atomic_store_explicit(&control->sequence, sequence, memory_order_relaxed);
    atomic_store_explicit(&control->bytes, bytes, memory_order_relaxed);
}

void rpi_control_beat_of(rpi_control *control, int rank, rpi_control_beat *out_beat) {
    *out_beat = (rpi_control_beat){0};
    if (rank < 0 || rank >= control->world || !control->beats) return;
    pthread_mutex_lock(&control->lock);
    *out_beat = control->beats[rank];
    pthread_mutex_unlock(&control->lock);
}
