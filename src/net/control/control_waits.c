/* Waits that will never end, though everybody lives: rank 0 waits in one group for rank 1,
 * which waits in another for rank 0. Each of them sees of the other no more than that it has
 * not come. The coordinator hears all, and follows who waits for whom:
 *
 *      a wait, of a rank in a group, for a rank
 *        | that one has an operation in the same group ---> that wait
 *        | its process is blocked (control.h) ------------> all its waits: one must go on
 *        | it computes, or does what nobody knows --------> live: it may come
 *        | it is stopped, or gone ------------------------> dead
 *
 * What leads to no live rank is dead, too. Where a wait has lasted for the whole timeout of its
 * group, is dead, and leads through more than one group, the groups on its way are failed, all
 * with one sentence; within one group ranks decide for themselves. Beats are said at different
 * times: the waits of a way count only when there was a moment at which all of them held. */
#include "net/control/control_state.h"

#include "base/append.h"
#include "base/clock.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE_HOPS = 4 };
enum { NONE = -1 };

typedef struct rank_wait {
    int rank;
    uint64_t scope;
    const rpi_scope *of; /* NULL: of all ranks */
    rpi_group_beat beat;
    int next;   /* of the same rank; NONE: the last */
    int passed; /* number of the path that reached it last */
    bool is_live;
} rank_wait;

typedef struct wait_graph {
    rpi_control *control;
    rank_wait *waits; /* by group and rank */
    int count, room;
    int *first_of; /* [world] of a rank's waits; NONE: it has none */
    bool *alive;   /* [world] */
    bool *blocked; /* [world] */
    int *way;      /* [way_count] one that was followed */
    int way_count;
    bool way_ends; /* the path ends at a rank that is stopped or dead; else it returns to its
                    * beginning */
} wait_graph;

/* ---- gathering ---- */

static bool is_wait(const rpi_group_beat *beat) {
    return beat->sequence || beat->gap.from >= 0;
}

static rp_status add_wait(wait_graph *g, int rank, uint64_t scope, const rpi_scope *of,
                          const rpi_group_beat *beat) {
    if (g->count == g->room) {
        int room = 2 * g->room + 16;
        RP_TRY(rpi_grow_array((size_t)g->room, (size_t)room, sizeof *g->waits, "waits",
                              &g->waits));
        g->room = room;
    }
    g->waits[g->count++] = (rank_wait){
        .rank = rank, .scope = scope, .of = of, .beat = *beat, .next = NONE, .passed = NONE};
    return RP_OK;
}

/* Under the lock. */
static rp_status gather_scope(wait_graph *g, const rpi_scope *scope) {
    const rpi_control *control = g->control;
    for (int i = 0; i < scope->count; i++) {
        const rpi_scope_member *member = &scope->members[i];
        bool is_said = member->beat.beat_number >= control->beat_counts[member->rank];
        if (is_said && is_wait(&member->beat))
            RP_TRY(add_wait(g, member->rank, scope->scope, scope, &member->beat));
    }
    return RP_OK;
}

static rp_status gather(wait_graph *g) {
    rpi_control *control = g->control;
    rp_status status = RP_OK;
    int64_t now_ns = rpi_now_ns();
    pthread_mutex_lock(&control->lock);
    const rpi_control_group *everybody = &control->everybody;
    for (int rank = 0; rank < control->world && status == RP_OK; rank++) {
        const rpi_group_beat *beat = &everybody->beats[rank];
        g->first_of[rank] = NONE;
        g->blocked[rank] = beat->blocked;
        g->alive[rank] = now_ns - control->heard_ns[rank] <= control->silence_ns;
        if (!everybody->failed && is_wait(beat)) status = add_wait(g, rank, 0, NULL, beat);
    }
    for (const rpi_scope *scope = control->scopes; scope && status == RP_OK;
         scope = scope->next)
        if (!scope->failed) status = gather_scope(g, scope);
    pthread_mutex_unlock(&control->lock);
    return status;
}

static int compare(const rank_wait *wait, uint64_t scope, int rank) {
    if (wait->scope != scope) return wait->scope < scope ? -1 : 1;
    return wait->rank < rank ? -1 : wait->rank > rank;
}

static int by_scope_and_rank(const void *a, const void *b) {
    const rank_wait *y = b;
    return compare(a, y->scope, y->rank);
}

static void link_waits(wait_graph *g) {
    qsort(g->waits, (size_t)g->count, sizeof *g->waits, by_scope_and_rank);
    for (int i = g->count - 1; i >= 0; i--) {
        int *first = &g->first_of[g->waits[i].rank];
        g->waits[i].next = *first;
        *first = i;
    }
}

static int find_wait(const wait_graph *g, uint64_t scope, int rank) {
    int low = 0, high = g->count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (compare(&g->waits[middle], scope, rank) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < g->count && !compare(&g->waits[low], scope, rank) ? low : NONE;
}

/* ---- which may go on ---- */

/* Some thread of it does something else, or may soon. */
static bool may_come(const wait_graph *g, int rank) {
    bool waits = false;
    if (!g->alive[rank]) return false;
    if (!g->blocked[rank]) return true;
    for (int i = g->first_of[rank]; i != NONE; i = g->waits[i].next) {
        if (!g->waits[i].beat.sequence) continue;
        if (g->waits[i].is_live) return true;
        waits = true;
    }
    return !waits; /* it reported that it waits, but not where: unknown */
}

static bool may_go_on(const wait_graph *g, const rank_wait *wait) {
    int from = wait->beat.gap.from;
    if (from < 0) return true; /* it does not say for whom */
    if (!g->alive[from]) return false;
    int same = find_wait(g, wait->scope, from);
    return same == NONE ? may_come(g, from) : g->waits[same].is_live;
}

static void find_live(wait_graph *g) {
    for (bool found = true; found;) {
        found = false;
        for (int i = 0; i < g->count; i++) {
            if (g->waits[i].is_live || !may_go_on(g, &g->waits[i])) continue;
            g->waits[i].is_live = true;
            found = true;
        }
    }
}

/* ---- the way of one that may not ---- */

/* The wait for which this one waits; NONE: the path ends at a rank that is stopped or dead. */
static int next_on_way(const wait_graph *g, int at) {
    int from = g->waits[at].beat.gap.from;
    if (!g->alive[from]) return NONE;
    int same = find_wait(g, g->waits[at].scope, from);
    if (same != NONE) return same;
    int next = g->first_of[from];
    while (next != NONE && !g->waits[next].beat.sequence) next = g->waits[next].next;
    return next;
}

/* From a wait that cannot end, follow the path until it returns to its beginning or ends. */
static void follow(wait_graph *g, int first) {
    int at = first;
    g->way_count = 0;
    for (; at != NONE && g->waits[at].passed != first; at = next_on_way(g, at)) {
        g->waits[at].passed = first;
        g->way[g->way_count++] = at;
    }
    g->way_ends = at == NONE;
}

/* Whether all waits of the path held at one moment, and are of several groups. */
static bool is_crossed(const wait_graph *g) {
    int64_t since_ns = 0, until_ns = RPI_NEVER_NS;
    bool several = false;
    for (int i = 0; i < g->way_count; i++) {
        const rank_wait *wait = &g->waits[g->way[i]];
        int64_t heard_ns = g->control->heard_ns[wait->rank];
        several |= wait->scope != g->waits[g->way[0]].scope;
        if (wait->beat.since_ns > since_ns) since_ns = wait->beat.since_ns;
        if (heard_ns < until_ns) until_ns = heard_ns;
    }
    return several && since_ns <= until_ns;
}

static void describe_operation(const wait_graph *g, uint64_t sequence, char *text,
                               size_t bytes) {
    if (!sequence)
        snprintf(text, bytes, "an operation");
    else if (g->control->describe)
        g->control->describe(sequence, text, bytes);
    else
        snprintf(text, bytes, "operation %llu", (unsigned long long)sequence);
}

/* "world rank 0 waits in 'tp0' (operation 3) for world rank 1, which waits in ..." */
static void describe_way(const wait_graph *g, char *text, size_t bytes) {
    snprintf(text, bytes, "timed out: ranks wait for each other: world rank %d",
             g->waits[g->way[0]].rank);
    for (int i = 0; i < g->way_count && i < MESSAGE_HOPS; i++) {
        const rank_wait *wait = &g->waits[g->way[i]];
        const char *name = wait->of ? wait->of->name : g->control->everybody.name;
        char operation[48];
        describe_operation(g, wait->beat.sequence, operation, sizeof operation);
        rpi_append(text, bytes, "%s waits in '%.40s' (%s) for world rank %d",
                   i ? ", which" : "", name, operation, wait->beat.gap.from);
    }
    if (g->way_count > MESSAGE_HOPS) rpi_append(text, bytes, ", and so on");
    if (g->way_ends)
        rpi_append(text, bytes, "; world rank %d is stopped, or gone",
                   g->waits[g->way[g->way_count - 1]].beat.gap.from);
}

/* ---- failing ---- */

static void fail_group(rpi_control *control, rpi_failure *failure, uint64_t scope) {
    rpi_scope *at = control->scopes;
    while (at && at->scope != scope) at = at->next;
    if (at && at->failed) return;
    if (at) at->failed = true;
    failure->scope = scope;
    rpi_control_arbitrate(control, failure);
}

/* A path that leads to a stopped rank fails its own group; in the other groups members see
 * themselves who is stopped. */
static void fail_way(const wait_graph *g) {
    rpi_failure failure = {.status = RP_TIMEOUT, .rank = -1, .finder = g->control->rank};
    int count = g->way_ends ? 1 : g->way_count;
    describe_way(g, failure.text, sizeof failure.text);
    for (int i = 0; i < count; i++) fail_group(g->control, &failure, g->waits[g->way[i]].scope);
}

static bool is_failed(const wait_graph *g, const rank_wait *wait) {
    return wait->of ? wait->of->failed : g->control->everybody.failed;
}

static void arbitrate(wait_graph *g) {
    if (gather(g) != RP_OK || g->count == 0) return;
    if (rpi_alloc_array((size_t)g->count, sizeof *g->way, "waits", &g->way) != RP_OK) return;
    link_waits(g);
    find_live(g);
    for (int i = 0; i < g->count; i++) {
        const rank_wait *wait = &g->waits[i];
        bool is_over = wait->beat.gap.overdue && wait->beat.sequence && !wait->is_live;
        if (!is_over || is_failed(g, wait)) continue;
        follow(g, i);
        if (is_crossed(g)) fail_way(g);
    }
}

/* Some rank has waited for a whole timeout; without that nothing is examined. */
static bool is_anybody_overdue(rpi_control *control) {
    bool found = false;
    pthread_mutex_lock(&control->lock);
    for (int rank = 0; rank < control->world; rank++)
        found |= control->everybody.beats[rank].gap.overdue;
    pthread_mutex_unlock(&control->lock);
    for (const rpi_scope *scope = control->scopes; scope && !found; scope = scope->next)
        for (int i = 0; i < scope->count; i++) found |= scope->members[i].beat.gap.overdue;
    return found;
}

void rpi_control_arbitrate_waits(rpi_control *control) {
    wait_graph g = {.control = control};
    size_t world = (size_t)control->world;
    if (!is_anybody_overdue(control)) return;
    rp_status status = rpi_alloc_array(world, sizeof *g.first_of, "waits", &g.first_of);
    if (status == RP_OK) status = rpi_alloc_array(world, sizeof *g.alive, "waits", &g.alive);
    if (status == RP_OK)
        status = rpi_alloc_array(world, sizeof *g.blocked, "waits", &g.blocked);
    if (status == RP_OK) arbitrate(&g);
    rpi_free(g.waits);
    rpi_free(g.way);
    rpi_free(g.first_of);
    rpi_free(g.alive);
    rpi_free(g.blocked);
}
