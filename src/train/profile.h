/* Where the time of training goes, by kind of work: what `redpoll train --profile` prints. */
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
    rpi_profile_row rows[RPI_PROFILE_ROWS]; /* further kinds are left out, and so "other" */
    int count;
    int64_t steps, step_ns; /* all steps, and their time from begin to end */
    double flops;           /* of all steps, counted from the graph; a multiply-add is two */
    double matrix_flop_s; /* what a large matrix product reaches on these threads; 0: unknown */
    double memory_bytes;  /* the most that the process has held in memory */
    bool is_warm;
} rpi_profile;

/* A step begins. What the first one cost is forgotten when a second one comes: caches and
 * choices of algorithms are made in it. */
void rpi_profile_begin(rpi_profile *profile);
void rpi_profile_end(rpi_profile *profile, int64_t ns);
/* profile NULL: nothing, in all of these. */
void rpi_profile_add(rpi_profile *profile, const char *phase, const char *what, int64_t ns);
void rpi_profile_kernel(rpi_profile *profile, const rpi_step_report *report);
/* Phases in the order of a step, in each the longest first. */
void rpi_profile_sort(rpi_profile *profile);
/* What no row has. */
int64_t rpi_profile_rest_ns(const rpi_profile *profile);

/* FLOP/s of a matrix product in f32 through a backend: the best of some runs of 1024 x 1024 x
 * 1024, or of a smaller one where that takes longer than a moment; a fraction of a second. */
rp_status rpi_profile_matrix_rate(const rpi_backend *backend, int threads, double *out_flop_s);

#endif
