/* Who is in the next view? A pure function of the newest view and of what all processes say of
 * themselves; whoever evaluates it over the same statements finds the same answer.
 *
 *        members that have come, in their order        not in it: those that leave, that are
 *        then those that wait, by their ids            silent, that others have lost, that do
 *        up to `most`; none behind a view in           not come in late_after_s
 *        which a newcomer fell silent, where
 *        `least` members stay
 *
 * It is closed by its first member, with the store's compare-and-set from the record of the
 * view before: of several that do, one wins, and all read what it wrote. */
#ifndef RPI_NET_VIEW_RULES_H
#define RPI_NET_VIEW_RULES_H

#include "net/world/view_record.h"

/* A process as this one sees it. */
typedef struct rpi_view_candidate {
    uint32_t id;
    rpi_statement says;
    int64_t looked_ns; /* when it was looked at last; 0: never */
    int64_t silent_ns; /* observed time for which it has been silent */
} rpi_view_candidate;

/* Take in its current statement. Of the time since the last look at most `most_ns` counts:
 * during the rest this process was away itself, and knows nothing. */
void rpi_view_candidate_note(rpi_view_candidate *candidate, const rpi_statement *says,
                             int64_t now_ns, int64_t most_ns);

typedef struct rpi_view_change {
    const rpi_view_record *before;        /* number 0: none */
    const rpi_view_candidate *candidates; /* by rising ids */
    int count;
    int least, most;
    int64_t silence_ns;
    bool late_are_left;  /* for members that are alive and not ready */
    bool last_call_over; /* of the first view */
} rpi_view_change;

typedef enum rpi_view_change_state {
    RPI_VIEW_CHANGE_AWAITS_MEMBERS, /* some that live have not come */
    RPI_VIEW_CHANGE_TOO_FEW,
    RPI_VIEW_CHANGE_LAST_CALL, /* enough for the first view, which others may still join */
    RPI_VIEW_CHANGE_READY,
} rpi_view_change_state;

/* next: its members if it were closed now, and those that left; with its number. awaited: the
 * first of the members that are waited for, by rank, else -1. */
rpi_view_change_state rpi_view_change_decide(const rpi_view_change *change,
                                             rpi_view_record *out_next, int *out_awaited);
/* Whether this member of the view has left, and why. RP_MEMBER_STAYS: it has not. lost: others
 * say that they have lost it. candidate: NULL if it has no statement any more. */
rp_departure rpi_view_candidate_departure(const rpi_view_candidate *candidate, bool lost,
                                          int64_t silence_ns);
/* NULL: there is none. */
const rpi_view_candidate *rpi_view_candidate_find(const rpi_view_candidate *candidates,
                                                  int count, uint32_t id);

#endif
