/* A training on spot nodes, played through over a trace of when they came and went.
 *
 * Its world is as large as there are nodes, up to `most`; below `least` it waits. Either it
 * restarts at each change of its world: the work since the last save is lost, but where a
 * notice is long enough to save, and it stands still for `restart_s`, which a new change begins
 * anew. Or it is elastic: those that are left go on after `stall_s`, a node that joins idles
 * for `join_s` while it is brought up to date, and work is lost only where no node is left. A
 * node beyond `most` is a spare; of several that are lost, those at work count first. */
#ifndef RPI_PLAN_SPOT_REPLAY_H
#define RPI_PLAN_SPOT_REPLAY_H

#include "plan/foresight/spot_trace.h"

#include <stdbool.h>

typedef struct rpi_spot_rules {
    int64_t most, least; /* nodes of the world; at least 1 */
    double interval_s;   /* of work between two saves; above 0 */
    double save_s;       /* for which the work stands still */
    bool notice_fits;    /* a save, before a node is taken back */
    double restart_s;
    bool is_elastic;
    double stall_s, join_s; /* where it is elastic */
    /* What a world of k nodes does in a second, at [k] of most + 1, in seconds of a world of
     * `most`; NULL: k / most. A world whose share is 0 waits. */
    const double *pace;
} rpi_spot_rules;

/* Node seconds of the trace, by what became of them. */
typedef struct rpi_spot_account {
    double all, useful;
    double lost, saving, standing; /* work that was lost; while it restarts, stalls or joins */
    double waiting, spare;         /* below `least`; beyond `most` */
    double useful_s;               /* of a world of `most` nodes that does as much */
    int64_t changes;               /* of its world */
} rpi_spot_account;

rpi_spot_account rpi_spot_replay(const rpi_spot_trace *trace, const rpi_spot_rules *rules);

/* Until so much work is done, in seconds of a world of `most` nodes: a trace that is over
 * begins anew, and so does the world, without a loss. */
typedef struct rpi_spot_finish {
    double seconds;
    double turns; /* of the trace, the last of them not to its end */
    rpi_spot_account account;
} rpi_spot_finish;
/* false: however often, it is never done. work_s: above 0. */
bool rpi_spot_finish_find(const rpi_spot_trace *trace, const rpi_spot_rules *rules,
                          double work_s, rpi_spot_finish *out);

/* The interval that would have been the best for this trace, in hindsight, between save_s (or a
 * second) and its length. */
double rpi_spot_best_interval(const rpi_spot_trace *trace, const rpi_spot_rules *rules);

#endif
