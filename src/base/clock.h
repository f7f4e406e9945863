/* Monotonic time and deadlines. */
#ifndef RPI_BASE_CLOCK_H
#define RPI_BASE_CLOCK_H

#include <pthread.h>
#include <stdint.h>

#define RPI_SECOND_NS INT64_C(1000000000)
#define RPI_NEVER_NS  INT64_MAX

/* CLOCK_MONOTONIC in nanoseconds; the same clock in every process of a host. */
int64_t rpi_now_ns(void);
/* now + timeout_s; a timeout that is negative or infinite never comes. */
int64_t rpi_deadline_ns(double timeout_s);
double rpi_seconds(int64_t duration_ns);
void rpi_sleep_until_ns(int64_t time_ns);
/* Timed waits for the condition end by this clock. */
void rpi_condition_init(pthread_cond_t *condition);

#endif
