#include "base/clock.h"

#include <errno.h>
#include <time.h>

int64_t rpi_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * RPI_SECOND_NS + now.tv_nsec;
}

int64_t rpi_deadline_ns(double timeout_s) {
    if (!(timeout_s >= 0) || timeout_s > 1e9) return RPI_NEVER_NS;
    return rpi_now_ns() + (int64_t)(timeout_s * 1e9);
}

double rpi_seconds(int64_t duration_ns) {
    return (double)duration_ns * 1e-9;
}

void rpi_sleep_until_ns(int64_t time_ns) {
    struct timespec at = {.tv_sec = time_ns / RPI_SECOND_NS,
                          .tv_nsec = time_ns % RPI_SECOND_NS};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) {
    }
}

void rpi_condition_init(pthread_cond_t *condition) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes); /* none of these fails on Linux */
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}
