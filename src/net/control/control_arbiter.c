/* Failures: on rank 0 the decision, elsewhere what is done without one.
 *
 *      a rank                 lives - connection ends -> suspected --- RPI_CONTROL_SUSPECT_S
 *        (on rank 0)            | goodbye                                        | later
 *                               v                                                v
 *                              left                                             dead
 *
 *      a group's failure      none --- publish() ---> a report, sent to rank 0
 *        (on its members)       |                       | rank 0 leaves, or says nothing for
 *                               | rank 0 says           | COORDINATOR_SILENT_S: its own
 *                               v                       v
 *                              failed <------------------
 *
 * Reports that rank 0 hears while a rank is suspected wait for its death, unless they are of
 * that rank. */
#include "net/control/control_state.h"

#include "base/clock.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

/* A stopped coordinator decides nothing; then a leaf accepts its own report. */
#define COORDINATOR_SILENT_S (RPI_CONTROL_DECISION_S / 2)

static void send_failure(rpi_control_connection *connection, const rpi_failure *failure) {
    rpi_control_record record = {.kind = RPI_CONTROL_FAILURE,
                                 .rank = failure->rank,
                                 .number = failure->finder,
                                 .a = (uint64_t) - (int64_t)failure->status |
                                      (failure->ends_groups ? RPI_FAILURE_ENDS_GROUPS : 0),
                                 .b = failure->scope};
    snprintf(record.text, sizeof record.text, "%s", failure->text);
    record.text_bytes = (uint16_t)strlen(record.text);
    (void)rpi_control_connection_send(connection, &record); /* a rank that cannot receive it has
                                                             * ended or is about to */
}

static bool is_death(const rpi_failure *failure) {
    return failure->finder < 0 && failure->rank >= 0;
}

/* Under the lock: for all groups that have the rank. False: its death was known already. */
static bool keep_death(rpi_control *control, const rpi_failure *failure) {
    rpi_failure own;
    if (control->dead[failure->rank]) return false;
    control->dead[failure->rank] = true;
    if (failure->finder == RPI_HOST_LOST) control->lost[failure->rank] = true;
    for (rpi_control_group *group = control->groups; group; group = group->next) {
        if (rpi_control_member(group, failure->rank) < 0) continue;
        rpi_control_describe_death(group, failure->rank, &own);
        rpi_control_keep(group, group == &control->everybody ? failure : &own);
    }
    return true;
}

/* Under the lock. False: the group has failed before. */
static bool is_first(rpi_control *control, const rpi_failure *failure) {
    const rpi_control_group *group = rpi_control_find_group(control, failure->scope);
    return group ? !group->failed : !rpi_control_early_of(control, failure->scope);
}

/* Under the lock. For each group that is not open here, but may be soon, the first failure is
 * kept. */
static void keep(rpi_control *control, const rpi_failure *failure) {
    rpi_control_group *group = rpi_control_find_group(control, failure->scope);
    if (group)
        rpi_control_keep(group, failure);
    else if (!rpi_control_early_of(control, failure->scope))
        control->early[control->early_count++ % RPI_CONTROL_EARLY] = *failure;
}

/* The next failure in order: it becomes known here, after the coordinator has sent it to all
 * ranks, because its own callers may end the process when they know it. */
void rpi_control_decide(rpi_control *control, const rpi_failure *failure) {
    bool death = is_death(failure);
    pthread_mutex_lock(&control->lock);
    bool is_new = death ? !control->dead[failure->rank] : is_first(control, failure);
    pthread_mutex_unlock(&control->lock);
    if (!is_new) return;
    for (int i = 0; rpi_control_is_coordinator(control) && i < control->connection_count; i++)
        if (control->connections[i].rank >= 0) send_failure(&control->connections[i], failure);
    pthread_mutex_lock(&control->lock);
    if (death)
        (void)keep_death(control, failure);
    else
        keep(control, failure);
    pthread_mutex_unlock(&control->lock);
}

void rpi_control_decide_unwelcome(rpi_control *control, const char *reason) {
    rpi_failure failure = {
        .status = RP_PEER, .rank = RPI_CONTROL_COORDINATOR, .finder = control->rank};
    snprintf(failure.text, sizeof failure.text, "connection closed by peer: %s", reason);
    rpi_control_decide(control, &failure);
}

static bool is_suspected(const rpi_control *control, int rank) {
    return rank >= 0 && rank < control->world && control->suspect_ns[rank] != RPI_NEVER_NS;
}

static bool is_anybody_suspected(const rpi_control *control) {
    for (int rank = 0; rank < control->world; rank++)
        if (is_suspected(control, rank)) return true;
    return false;
}

static void hold(rpi_control *control, const rpi_failure *failure) {
    if (control->deferred_count == control->deferred_room) {
        size_t room = 2 * control->deferred_room + 4;
        if (rpi_grow_array(control->deferred_room, room, sizeof *control->deferred, "failures",
                           &control->deferred) != RP_OK)
            return; /* the death tells most */
        control->deferred_room = room;
    }
    control->deferred[control->deferred_count++] = *failure;
}

/* A reported failure reaches the arbiter. While a death is in its suspicion delay only reports
 * of that death are accepted. Others may be consequences of it, and wait. */
void rpi_control_arbitrate(rpi_control *control, const rpi_failure *failure) {
    if (is_anybody_suspected(control) && !is_suspected(control, failure->rank))
        hold(control, failure);
    else
        rpi_control_decide(control, failure);
}

/* Under the lock: a group whose report can no longer be decided by another rank, or has waited
 * for longer than a decision takes. */
static bool take_overdue(rpi_control *control, int64_t now_ns, rpi_failure *out_report) {
    for (rpi_control_group *group = control->groups; group; group = group->next) {
        if (!group->is_reported ||
            (!rpi_control_has_no_coordinator(control) && now_ns < group->report_ns))
            continue;
        group->is_reported = false;
        group->report_ns = RPI_NEVER_NS;
        group->is_own_decision = true;
        *out_report = group->report;
        return true;
    }
    return false;
}

void rpi_control_arbitrate_overdue(rpi_control *control) {
    rpi_failure report;
    bool found;
    do {
        pthread_mutex_lock(&control->lock);
        found = take_overdue(control, rpi_now_ns(), &report);
        pthread_mutex_unlock(&control->lock);
        if (found) rpi_control_arbitrate(control, &report);
    } while (found);
}

void rpi_control_suspect(rpi_control *control, int rank) {
    pthread_mutex_lock(&control->lock);
    bool known = control->dead[rank];
    pthread_mutex_unlock(&control->lock);
    if (known || is_suspected(control, rank)) return;
    control->suspect_ns[rank] = rpi_deadline_ns(RPI_CONTROL_SUSPECT_S);
    if (rpi_control_has_no_coordinator(control)) rpi_control_arbitrate_overdue(control);
}

static void end_suspicion(rpi_control *control, int rank) {
    rpi_failure death;
    control->suspect_ns[rank] = RPI_NEVER_NS;
    pthread_mutex_lock(&control->lock);
    rpi_control_describe_death(&control->everybody, rank, &death);
    pthread_mutex_unlock(&control->lock);
    rpi_control_decide(control, &death);
}

/* Make deaths known whose suspicion delay is over, and accept reports that waited for them;
 * returns when the next delay ends. */
int64_t rpi_control_end_suspicion(rpi_control *control, int64_t now_ns) {
    int64_t next_ns = RPI_NEVER_NS;
    for (int rank = 0; rank < control->world; rank++) {
        if (now_ns >= control->suspect_ns[rank]) end_suspicion(control, rank);
        if (control->suspect_ns[rank] < next_ns) next_ns = control->suspect_ns[rank];
    }
    for (size_t i = 0; next_ns == RPI_NEVER_NS && i < control->deferred_count; i++)
        rpi_control_decide(control, &control->deferred[i]);
    if (next_ns == RPI_NEVER_NS) control->deferred_count = 0;
    return next_ns;
}

static void note_own_decision(rpi_control *control, uint64_t scope) {
    pthread_mutex_lock(&control->lock);
    rpi_control_group *group = rpi_control_find_group(control, scope);
    if (group) group->is_own_decision = true;
    pthread_mutex_unlock(&control->lock);
}

/* A report of this rank: a coordinator decides it, a leaf sends it to the coordinator. */
static void send_report(rpi_control *control, const rpi_failure *failure) {
    if (rpi_control_is_coordinator(control) || rpi_control_has_no_coordinator(control)) {
        if (rpi_control_has_no_coordinator(control)) note_own_decision(control, failure->scope);
        rpi_control_arbitrate(control, failure);
        return;
    }
    send_failure(&control->connections[0], failure);
    pthread_mutex_lock(&control->lock);
    rpi_control_group *group = rpi_control_find_group(control, failure->scope);
    if (group && !group->failed) {
        group->is_reported = true;
        group->report_ns = rpi_deadline_ns(COORDINATOR_SILENT_S);
    }
    pthread_mutex_unlock(&control->lock);
}

/* A report that callers have left since the thread looked last. */
static bool take_report(rpi_control *control, rpi_failure *out_report) {
    bool found = false;
    pthread_mutex_lock(&control->lock);
    for (rpi_control_group *group = control->groups; group && !found; group = group->next) {
        found = group->outbox_full;
        if (!found) continue;
        group->outbox_full = false;
        *out_report = group->report;
    }
    pthread_mutex_unlock(&control->lock);
    return found;
}

int64_t rpi_control_next_report_ns(rpi_control *control) {
    int64_t next_ns = RPI_NEVER_NS;
    pthread_mutex_lock(&control->lock);
    for (const rpi_control_group *group = control->groups; group; group = group->next)
        if (group->is_reported && group->report_ns < next_ns) next_ns = group->report_ns;
    pthread_mutex_unlock(&control->lock);
    return next_ns;
}

/* A group's failure, with ranks of the group translated to those of the control connection. */
static rpi_failure failure_of(const rpi_control_group *group) {
    rpi_failure failure = group->failure;
    bool is_member = failure.finder >= 0 && failure.finder < group->count;
    if (group->ranks && failure.rank >= 0) failure.rank = group->ranks[failure.rank];
    if (group->ranks && is_member) failure.finder = group->ranks[failure.finder];
    if (failure.finder == RPI_OUTSIDE) failure.finder = group->control->rank;
    failure.scope = group->scope;
    return failure;
}

void rpi_control_send_decisions(rpi_control *control, rpi_control_connection *connection) {
    rpi_failure death;
    pthread_mutex_lock(&control->lock);
    for (int rank = 0; rank < control->world; rank++) {
        if (!control->dead[rank] || rank == connection->rank) continue;
        rpi_control_describe_death(&control->everybody, rank, &death);
        send_failure(connection, &death);
    }
    for (const rpi_control_group *group = control->groups; group; group = group->next) {
        if (!group->failed || group->failure.finder < 0) continue; /* by a death */
        rpi_failure failure = failure_of(group);
        send_failure(connection, &failure);
    }
    for (unsigned i = 0; i < RPI_CONTROL_EARLY && i < control->early_count; i++)
        send_failure(connection, &control->early[i]);
    pthread_mutex_unlock(&control->lock);
}

void rpi_control_send_own_decisions(rpi_control *control, rpi_control_connection *connection) {
    pthread_mutex_lock(&control->lock);
    for (const rpi_control_group *group = control->groups; group; group = group->next)
        if (group->is_own_decision) send_failure(connection, &group->report);
    pthread_mutex_unlock(&control->lock);
}

void rpi_control_send_reports(rpi_control *control) {
    rpi_failure report;
    while (take_report(control, &report)) send_report(control, &report);
}
