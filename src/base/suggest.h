/* "Did you mean": the known name nearest to what a user wrote. */
#ifndef RPI_BASE_SUGGEST_H
#define RPI_BASE_SUGGEST_H

#include "redpoll/status.h"

#include <stddef.h>

/* The i-th known name, NULL past the end; `context` is the caller's. */
typedef const char *(*rpi_name_at)(const void *context, int index);

/* The name with the smallest edit distance (Damerau-Levenshtein, optimal string alignment), or
 * NULL when none is near: more than a third of the letters would have to change. Static names
 * stay the caller's. */
const char *rpi_suggest(const char *word, rpi_name_at name_at, const void *context);

/* "; did you mean 'ring'?" or "" into text, for the end of a message; returns text. */
const char *rpi_suggest_text(const char *word, rpi_name_at name_at, const void *context,
                             char *text, size_t bytes);

/* Find a name in a catalogue. RP_INVALID lists all that there are, and the nearest: "unknown
 * strategy 'singel'; there are all-reduce, single; did you mean 'single'?" */
rp_status rpi_name_find(const char *what, const char *name, rpi_name_at name_at,
                        const void *context, int *out_index);

#endif
