/* Ranks that have died in a run that goes on without them; rejoin.h says how the others meet.
 */
#ifndef RPI_TRAIN_LOSSES_H
#define RPI_TRAIN_LOSSES_H

#include "redpoll/comm.h"
#include "train/strategies/strategy.h"

typedef struct rpi_losses {
    bool goes_on;    /* by the strategy */
    bool is_pending; /* a rank has died, and the others have not met yet */
    char why[512];   /* how it was noticed */
    int *members;    /* of each rank now, its number when the run began */
    int count;       /* of them, of those told so far */
    int *lost;       /* the latest, likewise */
    char line[768];  /* about them */
    rp_comm **made;  /* communicators of those that were left, the newest last; ours */
    int made_count;
    /* Of ranks with roles, which find each other by their servers: */
    int *first_ranks; /* of each rank of the strategy's communicator, its number when the run
                         began */
    int first_count;  /* of these */
    rp_comm *grown;   /* that, if ranks have come back (returns.h); else NULL */
} rpi_losses;

/* Of a strategy with these options whose `ranks` ranks are all there. Zeros are what there is
 * before. */
rp_status rpi_losses_open(rpi_losses *losses, const rpi_strategy *strategy,
                          const char *strategy_options, int ranks);
void rpi_losses_close(rpi_losses *losses); /* zeros are fine */

/* RP_OK in place of the status of a death that the run outlives, which is pending then; else
 * the status, with its message. */
rp_status rpi_losses_survive(rpi_losses *losses, rp_status status);

#endif
