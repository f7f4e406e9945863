/* The callers' side of the control connection: opening and closing. */
#include "base/c_locale.h"
#include "net/control/control_state.h"

#include "base/clock.h"
#include "base/event.h"
#include "base/memory.h"
#include "base/units.h"
#include "net/bytes/close_after_fork.h"
#include "net/bytes/signal_masked_thread.h"
#include "net/socket/stream.h"
#include "net/store/store_wait.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { STRANGERS = 32 };
#define DEFAULT_BEAT_S 0.5
#define LOST_AFTER_S   30.0

/* ---- opening ---- */

static rp_status allocate(rpi_control *control) {
    bool listens = control->rank == RPI_CONTROL_COORDINATOR ||
                   rpi_control_is_successor(control->rank, control->world);
    control->connection_count = listens ? 1 + control->world + STRANGERS : 1;
    size_t world = (size_t)control->world, connections = (size_t)control->connection_count;
    RP_TRY(rpi_alloc_array(connections, sizeof *control->connections, "control lines",
                           &control->connections));
    for (size_t i = 0; i < connections; i++)
        control->connections[i].fd = control->connections[i].rank =
            control->connections[i].poll = -1;
    RP_TRY(rpi_alloc_array(connections + 2, sizeof *control->polls, "control lines",
                           &control->polls));
    RP_TRY(rpi_alloc_array(world, sizeof *control->heard_ns, "beats", &control->heard_ns));
    RP_TRY(
        rpi_alloc_array(world, sizeof *control->beat_counts, "beats", &control->beat_counts));
    RP_TRY(rpi_alloc_array(world, sizeof *control->fresh, "beats", &control->fresh));
    RP_TRY(rpi_alloc_array(world, sizeof *control->runs, "beats", &control->runs));
    RP_TRY(rpi_alloc_array(world, sizeof *control->dead, "ranks", &control->dead));
    RP_TRY(rpi_alloc_array(world, sizeof *control->lost, "ranks", &control->lost));
    RP_TRY(rpi_alloc_array(world, sizeof *control->suspect_ns, "ranks", &control->suspect_ns));
    RP_TRY(rpi_control_make_beats(&control->everybody));
    RP_TRY(rpi_alloc_array(world, sizeof *control->present, "ranks", &control->present));
    RP_TRY(rpi_alloc_array(world, sizeof *control->connection_of, "control lines",
                           &control->connection_of));
    for (size_t i = 0; i < world; i++) {
        control->connection_of[i] = -1;
        control->suspect_ns[i] = RPI_NEVER_NS;
    }
    RP_TRY(rpi_event_open(&control->wake));
    return rpi_event_open(&control->failed_fd);
}

static void initialise_locks(rpi_control *control) {
    pthread_mutex_init(&control->lock, NULL);
    rpi_condition_init(&control->changed);
}

static rp_status start_thread(rpi_control *control) {
    RP_TRY(rpi_signal_masked_thread("the control connection", rpi_control_run, control,
                                    &control->thread));
    control->has_thread = true;
    return RP_OK;
}

/* Under the lock: the ranks that have not connected, as "rank 2, 3 did not ...". */
static void describe_missing(const rpi_control *control, double timeout_s,
                             rpi_failure *out_failure) {
    char list[200] = "";
    size_t used = 0;
    *out_failure =
        (rpi_failure){.status = RP_TIMEOUT, .rank = -1, .finder = RPI_CONTROL_COORDINATOR};
    for (int rank = 1; rank < control->world && used < sizeof list; rank++) {
        if (control->present[rank]) continue;
        if (out_failure->rank < 0) out_failure->rank = rank;
        used +=
            (size_t)snprintf(list + used, sizeof list - used, "%s%d", used ? ", " : "", rank);
    }
    rpi_print(out_failure->text, sizeof out_failure->text,
              "timed out: rank 0 had no control connection of rank %s within %g s%s%s", list,
              timeout_s, control->lack[0] ? ": " : "", control->lack);
}

/* Under the lock, which is released during the check. *out_failure: the reason for which the
 * wait ends. */
static bool may_wait(rpi_control *control, rpi_look *look, rpi_failure *out_failure) {
    pthread_mutex_unlock(&control->lock);
    rp_status status = rpi_look_in_time(look);
    if (status != RP_OK) {
        *out_failure =
            (rpi_failure){.status = status, .rank = -1, .finder = RPI_CONTROL_COORDINATOR};
        snprintf(out_failure->text, sizeof out_failure->text, "%s", rp_last_error()->message);
    }
    pthread_mutex_lock(&control->lock);
    return status == RP_OK;
}

/* Sleep until all ranks have connected; if some do not, all that have are told. */
static rp_status wait_for_leaves(rpi_control *control, const rpi_control_options *options,
                                 int64_t deadline_ns) {
    rpi_failure failure = {0};
    rpi_look look = options->look;
    const rpi_control_group *everybody = &control->everybody;
    bool goes_on = true;
    pthread_mutex_lock(&control->lock);
    while (control->arrived < control->world - 1 && !everybody->failed && goes_on) {
        bool changed = rpi_control_wait_change(control, rpi_look_wake_ns(&look, deadline_ns));
        goes_on = rpi_now_ns() < deadline_ns && (changed || may_wait(control, &look, &failure));
    }
    bool complete = control->arrived == control->world - 1;
    if (everybody->failed)
        failure = everybody->failure;
    else if (!complete && failure.status == RP_OK)
        describe_missing(control, options->timeout_s, &failure);
    pthread_mutex_unlock(&control->lock);
    if (complete) return RP_OK;
    rpi_control_publish(&control->everybody, &failure);
    return rpi_fail(failure.status, __FILE__, __LINE__, "%s", failure.text);
}

static rp_status open_coordinator(rpi_control *control, const rp_store *store, const char *key,
                                  const rpi_control_options *options, int64_t deadline_ns) {
    char address[RPI_HOST_BYTES + 16];
    int port = 0;
    RP_TRY(rpi_stream_listen(options->bind_host, 0, &control->listener, &port));
    RP_TRY(start_thread(control));
    snprintf(address, sizeof address, "%d %s", port,
             options->bind_host ? options->bind_host : "127.0.0.1");
    RP_TRY(store->ops->set(store->context, key, address, strlen(address) + 1));
    rp_status status = wait_for_leaves(control, options, deadline_ns);
    /* Removed before any rank returns, so that a later world of this name cannot read it. */
    rp_status removed = store->ops->remove(store->context, key);
    if (status != RP_OK) return status;
    RP_TRY(removed);
    pthread_mutex_lock(&control->lock);
    rpi_control_enter_phase(control, RPI_CONTROL_OPEN);
    pthread_mutex_unlock(&control->lock);
    rpi_event_set(control->wake);
    return RP_OK;
}

static rp_status dial_coordinator(const rpi_control *control, const char *host, int port,
                                  int64_t deadline_ns, rpi_look *look, rpi_channel *channel) {
    rpi_proof_terms terms = {.purpose = RPI_PROOF_CONTROL,
                             .caller = control->rank,
                             .callee = RPI_CONTROL_COORDINATOR,
                             .world = control->world,
                             .session = control->session};
    rpi_redials redials = {0};
    rp_status status;
    do {
        rpi_channel_close(channel);
        status = rpi_stream_dial_looking(host, port, deadline_ns, look, &channel->fd);
        if (status == RP_OK)
            status = rpi_channel_call(channel, &control->secret, &terms, deadline_ns);
    } while (status == RP_PEER && rpi_stream_dials_again(&redials, &channel->fd, deadline_ns));
    return status;
}

/* Wait until rank 0 sends something: RP_PEER if it closes the connection instead, as it does if
 * it has too many callers. The thread reads what it sends. */
static rp_status wait_for_a_word(const rpi_channel *channel, int64_t deadline_ns) {
    struct pollfd wait = {.fd = channel->fd, .events = POLLIN};
    char byte;
    int ready;
    do ready = poll(&wait, 1, rpi_poll_ms(deadline_ns));
    while (ready < 0 && errno == EINTR);
    if (ready <= 0) return RP_OK; /* the caller's deadline says so */
    return recv(channel->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0
               ? RP_OK
               : RP_FAIL(PEER, "connection closed by peer: rank 0 ended, or refused this "
                               "rank's control connection");
}

static rp_status call_coordinator(rpi_control *control, const char *host, int port,
                                  int64_t deadline_ns, rpi_look *look) {
    rpi_control_connection *connection = &control->connections[0];
    rpi_control_record hello = {.kind = RPI_CONTROL_HELLO,
                                .rank = control->rank,
                                .number = control->world,
                                .a = control->session};
    if (rpi_control_is_successor(control->rank, control->world)) {
        snprintf(hello.text, sizeof hello.text, "%s", control->addresses[control->rank]);
        hello.text_bytes = (uint16_t)strlen(hello.text);
    }
    rpi_redials redials = {0};
    rp_status status;
    do {
        /* After it has closed the connection nobody may listen there any more. */
        int64_t dial_ns = redials.first_ns ? redials.first_ns + RPI_SECOND_NS : deadline_ns;
        status =
            dial_coordinator(control, host, port, dial_ns < deadline_ns ? dial_ns : deadline_ns,
                             look, &connection->channel);
        if (status == RP_TIMEOUT && redials.first_ns)
            return RP_FAIL(PEER, "connection closed by peer: rank 0 ended, or refused this "
                                 "rank's control connection");
        connection->rank = RPI_CONTROL_COORDINATOR;
        connection->out_bytes = 0; /* to one that has hung up */
        if (status == RP_OK) status = rpi_control_connection_send(connection, &hello);
        if (status == RP_OK) status = wait_for_a_word(&connection->channel, deadline_ns);
    } while (status == RP_PEER &&
             rpi_stream_dials_again(&redials, &connection->fd, deadline_ns));
    return status;
}

static rp_status open_leaf(rpi_control *control, const rp_store *store, const char *key,
                           const rpi_control_options *options, int64_t deadline_ns) {
    char address[RPI_HOST_BYTES + 16] = "";
    size_t bytes = 0;
    rpi_look look = options->look;
    rpi_control_listen(control, options->bind_host);
    rp_status status =
        rpi_store_wait(store, key, deadline_ns, &look, address, sizeof address - 1, &bytes);
    if (status == RP_TIMEOUT)
        return RP_FAIL(TIMEOUT, "timed out: rank 0 did not say within %.3g s where it listens",
                       options->timeout_s);
    RP_TRY(status);
    char *host = NULL;
    long port = strtol(address, &host, 10);
    if (*host != ' ' || port < 1 || port > 65535)
        return RP_FAIL(CORRUPT, "store key '%s' holds no address: '%s'", key, address);
    RP_TRY(call_coordinator(control, host + 1, (int)port, deadline_ns, &look));
    RP_TRY(start_thread(control));
    pthread_mutex_lock(&control->lock);
    const rpi_control_group *everybody = &control->everybody;
    while (!rpi_control_was_open(control) && !everybody->failed)
        if (!rpi_control_wait_change(control, deadline_ns)) break;
    bool welcome = rpi_control_was_open(control), failed = everybody->failed;
    rpi_failure failure = everybody->failure;
    pthread_mutex_unlock(&control->lock);
    if (welcome) return RP_OK;
    if (failed) return rpi_fail(failure.status, __FILE__, __LINE__, "%s", failure.text);
    return RP_FAIL(TIMEOUT,
                   "timed out: rank 0 did not answer this rank's control connection in time");
}

static void stop_thread(rpi_control *control) {
    if (!control->has_thread) return;
    pthread_mutex_lock(&control->lock);
    rpi_control_enter_phase(control, rpi_control_was_open(control) ? RPI_CONTROL_CLOSING
                                                                   : RPI_CONTROL_GIVEN_UP);
    pthread_mutex_unlock(&control->lock);
    rpi_event_set(control->wake);
    pthread_join(control->thread, NULL);
    control->has_thread = false;
}

static void destroy(rpi_control *control) {
    stop_thread(control);
    for (int i = 0; control->connections && i < control->connection_count; i++)
        rpi_control_connection_close(&control->connections[i]);
    if (control->listener >= 0) close(control->listener);
    if (control->wake >= 0) close(control->wake);
    if (control->failed_fd >= 0) close(control->failed_fd);
    pthread_cond_destroy(&control->changed);
    pthread_mutex_destroy(&control->lock);
    rpi_free(control->connections);
    rpi_free(control->polls);
    rpi_free(control->everybody.beats);
    rpi_free(control->heard_ns);
    rpi_free(control->beat_counts);
    rpi_free(control->dead);
    rpi_free(control->lost);
    rpi_free(control->suspect_ns);
    rpi_free(control->deferred);
    rpi_scopes_free(control);
    rpi_free(control->closed);
    rpi_free(control->fresh);
    rpi_free(control->runs);
    rpi_free(control->present);
    rpi_free(control->connection_of);
    rpi_secret_wipe(&control->secret);
    rpi_free(control);
}

/* Rank 0 has closed the connection. Its end may be a consequence of another rank's, which the
 * check can find by now. */
static rp_status find_first_end(rp_status status, const rpi_look *look) {
    rpi_kept_error hung_up;
    if (status != RP_PEER || !look->ask) return status;
    rpi_error_keep(&hung_up);
    if (look->ask(look->context) == RP_PEER) return RP_PEER;
    rpi_error_put_back(&hung_up);
    return status;
}

static rp_status open_control(rpi_control *control, const rp_store *store,
                              const rpi_control_options *options) {
    int64_t deadline_ns = rpi_deadline_ns(options->timeout_s);
    char key[RPI_HOST_BYTES];
    int length = snprintf(key, sizeof key, "%s/control", options->prefix);
    if (length < 0 || (size_t)length >= sizeof key)
        return RP_FAIL(INVALID, "the name '%.40s...' is too long", options->prefix);
    RP_TRY(allocate(control));
    if (control->rank == RPI_CONTROL_COORDINATOR)
        return open_coordinator(control, store, key, options, deadline_ns);
    rp_status status =
        find_first_end(open_leaf(control, store, key, options, deadline_ns), &options->look);
    return status == RP_OK ? RP_OK : rpi_fail_context(status, "the control connection: ");
}

static int64_t beat_interval_ns(const rpi_control_options *options) {
    return (int64_t)((options->beat_s > 0 ? options->beat_s : DEFAULT_BEAT_S) * 1e9);
}

int64_t rpi_control_silence_ns(double beat_s) {
    return (int64_t)(4 * beat_s * 1e9) + RPI_SECOND_NS / 2;
}

rp_status rpi_control_lost_after(double *out_s) {
    const char *text = getenv("REDPOLL_LOST_AFTER");
    double seconds = LOST_AFTER_S;
    if (text && *text) {
        rp_status status = rpi_parse_seconds(text, &seconds);
        if (status == RP_OK && !(seconds >= 1 && seconds <= 1e9))
            status = RP_FAIL(INVALID, "'%s' is out of range; 1s to 1e9s are allowed", text);
        if (status != RP_OK) return rpi_fail_context(status, "REDPOLL_LOST_AFTER: ");
    }
    *out_s = seconds;
    return RP_OK;
}

static rp_status find_lost_after(int64_t *out_ns) {
    double seconds = 0;
    RP_TRY(rpi_control_lost_after(&seconds));
    *out_ns = (int64_t)(seconds * 1e9);
    return RP_OK;
}

rp_status rpi_control_open(const rp_store *store, int rank, int world,
                           const rpi_control_options *options, rpi_control **out_control) {
    rpi_control *control = NULL;
    RP_TRY(rpi_alloc(sizeof *control, "the control connection", &control));
    control->rank = rank;
    control->world = world;
    control->session = options->session;
    control->describe = options->describe;
    if (options->secret) control->secret = *options->secret;
    control->beat_ns = beat_interval_ns(options);
    control->opened_ns = rpi_now_ns();
    control->silence_ns = rpi_control_silence_ns(rpi_seconds(control->beat_ns));
    control->wake = control->failed_fd = control->listener = -1;
    control->leave_by_ns = control->elect_ns = control->welcome_by_ns = RPI_NEVER_NS;
    control->coordinator = RPI_CONTROL_COORDINATOR;
    control->role = rank == RPI_CONTROL_COORDINATOR ? RPI_CONTROL_LEADS : RPI_CONTROL_FOLLOWS;
    control->duty = rank == RPI_CONTROL_COORDINATOR ? RPI_CONTROL_GATHERS : RPI_CONTROL_SERVES;
    control->served_by = RPI_CONTROL_COORDINATOR;
    control->served_ns = control->served_heard_ns = control->opened_ns;
    control->lost_coordinator = -1;
    control->everybody = (rpi_control_group){.control = control,
                                             .count = world,
                                             .name = "world",
                                             .parent = RPI_NO_SCOPE,
                                             .report_ns = RPI_NEVER_NS};
    control->groups = &control->everybody;
    initialise_locks(control);
    rp_status status = find_lost_after(&control->lost_ns);
    if (status == RP_OK && world > 1) status = open_control(control, store, options);
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

void rpi_control_close_after_fork(rpi_control *control) {
    for (int i = 0; i < control->connection_count; i++)
        rpi_fd_close_after_fork(&control->connections[i].fd);
    rpi_fd_close_after_fork(&control->listener);
    rpi_fd_close_after_fork(&control->wake);
    rpi_fd_close_after_fork(&control->failed_fd);
}
