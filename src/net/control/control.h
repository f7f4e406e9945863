/* The control connection: heartbeats, and the first failure made known to all.
 *
 * A star of TCP connections to rank 0 with one sleeping thread a process, so that it beats
 * while the caller computes, saves or sleeps. A beat carries what the rank is doing. The thread
 * of a stopped process stops with it: that is how "computing" is told from "not making
 * progress".
 *
 * Rank 0 is the arbiter: whatever ranks publish and whoever dies, it accepts one failure, the
 * first, and all ranks hear that one. A death is deferred for a moment
 * (RPI_CONTROL_SUSPECT_S), because a rank that waited for the dead one knows the operation and
 * the phase; its report is taken instead. When rank 0 itself is gone, every rank decides for
 * itself, until after a beat the next rank has taken its place (control_succession.c).
 *
 * So a rank whose link breaks publishes what it saw, then waits for the decision:
 *
 *     rpi_control_publish(group, &seen);
 *     rpi_control_wait_failed(group, rpi_deadline_ns(RPI_CONTROL_DECISION_S), &failure);
 *
 * Many communicators share a control connection, as groups of its ranks. Failures are by group:
 * rank 0 puts them in an order, also those of groups that it is no member of, and each group
 * goes by the first that is its own or the death of a member. Beats say what a rank waits for
 * in each group; whether it lives concerns all of them.
 *
 * Whether a process computes or waits is told of the whole of it: it waits where each thread
 * that has posted to a group waits in one, without a deadline of its own, and each operation in
 * flight lacks a frame that is known. Rank 0 follows such waits from rank to rank and from
 * group to group (control_waits.c), and fails those that will never end.
 *
 *     a rank publishes in a group --> rank 0: is a rank suspected to be dead?
 *       no, or the report is of that rank --> all ranks hear it: the group's decision
 *       yes, and it is of another ---------> deferred until the death is known, then told
 *     a connection ends without goodbye --> suspected; RPI_CONTROL_SUSPECT_S later
 *                                           all ranks hear of the death: the decision
 *                                           of all groups that have the rank */
#ifndef RPI_NET_CONTROL_H
#define RPI_NET_CONTROL_H

#include "base/status.h"
#include "net/bytes/look.h"
#include "redpoll/store.h"

#include <stdbool.h>

#define RPI_CONTROL_SUSPECT_S  0.15
/* By then a decision is known: rank 0's, or this rank's own. */
#define RPI_CONTROL_DECISION_S 2.0

typedef struct rpi_control rpi_control;
typedef struct rpi_control_group rpi_control_group;

typedef struct rpi_control_options {
    const char *prefix;    /* of keys in the store */
    const char *bind_host; /* rank 0 listens here and the others call it here; NULL: loopback */
    uint64_t session;
    const struct rpi_secret *secret; /* of the job; NULL: none. Copied */
    double timeout_s;                /* to connect */
    double beat_s;                   /* between beats; 0: half a second */
    /* The name of an operation in messages; NULL: "operation 7". Any thread. */
    void (*describe)(uint64_t sequence, char *text, size_t bytes);
    rpi_look look; /* checked while waiting for others to connect; zeros: no check */
} rpi_control_options;

enum { RPI_HOST_LOST = -2, RPI_OUTSIDE = 1 << 30 };

/* A failure as the rank that found it saw it. */
typedef struct rpi_failure {
    rp_status status;
    int rank;         /* the rank that failed; -1: no single rank */
    int finder;       /* who says so; -1: the control connection, which saw a process end;
                         RPI_HOST_LOST: the same of a host; RPI_OUTSIDE: no member */
    uint64_t scope;   /* of the group; of the control connection for that of all */
    bool ends_groups; /* groups that are made from this one fail, too */
    char text[400];   /* one line: rank, operation, phase, bytes short */
} rpi_failure;

/* A frame for which a rank has waited for a while. */
typedef struct rpi_control_gap {
    int from;      /* the rank that has to send it; -1: there is none */
    bool overdue;  /* nothing has moved for the whole timeout */
    uint64_t step; /* of the operation; earlier frames have smaller ones; below 2^40 */
} rpi_control_gap;

/* The state that a rank reported last. */
typedef struct rpi_control_beat {
    int64_t heard_ns;  /* our clock, when its last beat arrived; 0: none yet */
    int64_t silent_ns; /* how long no beat has come that was due from the rank that passes them
                        * on, */
    int by;            /* which is this rank or the coordinator */
    uint64_t sequence; /* the operation in which it waits; 0: none, it computes */
    rpi_control_gap gap;
    bool blocked; /* its whole process waits, in this group or another */
} rpi_control_beat;

/* REDPOLL_LOST_AFTER, or 30: a host that does not answer for this many seconds is lost. It is a
 * property of hosts, and the same for all communicators of a process. RP_INVALID: not a valid
 * time. */
rp_status rpi_control_lost_after(double *out_s);

/* Collective over the store: returns on every rank or fails on every rank by the deadline, and
 * names the ranks that did not connect. A world of 1 opens nothing, and only failures that it
 * reports itself fail it. */
rp_status rpi_control_open(const rp_store *store, int rank, int world,
                           const rpi_control_options *options, rpi_control **out_control);
/* The group of all ranks. It needs no closing. */
rpi_control_group *rpi_control_everybody(rpi_control *control);
/* A group of `count` ranks. scope: above 0, the same on all members and different from those of
 * other living groups. Local: members also learn of failures from before they opened it. ranks:
 * copied; members are named by their place in it. */
rp_status rpi_control_group_open(rpi_control *control, uint64_t scope, const int *ranks,
                                 int count, rpi_control_group **out_group);
/* From now on its scope is this one, as if it had been opened with it. For a group that was
 * opened under a temporary scope of its own, before its members had agreed on one. Failures
 * that were reported before belong to the old scope. Any thread. */
void rpi_control_group_rename(rpi_control_group *group, uint64_t scope);
void rpi_control_group_close(rpi_control_group *group); /* NULL and everybody are fine */
/* Report a failure to all members; only the first failure of a group is kept. Ranks in it are
 * members. Any thread; does not block. */
void rpi_control_publish(rpi_control_group *group, const rpi_failure *failure);
/* The group's first failure, if one is known here: a reported one, or the death of a member,
 * whose control connection ended without goodbye. Any thread; cheap as long as there is none.
 */
bool rpi_control_failed(rpi_control_group *group, rpi_failure *out_failure);
/* Wait until a failure is known or the deadline is over; true if one is known. */
bool rpi_control_wait_failed(rpi_control_group *group, int64_t deadline_ns,
                             rpi_failure *out_failure);
/* Becomes readable when a failure of any group is known, until rpi_control_clear_fd(); for
 * poll() together with the endpoints' descriptors. -1, which poll() ignores, in a world of 1.
 */
int rpi_control_fd(rpi_control *control);
void rpi_control_clear_fd(rpi_control *control);
/* The name of the group in messages, and the group from which it was made (NULL: none). Call
 * this once, before anything is noted in it. */
void rpi_control_describe(rpi_control_group *group, const char *name,
                          const rpi_control_group *parent);
/* For this rank's beats: the operation in which it waits, and the frame for which it waits. Any
 * thread; takes no lock, one store each. */
void rpi_control_note(rpi_control_group *group, uint64_t sequence);
/* The same for a wait of this thread without a deadline: the thread does nothing else
 * meanwhile. */
void rpi_control_note_wait(rpi_control_group *group, uint64_t sequence);
/* How many operations are in flight; is_new: this thread has posted one. */
void rpi_control_note_posted(rpi_control_group *group, int in_flight, bool is_new);
void rpi_control_note_gap(rpi_control_group *group, rpi_control_gap gap);
void rpi_control_beat_of(rpi_control_group *group, int member, rpi_control_beat *out_beat);
/* The name of a group of this rank in which that rank waits; false: none that is known here. */
bool rpi_control_waits_in(rpi_control_group *group, int member, char *name, size_t bytes);
/* A rank that beats every beat_s and has sent none for this long is stopped or cut off. */
int64_t rpi_control_silence_ns(double beat_s);
/* Sends a goodbye, so that peers do not take the end for a death. A failure that was reported
 * just before still reaches them. Blocks until all living ranks have received it, at most three
 * seconds. NULL is fine. */
void rpi_control_close(rpi_control *control);
/* In a child made by fork(): closes its copies of the descriptors (transport.h). */
void rpi_control_close_after_fork(rpi_control *control);

#endif
