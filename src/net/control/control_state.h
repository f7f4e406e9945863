/* What the callers' side of the control connection (control_open.c, control_groups.c) and its
 * thread (control_thread.c) share.
 *
 *     the connection   MEETING -- everybody has come --> OPEN -- close() --> CLOSING
 *                         '------ close() ---> GIVEN_UP
 *
 *     its thread       GATHERS -- OPEN: says welcome --> SERVES
 *                         |         CLOSING: says goodbye  |
 *                         |                                v
 *                         '------ GIVEN_UP, or CLOSING --> LEAVES
 *
 *     of its rank      FOLLOWS, LEADS, SEEKS, CALLS or ALONE: control_succession.c
 *     of a failure     control_arbiter.c */
#ifndef RPI_NET_CONTROL_STATE_H
#define RPI_NET_CONTROL_STATE_H

#include "net/control/control.h"
#include "net/control/control_connection.h"
#include "net/trust/secret.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

/* The first coordinator, and how many ranks behind it are in line to be the next. */
enum {
    RPI_COORDINATOR_SOUGHT = -1,
    RPI_COORDINATOR_NONE = -2
}; /* served_by: one is; there is none left */
enum {
    RPI_CONTROL_COORDINATOR = 0,
    RPI_CONTROL_SUCCESSORS = 8,
    RPI_CONTROL_ADDRESS_BYTES = 272
};

typedef enum rpi_control_phase {
    RPI_CONTROL_MEETING, /* rank 0 waits for the others, which wait for its welcome */
    RPI_CONTROL_OPEN,
    RPI_CONTROL_CLOSING,
    RPI_CONTROL_GIVEN_UP, /* closed before everybody had come */
} rpi_control_phase;

typedef enum rpi_control_duty {
    RPI_CONTROL_GATHERS, /* rank 0: takes callers, and has welcomed none of them */
    RPI_CONTROL_SERVES,
    RPI_CONTROL_LEAVES, /* has said goodbye, and waits for the others to hang up */
} rpi_control_duty;

typedef enum rpi_control_role {
    RPI_CONTROL_LEADS,   /* this rank is the coordinator */
    RPI_CONTROL_FOLLOWS, /* another one is */
    RPI_CONTROL_SEEKS,   /* it is gone: the next one is called at elect_ns */
    RPI_CONTROL_CALLS,   /* the next one, whose welcome is waited for until welcome_by_ns */
    RPI_CONTROL_ALONE,   /* there is none left */
} rpi_control_role;

/* What a rank last said that it waits for in a group; it holds as long as the rank says so in
 * each of its beats. */
typedef struct rpi_group_beat {
    uint64_t sequence;
    rpi_control_gap gap;
    int64_t since_ns;     /* it has said so in each beat since */
    uint32_t beat_number; /* of the rank's beats */
    bool blocked;         /* of the group of all: so is its process */
} rpi_group_beat;

/* Groups as messages call them. */
enum { RPI_SCOPE_NAME_BYTES = 96 };
#define RPI_NO_SCOPE UINT64_MAX

/* A member of a group, in the order of ranks. */
typedef struct rpi_place_of_rank {
    int rank, place;
} rpi_place_of_rank;

struct rpi_control_group {
    rpi_control *control;
    uint64_t scope;
    int count;
    int *ranks; /* [count] its members, as the control connection numbers them; NULL: all */
    rpi_place_of_rank *sorted; /* [count] by rank; NULL: all */
    char name[RPI_SCOPE_NAME_BYTES];
    uint64_t parent; /* [lock] scope of that which it was made of; RPI_NO_SCOPE: none */
    atomic_ullong waiter, poster; /* threads, by a number; 0: none */
    atomic_int in_flight;
    atomic_bool overdue;
    atomic_ullong sequence;
    atomic_ullong gap; /* 2^24 * step + rank + 1; 0: none */
    atomic_bool known; /* failed, for a look without the lock */

    /* Under the lock. */
    rpi_control_group *next;
    bool failed, published, outbox_full;
    int known_by; /* one more than the coordinator that knows of this member; 0: none does */
    bool is_reported;     /* `report` waits for a decision */
    bool is_own_decision; /* for want of a coordinator: the next one is to hear of it */
    rpi_failure failure, report;
    int64_t report_ns;     /* when `report` becomes the decision; RPI_NEVER_NS: not by itself */
    rpi_group_beat *beats; /* [count] */
};

/* Ranks in a row, from `rank` on, whose beats say the same. */
typedef struct rpi_beat_run {
    int rank, count;
    rpi_group_beat beat;
} rpi_beat_run;

/* A member of a group, as the coordinator knows it. */
typedef struct rpi_scope_member {
    int rank;
    bool fresh;          /* a beat to pass on */
    rpi_group_beat beat; /* its gap's rank is the control connection's */
} rpi_scope_member;

/* A group that some rank has opened, as the coordinator knows it. */
typedef struct rpi_scope {
    struct rpi_scope *next;
    uint64_t scope;
    char name[RPI_SCOPE_NAME_BYTES];
    int size;                  /* of all its members */
    int count, room;           /* that have said so far that they are */
    rpi_scope_member *members; /* [count] by rank */
    bool failed;
} rpi_scope;

enum { RPI_CONTROL_EARLY = 64 };

struct rpi_control {
    int rank, world;
    uint64_t session;
    void (*describe)(uint64_t sequence, char *text, size_t bytes);
    rpi_secret secret;
    int64_t beat_ns, silence_ns, opened_ns;
    int64_t lost_ns; /* a host that answers nothing for so long is lost */
    pthread_t thread;
    bool has_thread;
    int wake;         /* eventfd: look at the fields under the lock again */
    int failed_fd;    /* eventfd: readable once a group has failed */
    atomic_bool told; /* and that it has been written, so that nobody reads in vain */
    rpi_control_group everybody; /* the group of all ranks, scope 0 */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock. */
    int arrived;   /* coordinator: ranks that have come, */
    bool *present; /* [world] and which */
    rpi_control_phase phase;
    rpi_control_group *groups; /* all, `everybody` among them */
    int64_t *heard_ns;         /* [world] when a rank's last beat came */
    uint32_t *beat_counts;     /* [world] its beats so far */
    bool *dead;                /* [world] */
    bool *lost;                /* [world] its host has answered nothing for long */
    int served_by; /* the coordinator whose beats tell of the others, or what there is instead:
                    */
    int64_t served_ns, served_heard_ns;   /* since when, and when it last said something */
    int lost_coordinator;                 /* the last that was lost; -1: none was */
    rpi_failure early[RPI_CONTROL_EARLY]; /* of groups that are not open here yet: a ring */
    unsigned early_count;
    uint64_t *closed; /* scopes of groups that were closed since the last beat */
    size_t closed_count, closed_room;

    /* The thread's own. */
    rpi_control_duty duty;
    rpi_control_role role; /* who decides: this rank, another, or nobody */
    int coordinator;       /* rank 0 at first; the one that is called (control_succession.c) */
    int64_t elect_ns;      /* when to look for the next one; RPI_NEVER_NS: there is one */
    int64_t welcome_by_ns; /* and when one that was called is passed over */
    bool passed_over; /* others have done so with this rank: it will not be the coordinator */
    char addresses[RPI_CONTROL_SUCCESSORS + 1][RPI_CONTROL_ADDRESS_BYTES]; /* of successors */
    int listener;
    rpi_control_connection *connections; /* connections[0] to the coordinator; of rank 0 and
                                successors connections from ranks and strangers behind it */
    int connection_count;
    int *connection_of; /* [world]: a rank's connection that has called, -1 before it came */
    bool *fresh;        /* [world]: coordinator: a beat to pass on */
    unsigned refusals;
    int64_t *suspect_ns;   /* [world]: when a death is made known; RPI_NEVER_NS: none */
    rpi_failure *deferred; /* reports that wait until no rank is suspected */
    size_t deferred_count, deferred_room;
    rpi_beat_run *runs; /* [world]: coordinator: what a beat says */
    rpi_scope *scopes;  /* coordinator: groups of any ranks */
    int64_t beat_at_ns, leave_by_ns;
    struct pollfd *polls; /* [connection_count + 2] */
    char lack[240];       /* [lock] why callers could not be let in; "": they could */
};

/* Under the lock: this is the group's first failure. */
void rpi_control_keep(rpi_control_group *group, const rpi_failure *failure);
/* Under the lock: what there is to say of a group that has a rank that died. */
void rpi_control_describe_death(const rpi_control_group *group, int rank,
                                rpi_failure *out_failure);
/* The place of a rank in the group; -1: it is no member. */
int rpi_control_member(const rpi_control_group *group, int rank);
/* Under the lock: the first failure of a group that is not open here; NULL: none is kept. */
const rpi_failure *rpi_control_early_of(const rpi_control *control, uint64_t scope);
/* Under the lock. NULL: none of this scope is open here. */
rpi_control_group *rpi_control_find_group(rpi_control *control, uint64_t scope);
/* Sleep until something under the lock has changed; false once the deadline has come. */
bool rpi_control_wait_change(rpi_control *control, int64_t deadline_ns);
/* Of each of the group's members, with nothing heard. */
rp_status rpi_control_make_beats(rpi_control_group *group);
/* A published failure before the arbiter (control_arbiter.c): decided, or kept until no rank is
 * suspected to be dead. */
void rpi_control_arbitrate(rpi_control *control, const rpi_failure *failure);
/* It is the next failure in order: known here, and on rank 0 told to everybody. */
void rpi_control_decide(rpi_control *control, const rpi_failure *failure);
/* A rank's connection has ended without goodbye: dead, once the suspicion delay is over. */
void rpi_control_suspect(rpi_control *control, int rank);
/* Make the deaths known whose suspicion delay is over by then; until when the next one's lasts.
 */
int64_t rpi_control_end_suspicion(rpi_control *control, int64_t now_ns);
/* Failures that callers have published since, to rank 0. */
void rpi_control_send_reports(rpi_control *control);
/* What has been decided, to a rank that may have had no coordinator then; and what was decided
 * without one, to the coordinator that there is now. */
void rpi_control_send_decisions(rpi_control *control, rpi_control_connection *connection);
void rpi_control_send_own_decisions(rpi_control *control, rpi_control_connection *connection);
/* Decide here the reports that rank 0 has not for long, or will not any more; when the next one
 * is due. */
void rpi_control_arbitrate_overdue(rpi_control *control);
int64_t rpi_control_next_report_ns(rpi_control *control);
/* What came on a connection of beats of one rank, and of several (control_beats.c). */
void rpi_control_take_beat(rpi_control *control, const rpi_control_record *record);
void rpi_control_take_beats(rpi_control *control, const rpi_control_record *record);
/* Groups of any ranks, on the coordinator (control_scopes.c). */
void rpi_scope_join(rpi_control *control, uint64_t scope, int rank, int size, const char *name);
void rpi_scope_leave(rpi_control *control, uint64_t scope, int rank);
void rpi_scopes_remove_rank(rpi_control *control, int rank); /* the rank has gone */
void rpi_scopes_free(rpi_control *control);
/* What the rank says in the group, with `beat_number` for its beats so far; nothing of no
 * member. */
void rpi_scope_receive(rpi_control *control, uint64_t scope, int rank,
                       const rpi_group_beat *beat);
/* What has been heard since the last beat, to members and nobody else. */
void rpi_scopes_queue(rpi_control *control);
/* Members in a row, of `count` that has heard of `fresh`, which say the same: one run. */
bool rpi_beats_are_alike(const rpi_group_beat *a, const rpi_group_beat *b);
/* A beat was said after an earlier one: since when the rank has said so without a break. */
void rpi_beat_renew(rpi_group_beat *beat, const rpi_group_beat *said, uint32_t beat_counts);
/* On the coordinator, after a beat: waits that will never end are failed (control_waits.c). */
void rpi_control_arbitrate_waits(rpi_control *control);
/* This rank's own beat; `tell`: say it, and on rank 0 what has been heard of the others. */
void rpi_control_beat_once(rpi_control *control, bool tell);
static inline bool rpi_control_is_coordinator(const rpi_control *control) {
    return control->role == RPI_CONTROL_LEADS;
}

/* Nobody decides, for now or any more. */
static inline bool rpi_control_has_no_coordinator(const rpi_control *control) {
    return control->role != RPI_CONTROL_LEADS && control->role != RPI_CONTROL_FOLLOWS;
}

/* Steps of the three machines above, the first under the lock (control_state.c). */
void rpi_control_enter_phase(rpi_control *control, rpi_control_phase phase);
void rpi_control_enter_duty(rpi_control *control, rpi_control_duty duty);
void rpi_control_enter_role(rpi_control *control, rpi_control_role role);
/* The connection has been open, as far as this rank has heard; takes the lock. */
bool rpi_control_is_welcome(rpi_control *control);
/* The same, under the lock. */
static inline bool rpi_control_was_open(const rpi_control *control) {
    return control->phase == RPI_CONTROL_OPEN || control->phase == RPI_CONTROL_CLOSING;
}

/* This rank's own connection to the coordinator; false: a caller's. */
static inline bool rpi_control_is_up(const rpi_control *control,
                                     const rpi_control_connection *connection) {
    return connection == control->connections;
}

/* Ranks that listen from the beginning, to be the coordinator when all before them have gone.
 */
bool rpi_control_is_successor(int rank, int world);
/* Of successors; others do nothing, and one that has no port left is none. */
void rpi_control_listen(rpi_control *control, const char *bind_host);
void rpi_control_note_address(rpi_control *control, int rank, const char *text);
/* Queue them, on rank 0. */
void rpi_control_send_addresses(const rpi_control *control, rpi_control_connection *connection);
/* The coordinator has left, or died: elect_ns is when to elect another. */
void rpi_control_lose_coordinator(rpi_control *control);
/* It has said something; is_welcome: for the first time, that it is the coordinator. */
void rpi_control_receive_coordinator(rpi_control *control, bool is_welcome);
/* A caller has gone on to the next in line: this rank is the coordinator no more, nor will it
 * be. */
void rpi_control_resign(rpi_control *control);
/* Pass over a coordinator that is silent, or has not welcomed us in time. */
void rpi_control_watch_coordinator(rpi_control *control);
/* A record that came on a connection (control_records.c). */
void rpi_control_take_record(rpi_control *control, rpi_control_connection *connection,
                             rpi_control_record *record);
/* Ends a connection, here; of a caller its groups, too. */
void rpi_control_drop_connection(rpi_control *control, rpi_control_connection *connection);
/* Call the next in line, or be it. Blocks for a moment where one does not answer. */
void rpi_control_elect(rpi_control *control);
/* The thread: hears callers and connections until it has left. context: the rpi_control. */
void *rpi_control_run(void *context);

#endif
