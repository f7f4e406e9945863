#include "plan/foresight/rate_table.h"

#include <math.h>
#include <stddef.h>

/* The forms that are tried: half of the best rate at sides of 1, 1.41, 2 ... 4096, and powers
 * of .25, .5 ... 3. */
enum { HALVES = 25, POWERS = 12 };

bool rpi_rate_table_add(rpi_rate_table *t, const double *at, double rate) {
    rpi_rate_point p = {.rate = rate};
    if (t->count == RPI_RATE_POINTS || !(rate > 0) || !isfinite(rate)) return false;
    for (int i = 0; i < t->sides; i++) {
        if (!(at[i] > 0) || !isfinite(at[i])) return false;
        p.at[i] = at[i];
    }
    t->points[t->count++] = p;
    return true;
}

static double smallest(const rpi_rate_table *t, const double *at) {
    double least = at[0];
    for (int i = 1; i < t->sides; i++) least = fmin(least, at[i]);
    return least;
}

static double slower(double side, double half_side, double power) {
    return half_side > 0 ? 1 + pow(half_side / side, power) : 1;
}

/* The distance of the points from such a form; *out_best: its best rate. */
static double distance(const rpi_rate_table *t, double half_side, double power,
                       double *out_best) {
    double sum = 0, squares = 0;
    for (int i = 0; i < t->count; i++) {
        const rpi_rate_point *p = &t->points[i];
        double z = log(p->rate * slower(smallest(t, p->at), half_side, power));
        sum += z;
        squares += z * z;
    }
    *out_best = exp(sum / t->count);
    return squares - sum * sum / t->count;
}

void rpi_rate_table_fit(rpi_rate_table *t) {
    double best;
    if (!t->count) return;
    double least = distance(t, 0, 1, &t->best);
    t->half_side = 0;
    t->power = 1;
    for (int i = 0; t->sides > 1 && i < HALVES; i++)
        for (int k = 0; k < POWERS; k++) {
            double half = exp2(i / 2.0), power = (k + 1) / 4.0;
            double far = distance(t, half, power, &best);
            if (far >= least) continue;
            least = far;
            t->best = best;
            t->half_side = half;
            t->power = power;
        }
}

/* ---- between points ---- */

static double on_a_line(const rpi_rate_table *t, double at) {
    const rpi_rate_point *below = NULL, *above = NULL;
    for (int i = 0; i < t->count; i++) {
        const rpi_rate_point *p = &t->points[i];
        if (p->at[0] <= at && (!below || p->at[0] > below->at[0])) below = p;
        if (p->at[0] >= at && (!above || p->at[0] < above->at[0])) above = p;
    }
    if (!below) return above ? above->rate : 0;
    if (!above || above->at[0] == below->at[0]) return below->rate;
    double share = log(at / below->at[0]) / log(above->at[0] / below->at[0]);
    return below->rate * pow(above->rate / below->rate, share);
}

/* The mean of nearby points' logarithmic distances above the form, weighted by the inverse
 * fourth power of their distance. A point at distance 1, a factor of e in one side, weighs as
 * much as the form itself, which is what remains far from all points. */
static double among(const rpi_rate_table *t, const double *at) {
    double weights = 1, sum = 0;
    for (int i = 0; i < t->count; i++) {
        const rpi_rate_point *p = &t->points[i];
        double square = 0;
        for (int k = 0; k < t->sides; k++)
            square += log(at[k] / p->at[k]) * log(at[k] / p->at[k]);
        if (square < 1e-12) return p->rate;
        double form = t->best / slower(smallest(t, p->at), t->half_side, t->power);
        sum += log(p->rate / form) / (square * square);
        weights += 1 / (square * square);
    }
    return t->best / slower(smallest(t, at), t->half_side, t->power) * exp(sum / weights);
}

double rpi_rate_at(const rpi_rate_table *t, const double *at) {
    if (!t->count) return 0;
    return t->sides == 1 ? on_a_line(t, at[0]) : among(t, at);
}
