/* Where a JSON value ends, found as its bytes come, without a look at what it holds: whether it
 * is right is for a parser to say. */
#ifndef RPI_TRAIN_JSON_SCAN_H
#define RPI_TRAIN_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>

/* As JSON has it: no vertical tab, no form feed. */
static inline bool rpi_json_is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Zeros: before a value. */
typedef struct rpi_json_scan {
    long depth;
    bool in_text, is_escaped, is_bare; /* bare: a number, true, ... */
} rpi_json_scan;

/* How many of `count` bytes belong to the value that begins, or goes on, at `at`; *out_ended:
 * it ends there (a bare one ends before the mark that follows it). A text ends with its line.
 */
size_t rpi_json_scan_value(rpi_json_scan *scan, const char *at, size_t count, bool *out_ended);

#endif
