/* What the calls of the control connection (control_open.c, control_groups.c, control_notes.c)
 * and its thread (control_thread.c) share.
 *
 *     the connection   OPENING -- everybody has come --> OPEN -- close() --> CLOSING
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

/* The first coordinator, and the number of ranks in line after it. */
enum {
    RPI_COORDINATOR_SOUGHT = -1,
    RPI_COORDINATOR_NONE = -2
}; /* served_by: this rank is the coordinator; no rank is left in line */
enum {
    RPI_CONTROL_COORDINATOR = 0,
    RPI_CONTROL_SUCCESSORS = 8,
    RPI_CONTROL_ADDRESS_BYTES = 272
};

typedef enum rpi_control_phase {
    RPI_CONTROL_OPENING, /* rank 0 waits for the others, and they wait for its welcome */
    RPI_CONTROL_OPEN,
    RPI_CONTROL_CLOSING,
    RPI_CONTROL_GIVEN_UP, /* closed before all had connected */
} rpi_control_phase;

typedef enum rpi_control_duty {
    RPI_CONTROL_GATHERS, /* rank 0: accepts callers, and has welcomed none of them */
    RPI_CONTROL_SERVES,
    RPI_CONTROL_LEAVES, /* has sent its goodbye, and waits for the others to close */
} rpi_control_duty;

typedef enum rpi_control_role {
    RPI_CONTROL_LEADS,   /* this rank is the coordinator */
    RPI_CONTROL_FOLLOWS, /* another one is */
    RPI_CONTROL_SEEKS,   /* it has ended: the next one is called at elect_ns */
    RPI_CONTROL_CALLS,   /* waits until welcome_by_ns for the welcome of the next one */
    RPI_CONTROL_ALONE,   /* there is none left */
} rpi_control_role;

/* The wait that a rank reported last in a group; it is valid as long as each of its beats
 * reports it. */
typedef struct rpi_group_beat {
    uint64_t sequence;
    rpi_control_gap gap;
    int64_t since_ns;     /* reported in each beat since then */
    uint32_t beat_number; /* of the rank's beats */
    bool blocked;         /* of the group of all: so is the rank's process */
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
    uint64_t parent; /* [lock] scope of the group from which it was made; RPI_NO_SCOPE: none */
    atomic_ullong waiter, poster; /* threads, by a number; 0: none */
    atomic_int in_flight;
    atomic_bool overdue;
    atomic_ullong sequence;
    atomic_ullong gap; /* 2^24 * step + rank + 1; 0: none */
    atomic_bool known; /* failed, for a check without the lock */

    /* Under the lock. */
    rpi_control_group *next;
    bool failed, published, outbox_full;
    int known_by;     /* one more than the coordinator that knows this member; 0: none does */
    bool is_reported; /* `report` waits for a decision */
    bool is_own_decision; /* for lack of a coordinator: to be sent to the next one */
    rpi_failure failure, report;
    int64_t report_ns;     /* when `report` becomes the decision; RPI_NEVER_NS: not by itself */
    rpi_group_beat *beats; /* [count] */
};

/* Consecutive ranks, from `rank` on, whose beats have the same state. */
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

/* A group that some rank has opened, on the coordinator. */
typedef struct rpi_scope {
    struct rpi_scope *next;
    uint64_t scope;
    char name[RPI_SCOPE_NAME_BYTES];
    int size;                  /* of all its members */
    int count, room;           /* that have told the coordinator that they are members */
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
    int64_t lost_ns; /* a host that does not answer for this long is lost */
    pthread_t thread;
    bool has_thread;
    int wake;         /* eventfd: the thread is to read the fields under the lock again */
    int failed_fd;    /* eventfd: readable once a group has failed */
    atomic_bool told; /* whether it has been written, so that it is not read in vain */
    rpi_control_group everybody; /* the group of all ranks, scope 0 */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock. */
    int arrived;   /* coordinator: ranks that have connected, */
    bool *present; /* [world] and which */
    rpi_control_phase phase;
    rpi_control_group *groups; /* all, `everybody` among them */
    int64_t *heard_ns;         /* [world] when a rank's last beat came */
    uint32_t *beat_counts;     /* [world] its beats so far */
    bool *dead;                /* [world] */
    bool *lost;                /* [world] its host has not answered for long */
    int served_by; /* the coordinator whose beats report the others, or what there is instead:
                    */
    int64_t served_ns, served_heard_ns;   /* since when, and when it last sent something */
    int lost_coordinator;                 /* the last coordinator that was lost; -1: none was */
    rpi_failure early[RPI_CONTROL_EARLY]; /* of groups that are not open here yet: a ring */
    unsigned early_count;
    uint64_t *closed; /* scopes of groups that were closed since the last beat */
    size_t closed_count, closed_room;

    /* The thread's own. */
    rpi_control_duty duty;
    rpi_control_role role; /* which rank decides: this one, another, or none */
    int coordinator;       /* rank 0 at first; the one that is called (control_succession.c) */
    int64_t elect_ns; /* when to turn to the next one; RPI_NEVER_NS: there is a coordinator */
    int64_t welcome_by_ns; /* and when a called one that is silent is skipped */
    bool passed_over;      /* others have skipped this rank: it will not be the coordinator */
    char addresses[RPI_CONTROL_SUCCESSORS + 1][RPI_CONTROL_ADDRESS_BYTES]; /* of successors */
    int listener;
    rpi_control_connection *connections; /* connections[0] to the coordinator; of rank 0 and
                                successors connections from ranks and strangers behind it */
    int connection_count;
    int *connection_of; /* [world]: a rank's connection after it has called, -1 before */
    bool *fresh;        /* [world]: coordinator: a beat to pass on */
    unsigned refusals;
    int64_t *suspect_ns;   /* [world]: when a death is made known; RPI_NEVER_NS: none */
    rpi_failure *deferred; /* reports that wait until no death is suspected */
    size_t deferred_count, deferred_room;
    rpi_beat_run *runs; /* [world]: coordinator: the content of a beat */
    rpi_scope *scopes;  /* coordinator: groups of any ranks */
    int64_t beat_at_ns, leave_by_ns;
    struct pollfd *polls; /* [connection_count + 2] */
    char lack[240];       /* [lock] why callers could not be accepted; "": they could */
};

/* Under the lock: records the group's first failure. */
void rpi_control_keep(rpi_control_group *group, const rpi_failure *failure);
/* Under the lock: the failure of a group that has a rank that died. */
void rpi_control_describe_death(const rpi_control_group *group, int rank,
                                rpi_failure *out_failure);
/* The place of a rank in the group; -1: it is no member. */
int rpi_control_member(const rpi_control_group *group, int rank);
/* And the rank at a place; -1: it has no such place. */
int rpi_control_rank(const rpi_control_group *group, int member);
/* Under the lock: the kept failure of a group that is not open here; NULL: none. */
const rpi_failure *rpi_control_early_of(const rpi_control *control, uint64_t scope);
/* Under the lock. NULL: no group of this scope is open here. */
rpi_control_group *rpi_control_find_group(rpi_control *control, uint64_t scope);
/* Sleep until something under the lock has changed; false after the deadline. */
bool rpi_control_wait_change(rpi_control *control, int64_t deadline_ns);
/* For each of the group's members, with no beats received. */
rp_status rpi_control_make_beats(rpi_control_group *group);
/* A reported failure reaches the arbiter (control_arbiter.c): it is decided, or kept until no
 * death is suspected. */
void rpi_control_arbitrate(rpi_control *control, const rpi_failure *failure);
/* The next failure in order: it becomes known here, and on rank 0 is sent to all. */
void rpi_control_decide(rpi_control *control, const rpi_failure *failure);
/* The coordinator has closed the connection before its welcome. */
void rpi_control_decide_unwelcome(rpi_control *control, const char *reason);
/* A rank's connection has ended without goodbye: it counts as dead after the suspicion delay.
 */
void rpi_control_suspect(rpi_control *control, int rank);
/* Make the deaths known whose suspicion delay is over; returns when the next one ends. */
int64_t rpi_control_end_suspicion(rpi_control *control, int64_t now_ns);
/* Send rank 0 the failures that callers have reported since the last time. */
void rpi_control_send_reports(rpi_control *control);
/* Send the decisions to a rank that may have had no coordinator when they were made, or those
 * made without a coordinator to the new one. */
void rpi_control_send_decisions(rpi_control *control, rpi_control_connection *connection);
void rpi_control_send_own_decisions(rpi_control *control, rpi_control_connection *connection);
/* Decide reports here if rank 0 has not for long, or no longer can; returns when the next one
 * is due. */
void rpi_control_arbitrate_overdue(rpi_control *control);
int64_t rpi_control_next_report_ns(rpi_control *control);
/* Records of beats that arrived on a connection, of one rank and of several (control_beats.c).
 */
void rpi_control_take_beat(rpi_control *control, const rpi_control_record *record);
void rpi_control_take_beats(rpi_control *control, const rpi_control_record *record);
/* Groups of any ranks, on the coordinator (control_scopes.c). */
void rpi_scope_join(rpi_control *control, uint64_t scope, int rank, int size, const char *name);
void rpi_scope_leave(rpi_control *control, uint64_t scope, int rank);
void rpi_scopes_remove_rank(rpi_control *control, int rank); /* the rank has gone */
void rpi_scopes_free(rpi_control *control);
/* The state that the rank reports in the group, with `beat_number` for its beats so far;
 * ignored if it is not a member. */
void rpi_scope_receive(rpi_control *control, uint64_t scope, int rank,
                       const rpi_group_beat *beat);
/* Send what was received since the last beat, only to members. */
void rpi_scopes_queue(rpi_control *control);
/* Consecutive members, of `count` with `fresh` beats, that have the same state: one run. */
bool rpi_beats_are_alike(const rpi_group_beat *a, const rpi_group_beat *b);
/* Compare a beat with the previous one: since when the rank has reported the same state. */
void rpi_beat_renew(rpi_group_beat *beat, const rpi_group_beat *said, uint32_t beat_counts);
/* On the coordinator, after a beat: fail waits that will never end (control_waits.c). */
void rpi_control_arbitrate_waits(rpi_control *control);
/* This rank's own beat; `tell`: send it, and on rank 0 the beats received from the others. */
void rpi_control_beat_once(rpi_control *control, bool tell);
static inline bool rpi_control_is_coordinator(const rpi_control *control) {
    return control->role == RPI_CONTROL_LEADS;
}

/* No rank decides, for now or ever. */
static inline bool rpi_control_has_no_coordinator(const rpi_control *control) {
    return control->role != RPI_CONTROL_LEADS && control->role != RPI_CONTROL_FOLLOWS;
}

/* Steps of the three machines above, the first under the lock (control_state.c). */
void rpi_control_enter_phase(rpi_control *control, rpi_control_phase phase);
void rpi_control_enter_duty(rpi_control *control, rpi_control_duty duty);
void rpi_control_enter_role(rpi_control *control, rpi_control_role role);
/* Whether the connection has been open, as far as this rank knows; takes the lock. */
bool rpi_control_is_welcome(rpi_control *control);
/* The same, under the lock. */
static inline bool rpi_control_was_open(const rpi_control *control) {
    return control->phase == RPI_CONTROL_OPEN || control->phase == RPI_CONTROL_CLOSING;
}

/* Whether this is this rank's own connection to the coordinator; false: a caller's. */
static inline bool rpi_control_is_up(const rpi_control *control,
                                     const rpi_control_connection *connection) {
    return connection == control->connections;
}

/* Ranks that listen from the beginning, to become the coordinator when all before them have
 * ended. */
bool rpi_control_is_successor(int rank, int world);
/* For successors only; one that has no free port left is none. */
void rpi_control_listen(rpi_control *control, const char *bind_host);
void rpi_control_note_address(rpi_control *control, int rank, const char *text);
/* Queue them, on rank 0. */
void rpi_control_send_addresses(const rpi_control *control, rpi_control_connection *connection);
/* The coordinator has left or died: elect_ns is when to turn to the next. */
void rpi_control_lose_coordinator(rpi_control *control);
/* The coordinator has sent something; is_welcome: for the first time, that it is the
 * coordinator. */
void rpi_control_receive_coordinator(rpi_control *control, bool is_welcome);
/* A caller has turned to the next in line: this rank is the coordinator no longer and will not
 * become it. */
void rpi_control_resign(rpi_control *control);
/* Skip a coordinator that is silent, or has not welcomed us in time. */
void rpi_control_watch_coordinator(rpi_control *control);
/* Take a record that arrived on a connection (control_records.c). */
void rpi_control_take_record(rpi_control *control, rpi_control_connection *connection,
                             rpi_control_record *record);
/* End a connection here; if it is a caller's, also its groups. */
void rpi_control_drop_connection(rpi_control *control, rpi_control_connection *connection);
/* Call the next in line, or become the coordinator. Blocks for a moment if one does not answer.
 */
void rpi_control_elect(rpi_control *control);
/* The thread: receives callers and records until it has left. context: the rpi_control. */
void *rpi_control_run(void *context);

#endif
