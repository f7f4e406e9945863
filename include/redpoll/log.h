/** The log: one line a message, to standard error unless a sink is set. */
#ifndef REDPOLL_LOG_H
#define REDPOLL_LOG_H

#include "redpoll/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rp_log_level {
    RP_LOG_ERROR,
    RP_LOG_WARNING,
    RP_LOG_INFO,
    RP_LOG_DEBUG
} rp_log_level;

/** A message with its end is at most so long. */
#define RP_LOG_LINE 1200

/** Receives each message: one line without its newline, borrowed for the call. May be called
 *  from any thread, one call at a time. Must not call the log. */
typedef void (*rp_log_sink)(void *context, rp_log_level level, const char *line);

/** Replace the sink; NULL restores standard error. The only global state of the library. */
RP_API void rp_log_set_sink(rp_log_sink sink, void *context);

/** Drop messages less urgent than `level`. The default is RP_LOG_WARNING, or what
 *  REDPOLL_LOG=error|warning|info|debug says. */
RP_API void rp_log_set_level(rp_log_level level);

#ifdef __cplusplus
}
#endif
#endif
