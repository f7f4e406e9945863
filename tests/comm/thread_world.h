/* Worlds whose ranks are threads of the test, for tier 1. */
#ifndef COMM_THREAD_WORLD_H
#define COMM_THREAD_WORLD_H

#include "harness/check.h"
#include "redpoll/comm.h"

typedef void (*world_function)(rp_comm *comm, int rank, int world, void *context);

/* Run `function` on `world` threads, each with its communicator; options NULL: inproc. Fails
 * the case when a communicator cannot be made. */
void world_run(int world, const rp_comm_options *options, world_function function,
               void *context);

/* Worlds that are run from here on count rank r as being on host host_of[r]; NULL: on one. */
void world_hosts(const int *host_of);

/* All ranks of the running world_run() meet here, past the communicator. */
void world_meet(void);

/* A rank's input: Gaussian, by seed. */
void world_fill(uint64_t seed, int rank, float *values, size_t count);
/* Relative L2 distance of got from the float64 sum (or mean) of everybody's input. */
double world_error(uint64_t seed, int world, const float *got, size_t count, double scale);

#endif
