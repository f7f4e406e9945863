/* Writing to the log. */
#ifndef RPI_BASE_LOG_H
#define RPI_BASE_LOG_H

#include "redpoll/log.h"

#include <stdbool.h>

bool rpi_log_wants(rp_log_level level);
/* To standard error, as without a sink: for sinks that do something besides. */
void rpi_log_print(rp_log_level level, const char *line);
void rpi_log(rp_log_level level, const char *format, ...) RP_PRINTF(2, 3);

#endif
