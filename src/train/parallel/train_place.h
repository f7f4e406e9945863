/* Where a rank is in a training: in the world, in the grid, among the replicas.
 *
 * A replica is the ranks that hold one model together: tensor x context x stage. What a batch
 * or an evaluation is shared by are replicas, never ranks; who writes files and what messages
 * name are ranks. A training in which every rank holds a whole model has as many of one as of
 * the other. */
#ifndef RPI_TRAIN_PLACE_H
#define RPI_TRAIN_PLACE_H

#include "plan/grid.h"

typedef struct rpi_train_place {
    int rank, world;       /* in the communicator of all ranks that are there */
    rpi_grid grid;         /* of them; along data are the replicas */
    int replica, replicas; /* of them, which one this rank is a part of, of how many */
    /* Ranks that hold the parameters that this one holds, over which gradients are summed, and
     * which of them it is: of each replica those that share its sequences. */
    int holder, holders;
    /* This rank says what its replica has once: losses and right answers are made on all ranks
     * of its last stage, and those of its first tensor rank count, of each part of a sequence.
     */
    bool counts;
    /* Replicas that learn, when the run began, and this rank's place among them, which say what
     * each learns from, to the end; ranks that only serve have the first's. All of them learn
     * but the first `servers` ranks, which are replicas, too. */
    int servers, workers, worker;
    bool works;
} rpi_train_place;

/* `model` says how a replica is made of ranks; its size along data is what the world leaves.
 * RP_INVALID: the world is no multiple of it, and what would fit; RP_UNSUPPORTED: servers
 * beside replicas of several ranks. */
rp_status rpi_train_place_open(const rpi_grid *model, int rank, int world, int servers,
                               rpi_train_place *out_place);
/* A rank whose replica it is alone: grids of one rank a replica. */
rpi_train_place rpi_train_place_alone(int rank, int world, int servers);
/* Is every replica one rank? */
bool rpi_train_place_is_alone(const rpi_train_place *place);
/* "rank 5", and where replicas have several ranks "rank 5, stage 1 of replica 1", for any rank
 * of the world. Returns text. */
const char *rpi_train_place_text(const rpi_train_place *place, int rank,
                                 char text[RPI_GRID_TEXT]);
/* The rank that is number `holder` of those that hold what this one holds; where replicas do
 * not share sequences, the one of that replica. */
int rpi_train_place_twin(const rpi_train_place *place, int holder);

/* Ranks have left or come; each is a replica. Who learns from what stays. */
void rpi_train_place_move(rpi_train_place *place, int rank, int world);

/* Things [*out_first, *out_end) of `count` are this rank's replica's, of those that are there;
 */
void rpi_train_place_share(const rpi_train_place *place, int64_t count, int64_t *out_first,
                           int64_t *out_end);
/* and of those that learn: what a batch is shared by. */
void rpi_train_place_work(const rpi_train_place *place, int64_t count, int64_t *out_first,
                          int64_t *out_end);
/* The most that one of those has, of either: work of learning, or shares of what is there. */
int64_t rpi_train_place_most(const rpi_train_place *place, bool learns, int64_t count);

/* The rank that a failure of the communicators says has gone, in the world's numbers: "closed
 * by peer: rank 3 ...", "rank 3 is gone (...", "rank 1 (world 3) is gone (..."; -1: it says no
 * such thing. */
int rpi_train_place_lost(const rpi_train_place *place, const char *why);

#endif
