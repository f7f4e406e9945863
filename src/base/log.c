#include "base/log.h"

#include "base/c_locale.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static rp_log_sink current_sink;
static void *current_context;
static atomic_int current_level = -1; /* -1: REDPOLL_LOG has not been read yet */

static const char *const level_names[] = {"error", "warning", "info", "debug"};

static int level_from_environment(void) {
    const char *name = getenv("REDPOLL_LOG");
    for (int level = 0; name && level < 4; level++)
        if (strcmp(name, level_names[level]) == 0) return level;
    return RP_LOG_WARNING;
}

void rp_log_set_sink(rp_log_sink sink, void *context) {
    pthread_mutex_lock(&lock);
    current_sink = sink;
    current_context = context;
    pthread_mutex_unlock(&lock);
}

void rpi_log_reset_sink(rp_log_sink sink, const void *context) {
    pthread_mutex_lock(&lock);
    if (current_sink == sink && current_context == context) current_sink = NULL;
    pthread_mutex_unlock(&lock);
}

void rp_log_set_level(rp_log_level level) {
    atomic_store(&current_level, (int)level);
}

bool rpi_log_wants(rp_log_level level) {
    int limit = atomic_load(&current_level);
    if (limit < 0) {
        limit = level_from_environment();
        atomic_store(&current_level, limit);
    }
    return (int)level <= limit;
}

void rpi_log_print(rp_log_level level, const char *line) {
    fprintf(stderr, "redpoll: %s%s%s\n", level <= RP_LOG_WARNING ? level_names[level] : "",
            level <= RP_LOG_WARNING ? ": " : "", line);
}

void rpi_log(rp_log_level level, const char *format, ...) {
    if (!rpi_log_wants(level)) return;
    char line[RP_LOG_LINE];
    va_list arguments;
    va_start(arguments, format);
    rpi_vprint(line, sizeof line, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&lock);
    if (current_sink)
        current_sink(current_context, level, line);
    else
        rpi_log_print(level, line);
    pthread_mutex_unlock(&lock);
}
