/* A queue of completed requests.
 *
 * The thread that completes a request puts its token, under the communicator's lock. Nothing
 * may fail there, so room for a token is allocated when it is requested. */
#include "comm/core/completions.h"

#include "base/clock.h"
#include "base/fpenv.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

enum { KEPT_LINES = 32 };

typedef struct log_line {
    rp_log_level level;
    char text[RP_LOG_LINE];
} log_line;

/* Messages that have not been taken yet; the oldest is lines[first]. */
typedef struct log_lines {
    log_line lines[KEPT_LINES];
    size_t first, count, lost;
    pid_t process; /* in a child of fork() nobody takes them */
} log_lines;

struct rp_completions {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t *tokens; /* a ring of `room`, a power of two */
    size_t first, count, room;
    size_t promised; /* tokens that requests will put */
    bool woken, waited_for;
    log_lines *log; /* NULL: the log is not kept here */
};

rp_status rp_completions_create(rp_completions **out_completions) {
    rp_completions *queue = NULL;
    if (!out_completions)
        return RP_FAIL(INVALID, "there is nowhere to put the queue of completions");
    RP_TRY(rpi_alloc(sizeof *queue, "a queue of completions", &queue));
    pthread_mutex_init(&queue->lock, NULL);
    rpi_condition_init(&queue->changed);
    *out_completions = queue;
    return RP_OK;
}

static void keep_line(void *context, rp_log_level level, const char *line);

void rp_completions_destroy(rp_completions *queue) {
    if (!queue) return;
    rpi_log_reset_sink(keep_line, queue);
    pthread_mutex_lock(&queue->lock);
    queue->woken = true;
    pthread_cond_broadcast(&queue->changed);
    while (queue->waited_for) pthread_cond_wait(&queue->changed, &queue->lock);
    pthread_mutex_unlock(&queue->lock);
    pthread_cond_destroy(&queue->changed);
    pthread_mutex_destroy(&queue->lock);
    rpi_free(queue->log);
    rpi_free(queue->tokens);
    rpi_free(queue);
}

static size_t slot(const rp_completions *queue, size_t i) {
    return (queue->first + i) & (queue->room - 1);
}

/* Under the lock: a longer ring, its tokens from the beginning on. */
static rp_status grow(rp_completions *queue) {
    size_t room = queue->room ? 2 * queue->room : 64;
    uint64_t *tokens = NULL;
    RP_TRY(rpi_alloc_array(room, sizeof *tokens, "completions", &tokens));
    for (size_t i = 0; i < queue->count; i++) tokens[i] = queue->tokens[slot(queue, i)];
    rpi_free(queue->tokens);
    queue->tokens = tokens;
    queue->room = room;
    queue->first = 0;
    return RP_OK;
}

rp_status rpi_completions_promise(rp_completions *queue) {
    rp_status status = RP_OK;
    pthread_mutex_lock(&queue->lock);
    if (queue->count + queue->promised == queue->room) status = grow(queue);
    if (status == RP_OK) queue->promised++;
    pthread_mutex_unlock(&queue->lock);
    return status;
}

void rpi_completions_put(rp_completions *queue, uint64_t token) {
    pthread_mutex_lock(&queue->lock);
    queue->tokens[slot(queue, queue->count++)] = token;
    queue->promised--;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
}

static bool has_lines(const rp_completions *queue) {
    return queue->log && queue->log->count;
}

/* Under the lock. */
static void sleep_for_tokens(rp_completions *queue, int64_t deadline_ns) {
    struct timespec at = {.tv_sec = deadline_ns / RPI_SECOND_NS,
                          .tv_nsec = deadline_ns % RPI_SECOND_NS};
    while (!queue->count && !queue->woken && !has_lines(queue) && rpi_now_ns() < deadline_ns) {
        if (deadline_ns == RPI_NEVER_NS)
            pthread_cond_wait(&queue->changed, &queue->lock);
        else
            pthread_cond_timedwait(&queue->changed, &queue->lock, &at);
    }
}

rp_status rp_completions_wait(rp_completions *queue, double timeout_s, uint64_t *tokens,
                              size_t capacity, size_t *out_count) {
    RPI_FPENV_SCOPE;
    if (!queue) return RP_FAIL(INVALID, "completions is NULL");
    if (!out_count) return RP_FAIL(INVALID, "there is nowhere to put the number of tokens");
    if (capacity && !tokens)
        return RP_FAIL(INVALID, "tokens is NULL, with a capacity of %zu", capacity);
    if (timeout_s != timeout_s) return RP_FAIL(INVALID, "timeout_s is not a number");
    int64_t deadline_ns = rpi_deadline_ns(timeout_s);
    pthread_mutex_lock(&queue->lock);
    queue->waited_for = true;
    sleep_for_tokens(queue, deadline_ns);
    size_t count = queue->count < capacity ? queue->count : capacity;
    for (size_t i = 0; i < count; i++) tokens[i] = queue->tokens[slot(queue, i)];
    if (count) queue->first = slot(queue, count);
    queue->count -= count;
    queue->woken = queue->waited_for = false;
    pthread_cond_broadcast(&queue->changed); /* a destroyer may wait for us */
    pthread_mutex_unlock(&queue->lock);
    *out_count = count;
    return RP_OK;
}

void rp_completions_wake(rp_completions *queue) {
    if (!queue) {
        (void)RP_FAIL(INVALID, "completions is NULL");
        return;
    }
    pthread_mutex_lock(&queue->lock);
    queue->woken = true;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
}

/* ---- the log ---- */

static void keep_line(void *context, rp_log_level level, const char *line) {
    rp_completions *queue = context;
    log_lines *log = queue->log; /* waiting since before this was the sink */
    if (getpid() != log->process) {
        rpi_log_print(level, line);
        return;
    }
    pthread_mutex_lock(&queue->lock);
    if (log->count < KEPT_LINES) {
        log_line *last = &log->lines[(log->first + log->count++) % KEPT_LINES];
        last->level = level;
        snprintf(last->text, sizeof last->text, "%s", line);
    } else {
        log->lost++;
    }
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
}

rp_status rp_completions_keep_log(rp_completions *queue) {
    if (!queue) return RP_FAIL(INVALID, "completions is NULL");
    log_lines *log = NULL;
    RP_TRY(rpi_alloc(sizeof *log, "lines of the log", &log));
    log->process = getpid();
    pthread_mutex_lock(&queue->lock);
    bool is_new = !queue->log;
    if (is_new) queue->log = log;
    pthread_mutex_unlock(&queue->lock);
    if (!is_new) rpi_free(log);
    rp_log_set_sink(keep_line, queue);
    return RP_OK;
}

/* Under the lock, with none kept any more: the number that was not kept. */
static rp_status tell_lost(log_lines *log, rp_log_level *level, char *line, size_t bytes) {
    if (!log->lost) return RP_PENDING;
    *level = RP_LOG_WARNING;
    snprintf(line, bytes, "%zu more lines of the log were not kept", log->lost);
    log->lost = 0;
    return RP_OK;
}

static rp_status take_line(log_lines *log, rp_log_level *level, char *line, size_t bytes) {
    if (!log) return RP_PENDING;
    if (!log->count) return tell_lost(log, level, line, bytes);
    const log_line *oldest = &log->lines[log->first];
    *level = oldest->level;
    snprintf(line, bytes, "%s", oldest->text);
    log->first = (log->first + 1) % KEPT_LINES;
    log->count--;
    return RP_OK;
}

rp_status rp_completions_take_line(rp_completions *queue, rp_log_level *out_level, char *line,
                                   size_t bytes) {
    if (!queue) return RP_FAIL(INVALID, "completions is NULL");
    if (!out_level) return RP_FAIL(INVALID, "there is nowhere to put the level");
    if (!line || !bytes) return RP_FAIL(INVALID, "there is nowhere to put the line");
    pthread_mutex_lock(&queue->lock);
    rp_status status = take_line(queue->log, out_level, line, bytes);
    pthread_mutex_unlock(&queue->lock);
    return status;
}
