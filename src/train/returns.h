/* A worker that was lost, and that the launcher has restarted, comes back into the run.
 *
 *     LOST --the launcher starts it--> LOADS --request (return_requests.h)--> WAITS
 *       ^                                                                       | invited
 *       |              again: three times at most                               v
 *       | <------------------------------------------------ JOINS: a communicator of all that
 *       |                                                     | live and of those that wait
 *       |                                                     v
 *       '------------ dies ---- WORKS <-- go -- CATCHES UP: state from rank 0, servers
 *
 * Rank 0, a server, sees the request, and the current block of steps ends early, as for a
 * checkpoint; by then the dead ranks are known. The attempt does not change the present world.
 * All living ranks meet the waiting ones over the store, in a communicator of its own; rank 0
 * sends these the parameters and the optimizer's state (the others keep their own), and all
 * open the strategy a second time. Then the living ranks vote over their present communicator:
 *
 *     all well     the new communicator is the world, the former strategy is closed
 *     else         what was made is dropped, and the world is as it was: who waits asks anew,
 *                  unless it has died, or knows why it cannot (other options, another version)
 *
 * A death among the living ranks meanwhile is handled as after any span (rpi_trainer_confirm),
 * and the attempt begins again. Every wait has a deadline: a rank that has died since it asked
 * costs the others RPI_RETURN_CALL_S; one that dies while it connects RPI_RETURN_CONNECT_S for
 * each stage of that, and later as much as any death. The links of the world before are kept
 * until the run ends, those of a return until the next one. Servers that have lost all workers
 * wait for one (training_waits.c). */
#ifndef RPI_TRAIN_RETURNS_H
#define RPI_TRAIN_RETURNS_H

#include "train/rejoin.h"
#include "train/return_requests.h"

enum { RPI_ASKED_ADMIT = 4 }; /* beside RPI_ASKED_*: rank 0 ends a span of steps early */
#define RPI_RETURN_CONNECT_S 10.0

/* An attempt to take ranks back. */
typedef struct rpi_readmission {
    rpi_return_requests requests;
    int epoch;        /* of the attempt, on rank 0 */
    rp_comm *comm;    /* of all; NULL: there is none */
    int *first_ranks; /* the starting numbers of its ranks */
    int count;        /* their number */
    int *back;        /* the ranks that come back, by starting number */
    int back_count;
    int64_t *request_numbers; /* theirs; rank 0 */
    bool is_ready;            /* all is well on all */
    char why[300];            /* it is not; "": nobody came */
    char line[768];
} rpi_readmission;

/* What a rank that comes back has to know of the run besides what it trains. */
typedef struct rpi_run_state {
    rpi_standing standing;
    double steps; /* this run has done */
} rpi_run_state;
enum { RPI_RUN_STATE = sizeof(rpi_run_state) / sizeof(double) };

/* Of a trainer that was opened; nobody comes back where the strategy takes nobody. */
rp_status rpi_readmission_open(const rpi_trainer *trainer, rpi_readmission *readmission);
void rpi_readmission_close(
    rpi_readmission *readmission); /* after the strategy; zeros are fine */

/* ---- ranks that live: collective over the trainer's communicator, between spans ---- */

/* Who waits is invited, and all is prepared. RP_PEER, RP_TIMEOUT: one that lives has died; it
 * is made again then. *growth is ready, or not, on all alike. */
rp_status rpi_readmission_try(rpi_trainer *trainer, const rpi_run_state *state,
                              rpi_readmission *readmission);
/* Take it: the trainer goes on over the new communicator. */
void rpi_readmission_take(rpi_trainer *trainer, rpi_readmission *readmission,
                          rpi_back *out_back);

/* ---- a rank that comes back ---- */

/* The trainer was opened without its strategy, for its place when the run began. Afterwards
 * this rank is one of the world, at its step. RP_CANCELLED: *out_over, or it was told to end.
 */
rp_status rpi_return(rpi_trainer *trainer, const rpi_train_hooks *hooks,
                     rpi_readmission *readmission, rpi_run_state *out_state, bool *out_over);

#endif
