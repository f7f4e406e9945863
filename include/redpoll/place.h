/** Where a process stands among the ranks that a launcher has started: torchrun, `redpoll run`,
 * mpirun, srun, or variables set by hand. docs/launching.md has the rules.
 */
#ifndef REDPOLL_PLACE_H
#define REDPOLL_PLACE_H

#include "redpoll/status.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** One of rank 0's: where PyTorch's TCPStore, or any other that rank 0 serves, is to listen. */
typedef struct rp_place {
    int rank, world;
    int local_rank, local_world; /**< Among the ranks of this host, as far as is known. */
    int one_host;                /**< 1: it is known that all ranks are on this host. */
    int port;                    /**< 0: a world of one, which needs no store. */
    char found_by[64];           /**< "redpoll run", "torchrun", "mpirun", "srun", ... */
    char host[256];              /**< "" where port is 0. */
    char job[192]; /**< Not empty: the port follows from it, and another job may have it. */
} rp_place;

/** Reads the launchers' variables, in order of trust: those of `redpoll run`, torchrun, RANK
 * and WORLD_SIZE by hand, mpirun, srun; without any a world of one. Nothing is opened; local.
 *
 *  get: the value of a variable, NULL where it is not set, valid until the next call; NULL:
 *  this process's environment is read, and the launcher looked for. context: passed to it.
 *  launcher: with a `get` the process id of what started this rank, which the ranks of a host
 *  share, for launchers that give their jobs no name; 0: not known.
 *  *place is set on success alone. Any thread, as long as nobody changes the environment.
 *  RP_INVALID names the variable that is missing or wrong. */
RP_API rp_status rp_place_find(const char *(*get)(const void *context, const char *name),
                               const void *context, int64_t launcher, rp_place *place);

#ifdef __cplusplus
}
#endif

#endif
