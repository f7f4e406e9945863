/* A training on spot nodes, simulated over a trace of nodes that came and went.
 *
 * Its world has all nodes, up to `most`; below `least` it waits. If it restarts at each change
 * of its world it stops for `restart_s`, which a new change begins again, and loses the work
 * since the last save unless a notice is long enough for a save. If it is elastic the nodes
 * that are left go on after `stall_s`, a node that joins is idle for `join_s` while it gets the
 * state, and work is lost only if no node is left. Nodes beyond `most` are spares; of several
 * lost nodes, working ones count first. */
#ifndef RPI_PLAN_SPOT_REPLAY_H
#define RPI_PLAN_SPOT_REPLAY_H

#include "plan/foresight/spot_trace.h"

#include <stdbool.h>

typedef struct rpi_spot_rules {
    int64_t most, least; /* nodes of the world; at least 1 */
    double interval_s;   /* work between two saves; above 0 */
    double save_s;       /* the time for which a save stops the work */
    bool notice_fits;    /* a save is possible before a node is taken back */
    double restart_s;
    bool is_elastic;
    double stall_s, join_s; /* if it is elastic */
    /* pace[k] of most + 1: the work of k nodes in a second, in seconds of a world of `most`;
     * NULL: k / most. A world with pace 0 waits. */
    const double *pace;
} rpi_spot_rules;

/* The node seconds of the trace, by use. */
typedef struct rpi_spot_account {
    double all, useful;
    double lost, saving, standing; /* lost work; stopped by restarts, stalls and joins */
    double waiting, spare;         /* below `least`; beyond `most` */
    double useful_s;               /* the time in which a world of `most` nodes does as much */
    int64_t changes;               /* changes of its world */
} rpi_spot_account;

rpi_spot_account rpi_spot_replay(const rpi_spot_trace *trace, const rpi_spot_rules *rules);

/* Simulates until so much work is done, in seconds of a world of `most` nodes. A trace that is
 * over begins again, with a new world, without a loss. */
typedef struct rpi_spot_finish {
    double seconds;
    double turns; /* repetitions of the trace, the last one not complete */
    rpi_spot_account account;
} rpi_spot_finish;
/* false: the work is never done, with any number of repetitions. work_s: above 0. */
bool rpi_spot_finish_find(const rpi_spot_trace *trace, const rpi_spot_rules *rules,
                          double work_s, rpi_spot_finish *out);

/* The best interval for this trace, in hindsight, between save_s (or a second) and its length.
 */
double rpi_spot_best_interval(const rpi_spot_trace *trace, const rpi_spot_rules *rules);

#endif
