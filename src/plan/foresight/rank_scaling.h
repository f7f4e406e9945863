/* What a step takes where ranks exchange beside computing, whatever they exchange. */
#ifndef RPI_PLAN_RANK_SCALING_H
#define RPI_PLAN_RANK_SCALING_H

/* A rank alone. */
typedef struct rpi_scaling_work {
    double compute_s;  /* of a step */
    double backward_s; /* of that */
    double jitter_s;   /* standard deviation of a step's time, of each rank by itself */
} rpi_scaling_work;

/* What a strategy adds, each `every` steps. */
typedef struct rpi_scaling_exchange {
    double time_s;     /* of all of it */
    double last_s;     /* of that, what begins when the computing that may hide it has ended */
    double window_s;   /* of computing that may hide the rest */
    double every;      /* steps; 1 or more */
    double wire_bytes; /* sent in it by the rank that sends most */
    double waits_for;  /* ranks that a rank waits for, itself included */
    double workers;    /* ranks that compute */
} rpi_scaling_exchange;

/* Seconds of an exchange that ranks wait for, over the steps between two of them. */
double rpi_scaling_exposed_s(const rpi_scaling_exchange *exchange);
/* By how much the slowest of `ranks` is behind the mean, in deviations of a normal: 0 of one,
 * about sqrt(2 ln n) of many. */
double rpi_scaling_slowest(double ranks);
/* A step: computing, waiting for the slowest, and what is exposed. */
double rpi_scaling_step_s(const rpi_scaling_work *work, const rpi_scaling_exchange *exchange);

#endif
