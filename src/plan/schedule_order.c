/* The order rule of plan.h as a graph. One walk over the steps, remembering for each place what
 * wrote it last and who has read it since: a reader waits for the writer, a writer for the
 * readers (or, without any, for the writer). Each step enters a place's list of readers once
 * for each slot that it reads, so the edges are O(steps). */
#include "base/memory.h"
#include "plan/schedule.h"

#include <string.h>

/* Places: caller's memory (IN and OUT) of each part, SUM of each part, RTR, encoded slots. */
typedef struct place {
    int writer;  /* step + 1; 0: none yet */
    int readers; /* list head: index into links + 1 */
} place;

typedef struct link {
    int step, next;
} link;

typedef struct edge {
    int from, to;
} edge;

typedef struct walk {
    const rpi_schedule *schedule;
    place *places;
    link *links;          /* readers: at most one a step */
    int *sent, *received; /* [world]: the last SEND to, RECV from a peer, + 1 */
    edge *edges;
    int link_count, edge_count;
    int fence; /* the last FENCE, + 1 */
} walk;

static int place_of(const rpi_schedule *schedule, int slot, int part) {
    switch (slot) {
    case RPI_SLOT_IN:
    case RPI_SLOT_OUT: return part;
    case RPI_SLOT_SUM: return schedule->parts + part;
    case RPI_SLOT_RTR: return 2 * schedule->parts;
    default: return 2 * schedule->parts + 1 + slot - RPI_SLOT_ENCODED;
    }
}

static void add_edge(walk *w, int from_plus_one, int to) {
    if (from_plus_one && from_plus_one - 1 != to)
        w->edges[w->edge_count++] = (edge){from_plus_one - 1, to};
}

static void note_read(walk *w, place *where, int step) {
    add_edge(w, where->writer, step);
    w->links[w->link_count] = (link){step, where->readers};
    where->readers = ++w->link_count;
}

static void note_write(walk *w, place *where, int step) {
    if (!where->readers) add_edge(w, where->writer, step);
    for (int i = where->readers; i; i = w->links[i - 1].next)
        add_edge(w, w->links[i - 1].step + 1, step);
    *where = (place){.writer = step + 1};
}

static void note_fence(walk *w, int step) {
    int first = w->fence ? w->fence - 1 : 0;
    for (int i = first; i < step; i++) add_edge(w, i + 1, step);
    w->fence = step + 1;
}

static void visit(walk *w, int i) {
    const rpi_schedule *schedule = w->schedule;
    const rpi_step *step = &schedule->steps[i];
    if (step->kind == RPI_STEP_FENCE) {
        note_fence(w, i);
        return;
    }
    add_edge(w, w->fence, i);
    if (step->kind != RPI_STEP_RECV)
        note_read(w, &w->places[place_of(schedule, step->from, step->part)], i);
    if (step->kind != RPI_STEP_SEND)
        note_write(w, &w->places[place_of(schedule, step->into, step->part)], i);
    if (step->peer < 0) return;
    int *last = step->kind == RPI_STEP_SEND ? &w->sent[step->peer] : &w->received[step->peer];
    add_edge(w, *last, i);
    *last = i + 1;
}

/* Each step: an edge from the fence, one from the last writer it reads, one from the link; each
 * read is waited for at most once; the step's own write; each step precedes one fence. */
static size_t most_edges(const rpi_schedule *schedule) {
    return 6 * (size_t)schedule->count;
}

static rp_status walk_open(walk *w, const rpi_schedule *schedule) {
    size_t count = (size_t)schedule->count, world = (size_t)schedule->world;
    size_t places = 2 * (size_t)schedule->parts + 1 + (size_t)schedule->encoded_slots;
    *w = (walk){.schedule = schedule};
    RP_TRY(rpi_alloc_array(places, sizeof *w->places, "places of a schedule", &w->places));
    RP_TRY(rpi_alloc_array(count, sizeof *w->links, "readers of a schedule", &w->links));
    RP_TRY(rpi_alloc_array(world, sizeof *w->sent, "links of a schedule", &w->sent));
    RP_TRY(rpi_alloc_array(world, sizeof *w->received, "links of a schedule", &w->received));
    return rpi_alloc_array(most_edges(schedule), sizeof *w->edges, "edges of a schedule",
                           &w->edges);
}

static void walk_close(walk *w) {
    rpi_free(w->places);
    rpi_free(w->links);
    rpi_free(w->sent);
    rpi_free(w->received);
    rpi_free(w->edges);
}

/* Edges to compressed rows, by counting. */
static rp_status store(const walk *w, rpi_schedule *schedule) {
    size_t count = (size_t)schedule->count;
    RP_TRY(rpi_alloc_array(count, sizeof(int), "order of a schedule", &schedule->waits));
    RP_TRY(
        rpi_alloc_array(count + 1, sizeof(int), "order of a schedule", &schedule->next_first));
    RP_TRY(rpi_alloc_array((size_t)w->edge_count, sizeof(int), "order of a schedule",
                           &schedule->next));
    int *first = schedule->next_first;
    for (int i = 0; i < w->edge_count; i++) {
        first[w->edges[i].from + 1]++;
        schedule->waits[w->edges[i].to]++;
    }
    for (size_t i = 0; i < count; i++) first[i + 1] += first[i];
    /* Filling moves each row's start to its end; shifting by one moves it back. */
    for (int i = 0; i < w->edge_count; i++)
        schedule->next[first[w->edges[i].from]++] = w->edges[i].to;
    memmove(first + 1, first, count * sizeof *first);
    first[0] = 0;
    return RP_OK;
}

rp_status rpi_schedule_order(rpi_schedule *schedule) {
    walk w;
    rpi_free(schedule->waits);
    rpi_free(schedule->next_first);
    rpi_free(schedule->next);
    schedule->waits = schedule->next_first = schedule->next = NULL;
    rp_status status = walk_open(&w, schedule);
    for (int i = 0; i < schedule->count && status == RP_OK; i++) visit(&w, i);
    if (status == RP_OK) status = store(&w, schedule);
    walk_close(&w);
    return status;
}
