/* Writing to the log. */
#ifndef RPI_BASE_LOG_H
#define RPI_BASE_LOG_H

#include "redpoll/log.h"

#include <stdbool.h>

bool rpi_log_wants(rp_log_level level);
/* To standard error, as without a sink: for sinks that do something besides. */
void rpi_log_print(rp_log_level level, const char *line);
/* Remove this sink, if it is the current one. No thread is running it after the call. */
void rpi_log_reset_sink(rp_log_sink sink, const void *context);
void rpi_log(rp_log_level level, const char *format, ...) RP_PRINTF(2, 3);

#endif
