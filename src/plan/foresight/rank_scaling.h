/* The time of a step of ranks that compute and exchange, with any kind of exchange. */
#ifndef RPI_PLAN_RANK_SCALING_H
#define RPI_PLAN_RANK_SCALING_H

#include "plan/foresight/machine.h"

/* The work of a rank alone. */
typedef struct rpi_scaling_work {
    double compute_s;  /* of a step */
    double backward_s; /* part of that */
    double jitter_s;   /* standard deviation of a rank's step, independent of other ranks */
    /* Where the cores that compute also send: the bytes of a sum that they move in a second,
     * and of memory that they read and write; 0: others do. */
    double sum_bytes_s, memory_bytes_s;
} rpi_scaling_work;

/* What a strategy adds every `every` steps. */
typedef struct rpi_scaling_exchange {
    double time_s;     /* of the whole exchange */
    double last_s;     /* the part of it that begins after the computing that may hide it */
    double window_s;   /* computing that may hide the rest */
    double core_s;     /* of the cores, which they do not compute in */
    double every;      /* steps; 1 or more */
    double wire_bytes; /* sent in it by the rank that sends most */
    double waits_for;  /* ranks that a rank waits for, itself included */
    double workers;    /* ranks that compute */
} rpi_scaling_exchange;

/* Of a measured machine, whose cores also send what they have computed, in sums of so many
 * bytes; of another, nothing. */
void rpi_scaling_know_cores(const rpi_machine *machine, double bucket_bytes,
                            rpi_scaling_work *work);
/* The exposed time of an exchange, divided by the steps between two exchanges. */
double rpi_scaling_exposed_s(const rpi_scaling_exchange *exchange);
/* The deviations by which the slowest of `ranks` is behind the mean, for a normal distribution:
 * 0 for one rank, about sqrt(2 ln n) for many. */
double rpi_scaling_slowest(double ranks);
/* The time of a step: computing, waiting for the slowest, and exposed communication. */
double rpi_scaling_step_s(const rpi_scaling_work *work, const rpi_scaling_exchange *exchange);

#endif
