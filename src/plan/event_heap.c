#include "plan/event_heap.h"

#include "base/memory.h"

static bool before(const rpi_event *a, const rpi_event *b) {
    return a->time_s < b->time_s || (a->time_s <= b->time_s && a->number < b->number);
}

rp_status rpi_event_put(rpi_event_heap *heap, rpi_event event) {
    if (heap->count == heap->capacity) {
        size_t capacity = heap->capacity ? 2 * heap->capacity : 16;
        RP_TRY(rpi_grow_array(heap->count, capacity, sizeof *heap->events, "events",
                              &heap->events));
        heap->capacity = capacity;
    }
    event.number = heap->numbers++;
    size_t hole = heap->count++;
    while (hole > 0) {
        size_t parent = (hole - 1) / 2;
        if (!before(&event, &heap->events[parent])) break;
        heap->events[hole] = heap->events[parent];
        hole = parent;
    }
    heap->events[hole] = event;
    return RP_OK;
}

bool rpi_event_take(rpi_event_heap *heap, rpi_event *out_event) {
    if (heap->count == 0) return false;
    *out_event = heap->events[0];
    rpi_event last = heap->events[--heap->count];
    size_t hole = 0;
    for (;;) {
        size_t child = 2 * hole + 1;
        if (child >= heap->count) break;
        if (child + 1 < heap->count && before(&heap->events[child + 1], &heap->events[child]))
            child++;
        if (!before(&heap->events[child], &last)) break;
        heap->events[hole] = heap->events[child];
        hole = child;
    }
    heap->events[hole] = last;
    return true;
}

void rpi_event_heap_free(rpi_event_heap *heap) {
    rpi_free(heap->events);
    *heap = (rpi_event_heap){0};
}
