/* The time of training by kind of work, which `redpoll train --profile` prints. */
#ifndef RPI_TRAIN_PROFILE_H
#define RPI_TRAIN_PROFILE_H

#include "engine/instance.h"

enum { RPI_PROFILE_ROWS = 96, RPI_PROFILE_TEXT = 48 };

typedef struct rpi_profile_row {
    const char *phase; /* "forward", "backward", "update", "wait": static */
    char what[RPI_PROFILE_TEXT];
    int64_t calls, ns; /* of all steps */
} rpi_profile_row;

typedef struct rpi_profile {
    rpi_profile_row rows[RPI_PROFILE_ROWS]; /* further kinds count as "other" */
    int count;
    int64_t steps, step_ns; /* all steps, and their time from begin to end */
    double flops;           /* of all steps, counted from the graph; a multiply-add is two */
    double matrix_flop_s; /* the rate of a large matrix product on these threads; 0: unknown */
    double memory_bytes;  /* the most memory that the process has held */
    bool is_warm;
} rpi_profile;

/* Begins a step. The times of the first step are dropped when a second one begins, because the
 * first one fills caches and chooses algorithms. */
void rpi_profile_begin(rpi_profile *profile);
void rpi_profile_end(rpi_profile *profile, int64_t ns);
/* profile NULL: does nothing, as in all of these functions. */
void rpi_profile_add(rpi_profile *profile, const char *phase, const char *what, int64_t ns);
void rpi_profile_kernel(rpi_profile *profile, const rpi_step_report *report);
/* Orders phases as in a step, and within each the longest first. */
void rpi_profile_sort(rpi_profile *profile);
/* The time that no row has. */
int64_t rpi_profile_rest_ns(const rpi_profile *profile);

/* The rate of a matrix product in f32 by a backend, in operations a second: the best of some
 * runs of 1024 x 1024 x 1024, or of a smaller one if that takes too long; takes a fraction of a
 * second. */
rp_status rpi_profile_matrix_rate(const rpi_backend *backend, int threads, double *out_flop_s);

#endif
