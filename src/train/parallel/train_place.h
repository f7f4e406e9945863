/* The place of a rank in a training: in the world, in the grid, and among the replicas.
 *
 * A replica is the ranks that hold one model together: tensor x context x stage. Replicas share
 * a batch or an evaluation; ranks write files, and messages name ranks. If every rank holds a
 * whole model each rank is a replica. */
#ifndef RPI_TRAIN_PLACE_H
#define RPI_TRAIN_PLACE_H

#include "plan/grid.h"

typedef struct rpi_train_place {
    int rank, world;       /* in the communicator of all living ranks */
    rpi_grid grid;         /* of the living ranks; its data axis has the replicas */
    int replica, replicas; /* this rank's replica, and their number */
    /* The ranks that hold the same parameters and sum their gradients, and this one's number
     * among them: the ranks of all replicas that share sequences with the same layers. */
    int holder, holders;
    /* Does this rank report for its replica? All ranks of the last stage compute losses and
     * right answers; those of the first tensor rank count, for each part of a sequence. */
    bool counts;
    /* The replicas that learn, as when the run began, and this rank's number among them; they
     * decide what each learns from until the end. The first `servers` ranks only serve; they
     * are replicas, too, and have the number of the first worker. */
    int servers, workers, worker;
    bool works;
} rpi_train_place;

/* `model` says how the ranks of a replica are arranged; its size along data follows from the
 * world. RP_INVALID: the world is not a multiple of it; the message says what would fit.
 * RP_UNSUPPORTED: servers with replicas of several ranks. */
rp_status rpi_train_place_open(const rpi_grid *model, int rank, int world, int servers,
                               rpi_train_place *out_place);
/* The place of a rank that is a replica by itself, as all others are. */
rpi_train_place rpi_train_place_alone(int rank, int world, int servers);
/* Does every replica have one rank? */
bool rpi_train_place_is_alone(const rpi_train_place *place);
/* "rank 5", or "rank 5, stage 1 of replica 1" if replicas have several ranks, for any rank of
 * the world. Returns text. */
const char *rpi_train_place_text(const rpi_train_place *place, int rank,
                                 char text[RPI_GRID_TEXT]);
/* The `holder`-th of the ranks that hold what this one holds. If replicas do not share
 * sequences it is the rank of the `holder`-th replica. */
int rpi_train_place_twin(const rpi_train_place *place, int holder);

/* Ranks have left or come; each is a replica. What each replica learns from does not change. */
void rpi_train_place_move(rpi_train_place *place, int rank, int world);

/* Of `count` things, the share of this rank's replica among the living ones is [*out_first,
 * *out_end). */
void rpi_train_place_share(const rpi_train_place *place, int64_t count, int64_t *out_first,
                           int64_t *out_end);
/* The same among the replicas that learn: their shares of a batch. */
void rpi_train_place_work(const rpi_train_place *place, int64_t count, int64_t *out_first,
                          int64_t *out_end);
/* The largest share: among the replicas that learn, or among the living ones. */
int64_t rpi_train_place_most(const rpi_train_place *place, bool learns, int64_t count);

/* The rank, in the world's numbers, that a communicator's failure says is gone or stands still:
 * "closed by peer: rank 3 ...", "rank 3 is gone (...", "rank 1 (world 3) is gone (...",
 * "rank 3 is stopped, or cut off from ..."; -1: the text names none. */
int rpi_train_place_lost(const rpi_train_place *place, const char *why);

#endif
