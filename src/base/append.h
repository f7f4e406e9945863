/* Texts that are put together piece by piece. */
#ifndef RPI_BASE_APPEND_H
#define RPI_BASE_APPEND_H

#include "redpoll/status.h"

#include <stddef.h>

/* Put more behind a text that has room for `bytes` in all; what does not fit is cut off. */
void rpi_append(char *text, size_t bytes, const char *format, ...) RP_PRINTF(3, 4);

#endif
