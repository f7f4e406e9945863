/* Asynchronous local SGD's outer optimizer, as what a parameter server merges by. */
#include "redpoll/parameter_server.h"

#include "base/fpenv.h"
#include "base/status.h"
#include "plan/local_sgd/outer_momentum.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

rp_status rp_delayed_nesterov_check(const rp_delayed_nesterov *outer) {
    if (!outer) return RP_FAIL(INVALID, "delayed Nesterov: the outer optimizer is NULL");
    if (!(outer->outer_rate > 0) || !isfinite(outer->outer_rate))
        return RP_FAIL(INVALID, "delayed Nesterov: an outer rate of %g; above 0",
                       outer->outer_rate);
    if (!(outer->outer_momentum >= 0 && outer->outer_momentum < 1))
        return RP_FAIL(INVALID,
                       "delayed Nesterov: an outer momentum of %g; 0 or more, and below 1",
                       outer->outer_momentum);
    if (!outer->delay)
        return RP_FAIL(INVALID, "delayed Nesterov: momentum every 0 pushes; 1 or more, as a "
                                "rule as many as workers");
    if (!outer->momentum || !outer->buffer)
        return RP_FAIL(INVALID, "delayed Nesterov: momentum or buffer is NULL; each has as "
                                "many elements as the vector");
    return RP_OK;
}

rp_status rp_delayed_nesterov_advise(const rp_delayed_nesterov *outer, uint64_t every,
                                     char *text, size_t bytes) {
    char advice[RPI_OUTER_ADVICE];
    if (!outer || !text || !bytes)
        return RP_FAIL(INVALID, "delayed Nesterov: %s is NULL",
                       outer ? "the place for a text" : "the outer optimizer");
    rpi_outer_momentum_advise(outer->outer_rate, outer->outer_momentum, every, false, advice);
    snprintf(text, bytes, "%s", advice);
    return RP_OK;
}

rp_status rp_delayed_nesterov_merge(void *context, const rp_parameter_merge *merge) {
    RPI_FPENV_SCOPE;
    rp_delayed_nesterov *outer = context;
    RP_TRY(rp_delayed_nesterov_check(outer));
    if (!merge) return RP_FAIL(INVALID, "delayed Nesterov: the merge is NULL");
    uint64_t before = outer->pushes;
    outer->pushes += (uint64_t)merge->push_count;
    bool is_due = outer->pushes / outer->delay > before / outer->delay;
    float *momentum = outer->momentum + merge->first, *buffer = outer->buffer + merge->first;
    float share = 1 / (float)outer->delay, beta = (float)outer->outer_momentum;
    float rate = (float)outer->outer_rate;
    for (size_t i = 0; i < merge->count; i++) {
        float step = merge->gradient[i] * share;
        buffer[i] += merge->gradient[i];
        if (is_due) {
            momentum[i] = beta * momentum[i] + buffer[i] * share;
            step += beta * momentum[i];
            buffer[i] = 0;
        }
        merge->values[i] -= rate * step;
    }
    return RP_OK;
}
