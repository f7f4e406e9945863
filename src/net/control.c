/* The callers' side of the control connection: opening, closing, asking. */
#include "net/control_state.h"

#include "base/clock.h"
#include "base/memory.h"
#include "net/forget.h"
#include "net/quiet_thread.h"
#include "net/stream.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { STRANGERS = 32, BIG_WORLD = 128 };
#define DEFAULT_BEAT_S 0.5

void rpi_control_set_flag(int fd) {
    uint64_t one = 1;
    ssize_t written = write(fd, &one, sizeof one);
    (void)written; /* an eventfd takes a one, or is readable already */
}

void rpi_control_keep(rpi_control *control, const rpi_failure *failure) {
    control->failure = *failure;
    control->failed = true;
    atomic_store(&control->known, true);
    pthread_cond_broadcast(&control->changed);
    if (control->failed_fd >= 0) rpi_control_set_flag(control->failed_fd);
}

/* Sleep until something under the lock has changed; false once the deadline has come. */
static bool wait_change(rpi_control *control, int64_t deadline_ns) {
    if (deadline_ns == RPI_NEVER_NS)
        return pthread_cond_wait(&control->changed, &control->lock) == 0;
    struct timespec at = {.tv_sec = deadline_ns / RPI_SECOND_NS,
                          .tv_nsec = deadline_ns % RPI_SECOND_NS};
    return pthread_cond_timedwait(&control->changed, &control->lock, &at) == 0;
}

/* ---- opening ---- */

static rp_status allocate(rpi_control *control) {
    control->line_count = control->rank == RPI_CONTROL_HUB ? control->world - 1 + STRANGERS : 1;
    size_t world = (size_t)control->world, lines = (size_t)control->line_count;
    RP_TRY(rpi_alloc_array(lines, sizeof *control->lines, "control lines", &control->lines));
    for (size_t i = 0; i < lines; i++) control->lines[i].fd = control->lines[i].rank = -1;
    RP_TRY(
        rpi_alloc_array(lines + 2, sizeof *control->polls, "control lines", &control->polls));
    RP_TRY(rpi_alloc_array(world, sizeof *control->beats, "beats", &control->beats));
    RP_TRY(rpi_alloc_array(world, sizeof *control->fresh, "beats", &control->fresh));
    RP_TRY(rpi_alloc_array(world, sizeof *control->present, "ranks", &control->present));
    RP_TRY(
        rpi_alloc_array(world, sizeof *control->line_of, "control lines", &control->line_of));
    for (size_t i = 0; i < world; i++) control->line_of[i] = control->beats[i].gap.from = -1;
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
    RP_TRY(
        rpi_quiet_thread("the control connection", rpi_control_run, control, &control->thread));
    control->has_thread = true;
    return RP_OK;
}

/* Under the lock: the ranks that have not come, as "rank 2, 3 did not ...". */
static void describe_missing(const rpi_control *control, double timeout_s,
                             rpi_failure *out_failure) {
    char list[200] = "";
    size_t used = 0;
    *out_failure = (rpi_failure){.status = RP_TIMEOUT, .rank = -1, .finder = RPI_CONTROL_HUB};
    for (int rank = 1; rank < control->world && used < sizeof list; rank++) {
        if (control->present[rank]) continue;
        if (out_failure->rank < 0) out_failure->rank = rank;
        used +=
            (size_t)snprintf(list + used, sizeof list - used, "%s%d", used ? ", " : "", rank);
    }
    snprintf(out_failure->text, sizeof out_failure->text,
             "rank 0 had no control connection of rank %s within %g s", list, timeout_s);
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
    rpi_control_set_flag(control->wake);
    return RP_OK;
}

static rp_status dial_hub(const rpi_control *control, const char *host, int port,
                          int64_t deadline_ns, int *out_fd) {
    rpi_proof_terms terms = {.purpose = RPI_PROOF_CONTROL,
                             .caller = control->rank,
                             .callee = RPI_CONTROL_HUB,
                             .world = control->world,
                             .session = control->session};
    rpi_redials redials = {0};
    rp_status status;
    do {
        status = rpi_stream_dial(host, port, deadline_ns, out_fd);
        if (status == RP_OK && control->secret.is_set)
            status = rpi_proof_give(*out_fd, &control->secret, &terms, deadline_ns);
    } while (status == RP_PEER && rpi_stream_dials_again(&redials, out_fd, deadline_ns));
    return status;
}

/* Until rank 0 says something: RP_PEER when it hangs up instead, as one does that has too many
 * callers. What it says is for the thread. */
static rp_status wait_for_a_word(int fd, int64_t deadline_ns) {
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    char byte;
    int ready;
    do ready = poll(&wait, 1, rpi_poll_ms(deadline_ns));
    while (ready < 0 && errno == EINTR);
    if (ready <= 0) return RP_OK; /* the caller's deadline says so */
    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0
               ? RP_OK
               : RP_FAIL(PEER, "rank 0 ended, or refused this rank's control connection");
}

static rp_status call_hub(rpi_control *control, const char *host, int port,
                          int64_t deadline_ns) {
    rpi_control_line *line = &control->lines[0];
    rpi_control_record hello = {.kind = RPI_CONTROL_HELLO,
                                .rank = control->rank,
                                .number = control->world,
                                .a = control->session};
    rpi_redials redials = {0};
    rp_status status;
    do {
        /* Once it has hung up nobody may listen there any more. */
        int64_t dial_ns = redials.first_ns ? redials.first_ns + RPI_SECOND_NS : deadline_ns;
        status = dial_hub(control, host, port, dial_ns < deadline_ns ? dial_ns : deadline_ns,
                          &line->fd);
        if (status == RP_TIMEOUT && redials.first_ns)
            return RP_FAIL(PEER, "rank 0 ended, or refused this rank's control connection");
        line->rank = RPI_CONTROL_HUB;
        line->out_bytes = 0; /* to one that has hung up */
        if (status == RP_OK) status = rpi_control_line_send(line, &hello);
        if (status == RP_OK) status = wait_for_a_word(line->fd, deadline_ns);
    } while (status == RP_PEER && rpi_stream_dials_again(&redials, &line->fd, deadline_ns));
    return status;
}

static rp_status open_leaf(rpi_control *control, const rp_store *store, const char *key,
                           int64_t deadline_ns) {
    char address[RPI_HOST_BYTES + 16] = "";
    size_t bytes = 0;
    double left_s = rpi_seconds(deadline_ns - rpi_now_ns());
    rp_status status = store->ops->get(store->context, key, left_s > 0 ? left_s : 0, address,
                                       sizeof address - 1, &bytes);
    if (status == RP_TIMEOUT)
        return RP_FAIL(TIMEOUT, "rank 0 did not say within %.3g s where it listens", left_s);
    RP_TRY(status);
    char *host = NULL;
    long port = strtol(address, &host, 10);
    if (*host != ' ' || port < 1 || port > 65535)
        return RP_FAIL(CORRUPT, "store key '%s' holds no address: '%s'", key, address);
    RP_TRY(call_hub(control, host + 1, (int)port, deadline_ns));
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
    rpi_control_set_flag(control->wake);
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
    if (control->rank == RPI_CONTROL_HUB)
        return open_hub(control, store, key, options, deadline_ns);
    rp_status status = open_leaf(control, store, key, deadline_ns);
    return status == RP_OK ? RP_OK : rpi_fail_context(status, "the control connection: ");
}

static int64_t beat_interval_ns(const rpi_control_options *options, int world) {
    if (options->beat_s > 0) return (int64_t)(options->beat_s * 1e9);
    double crowd = world > BIG_WORLD ? (double)world / BIG_WORLD : 1;
    return (int64_t)(DEFAULT_BEAT_S * crowd * 1e9);
}

int64_t rpi_control_silence_ns(double beat_s) {
    return (int64_t)(4 * beat_s * 1e9) + RPI_SECOND_NS / 2;
}

rp_status rpi_control_open(const rp_store *store, int rank, int world,
                           const rpi_control_options *options, rpi_control **out_control) {
    rpi_control *control = NULL;
    RP_TRY(rpi_alloc(sizeof *control, "the control connection", &control));
    control->rank = rank;
    control->world = world;
    control->session = options->session;
    if (options->secret) control->secret = *options->secret;
    control->beat_ns = beat_interval_ns(options, world);
    control->opened_ns = rpi_now_ns();
    control->silence_ns = rpi_control_silence_ns(rpi_seconds(control->beat_ns));
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

void rpi_control_forget(rpi_control *control) {
    for (int i = 0; i < control->line_count; i++) rpi_fd_forget(&control->lines[i].fd);
    rpi_fd_forget(&control->listener);
    rpi_fd_forget(&control->wake);
    rpi_fd_forget(&control->failed_fd);
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
        if (!control->has_thread) rpi_control_keep(control, &control->outbox);
    }
    pthread_mutex_unlock(&control->lock);
    if (control->wake >= 0) rpi_control_set_flag(control->wake);
}

bool rpi_control_failed(rpi_control *control, rpi_failure *out_failure) {
    if (!atomic_load(&control->known)) return false;
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

void rpi_control_note(rpi_control *control, uint64_t sequence) {
    atomic_store_explicit(&control->gap, 0, memory_order_relaxed); /* an earlier operation's */
    atomic_store_explicit(&control->sequence, sequence, memory_order_relaxed);
}

void rpi_control_note_gap(rpi_control *control, rpi_control_gap gap) {
    uint64_t packed = gap.from < 0 ? 0 : gap.step << 24 | (uint64_t)(gap.from + 1);
    atomic_store_explicit(&control->gap, packed, memory_order_relaxed);
}

void rpi_control_beat_of(rpi_control *control, int rank, rpi_control_beat *out_beat) {
    *out_beat = (rpi_control_beat){.gap = {.from = -1}};
    if (rank < 0 || rank >= control->world || !control->beats) return;
    pthread_mutex_lock(&control->lock);
    *out_beat = control->beats[rank];
    pthread_mutex_unlock(&control->lock);
}
