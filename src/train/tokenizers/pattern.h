/* Regular expressions as tokenizer.json holds them (those of Oniguruma in Ruby's syntax), by
 * PCRE2. What the two would read differently is refused, and so is an expression that can match
 * no characters, as \b, at which Oniguruma cuts. */
#ifndef RPI_TRAIN_PATTERN_H
#define RPI_TRAIN_PATTERN_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

/* A compiled expression; threads may share it. */
typedef struct rpi_pattern rpi_pattern;
rp_status rpi_pattern_compile(const char *text, bool literal, rpi_pattern **out_pattern);
void rpi_pattern_free(rpi_pattern *pattern);

/* A thread's room for matching. */
typedef struct rpi_matcher rpi_matcher;
rp_status rpi_matcher_create(rpi_matcher **out_matcher);
void rpi_matcher_free(rpi_matcher *matcher);

/* The first match in text[from .. bytes) that is not empty; false: there is none. The text is
 * valid UTF-8. RP_UNSUPPORTED: the expression asks for more steps than are allowed. */
rp_status rpi_pattern_next(const rpi_pattern *pattern, rpi_matcher *matcher, const char *text,
                           size_t bytes, size_t from, bool *out_found, size_t *out_start,
                           size_t *out_end);

#endif
