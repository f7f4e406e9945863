/* "Did you mean": the known name nearest to what a user wrote. */
#ifndef RPI_BASE_SUGGEST_H
#define RPI_BASE_SUGGEST_H

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

#endif
