/* What two runs have printed of each step, and saved. */
#include "base/memory.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "cli/verify_command.h"
#include "engine/optimizer.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- metrics.jsonl ---- */

typedef struct told_step {
    double loss, norm, rate, samples;
} told_step;

typedef struct told_run {
    told_step *steps; /* [count], the first is step 1 */
    int64_t count;
    char unit_s[64]; /* "tokens_s" */
} told_run;

static double number_of(const cJSON *object, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

/* The header counts what the data have: "train_tokens". */
static void take_header(told_run *run, const cJSON *header) {
    const cJSON *item;
    cJSON_ArrayForEach(item, header) if (cJSON_IsNumber(item) && item->string &&
                                         strncmp(item->string, "train_", 6) == 0)
        snprintf(run->unit_s, sizeof run->unit_s, "%s_s", item->string + 6);
}

static void take_line(told_run *run, const cJSON *line) {
    double step = number_of(line, "step");
    if (cJSON_GetObjectItemCaseSensitive(line, "redpoll")) take_header(run, line);
    if (!(step >= 1 && step <= (double)run->count)) return;
    double samples = rint(number_of(line, run->unit_s) * number_of(line, "step_s"));
    run->steps[(int64_t)step - 1] = (told_step){.loss = number_of(line, "loss"),
                                                .norm = number_of(line, "grad_norm"),
                                                .rate = number_of(line, "lr"),
                                                .samples = samples};
}

static rp_status read_told(const char *folder, told_run *run) {
    enum { MOST = 1 << 28 };
    char path[RPI_PATH_BYTES], *text = NULL;
    size_t bytes = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    RP_TRY(rpi_regular_file_read(path, MOST, &text, &bytes));
    char *rest = text;
    for (char *line; (line = strtok_r(rest, "\n", &rest)) != NULL;) {
        cJSON *object = cJSON_Parse(line);
        if (object) take_line(run, object);
        cJSON_Delete(object);
    }
    rpi_free(text);
    for (int64_t i = 0; i < run->count; i++)
        if (run->steps[i].samples == 0)
            return RP_FAIL(CORRUPT, "%s has no step %lld", path, (long long)(i + 1));
    return RP_OK;
}

static rp_status open_told(const char *folder, int64_t steps, told_run *run) {
    run->count = steps;
    RP_TRY(rpi_alloc_array((size_t)steps, sizeof *run->steps, "steps", &run->steps));
    return read_told(folder, run);
}

/* ---- one step ---- */

typedef struct comparison {
    const rpi_verify_job *job;
    told_run runs[2]; /* of one rank, and of the layout */
    rpi_verify_bounds bounds;
    bool is_adaptive; /* the optimizer divides by what gradients were */
    double rates;     /* of the steps so far, added up */
    double scale;     /* the largest parameter, as far as is known */
    double apart;     /* the furthest that parameters were when a step began, relative */
    rpi_verify_result *result;
} comparison;

/* An adaptive optimizer takes a whole step for an element whose gradient is nothing but
 * rounding, in either direction. */
static double whole_steps(const comparison *c, double scale) {
    return c->is_adaptive && scale > 0 ? 2 * c->rates / scale : 0;
}

/* What parameters that are `apart` add to the bounds of the step that begins with them. Its
 * gradients are those of other parameters, which differ by as much, relative, as these do, and
 * with them their norm and the optimizer's running means; squares differ twice as much. The
 * loss is flat along elements whose gradients are nothing: its second order is left. */
static double added(const comparison *c, rpi_verify_kind kind) {
    if (kind == RPI_VERIFY_LOSS) return c->apart * c->apart;
    if (kind == RPI_VERIFY_NORM) return c->apart;
    return kind == RPI_VERIFY_OPTIMIZER ? 2 * c->apart : 0;
}

static double bound_at(const comparison *c, rpi_verify_kind kind, int64_t step, double scale) {
    double tolerance = c->job->asked->tolerance;
    double bound = c->bounds.of[kind] * (double)step;
    if (tolerance >= 0) return tolerance;
    if (bound == 0) return 0;
    if (kind == RPI_VERIFY_PARAMETERS) return fmax(bound, whole_steps(c, scale));
    return bound + added(c, kind);
}

static void find(rpi_verify_finding *found, int64_t step, rpi_verify_kind kind,
                 const rpi_verify_difference *d, double bound) {
    if (found->step) return;
    *found = (rpi_verify_finding){.step = step,
                                  .kind = kind,
                                  .tensor = bound > 0 ? d->worst : d->first,
                                  .relative = d->relative,
                                  .bound = bound};
}

static void take(comparison *c, int64_t step, rpi_verify_kind kind,
                 const rpi_verify_difference *d) {
    rpi_verify_row *row = &c->result->rows[kind];
    double bound = bound_at(c, kind, step, d->scale), relative = d->relative;
    bool is_beyond = d->differing && (relative > bound || bound == 0);
    row->compared += d->compared;
    row->differing += d->differing;
    row->largest = fmax(row->largest, d->largest);
    row->relative = fmax(row->relative, relative);
    row->bound = bound;
    row->is_beyond |= is_beyond;
    if (d->differing) find(&c->result->first, step, kind, d, 0);
    if (d->differing && kind >= RPI_VERIFY_PARAMETERS)
        find(&c->result->first_tensor, step, kind, d, 0);
    if (is_beyond) find(&c->result->beyond, step, kind, d, bound);
}

/* Sums in another order change every gradient by so little of its own size. A tensor of small
 * gradients that is wrong hides behind the largest ones, but not here. Where a step begins with
 * other parameters nothing is known of single tensors. */
static void take_single(comparison *c, int64_t step, const rpi_verify_difference *d) {
    rpi_verify_finding *beyond = &c->result->beyond;
    double bound = c->bounds.of[RPI_VERIFY_OPTIMIZER];
    bool is_promised = c->job->asked->tolerance < 0 && bound <= RPI_VERIFY_OF_TENSOR;
    if (step > 1 || !is_promised || !(d->wrong_relative > 0)) return;
    c->result->rows[RPI_VERIFY_OPTIMIZER].is_beyond = true;
    if (beyond->step) return;
    *beyond = (rpi_verify_finding){.step = step,
                                   .kind = RPI_VERIFY_OPTIMIZER,
                                   .tensor = d->wrong,
                                   .relative = d->wrong_relative,
                                   .bound = RPI_VERIFY_OF_TENSOR,
                                   .is_of_tensor = true};
}

static bool is_saved(const rpi_verify_job *job, int64_t step) {
    int64_t every = job->train.train.checkpoint_every;
    return every <= 1 || step % every == 0 || step == job->asked->steps;
}

/* Of parameters that nobody has compared: as far as they may be. */
static void begin_step(comparison *c, int64_t step, const rpi_verify_difference *parameters) {
    if (parameters->compared) c->scale = parameters->scale;
    if (!is_saved(c->job, step - 1)) c->apart = fmax(c->apart, whole_steps(c, c->scale));
}

/* Of an optimizer that is not adaptive they follow the gradients, and bounds do. */
static void end_step(comparison *c, const rpi_verify_difference *parameters) {
    if (c->is_adaptive) c->apart = fmax(c->apart, parameters->relative);
}

static rp_status compare_step(comparison *c, int64_t step) {
    const told_step *one = &c->runs[0].steps[step - 1], *other = &c->runs[1].steps[step - 1];
    rpi_verify_difference kinds[RPI_VERIFY_KINDS] = {{0}};
    rpi_verify_numbers("loss", one->loss, other->loss, &kinds[RPI_VERIFY_LOSS]);
    rpi_verify_numbers("norm", one->norm, other->norm, &kinds[RPI_VERIFY_NORM]);
    if (is_saved(c->job, step))
        RP_TRY(rpi_verify_checkpoints(c->job->one, c->job->other, step, kinds));
    begin_step(c, step, &kinds[RPI_VERIFY_PARAMETERS]);
    c->rates += one->rate;
    for (rpi_verify_kind k = 0; k < RPI_VERIFY_KINDS; k++)
        if (kinds[k].compared) take(c, step, k, &kinds[k]);
    take_single(c, step, &kinds[RPI_VERIFY_OPTIMIZER]);
    end_step(c, &kinds[RPI_VERIFY_PARAMETERS]);
    return RP_OK;
}

/* ---- all of them ---- */

static bool has_short_batch(const told_run *run) {
    for (int64_t i = 1; i < run->count; i++)
        if (run->steps[i].samples < run->steps[0].samples) return true;
    return false;
}

static rp_status compare_all(comparison *c) {
    const rpi_train_options *o = &c->job->train.train;
    const rpi_optimizer *optimizer = NULL;
    RP_TRY(rpi_optimizer_find(o->optimizer, &optimizer));
    c->is_adaptive = optimizer->slot_count > 1;
    RP_TRY(open_told(c->job->one, c->result->steps, &c->runs[0]));
    RP_TRY(open_told(c->job->other, c->result->steps, &c->runs[1]));
    c->result->layout.has_short_batch = has_short_batch(&c->runs[0]);
    c->bounds = rpi_verify_bounds_of(&c->result->layout);
    for (int64_t step = 1; step <= c->result->steps; step++) RP_TRY(compare_step(c, step));
    return RP_OK;
}

rp_status rpi_verify_compare(const rpi_verify_job *job, int64_t steps,
                             rpi_verify_result *out_result) {
    comparison c = {.job = job, .result = out_result};
    *out_result = (rpi_verify_result){.layout = job->layout, .steps = steps};
    if (!steps) return RP_OK;
    rp_status status = compare_all(&c);
    rpi_free(c.runs[0].steps);
    rpi_free(c.runs[1].steps);
    return status;
}
