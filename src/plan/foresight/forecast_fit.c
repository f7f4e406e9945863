#include "plan/foresight/forecast_fit.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

enum { EVALUATIONS = 3000, TURNS = 6, NO_FOLD = -1 };
#define FIRST_STEP .4 /* of the simplex: larger by half */
#define SMALLEST   1e-5
#define PULL       .1 /* pulls facts that no row depends on to where they began */

/* The rows to fit to: all rows, or those outside of one fold. */
typedef struct fit {
    const rpi_measured_row *rows;
    int count, fold, size; /* size: the number of fitted facts */
    rpi_machine machine;
    int facts[RPI_FACTS];
    double start[RPI_FACTS];
    /* For each row, the factor by which its pipeline takes longer than the bound, and what
     * links add. They are simulated with the facts where a search begins, because they hardly
     * depend on the facts and take long to compute. */
    double *longer, *hops_s;
} fit;

/* ---- facts as numbers that may be anything ---- */

static double spread(int fact, double value) {
    if (rpi_fact_at(fact)->most > 1) return log(fmax(value, SMALLEST));
    double share = fmin(fmax(value, .02), .98);
    return log(share / (1 - share));
}

static double gather(int fact, double z) {
    const rpi_fact_info *info = rpi_fact_at(fact);
    double value = info->most > 1 ? exp(z) : 1 / (1 + exp(-z));
    return fmin(fmax(value, info->least), info->most);
}

static void put(const fit *f, const double *z, rpi_plan_device *device) {
    for (int i = 0; i < f->size; i++)
        device->facts[f->facts[i]].value = gather(f->facts[i], z[i]);
}

static double loss(fit *f, const double *z) {
    double sum = 0, rows = 0, pull = 0;
    put(f, z, &f->machine.device);
    for (int i = 0; i < f->count; i++) {
        rpi_forecast forecast;
        if (i % RPI_FIT_FOLDS == f->fold) continue;
        if (rpi_forecast_bound(&f->rows[i].layout, &f->machine, &forecast) != RP_OK) continue;
        double step_s = forecast.step_s * f->longer[i] + f->hops_s[i];
        sum += fabs(log(step_s / f->rows[i].step_s));
        rows++;
    }
    for (int i = 0; i < f->size; i++) pull += (z[i] - f->start[i]) * (z[i] - f->start[i]);
    return (sum + PULL * pull / f->size) / rows;
}

static rp_status take_pipelines(fit *f, const double *z) {
    rpi_forecast exact, bound;
    put(f, z, &f->machine.device);
    for (int i = 0; i < f->count; i++) {
        RP_TRY(rpi_forecast_step(&f->rows[i].layout, &f->machine, &exact));
        RP_TRY(rpi_forecast_bound(&f->rows[i].layout, &f->machine, &bound));
        f->hops_s[i] = exact.seconds[RPI_TIME_HOPS];
        f->longer[i] = (exact.step_s - f->hops_s[i]) / bound.step_s;
    }
    return RP_OK;
}

/* ---- the simplex ---- */

typedef struct simplex {
    double points[RPI_FACTS + 1][RPI_FACTS], values[RPI_FACTS + 1];
    int evaluations;
} simplex;

static void sort(simplex *s, int size) {
    for (int i = 1; i <= size; i++)
        for (int j = i; j > 0 && s->values[j] < s->values[j - 1]; j--) {
            double value = s->values[j], point[RPI_FACTS];
            memcpy(point, s->points[j], sizeof point);
            s->values[j] = s->values[j - 1];
            memcpy(s->points[j], s->points[j - 1], sizeof point);
            s->values[j - 1] = value;
            memcpy(s->points[j - 1], point, sizeof point);
        }
}

static void begin(fit *f, simplex *s, const double *at) {
    for (int i = 0; i <= f->size; i++) {
        memcpy(s->points[i], at, sizeof s->points[i]);
        if (i > 0) s->points[i][i - 1] += FIRST_STEP;
        s->values[i] = loss(f, s->points[i]);
        s->evaluations++;
    }
}

/* Writes to `out` the mirror image of the worst point in the centre of the others, `far` times
 * as far away; returns its loss. */
static double mirror(fit *f, simplex *s, double far, double *out) {
    for (int d = 0; d < f->size; d++) {
        double middle = 0;
        for (int i = 0; i < f->size; i++) middle += s->points[i][d] / f->size;
        out[d] = middle + far * (middle - s->points[f->size][d]);
    }
    s->evaluations++;
    return loss(f, out);
}

static void replace_worst(const fit *f, simplex *s, const double *point, double value) {
    memcpy(s->points[f->size], point, sizeof s->points[0]);
    s->values[f->size] = value;
}

static void shrink(fit *f, simplex *s) {
    for (int i = 1; i <= f->size; i++) {
        for (int d = 0; d < f->size; d++)
            s->points[i][d] = (s->points[i][d] + s->points[0][d]) / 2;
        s->values[i] = loss(f, s->points[i]);
        s->evaluations++;
    }
}

static void step(fit *f, simplex *s) {
    double near[RPI_FACTS] = {0}, far[RPI_FACTS] = {0};
    sort(s, f->size);
    double value = mirror(f, s, 1, near);
    if (value < s->values[0]) {
        double further = mirror(f, s, 2, far);
        replace_worst(f, s, further < value ? far : near, fmin(further, value));
    } else if (value < s->values[f->size - 1]) {
        replace_worst(f, s, near, value);
    } else {
        bool is_outside = value < s->values[f->size];
        double inside = mirror(f, s, is_outside ? .5 : -.5, far);
        if (inside < fmin(value, s->values[f->size]))
            replace_worst(f, s, far, inside);
        else
            shrink(f, s);
    }
}

/* Restarts several times: a simplex may have collapsed before the minimum, and what pipelines
 * add is computed again. */
static rp_status search(fit *f, rpi_plan_device *out) {
    simplex s = {.evaluations = 0};
    RP_TRY(take_pipelines(f, f->start));
    begin(f, &s, f->start);
    for (int turn = 1; turn <= TURNS; turn++) {
        while (s.evaluations < turn * EVALUATIONS / TURNS) step(f, &s);
        sort(&s, f->size);
        double best[RPI_FACTS];
        memcpy(best, s.points[0], sizeof best);
        if (turn == TURNS) break;
        RP_TRY(take_pipelines(f, best));
        begin(f, &s, best);
    }
    put(f, s.points[0], out);
    return RP_OK;
}

/* ---- what is fitted, and how well ---- */

static void forecast_rows(const fit *f, const rpi_plan_device *device, int fold,
                          rpi_forecast *out) {
    rpi_machine machine = f->machine;
    machine.device = *device;
    for (int i = 0; i < f->count; i++)
        if (fold == NO_FOLD || i % RPI_FIT_FOLDS == fold)
            (void)rpi_forecast_step(&f->rows[i].layout, &machine, &out[i]);
}

static void mark(fit *f, rpi_plan_device *device, double factor) {
    double ranks = 1, least = INFINITY;
    for (int i = 0; i < f->count; i++)
        ranks = fmax(ranks, (double)rpi_layout_ranks(&f->rows[i].layout));
    for (int i = 0; i < f->count; i++) least = fmin(least, rpi_pass_flops(&f->rows[i].layout));
    for (int i = 0; i < f->size; i++) device->facts[f->facts[i]].kind = RPI_KNOWN_FITTED;
    device->facts[RPI_FACT_RESIDUAL].value = factor;
    device->facts[RPI_FACT_FITTED_RANKS].value = ranks;
    device->facts[RPI_FACT_FITTED_PASS].value = least;
    double far = device->facts[RPI_FACT_RESIDUAL_FAR].value;
    device->facts[RPI_FACT_RESIDUAL_FAR].value = fmax(far, factor * factor);
}

static rp_status fit_all(fit *f, rpi_forecast *forecasts, rpi_plan_device_fit *out) {
    const rpi_plan_device start = f->machine.device;
    for (int fold = 0; fold < RPI_FIT_FOLDS; fold++) {
        rpi_plan_device device = start;
        f->fold = fold;
        RP_TRY(search(f, &device));
        forecast_rows(f, &device, fold, forecasts);
    }
    RP_TRY(rpi_forecast_errors_of(f->rows, forecasts, f->count, &out->unseen));
    f->fold = NO_FOLD;
    out->device = start;
    RP_TRY(search(f, &out->device));
    mark(f, &out->device, out->unseen.factor);
    forecast_rows(f, &out->device, NO_FOLD, forecasts);
    return rpi_forecast_errors_of(f->rows, forecasts, f->count, &out->own);
}

rp_status rpi_forecast_fit(const rpi_measured_row *rows, int count, const rpi_machine *machine,
                           rpi_plan_device_fit *out) {
    fit f = {.rows = rows, .count = count, .machine = *machine};
    rpi_forecast *forecasts = NULL, probe;
    if (count < RPI_FIT_ROWS)
        return RP_FAIL(INVALID, "%d rows are too few to fit to; %d are the least", count,
                       RPI_FIT_ROWS);
    for (int i = 0; i < count; i++)
        RP_TRY(rpi_forecast_bound(&rows[i].layout, machine, &probe));
    for (int i = 0; i < RPI_FACTS; i++) {
        if (!rpi_fact_at(i)->fitted) continue;
        f.start[f.size] = spread(i, machine->device.facts[i].value);
        f.facts[f.size++] = i;
    }
    RP_TRY(rpi_alloc_array((size_t)count, sizeof *forecasts, "forecasts", &forecasts));
    rp_status status =
        rpi_alloc_array(2 * (size_t)count, sizeof *f.longer, "forecasts", &f.longer);
    if (status == RP_OK) f.hops_s = f.longer + count;
    if (status == RP_OK) status = fit_all(&f, forecasts, out);
    rpi_free(f.longer);
    rpi_free(forecasts);
    return status;
}
