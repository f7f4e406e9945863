/* Failures: on rank 0 the verdict, elsewhere what is done without one.
 *
 *      a rank                 lives --- its line ends ---> suspected --- RPI_CONTROL_GRACE_S
 *        (on rank 0)            | goodbye                                        | later
 *                               v                                                v
 *                              left                                             dead
 *
 *      a group's failure      none --- publish() ---> an account, sent to rank 0
 *        (on its members)       |                       | rank 0 leaves, or says nothing for
 *                               | rank 0 says           | HUB_SILENT_S: the account itself
 *                               v                       v
 *                              failed <------------------
 *
 * Accounts that rank 0 hears while a rank is suspected wait for its death, unless they are of
 * that rank. */
#include "net/control/control_state.h"

#include "base/clock.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

/* A hub that is stopped gives no verdict: then a leaf goes by its own account. */
#define HUB_SILENT_S (RPI_CONTROL_VERDICT_S / 2)

static void send_failure(rpi_control_line *line, const rpi_failure *failure) {
    rpi_control_record record = {.kind = RPI_CONTROL_FAILURE,
                                 .rank = failure->rank,
                                 .number = failure->finder,
                                 .a = (uint64_t) - (int64_t)failure->status |
                                      (failure->ends_groups ? RPI_FAILURE_ENDS_GROUPS : 0),
                                 .b = failure->scope};
    snprintf(record.text, sizeof record.text, "%s", failure->text);
    record.text_bytes = (uint16_t)strlen(record.text);
    (void)rpi_control_line_send(line, &record); /* who cannot hear is gone or going */
}

static bool is_death(const rpi_failure *failure) {
    return failure->finder < 0 && failure->rank >= 0;
}

/* Under the lock: of all groups that have the rank. False: it is known to have died. */
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

/* Under the lock. False: the group has had its first failure. */
static bool is_first(rpi_control *control, const rpi_failure *failure) {
    const rpi_control_group *group = rpi_control_find_group(control, failure->scope);
    return group ? !group->failed : !rpi_control_early_of(control, failure->scope);
}

/* Under the lock. A group that is not open here may be so soon: of each one failure is kept,
 * its first. */
static void keep(rpi_control *control, const rpi_failure *failure) {
    rpi_control_group *group = rpi_control_find_group(control, failure->scope);
    if (group)
        rpi_control_keep(group, failure);
    else if (!rpi_control_early_of(control, failure->scope))
        control->early[control->early_count++ % RPI_CONTROL_EARLY] = *failure;
}

/* The next failure in order: known here, and on the hub told to everybody, before its own
 * callers know: they may end the process. */
void rpi_control_decide(rpi_control *control, const rpi_failure *failure) {
    bool death = is_death(failure);
    pthread_mutex_lock(&control->lock);
    bool news = death ? !control->dead[failure->rank] : is_first(control, failure);
    pthread_mutex_unlock(&control->lock);
    if (!news) return;
    for (int i = 0; rpi_control_is_hub(control) && i < control->line_count; i++)
        if (control->lines[i].rank >= 0) send_failure(&control->lines[i], failure);
    pthread_mutex_lock(&control->lock);
    if (death)
        (void)keep_death(control, failure);
    else
        keep(control, failure);
    pthread_mutex_unlock(&control->lock);
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
    if (control->held_count == control->held_room) {
        size_t room = 2 * control->held_room + 4;
        if (rpi_grow_array(control->held_room, room, sizeof *control->held, "failures",
                           &control->held) != RP_OK)
            return; /* the death tells most */
        control->held_room = room;
    }
    control->held[control->held_count++] = *failure;
}

/* A published failure before the judge. While a death is in its moment of grace only an account
 * of that same death is heard: anything else may be its consequence, and waits. */
void rpi_control_judge(rpi_control *control, const rpi_failure *failure) {
    if (is_anybody_suspected(control) && !is_suspected(control, failure->rank))
        hold(control, failure);
    else
        rpi_control_decide(control, failure);
}

/* Under the lock: a group whose account has nobody any more to judge it, or has waited for
 * longer than that takes. */
static bool take_overdue(rpi_control *control, int64_t now_ns, rpi_failure *out_account) {
    for (rpi_control_group *group = control->groups; group; group = group->next) {
        if (!group->accused || (!rpi_control_has_no_hub(control) && now_ns < group->account_ns))
            continue;
        group->accused = false;
        group->account_ns = RPI_NEVER_NS;
        group->is_own_verdict = true;
        *out_account = group->account;
        return true;
    }
    return false;
}

void rpi_control_judge_overdue(rpi_control *control) {
    rpi_failure account;
    bool found;
    do {
        pthread_mutex_lock(&control->lock);
        found = take_overdue(control, rpi_now_ns(), &account);
        pthread_mutex_unlock(&control->lock);
        if (found) rpi_control_judge(control, &account);
    } while (found);
}

void rpi_control_suspect(rpi_control *control, int rank) {
    pthread_mutex_lock(&control->lock);
    bool known = control->dead[rank];
    pthread_mutex_unlock(&control->lock);
    if (known || is_suspected(control, rank)) return;
    control->suspect_ns[rank] = rpi_deadline_ns(RPI_CONTROL_GRACE_S);
    if (rpi_control_has_no_hub(control)) rpi_control_judge_overdue(control);
}

static void end_grace(rpi_control *control, int rank) {
    rpi_failure death;
    control->suspect_ns[rank] = RPI_NEVER_NS;
    pthread_mutex_lock(&control->lock);
    rpi_control_describe_death(&control->everybody, rank, &death);
    pthread_mutex_unlock(&control->lock);
    rpi_control_decide(control, &death);
}

/* Deaths whose moment of grace is over by then, and what waited for them; until when the next
 * one's lasts. */
int64_t rpi_control_end_grace(rpi_control *control, int64_t now_ns) {
    int64_t next_ns = RPI_NEVER_NS;
    for (int rank = 0; rank < control->world; rank++) {
        if (now_ns >= control->suspect_ns[rank]) end_grace(control, rank);
        if (control->suspect_ns[rank] < next_ns) next_ns = control->suspect_ns[rank];
    }
    for (size_t i = 0; next_ns == RPI_NEVER_NS && i < control->held_count; i++)
        rpi_control_decide(control, &control->held[i]);
    if (next_ns == RPI_NEVER_NS) control->held_count = 0;
    return next_ns;
}

static void note_own_verdict(rpi_control *control, uint64_t scope) {
    pthread_mutex_lock(&control->lock);
    rpi_control_group *group = rpi_control_find_group(control, scope);
    if (group) group->is_own_verdict = true;
    pthread_mutex_unlock(&control->lock);
}

/* Our own account of a failure: the hub judges it, a leaf sends it there. */
static void accuse(rpi_control *control, const rpi_failure *failure) {
    if (rpi_control_is_hub(control) || rpi_control_has_no_hub(control)) {
        if (rpi_control_has_no_hub(control)) note_own_verdict(control, failure->scope);
        rpi_control_judge(control, failure);
        return;
    }
    send_failure(&control->lines[0], failure);
    pthread_mutex_lock(&control->lock);
    rpi_control_group *group = rpi_control_find_group(control, failure->scope);
    if (group && !group->failed) {
        group->accused = true;
        group->account_ns = rpi_deadline_ns(HUB_SILENT_S);
    }
    pthread_mutex_unlock(&control->lock);
}

/* An account that callers have left since the thread last looked. */
static bool take_account(rpi_control *control, rpi_failure *out_account) {
    bool found = false;
    pthread_mutex_lock(&control->lock);
    for (rpi_control_group *group = control->groups; group && !found; group = group->next) {
        found = group->outbox_full;
        if (!found) continue;
        group->outbox_full = false;
        *out_account = group->account;
    }
    pthread_mutex_unlock(&control->lock);
    return found;
}

int64_t rpi_control_next_account_ns(rpi_control *control) {
    int64_t next_ns = RPI_NEVER_NS;
    pthread_mutex_lock(&control->lock);
    for (const rpi_control_group *group = control->groups; group; group = group->next)
        if (group->accused && group->account_ns < next_ns) next_ns = group->account_ns;
    pthread_mutex_unlock(&control->lock);
    return next_ns;
}

/* A group's failure with the ranks of the control connection. */
static rpi_failure failure_of(const rpi_control_group *group) {
    rpi_failure failure = group->failure;
    bool is_member = failure.finder >= 0 && failure.finder < group->count;
    if (group->ranks && failure.rank >= 0) failure.rank = group->ranks[failure.rank];
    if (group->ranks && is_member) failure.finder = group->ranks[failure.finder];
    if (failure.finder == RPI_OUTSIDE) failure.finder = group->control->rank;
    failure.scope = group->scope;
    return failure;
}

void rpi_control_tell_verdicts(rpi_control *control, rpi_control_line *line) {
    rpi_failure death;
    pthread_mutex_lock(&control->lock);
    for (int rank = 0; rank < control->world; rank++) {
        if (!control->dead[rank] || rank == line->rank) continue;
        rpi_control_describe_death(&control->everybody, rank, &death);
        send_failure(line, &death);
    }
    for (const rpi_control_group *group = control->groups; group; group = group->next) {
        if (!group->failed || group->failure.finder < 0) continue; /* by a death */
        rpi_failure failure = failure_of(group);
        send_failure(line, &failure);
    }
    for (unsigned i = 0; i < RPI_CONTROL_EARLY && i < control->early_count; i++)
        send_failure(line, &control->early[i]);
    pthread_mutex_unlock(&control->lock);
}

void rpi_control_tell_own_verdicts(rpi_control *control, rpi_control_line *line) {
    pthread_mutex_lock(&control->lock);
    for (const rpi_control_group *group = control->groups; group; group = group->next)
        if (group->is_own_verdict) send_failure(line, &group->account);
    pthread_mutex_unlock(&control->lock);
}

void rpi_control_tell_accounts(rpi_control *control) {
    rpi_failure account;
    while (take_account(control, &account)) accuse(control, &account);
}
