/* Ranks that have died in a run that goes on without them; rejoin.h says how the others meet.
 */
#ifndef RPI_TRAIN_LOSSES_H
#define RPI_TRAIN_LOSSES_H

#include "redpoll/comm.h"
#include "train/strategies/strategy.h"

typedef struct rpi_losses {
    bool goes_on;    /* the strategy goes on without ranks that die */
    bool is_pending; /* a rank has died, and the others have not met yet */
    char why[512];   /* how it was noticed */
    int *members;    /* the starting number of each present rank */
    int count;       /* how many of the lost ranks were reported */
    int *lost;       /* the latest lost ranks, by starting number */
    char line[768];  /* the line that reports them */
    rp_comm **made;  /* communicators of the remaining ranks, the newest last; owned */
    int made_count;
    /* Of ranks with roles, which find each other by their servers: */
    int *first_ranks; /* the starting number of each rank of the strategy's communicator */
    int first_count;  /* their number */
    rp_comm *grown;   /* that communicator if ranks have come back (returns.h); else NULL */
} rpi_losses;

/* Opens it for a strategy with these options, whose `ranks` ranks are all there. Zeros before.
 */
rp_status rpi_losses_open(rpi_losses *losses, const rpi_strategy *strategy,
                          const char *strategy_options, int ranks);
void rpi_losses_close(rpi_losses *losses); /* zeros are fine */

/* RP_OK if `status` is that of a death which the run survives, and which is then pending; else
 * `status`, with its message. */
rp_status rpi_losses_survive(rpi_losses *losses, rp_status status);

#endif
