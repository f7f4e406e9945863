/* A step that is being forecast, shared by the files that forecast its parts. */
#ifndef RPI_PLAN_FORECAST_JOB_H
#define RPI_PLAN_FORECAST_JOB_H

#include "plan/foresight/forecast.h"

#include <math.h>

typedef struct rpi_forecast_job {
    const rpi_training_layout *l;
    const rpi_machine *m;
    double peak; /* operations a second */
    double tokens, t, parts;
    const rpi_rate_table *products; /* measured products in the precision's dtype; or NULL */
    rpi_step_terms *x;
} rpi_forecast_job;

static inline double rpi_forecast_fact(const rpi_forecast_job *j, rpi_fact which) {
    return rpi_plan_device_value(&j->m->device, which);
}

/* The time of everything except products, at the memory's rate. */
static inline double rpi_forecast_memory_s(const rpi_forecast_job *j, double bytes) {
    return bytes / (rpi_forecast_fact(j, RPI_FACT_MEMORY_RATE) *
                    rpi_forecast_fact(j, RPI_FACT_MEMORY_SHARE));
}

/* The bytes of an element of the activations that ranks of a replica send each other. */
static inline double rpi_forecast_crossing_bytes(const rpi_forecast_job *j) {
    return j->m->activation_bytes > 0 ? j->m->activation_bytes : j->l->precision->activation;
}

/* The longer of two times that overlap, smooth where they are equal. */
static inline double rpi_forecast_longer(double a, double b) {
    double most = fmax(a, b), least = fmin(a, b);
    return most > 0 ? most * pow(1 + pow(least / most, 4), .25) : 0;
}

#endif
