/* Rules for the amount of work between two saves. A rule is a row of interval_rules.c. */
#ifndef RPI_PLAN_INTERVAL_RULE_H
#define RPI_PLAN_INTERVAL_RULE_H

#include "plan/foresight/failures.h"

typedef struct rpi_interval_rule {
    const char *name;
    const char *formula; /* M: mean time between failures; C, R: to save and to restart */
    const char *source;
    /* Seconds of work; only failures that lose work count. */
    double (*interval_s)(const rpi_failures *failures);
} rpi_interval_rule;

/* The catalogue, the exact optimum first; NULL past the end. */
const rpi_interval_rule *rpi_interval_rule_at(int index);

/* The nearest possible interval: not shorter than a save takes to be safe, and a whole number
 * of steps, at least one; step_s 0: steps are not considered. */
double rpi_interval_fit(const rpi_failures *failures, double interval_s, double step_s);

#endif
