/** Windows: averaging with neighbours without waiting for them.
 *
 * A window is a vector of each rank and, for every in-neighbour (source), a slot that this
 * neighbour writes into whenever it likes, while the owner computes or sleeps:
 *
 *      rp_window_create(comm, &setup, &window);               collective, once
 *      in each step, whatever the others do:
 *          rp_window_accumulate(window, NULL, count, &send, NULL);     to the out-neighbours
 *          rp_window_update(window, &mix, NULL);          x = s x + sum of w_j slot_j
 *      rp_window_free(&window);                               collective
 *
 * A push (put or accumulate) takes its values when it is called: the vector may be changed
 * afterwards, and the call never waits. What a neighbour has not taken yet is merged: one that
 * is slow or stopped costs two vectors of memory, and delays nobody who does not wait for it.
 * Each push is applied exactly once and as a whole, in the order of its sender's calls.
 *
 * Conservation: where what a rank keeps and what it sends come to what it had, the sum over all
 * vectors and slots, and over what is under way, stays as it is, whatever the interleaving. So
 * does that of p, the number by which push-sum divides.
 *
 * Memory of a rank: for each source two vectors (its slot, and what arrives), for each
 * destination two (what is under way, and what is merged behind it), and one of f32 more where
 * the codec is lossy. No more, whatever the neighbours do.
 *
 * A thread of the context serves the windows; making one starts it (rp_comm_options.
 * progress_thread). One thread at a time calls a window, but for waits, tests and mutexes,
 * which any thread may call. Sources: BlueFog (arXiv 2111.04287), push-sum (Kempe et al. 2003).
 */
#ifndef REDPOLL_WINDOW_H
#define REDPOLL_WINDOW_H

#include "redpoll/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rp_window rp_window;
/** A push or get that is under way. */
typedef struct rp_window_operation rp_window_operation;

/** Initializers of the structs of options below, which begin with their size as all such
 *  structs do (redpoll/comm.h): rp_window_send send = RP_WINDOW_SEND(.mutex = 1). */
#define RP_WINDOW_SETUP(...)                                                                   \
    { .size = sizeof(rp_window_setup), __VA_ARGS__ }
#define RP_WINDOW_SEND(...)                                                                    \
    { .size = sizeof(rp_window_send), __VA_ARGS__ }
#define RP_WINDOW_MIX(...)                                                                     \
    { .size = sizeof(rp_window_mix), __VA_ARGS__ }

/** Zeros mean the defaults. name, count, dtype and codec are equal on all ranks. */
typedef struct rp_window_setup {
    size_t size;      /**< sizeof(rp_window_setup): RP_WINDOW_SETUP() sets it. */
    const char *name; /**< Up to 200 bytes; unique in the communicator. Copied. */
    void *data; /**< The vector: borrowed until rp_window_free(), read when a neighbour gets it,
                     written by updates and by self_weight. */
    size_t count;
    rp_dtype dtype;                    /**< RP_F32, RP_F64, RP_I32 or RP_I64. */
    const int *sources, *destinations; /**< In- and out-neighbours, each once, without this
                                            rank, in any order. Copied. */
    size_t source_count, destination_count;
    rp_codec codec; /**< How values travel; zeros: exact. What a lossy codec takes from an
                         accumulate is added to the next one (error feedback); of a put it is
                         lost. */
    int zero_slots; /**< 1: slots begin as zeros; 0: as copies of `data`. */
    int follow_p;   /**< 1: p goes with pushes and updates (rp_window_follow_p()). */
} rp_window_setup;

/** Collective over the communicator: an all-gather and a barrier. Afterwards all ranks take
 *  pushes into their slots. What one rank refuses fails all, by name.
 *  comm: borrowed until rp_window_free(). RP_INVALID: the name is taken, the size is none, or
 * an argument cannot be. RP_UNSUPPORTED: a field that this library does not know is set.
 * RP_MISMATCH: ranks differ in what must be equal, or one sends to another that has it not
 *  among its sources: both are named. RP_NOMEM. */
RP_API rp_status rp_window_create(rp_comm *comm, const rp_window_setup *setup,
                                  rp_window **window);
/** Collective: waits until what this rank has pushed is applied, then for the others (a
 *  barrier). *window becomes NULL and its memory is released in any case; operations that were
 *  not waited for are gone with it, and mutexes released. RP_TIMEOUT names who did not take
 *  what was pushed. After rp_comm_destroy() it only releases memory. NULL is fine. */
RP_API rp_status rp_window_free(rp_window **window);

/** Zeros mean the defaults. */
typedef struct rp_window_send {
    size_t size;                /**< sizeof(rp_window_send): RP_WINDOW_SEND() sets it. */
    const rp_neighbor *targets; /**< Destinations with weights; NULL: all, by 1. Of integers
                                     weights are whole numbers. Copied. */
    size_t count;
    int scales;         /**< 1: afterwards data and p are multiplied by self_weight. */
    double self_weight; /**< What the rank keeps. */
    int mutex;          /**< 1: not applied while a destination holds its own mutex for us. */
} rp_window_send;

/** The slot of this rank at each destination becomes weight times data. The receiver's version
 *  of it rises by one. Local; never waits.
 *  data: `count` elements, which must be the window's; NULL: the window's own vector. Read (and
 *  scaled) during the call. operation: for rp_window_wait(), NULL: not wanted.
 *  send: NULL: the defaults. RP_INVALID: another count, a rank that is no destination, or a
 *  size that is none. RP_UNSUPPORTED: a field that this library does not know is set. RP_PEER:
 * a destination is gone.
 */
RP_API rp_status rp_window_put(rp_window *window, void *data, size_t count,
                               const rp_window_send *send, rp_window_operation **operation);
/** As rp_window_put(), but the slot is added to, and versions stay. */
RP_API rp_status rp_window_accumulate(rp_window *window, void *data, size_t count,
                                      const rp_window_send *send,
                                      rp_window_operation **operation);
/** The slots of these sources become weight times their vectors as they are when the question
 *  comes; versions rise by one. p does not come along. Local; never waits: the operation is
 *  complete when all have answered. What an owner changes in its vector outside of calls of the
 *  window, while a neighbour gets it, may be seen in part; rp_window_lock() keeps them apart.
 *  sources: NULL: all, by 1. mutex 1: not read while a source holds its own mutex for us. */
RP_API rp_status rp_window_get(rp_window *window, const rp_neighbor *sources, size_t count,
                               int mutex, rp_window_operation **operation);

/** Wait until every rank concerned has applied (or answered) the operation; then it is freed
 * and *operation is NULL. timeout_s: 0: the communicator's; at its end RP_TIMEOUT names who is
 *  missing, and the operation is still under way. RP_PEER, and the communicator's failure: it
 *  is freed, and will not be complete. */
RP_API rp_status rp_window_wait(rp_window_operation **operation, double timeout_s);
/** RP_OK: rp_window_wait() would not block; RP_PENDING; or why it never will be complete. */
RP_API rp_status rp_window_test(rp_window_operation *operation);
/** It goes on, and nobody will ask. NULL is fine. */
RP_API void rp_window_operation_free(rp_window_operation **operation);
/** Wait until all that this rank has pushed so far is applied. */
RP_API rp_status rp_window_flush(rp_window *window, double timeout_s);

/** Zeros: x = 0. */
typedef struct rp_window_mix {
    size_t size; /**< sizeof(rp_window_mix): RP_WINDOW_MIX() sets it. */
    double self_weight;
    const rp_neighbor *sources; /**< With weights; NULL: all, by 1. */
    size_t count;
    int mean;         /**< 1: (x + all slots) / (sources + 1), and weights are not looked at; of
                           integers the quotient is cut towards zero. */
    int reset;        /**< 1: the slots that were added, and their p, become zero. */
    int mutex;        /**< 1: while holding the own mutexes for all sources. */
    double timeout_s; /**< Of that; 0: the communicator's. */
} rp_window_mix;

/** x = self_weight x + the sum of weight times slot, over sources by rank, and p alike. All
 *  versions become zero. Local.
 *  mix: NULL: the mean. output: `count` elements of the result, and the window's vector stays;
 *  NULL: in place. */
RP_API rp_status rp_window_update(rp_window *window, const rp_window_mix *mix, void *output);

/** Puts of that source, and gets from it, since the last update; 0 where it is no source. */
RP_API uint64_t rp_window_version(rp_window *window, int source);
/** p: 1 at first. What push-sum divides by. */
RP_API double rp_window_p(rp_window *window);
/** Shall p go with pushes and updates from now on? */
RP_API rp_status rp_window_follow_p(rp_window *window, int on);
/** Copy the slot of a source, and its p, as they are. output, p: NULL: not wanted. */
RP_API rp_status rp_window_read(rp_window *window, int source, void *output, double *p);

/** Mutexes: rank i has one cell for each other rank j, which only these two can hold. own 0:
 *  the cells for this rank at `ranks`; own 1: this rank's cells for `ranks`. ranks NULL: the
 *  destinations. They exclude the other side, not this one. Blocks until all are held.
 *  RP_TIMEOUT: none is. RP_STATE: one is held already. RP_PEER. */
RP_API rp_status rp_window_lock(rp_window *window, const int *ranks, size_t count, int own,
                                double timeout_s);
/** Of the same ranks. RP_STATE: one was not held; the others are released. Never waits. */
RP_API rp_status rp_window_unlock(rp_window *window, const int *ranks, size_t count, int own);

/** For waits in slices, between which a language answers its signals: the next wait of this
 *  thread at a window (rp_window_wait(), rp_window_flush(), rp_window_lock()) goes on with one
 * that has lasted waited_s, and RP_TIMEOUT says the whole time. Local; nothing is checked but
 * that waited_s is above 0. */
RP_API void rp_window_waited(double waited_s);

#ifdef __cplusplus
}
#endif
#endif
