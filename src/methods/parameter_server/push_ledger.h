/* The books of a parameter server: which pushes came, which are merged now, who may have
 * parameters. Pure: no communication, no clock.
 *
 *     EXPECTED --greet--> WAITING --admit--> COMPUTING --push--> PENDING --merge--> WAITING
 *                            \__________________\__________ end, lose (from any) --> AWAY
 *
 * Merges: synchronous when everybody who may push has; else each push by itself, or a quorum. A
 * server that follows another one merges what that has merged, in its order (follow).
 * Admission holds the bound: a worker that would have more than `staleness` pushes merged while
 * another computes must wait for that one. */
#ifndef RPI_METHODS_PUSH_LEDGER_H
#define RPI_METHODS_PUSH_LEDGER_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum rpi_worker_state {
    RPI_WORKER_EXPECTED,
    RPI_WORKER_WAITING,
    RPI_WORKER_COMPUTING,
    RPI_WORKER_PENDING,
    RPI_WORKER_AWAY,
} rpi_worker_state;

typedef struct rpi_ledger_worker {
    rpi_worker_state state;
    uint64_t received, merged;  /* number of the last push that came, and that was merged */
    uint64_t version;           /* of the parameters that it has */
    uint64_t wanted;            /* it may have none before this version */
    int64_t staleness, updates; /* of its last push when that was merged */
    bool is_lost;
} rpi_ledger_worker;

typedef struct rpi_push_ledger {
    int count;
    int64_t staleness; /* 0: synchronous; -1: any */
    int quorum;        /* 0: none */
    uint64_t version;  /* merges so far */
    rpi_ledger_worker *workers;
    uint64_t *seen; /* [count][count]: of worker w, what had been merged of each when it got its
                       parameters */
} rpi_push_ledger;

rp_status rpi_ledger_open(int workers, int64_t staleness, int quorum, rpi_push_ledger *out);
void rpi_ledger_close(rpi_push_ledger *ledger); /* zeros are fine */
/* Everybody who is not lost is expected again; numbers go on. */
void rpi_ledger_restart(rpi_push_ledger *ledger);

/* It asks for parameters, without a push. RP_CORRUPT: it was not expected. */
rp_status rpi_ledger_greet(rpi_push_ledger *ledger, int worker);
/* A push has come. *out_again: it has come before, and nothing is to be done but to answer.
 * RP_CORRUPT: one before it is missing, or none was expected. */
rp_status rpi_ledger_push(rpi_push_ledger *ledger, int worker, uint64_t number,
                          bool *out_again);
/* Are there as many pushes as a quorum needs? */
bool rpi_ledger_has_quorum(const rpi_push_ledger *ledger);
/* The pushes to merge now, as workers in rising order; how many, 0: none yet. They are merged
 * from here on. grace_over: a quorum waits no longer. */
int rpi_ledger_merge(rpi_push_ledger *ledger, bool grace_over, int *out_workers);
/* The pushes with these numbers, by worker (0: none), which another server has merged as its
 * version `version`. Have they come, but for those of workers that are away? */
bool rpi_ledger_can_follow(const rpi_push_ledger *ledger, const uint64_t *numbers);
/* As rpi_ledger_merge(); what never came of one that is away is left out. */
int rpi_ledger_follow(rpi_push_ledger *ledger, const uint64_t *numbers, uint64_t version,
                      int *out_workers);
/* All pushes that came after the last one that was followed; they are of workers that are away.
 * The version stays. */
int rpi_ledger_merge_rest(rpi_push_ledger *ledger, int *out_workers);
/* The next worker that may have parameters, which it has from here on; -1: none. */
int rpi_ledger_admit(rpi_push_ledger *ledger);
/* It pushes no more; a push of it that has come is merged. */
void rpi_ledger_end(rpi_push_ledger *ledger, int worker);
void rpi_ledger_lose(rpi_push_ledger *ledger, int worker);
/* Is everybody away? */
bool rpi_ledger_is_over(const rpi_push_ledger *ledger);
int rpi_ledger_lost(const rpi_push_ledger *ledger); /* how many */

#endif
