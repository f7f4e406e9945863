/* Memory that will be packed next: rows of so many bytes. It is asked for bit by bit while the
 * present columns are multiplied, so that packing finds it in cache. */
#ifndef RPI_ENGINE_SIMD_OUTLOOK_H
#define RPI_ENGINE_SIMD_OUTLOOK_H

#include <stdint.h>

typedef struct outlook {
    const char *row;
    int64_t stride, bytes, rows, at; /* `rows` are left; the next line is at row + at */
    int64_t lines;                   /* to ask for at each call */
} outlook;

enum { OUTLOOK_LINE = 64 };

static inline __attribute__((always_inline)) void look_ahead(outlook *it) {
    for (int64_t i = 0; i < it->lines && it->rows > 0; i++) {
        __builtin_prefetch(it->row + it->at);
        it->at += OUTLOOK_LINE;
        if (it->at < it->bytes) continue;
        it->at = 0;
        it->row += it->stride;
        it->rows--;
    }
}

/* Spreads the lines over so many calls. */
static inline __attribute__((always_inline)) void spread_outlook(outlook *it, int64_t calls) {
    const int64_t lines = it->rows * ((it->bytes + OUTLOOK_LINE - 1) / OUTLOOK_LINE);
    it->lines = (lines + calls - 1) / calls;
}

#endif
