/** A world whose members change: a sequence of numbered views.
 *
 * A view says who is a member and under which rank. Views of a world have the numbers 1, 2, 3
 * ...; all members hold the same one under a number, and each is closed once and never changed.
 * Between two steps members agree on the next view: those that are left go on under new ranks,
 * those that wait come in. Communicators belong to one view (rp_comm_create_in() of
 * redpoll/comm.h), and a new view makes new ones in the same processes; what a program holds
 * (weights, residuals, buffers of redpoll/buffer.h) outlives all of them.
 *
 *     rp_world_open(&store, &options, &world);
 *     while (steps are left) {
 *         rp_world_next(world, 60, &view);            all members, and those that come
 *         rp_comm_create_in(world, NULL, &comm);
 *         rp_broadcast(comm, weights, ...);           rank 0 has stayed, if anybody has
 *         run steps until one fails, or until rp_world_changing() of any rank says so
 *         rp_comm_destroy(comm);                      tells the world who was lost
 *     }
 *     rp_world_close(world);
 *
 * Members meet at a store that none of them serves, so that it outlives them all: that of
 * `redpoll run`, of torchrun's agent, or of a process that does nothing else
 * (rp_store_serve()). Nothing else is anybody's in particular: whichever process dies, the
 * others go on. A process whose store is gone can end its steps, and fails in rp_world_next().
 *
 * Each process has a thread that tells the store several times in silence_s that it lives. Who
 * has said nothing for silence_s is left out of the next view; a process that was stopped for
 * longer than that, and comes back, is told that the world went on without it. So is one that
 * the others' communicators have lost, and one that does not come within late_after_s.
 */
#ifndef REDPOLL_VIEW_H
#define REDPOLL_VIEW_H

#include "redpoll/store.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Begin with RP_WORLD_OPTIONS(.least = 4), which sets the size, as of rp_comm_options. */
#define RP_WORLD_OPTIONS(...)                                                                  \
    { .size = sizeof(rp_world_options), __VA_ARGS__ }

enum {
    RP_WORLD_MOST = 512, /**< Members of a view, at most. */
    RP_MEMBER_NAME = 40, /**< Bytes of a member's name, with its NUL. */
};

typedef struct rp_world rp_world;

/** Zeros mean the defaults. least, most, last_call_s and silence_s are the world's: all that
 *  open it say the same. Times are in seconds; INFINITY, and all from 1e9 on, is never. */
typedef struct rp_world_options {
    size_t size;         /**< sizeof(rp_world_options): RP_WORLD_OPTIONS() sets it. */
    const char *name;    /**< Of the world, in its store: 1 to 40 bytes; NULL: "world".
                              Worlds of one store need different names. */
    const char *member;  /**< Who this process is, in messages and in views: up to 39 printable
                              ASCII characters, not a blank at first; NULL: "HOST:PID".
                              Two may say the same. */
    int least;           /**< Members that a view needs; with fewer, rp_world_next() waits for
                              more to come. 0: 1. */
    int most;            /**< That it may have; who comes beyond waits for one to leave.
                              0: RP_WORLD_MOST. */
    double last_call_s;  /**< How long the first view waits for others once it has `least`;
                              it is closed at once with `most`. Calls of
                              rp_world_next() that end before that add up. 0: 1. */
    double silence_s;    /**< A process that says nothing for so long is gone. 0: 5; at least
                              0.2. */
    double late_after_s; /**< How long those that have come to make a view wait for members that
                            live and do not come, over all their calls of
                              rp_world_next() for that view; then these are left out.
                              0: 600. */
} rp_world_options;

/** Why a member of a view is not in the next one. */
typedef enum rp_departure {
    RP_MEMBER_STAYS,  /**< It is in it. */
    RP_MEMBER_LEFT,   /**< rp_world_leave() or rp_world_close(). */
    RP_MEMBER_SILENT, /**< It said nothing for silence_s: dead, stopped, or cut off. */
    RP_MEMBER_LOST,   /**< Communicators of another member have lost it. */
    RP_MEMBER_LATE,   /**< It lives, and did not come within late_after_s. */
} rp_departure;

typedef struct rp_member {
    uint32_t id;               /**< Of this membership: a world never gives it again. */
    int previous;              /**< Its rank in the view before; -1: it comes with this one. */
    rp_departure departure;    /**< RP_MEMBER_STAYS, but in rp_view.left. */
    char name[RP_MEMBER_NAME]; /**< As it opened the world. */
} rp_member;

/** Alike on all members, but for `rank`. Members that stay keep their order and come first; so
 *  rank 0 is one that stays, if any does, and has what a newcomer lacks. */
typedef struct rp_view {
    uint32_t number; /**< 1 for the first one. A view that was closed and then failed before
                          its communicator was made has used its number up. */
    int rank;        /**< This process's, in [0, count). */
    int count;       /**< Members. */
    int came;        /**< So many of them come with this view: the last ranks. */
    int left_count;  /**< So many of the view before are not in this one. */
    const rp_member *members; /**< [count], by rank. */
    const rp_member *left;    /**< [left_count], by their rank in the view before. */
} rp_view;

/** Come to a world, as one that waits to be a member. Local, but for the store: waits for its
 *  answers alone. store: borrowed until the world is closed and all communicators of its views
 *  are destroyed; other threads may not use it meanwhile. Its compare_set is needed.
 *  options: NULL for defaults; copied.
 *  RP_UNSUPPORTED: the store cannot compare and set. RP_MISMATCH: others have opened this world
 *  with other options. RP_PEER, RP_IO: the store is gone. */
RP_API rp_status rp_world_open(const rp_store *store, const rp_world_options *options,
                               rp_world **world);

/** The same at the store of the launcher that started this process: that of `redpoll run`, or a
 *  torchrun agent's, which the world then has a connection of its own to. rp_comm_create_in()
 *  listens at the interface that faces the launcher's host, as rp_comm_join() does, where its
 *  options name no other. Ranks and sizes that the launcher gives mean nothing here, but that
 *  options->least may be one. timeout_s: to reach the store; 0: 60.
 *  RP_UNSUPPORTED: there is no such launcher, or rank 0 would serve the store (mpirun, srun,
 *  RANK and MASTER_ADDR by hand). RP_TIMEOUT, RP_PEER: nobody serves it. Else as
 *  rp_world_open(). */
RP_API rp_status rp_world_join(const rp_world_options *options, double timeout_s,
                               rp_world **world);

/** Agree on the next view. Members of the view that this process holds all call this, between
 *  the same two steps or behind a failure, having destroyed its communicators; processes that
 *  hold none call it to become members. Blocks until the view is closed: until all members have
 *  come, left, or are given up (see above), and it has `least`. Behind the loss of a member
 * that a communicator has noticed that is a matter of milliseconds, else of silence_s. Who
 * waits holds nobody up: a newcomer that dies on its way is left out, or, if the view was
 * closed just then, rp_comm_create_in() says so and the next view is without it, and without
 * other newcomers where `least` members stay. timeout_s: at most so long (below 0: no limit).
 * *view: the world's, until the next view is returned or the world is closed. RP_TIMEOUT names
 * who was waited for; nothing has changed, and it can be called again. RP_STATE: the world has
 * gone on without this process, which it names with the reason: close it, and open it again to
 * come back as a new member; or this process has said that it leaves. RP_PEER, RP_IO: the store
 * is gone, or has not answered for up to 10 s beside timeout_s. RP_CORRUPT: what it has under
 * the world's keys is none of a world's. One thread at a time. */
RP_API rp_status rp_world_next(rp_world *world, double timeout_s, const rp_view **view);

/** The view that this process holds; NULL: none so far. Local. By the thread that may call
 *  rp_world_next(). */
RP_API const rp_view *rp_world_view(const rp_world *world);

/** 1: somebody waits to come in, wants to leave, or has gone to make the next view; 0: nobody,
 *  as far as is known here, which may be silence_s / 4 behind. Never blocks; any thread. Ranks
 *  hear of it at different steps: let them agree (the maximum of an all-reduce), so that all
 *  call rp_world_next() between the same two. */
RP_API int rp_world_changing(const rp_world *world);

/** Say that this process is to be in no further view: rp_world_changing() becomes 1 on the
 *  others, which go on without it. It may still work with communicators of this view, and
 *  closes the world where the others call rp_world_next(). Waits for the store's answer. Any
 *  thread: one that waits in rp_world_next() returns RP_STATE within silence_s / 8. RP_PEER,
 *  RP_IO: the store is gone; the others find out by silence. */
RP_API rp_status rp_world_leave(rp_world *world);

/** Leave, at once, and free the world; while communicators of its views are there, these keep
 *  the memory. Waits for the store's answers. No other call is in progress with it, and none
 *  follows; from where they end on, the communicators' included, the store is the caller's
 *  alone. NULL is fine. */
RP_API void rp_world_close(rp_world *world);

#ifdef __cplusplus
}
#endif
#endif
