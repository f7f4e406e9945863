#include "net/world/view_rules.h"

#include <string.h>

void rpi_view_candidate_note(rpi_view_candidate *candidate, const rpi_statement *says,
                             int64_t now_ns, int64_t most_ns) {
    int64_t since_ns = candidate->looked_ns ? now_ns - candidate->looked_ns : 0;
    if (candidate->says.beats != says->beats)
        candidate->silent_ns = 0;
    else
        candidate->silent_ns += since_ns < most_ns ? since_ns : most_ns;
    candidate->says = *says;
    candidate->looked_ns = now_ns;
}

const rpi_view_candidate *rpi_view_candidate_find(const rpi_view_candidate *candidates,
                                                  int count, uint32_t id) {
    int least = 0, most = count;
    while (least < most) {
        int middle = (least + most) / 2;
        if (candidates[middle].id < id)
            least = middle + 1;
        else
            most = middle;
    }
    return least < count && candidates[least].id == id ? &candidates[least] : NULL;
}

rp_departure rpi_view_candidate_departure(const rpi_view_candidate *candidate, bool lost,
                                          int64_t silence_ns) {
    if (!candidate || candidate->says.leaving) return RP_MEMBER_LEFT;
    if (lost) return RP_MEMBER_LOST;
    return candidate->silent_ns >= silence_ns ? RP_MEMBER_SILENT : RP_MEMBER_STAYS;
}

/* By rank of the previous view: which ranks others have lost. Two that have lost each other do
 * not both go: a lower rank's statement counts first, and that of a lost rank does not count.
 */
static void find_lost(const rpi_view_change *m, uint32_t next, bool lost[RP_WORLD_MOST]) {
    const rpi_view_record *before = m->before;
    memset(lost, 0, RP_WORLD_MOST * sizeof *lost);
    for (int rank = 0; rank < before->count; rank++) {
        const rpi_view_candidate *one =
            rpi_view_candidate_find(m->candidates, m->count, before->members[rank].id);
        bool is_heard = one && one->says.making == next && !lost[rank];
        int whom = is_heard ? one->says.lost : -1;
        if (whom >= 0 && whom < before->count && whom != rank) lost[whom] = true;
    }
}

static void put(rp_member *list, int *count, const rp_member *who, int previous,
                rp_departure departure) {
    rp_member *one = &list[(*count)++];
    *one = *who;
    one->previous = previous;
    one->departure = departure;
}

static void take_members(const rpi_view_change *m, rpi_view_record *next, int *out_awaited) {
    bool lost[RP_WORLD_MOST];
    find_lost(m, next->number, lost);
    for (int rank = 0; rank < m->before->count; rank++) {
        const rp_member *who = &m->before->members[rank];
        const rpi_view_candidate *one =
            rpi_view_candidate_find(m->candidates, m->count, who->id);
        rp_departure departure = rpi_view_candidate_departure(one, lost[rank], m->silence_ns);
        bool has_come = one && one->says.making == next->number;
        if (departure == RP_MEMBER_STAYS && !has_come && m->late_are_left)
            departure = RP_MEMBER_LATE;
        if (departure != RP_MEMBER_STAYS)
            put(next->left, &next->left_count, who, rank, departure);
        else if (has_come)
            put(next->members, &next->count, who, rank, RP_MEMBER_STAYS);
        else if (*out_awaited < 0)
            *out_awaited = rank;
    }
}

/* A newcomer of the previous view fell silent in it, as one does that dies while links are
 * made, and has cost the others silence_s. They make a view of their own before they take in
 * others; otherwise a process that comes and dies again and again would be in every view, and
 * no step would ever be made. */
static bool is_for_members(const rpi_view_change *m, const rpi_view_record *next) {
    const rp_member *before = m->before->members;
    if (m->before->count == 0 || before[0].previous < 0 || next->count < m->least) return false;
    for (int i = 0; i < next->left_count; i++)
        if (next->left[i].departure == RP_MEMBER_SILENT &&
            before[next->left[i].previous].previous < 0)
            return true;
    return false;
}

/* first: the smallest id of those that continue to wait; later ones have larger ids. */
static void take_newcomers(const rpi_view_change *m, rpi_view_record *next) {
    uint32_t later = m->count > 0 ? m->candidates[m->count - 1].id + 1 : 1, waits = 0;
    int most = is_for_members(m, next) ? next->count : m->most;
    for (int i = 0; i < m->count; i++) {
        const rpi_view_candidate *one = &m->candidates[i];
        if (rpi_view_candidate_departure(one, false, m->silence_ns) != RP_MEMBER_STAYS ||
            rpi_view_record_find(m->before, one->id) >= 0)
            continue;
        if (one->says.making == next->number && next->count < most) {
            rp_member who = {.id = one->id};
            memcpy(who.name, one->says.name, sizeof who.name);
            put(next->members, &next->count, &who, -1, RP_MEMBER_STAYS);
        } else if (!waits) {
            waits = one->id;
        }
    }
    next->first = waits ? waits : later > m->before->first ? later : m->before->first;
}

rpi_view_change_state rpi_view_change_decide(const rpi_view_change *change,
                                             rpi_view_record *out_next, int *out_awaited) {
    out_next->number = change->before->number + 1;
    out_next->count = out_next->left_count = 0;
    *out_awaited = -1;
    take_members(change, out_next, out_awaited);
    take_newcomers(change, out_next);
    if (*out_awaited >= 0) return RPI_VIEW_CHANGE_AWAITS_MEMBERS;
    if (out_next->count < change->least) return RPI_VIEW_CHANGE_TOO_FEW;
    bool is_full = out_next->count >= change->most;
    if (change->before->number == 0 && !is_full && !change->last_call_over)
        return RPI_VIEW_CHANGE_LAST_CALL;
    return RPI_VIEW_CHANGE_READY;
}
