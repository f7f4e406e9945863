/* The groups of the control connection: the calls of their owners, and look-ups by its thread.
 */
#include "base/c_locale.h"
#include "net/control/control_state.h"

#include "base/clock.h"
#include "base/event.h"
#include "base/memory.h"
#include "base/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int finder_in(const rpi_control_group *group, int rank) {
    int member = rank == RPI_OUTSIDE ? -1 : rpi_control_member(group, rank);
    return member < 0 ? RPI_OUTSIDE : member;
}

/* A failure of a group also ends the groups made from it; its ranks are translated to those of
 * the control connection. */
static void keep_of_parent(rpi_control_group *group, const rpi_control_group *parent,
                           const rpi_failure *failure) {
    rpi_failure own = *failure;
    if (!parent->ranks) /* sentences of others begin with their names */
        snprintf(own.text, sizeof own.text, "%.90s: %.300s", parent->name, failure->text);
    rpi_control_keep(group, &own);
}

static void keep_in_children(rpi_control_group *parent, const rpi_failure *failure) {
    for (rpi_control_group *group = parent->control->groups; group; group = group->next)
        if (group->parent == parent->scope) keep_of_parent(group, parent, failure);
}

void rpi_control_keep(rpi_control_group *group, const rpi_failure *failure) {
    rpi_control *control = group->control;
    if (group->failed) return;
    group->failure = *failure;
    if (failure->rank >= 0) group->failure.rank = rpi_control_member(group, failure->rank);
    if (failure->finder >= 0) group->failure.finder = finder_in(group, failure->finder);
    group->failed = true;
    group->is_reported = false;
    atomic_store(&group->known, true);
    pthread_cond_broadcast(&control->changed);
    if (failure->ends_groups) keep_in_children(group, failure);
    if (control->failed_fd < 0) return;
    rpi_event_set(control->failed_fd);
    atomic_store(&control->told, true); /* after this flag: a caller that sees it can read the
                                         * failure */
}

static int by_rank(const void *a, const void *b) {
    const rpi_place_of_rank *x = a, *y = b;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

int rpi_control_member(const rpi_control_group *group, int rank) {
    const rpi_place_of_rank key = {.rank = rank}, *found;
    if (!group->ranks) return rank;
    found = bsearch(&key, group->sorted, (size_t)group->count, sizeof key, by_rank);
    return found ? found->place : -1;
}

rpi_control_group *rpi_control_find_group(rpi_control *control, uint64_t scope) {
    for (rpi_control_group *group = control->groups; group; group = group->next)
        if (group->scope == scope) return group;
    return NULL;
}

int rpi_control_rank(const rpi_control_group *group, int member) {
    bool exists = member >= 0 && member < group->count;
    if (!exists) return -1;
    return group->ranks ? group->ranks[member] : member;
}

bool rpi_control_wait_change(rpi_control *control, int64_t deadline_ns) {
    if (deadline_ns == RPI_NEVER_NS)
        return pthread_cond_wait(&control->changed, &control->lock) == 0;
    struct timespec at = {.tv_sec = deadline_ns / RPI_SECOND_NS,
                          .tv_nsec = deadline_ns % RPI_SECOND_NS};
    return pthread_cond_timedwait(&control->changed, &control->lock, &at) == 0;
}

rp_status rpi_control_make_beats(rpi_control_group *group) {
    RP_TRY(rpi_alloc_array((size_t)group->count, sizeof *group->beats, "beats", &group->beats));
    for (int i = 0; i < group->count; i++) group->beats[i].gap.from = -1;
    return RP_OK;
}

rpi_control_group *rpi_control_everybody(rpi_control *control) {
    return &control->everybody;
}

/* "tp0: rank 1 (world 3) is gone (", of the group of all "rank 3 is gone (" */
static int name_member(const rpi_control_group *group, int rank, char *text, size_t bytes) {
    int member = rpi_control_member(group, rank);
    if (!group->ranks || !group->name[0])
        return snprintf(text, bytes, "rank %d is gone (", member);
    return snprintf(text, bytes, "%s: rank %d (world %d) is gone (", group->name, member, rank);
}

void rpi_control_describe_death(const rpi_control_group *group, int rank,
                                rpi_failure *out_failure) {
    const rpi_control *control = group->control;
    int member = rpi_control_member(group, rank);
    const rpi_group_beat *beat = member >= 0 ? &group->beats[member] : NULL;
    *out_failure = (rpi_failure){.status = RP_PEER,
                                 .rank = rank,
                                 .finder = control->lost[rank] ? RPI_HOST_LOST : -1,
                                 .scope = group->scope};
    int used = name_member(group, rank, out_failure->text, sizeof out_failure->text);
    used += rpi_print(
        out_failure->text + used, sizeof out_failure->text - (size_t)used,
        control->lost[rank]
            ? "connection timed out: its host has answered nothing for %g s: it is off, "
              "or cut off)"
            : "connection closed by peer: its process ended)",
        rpi_seconds(control->lost_ns));
    if (beat && beat->sequence && beat->beat_number >= control->beat_counts[rank])
        snprintf(out_failure->text + used, sizeof out_failure->text - (size_t)used,
                 " in operation %llu", (unsigned long long)beat->sequence);
}

/* Failures of groups that are not open here; the search begins with the oldest, because the
 * ring may have wrapped around. */
static const rpi_failure *early_at(const rpi_control *control, unsigned age) {
    unsigned kept = control->early_count < RPI_CONTROL_EARLY ? control->early_count
                                                             : (unsigned)RPI_CONTROL_EARLY;
    if (age >= kept) return NULL;
    return &control->early[(control->early_count - kept + age) % RPI_CONTROL_EARLY];
}

const rpi_failure *rpi_control_early_of(const rpi_control *control, uint64_t scope) {
    const rpi_failure *failure = NULL;
    for (unsigned age = 0; (failure = early_at(control, age)) != NULL; age++)
        if (failure->scope == scope) break;
    return failure;
}

/* Under the lock: apply failures from before the group was opened here. */
static void receive_the_past(rpi_control_group *group) {
    rpi_control *control = group->control;
    rpi_failure death;
    const rpi_failure *early = rpi_control_early_of(control, group->scope);
    if (early) rpi_control_keep(group, early);
    for (int i = 0; control->dead && i < group->count; i++) {
        if (!control->dead[group->ranks[i]]) continue;
        rpi_control_describe_death(group, group->ranks[i], &death);
        rpi_control_keep(group, &death);
    }
}

static rp_status make_members(rpi_control_group *group, const int *ranks) {
    size_t count = (size_t)group->count;
    RP_TRY(rpi_alloc_array(count, sizeof *ranks, "a group of ranks", &group->ranks));
    RP_TRY(rpi_alloc_array(count, sizeof *group->sorted, "a group of ranks", &group->sorted));
    for (int i = 0; i < group->count; i++) {
        group->ranks[i] = ranks[i];
        group->sorted[i] = (rpi_place_of_rank){.rank = ranks[i], .place = i};
    }
    qsort(group->sorted, count, sizeof *group->sorted, by_rank);
    return RP_OK;
}

static void free_group(rpi_control_group *group) {
    rpi_free(group->beats);
    rpi_free(group->sorted);
    rpi_free(group->ranks);
    rpi_free(group);
}

/* Under the lock: the coordinator learns of it with the next beat. If there is no memory the
 * rank continues to count as a member that computes. */
static void note_closed(rpi_control *control, uint64_t scope) {
    if (control->closed_count == control->closed_room) {
        size_t room = 2 * control->closed_room + 4;
        if (rpi_grow_array(control->closed_room, room, sizeof *control->closed, "groups",
                           &control->closed) != RP_OK)
            return;
        control->closed_room = room;
    }
    control->closed[control->closed_count++] = scope;
}

rp_status rpi_control_group_open(rpi_control *control, uint64_t scope, const int *ranks,
                                 int count, rpi_control_group **out_group) {
    rpi_control_group *group = NULL;
    RP_TRY(rpi_alloc(sizeof *group, "a group of ranks", &group));
    group->control = control;
    group->scope = scope;
    group->count = count;
    group->report_ns = RPI_NEVER_NS;
    group->parent = RPI_NO_SCOPE;
    rp_status status = make_members(group, ranks);
    if (status == RP_OK) status = rpi_control_make_beats(group);
    if (status != RP_OK) {
        free_group(group);
        return status;
    }
    pthread_mutex_lock(&control->lock);
    group->next = control->groups;
    control->groups = group;
    receive_the_past(group);
    pthread_mutex_unlock(&control->lock);
    *out_group = group;
    return RP_OK;
}

void rpi_control_group_rename(rpi_control_group *group, uint64_t scope) {
    rpi_control *control = group->control;
    pthread_mutex_lock(&control->lock);
    if (group->known_by) note_closed(control, group->scope);
    group->known_by = 0; /* the coordinator learns its new scope with the next beat */
    for (rpi_control_group *child = control->groups; child; child = child->next)
        if (child->parent == group->scope) child->parent = scope;
    group->scope = scope;
    receive_the_past(group);
    pthread_mutex_unlock(&control->lock);
}

void rpi_control_group_close(rpi_control_group *group) {
    if (!group || !group->ranks) return;
    rpi_control *control = group->control;
    pthread_mutex_lock(&control->lock);
    rpi_control_group **at = &control->groups;
    while (*at != group) at = &(*at)->next;
    *at = group->next;
    if (group->known_by) note_closed(control, group->scope);
    for (rpi_control_group *child = control->groups; child; child = child->next)
        if (child->parent == group->scope) child->parent = group->parent;
    pthread_mutex_unlock(&control->lock);
    free_group(group);
}

void rpi_control_describe(rpi_control_group *group, const char *name,
                          const rpi_control_group *parent) {
    pthread_mutex_lock(&group->control->lock);
    snprintf(group->name, sizeof group->name, "%.*s", RPI_SCOPE_NAME_BYTES - 1, name);
    if (parent) group->parent = parent->scope;
    if (parent && parent->failed && parent->failure.ends_groups) {
        rpi_failure failure = parent->failure;
        failure.rank = rpi_control_rank(parent, failure.rank);
        if (failure.finder >= 0) failure.finder = RPI_OUTSIDE;
        keep_of_parent(group, parent, &failure);
    }
    pthread_mutex_unlock(&group->control->lock);
}

/* ---- for any thread ---- */

void rpi_control_publish(rpi_control_group *group, const rpi_failure *failure) {
    rpi_control *control = group->control;
    pthread_mutex_lock(&control->lock);
    if (!group->failed && !group->published) {
        group->published = true;
        group->report = *failure;
        group->report.rank = rpi_control_rank(group, failure->rank);
        group->report.finder = control->rank;
        group->report.scope = group->scope;
        group->report.text[sizeof group->report.text - 1] = '\0';
        group->outbox_full = true;
        if (!control->has_thread) rpi_control_keep(group, &group->report);
    }
    pthread_mutex_unlock(&control->lock);
    if (control->wake >= 0) rpi_event_set(control->wake);
}

bool rpi_control_failed(rpi_control_group *group, rpi_failure *out_failure) {
    if (!atomic_load(&group->known)) return false;
    pthread_mutex_lock(&group->control->lock);
    *out_failure = group->failure;
    pthread_mutex_unlock(&group->control->lock);
    return true;
}

bool rpi_control_wait_failed(rpi_control_group *group, int64_t deadline_ns,
                             rpi_failure *out_failure) {
    rpi_control *control = group->control;
    pthread_mutex_lock(&control->lock);
    while (!group->failed && rpi_control_wait_change(control, deadline_ns)) {
    }
    bool failed = group->failed;
    if (failed) *out_failure = group->failure;
    pthread_mutex_unlock(&control->lock);
    return failed;
}

int rpi_control_fd(rpi_control *control) {
    return control->failed_fd;
}

/* Every call asks this, so it needs no system call as long as there is no failure. */
void rpi_control_clear_fd(rpi_control *control) {
    if (!atomic_load(&control->told) || !atomic_exchange(&control->told, false)) return;
    rpi_event_clear(control->failed_fd);
}
