/** Parameter servers: some ranks keep the parameters, the others learn and send gradients.
 *
 * The vector of parameters is cut into shards, one a server, at granules of its codecs. A
 * worker computes a gradient, pushes each server its part of it, and has back the parameters as
 * they are then. The servers merge pushes and step their shards, by a function of the caller's,
 * so that the optimizer's state lives with them.
 *
 *     staleness 0      synchronous: a merge takes a push of every worker, added in their order
 *     staleness K      each push is merged when it comes; while a worker computes, no other has
 *                      more than K pushes merged: gradients are at most K steps old
 *     RP_ANY_STALENESS asynchronous: nobody waits for another
 *     quorum Q         a merge takes Q pushes, and what comes within `grace_s` more; of several
 *                      servers the first one counts, and the others merge the same pushes
 *
 * Pushes are numbered by their worker; each is merged once and acknowledged by the parameters
 * that come back.
 *
 *     rp_parameter_server_create(comm, segments, count, &options, &server);
 *     rp_parameter_server_begin(server, values, 0, steps);
 *     while (rp_parameter_server_goes_on(server)) {
 *         ... a gradient at `values`, into the segments ...
 *         rp_parameter_server_push(server, weight, NULL, &report);
 *     }
 *     rp_parameter_server_end(server);      a server that does not work serves in here
 */
#ifndef REDPOLL_PARAMETER_SERVER_H
#define REDPOLL_PARAMETER_SERVER_H

#include "redpoll/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rp_parameter_server rp_parameter_server;

enum { RP_ANY_STALENESS = -1, RP_PUSH_NOTES = 8 };

/** A push that is being merged. */
typedef struct rp_parameter_push {
    int worker;          /**< Counted from 0, in the order of ranks. */
    uint64_t number;     /**< From 1 on, by worker. */
    double weight;       /**< As the worker said. */
    int64_t staleness;   /**< Steps: the most pushes of one other worker that were merged since
                              this one got its parameters. At most the option's. */
    int64_t updates;     /**< Merges since then. */
    const double *notes; /**< RP_PUSH_NOTES numbers of the worker's. */
} rp_parameter_push;

/** What a server's shard is to be stepped by. */
typedef struct rp_parameter_merge {
    size_t first, count; /**< Elements of the vector. */
    float *values;       /**< The shard: `count` parameters, to be stepped. */
    float *gradient;     /**< Sum of the pushes' gradients, in the order of workers; what is
                              left there means nothing. */
    const rp_parameter_push *pushes;
    int push_count;
    double weight;    /**< Of all pushes here. */
    int is_complete;  /**< A push of every worker among which a step is shared. */
    uint64_t version; /**< Merges before this one. */
    uint64_t step;    /**< Steps before this one: merges where they are synchronous, else pushes
                           over the number of workers. */
} rp_parameter_merge;

/** An initializer of an rp_parameter_server_options, which begins with its size as all structs
 * of options do (redpoll/comm.h): rp_parameter_server_options o =
 *  RP_PARAMETER_SERVER_OPTIONS(.servers = 2). */
#define RP_PARAMETER_SERVER_OPTIONS(...)                                                       \
    { .size = sizeof(rp_parameter_server_options), __VA_ARGS__ }

/** Zeros: every rank serves and works, synchronous. Equal on all ranks but for the last two. */
typedef struct rp_parameter_server_options {
    size_t size; /**< sizeof(rp_parameter_server_options): RP_PARAMETER_SERVER_OPTIONS() sets
                      it. */
    int servers; /**< Ranks 0 ... servers - 1 serve, the others work; 0: all do both. */
    int64_t staleness; /**< 0, a number of steps, or RP_ANY_STALENESS. */
    int quorum;        /**< Pushes of a merge; 0: no quorum. Needs a staleness. */
    double grace_s;    /**< How long a quorum waits for more. */
    int goes_on;       /**< 1: a worker that dies, or is silent for the communicator's timeout,
                            is left behind; the others go on. Needs servers. 0: all fail.
                            2: as 1, and the death of the last ends the steps on the servers,
                            as rp_parameter_server_stop() does, where 1 fails: for those who
                            know that workers come back. */
    int workers;   /**< Among which a step is shared: as many pushes are one. More than there
                        are where some are missing, whose parts nobody learns. 0: those
                        that there are. */
    uint64_t seed; /**< Of stochastic rounding. */
    /** Step the shard. On servers, on the thread that serves: where all ranks do both, that is
     *  another than the worker's. A failure fails all ranks. */
    rp_status (*merge)(void *context, const rp_parameter_merge *merge);
    void *context;
} rp_parameter_server_options;

/** What a push has met. */
typedef struct rp_parameter_report {
    double wait_s;     /**< The worker has waited so long for its parameters. */
    int64_t staleness; /**< As in rp_parameter_push; of the first server's shard. */
    int64_t updates;
} rp_parameter_report;

/** Are the numbers possible together? world 0: not known yet. RP_INVALID names what cannot be
 *  and what can; RP_UNSUPPORTED: a field that this library does not know is set. Pure; any
 *  thread. */
RP_API rp_status rp_parameter_server_check(const rp_parameter_server_options *options,
                                           int world);

/** Collective; blocks until each worker has met each server.
 *  comm: borrowed until rp_parameter_server_destroy(). Other collectives may be posted between
 *  rp_parameter_server_end() and the next begin.
 *  segments: f32; where gradients lie, borrowed; the vector is one after the other. Their codec
 *  is that of pushes (parameters come back exact), with error feedback in `residual`. Copied.
 *  Memory: a worker: its encoded gradient. A server, in shards: parameters, a sum, each
 * worker's encoded push, and of parameters a copy for each version that is on its way.
 *  RP_INVALID as rp_parameter_server_check(); RP_UNSUPPORTED: another dtype. */
RP_API rp_status rp_parameter_server_create(rp_comm *comm, const rp_segment *segments,
                                            size_t count,
                                            const rp_parameter_server_options *options,
                                            rp_parameter_server **server);
/** Between begin and end it is a failure for all. NULL is fine. */
RP_API void rp_parameter_server_destroy(rp_parameter_server *server);

/** Workers among which a step is shared: those that there were at creation, or as many as the
 *  options say. 0 of NULL. */
RP_API int rp_parameter_server_workers(const rp_parameter_server *server);
/** Which of them this rank is; -1: it only serves. -1 of NULL. */
RP_API int rp_parameter_server_worker(const rp_parameter_server *server);

/** `steps` steps begin, the first of which is number `first_step`: one of all workers, or as
 *  many pushes of any, so that who is fast makes more of them. Collective.
 *  values: the whole vector. Servers begin with their parts of it; workers' is overwritten by
 *  what servers have, now and by each push. Borrowed until rp_parameter_server_end(). */
RP_API rp_status rp_parameter_server_begin(rp_parameter_server *server, float *values,
                                           uint64_t first_step, uint64_t steps);
/** 1: a push is expected of this worker. 0: no more before the end, or it only serves. */
RP_API int rp_parameter_server_goes_on(const rp_parameter_server *server);
/** The gradient's elements before `end` are final: what is a server's whole part leaves now,
 *  while the rest is computed. Optional; `end` grows. Does not block. */
RP_API rp_status rp_parameter_server_final(rp_parameter_server *server, size_t end);
/** Push the gradient. weight: what it counts, its share of all samples as a rule. notes:
 *  RP_PUSH_NOTES numbers for the servers' merge; NULL: zeros. report: NULL for none. Blocks
 *  until all servers have answered: the push is merged, `values` are those it led to. */
RP_API rp_status rp_parameter_server_push(rp_parameter_server *server, double weight,
                                          const double *notes, rp_parameter_report *report);
/** The step under way is the last: on the first server, from within `merge` as a rule, or on
 * any thread between begin and end. */
RP_API void rp_parameter_server_stop(rp_parameter_server *server);
/** No more steps: every rank has the servers' parameters in `values`. Collective over the ranks
 *  that live; a rank that only serves does so in here until all steps are done. Where others go
 *  on (goes_on), a worker that dies meanwhile is left behind, whatever it has done already. */
RP_API rp_status rp_parameter_server_end(rp_parameter_server *server);
/** Give every rank the servers' parts of another vector, as long: the optimizer's state, say.
 *  Collective over the ranks that live; after rp_parameter_server_end(). RP_PEER, RP_TIMEOUT: a
 *  rank has died; as of other operations, rp_parameter_server_confirm() says what then. */
RP_API rp_status rp_parameter_server_gather(rp_parameter_server *server, float *vector);

/** What all ranks do between an end and the next begin, over rp_parameter_server_comm(), is
 * done on some and fails on others where a rank dies meanwhile. So all call this behind it, and
 * know whether it is done:
 *
 *      do {
 *          status = ... operations over rp_parameter_server_comm(server) ...
 *          status = rp_parameter_server_confirm(server, status, &again);
 *      } while (status == RP_OK && again);
 *
 *  status: how they ended on this rank. *again: 0: well, on all. 1: not, a worker has died: it
 * is left behind, the communicator is another one without it (the former lives, and is of no
 * use); do all of it again. Collective over the ranks that live; blocks: a message to the first
 * server and one back. Where all are to fail (no goes_on) it sends nothing and returns
 * `status`. RP_PEER names a server that has died, says that no worker is left (goes_on 1), or
 * that ranks fail each other again and again and none has died (then also this rank's own
 * status, as RP_TIMEOUT); a status that is no death's fails all with this thread's last error.
 */
RP_API rp_status rp_parameter_server_confirm(rp_parameter_server *server, rp_status status,
                                             int *again);

/** The ranks that live, as of the last end or confirm: the communicator given, or one of those
 *  left in the order of their ranks, which the server owns. NULL of NULL. */
RP_API rp_comm *rp_parameter_server_comm(rp_parameter_server *server);
/** Was a rank of the first communicator left behind, as of the last end or confirm? Why, in a
 * line; NULL: no. Valid until the server is destroyed. Only the first server knows the line in
 * full. */
RP_API const char *rp_parameter_server_lost(const rp_parameter_server *server, int rank);
/** What ranks are called in messages, where the communicator was made of those that are left of
 *  another one and of some that came back. names: by rank, borrowed until the server is
 *  destroyed; NULL: their own numbers. Local; before rp_parameter_server_begin(). */
RP_API void rp_parameter_server_name(rp_parameter_server *server, const int *names);
/** Accounts of this rank's links to servers and workers, summed; busy_s is 0. */
RP_API void rp_parameter_server_get_stats(const rp_parameter_server *server,
                                          rp_comm_stats *stats);
/** This rank cannot go on: all fail with `message`. Between begin and end. */
RP_API void rp_parameter_server_abort(rp_parameter_server *server, rp_status status,
                                      const char *message);

/** Asynchronous local SGD (arXiv 2401.09135), a merge for workers that push how far they went
 * by themselves: x at the latest answer minus x now, with weight 1. It descends each at once,
 * and has momentum of Nesterov's only every `delay` pushes, by all that came since:
 *
 *      buffer += g
 *      values -= outer_rate g / delay
 *      every `delay` pushes: momentum = outer_momentum momentum + buffer / delay
 *                            values -= outer_rate outer_momentum momentum, buffer = 0
 *
 *  So `delay` pushes from the same values are one step of DiLoCo, and synchronous merges are
 *  those steps where `delay` is the number of workers. Of several pushes in a merge, momentum
 *  takes all. Equal on all servers, each with vectors of its own. */
typedef struct rp_delayed_nesterov {
    double outer_rate;        /**< Above 0; of the paper .7 and less. */
    double outer_momentum;    /**< 0 up to 1; of the paper .9, with up to 50 local steps .3:
                                   rp_outer_momentum("delayed-nesterov", every). */
    uint64_t delay;           /**< Pushes; at least as many as workers, as a rule. */
    uint64_t pushes;          /**< So far: 0, or as saved. */
    float *momentum, *buffer; /**< As long as the vector, zeros or as saved; a server's shard is
                                   used. rp_parameter_server_gather() joins them. */
} rp_delayed_nesterov;
/** RP_INVALID names what cannot be. Pure. */
RP_API rp_status rp_delayed_nesterov_check(const rp_delayed_nesterov *outer);
/** What should be known of momentum and so many local steps before the first one, in a line;
 *  empty: nothing. text: `bytes` long, 512 are enough. RP_INVALID: an argument is NULL. Pure.
 */
RP_API rp_status rp_delayed_nesterov_advise(const rp_delayed_nesterov *outer, uint64_t every,
                                            char *text, size_t bytes);
/** For rp_parameter_server_options.merge; context: an rp_delayed_nesterov, borrowed. */
RP_API rp_status rp_delayed_nesterov_merge(void *context, const rp_parameter_merge *merge);

#ifdef __cplusplus
}
#endif
#endif
