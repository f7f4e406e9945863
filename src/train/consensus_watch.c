#include "train/consensus_watch.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>

static const double SHARE = .3, SMALL = .1, GROWTH = 1.2;
enum { RISES = 4 };

const char *rpi_consensus_watch_take(rpi_consensus_watch *w, int64_t step, double distance) {
    if (isnan(distance) || step == w->step) return NULL;
    w->rises = w->latest > 0 && distance > GROWTH * w->latest ? w->rises + 1 : 0;
    w->step = step;
    w->latest = distance;
    bool grows = w->rises >= RISES && distance > SMALL;
    if (w->has_warned || (distance <= SHARE && !grows)) return NULL;
    w->has_warned = true;
    snprintf(w->warning, sizeof w->warning,
             distance > SHARE
                 ? "ranks are far apart behind step %lld: by %.2g of the norm of their mean "
                   "(consensus distance; above 0.3 they hardly train one model)"
                 : "ranks drift apart: the consensus distance has grown from evaluation to "
                   "evaluation, behind step %lld it is %.2g",
             (long long)step, distance);
    return w->warning;
}
