/* Events in the order of their times; those of one time in the order they were put in, so that
 * a simulation gives the same answer every time. */
#ifndef RPI_PLAN_EVENT_HEAP_H
#define RPI_PLAN_EVENT_HEAP_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct rpi_event {
    double time_s;
    uint64_t number; /* set by rpi_event_put */
    int what, step, chunk;
} rpi_event;

typedef struct rpi_event_heap { /* zeros: empty */
    rpi_event *events;
    size_t count, capacity;
    uint64_t numbers;
} rpi_event_heap;

rp_status rpi_event_put(rpi_event_heap *heap, rpi_event event);
bool rpi_event_take(rpi_event_heap *heap, rpi_event *out_event); /* false: none left */
void rpi_event_heap_free(rpi_event_heap *heap);

#endif
