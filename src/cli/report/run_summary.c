#include "cli/report/run_summary.h"

#include "base/status.h"
#include "cli/report/arena_text.h"
#include "cli/report/quantity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_NOTES = 8 };

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(const double *sorted, size_t count, double share) {
    double place = share * (double)(count - 1);
    size_t below = (size_t)place;
    if (below + 1 >= count) return sorted[count - 1];
    return sorted[below] + (place - (double)below) * (sorted[below + 1] - sorted[below]);
}

rpi_spread rpi_spread_of(double *values, size_t count) {
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (!isnan(values[i])) values[kept++] = values[i];
    if (kept == 0) return (rpi_spread){NAN, NAN, NAN, NAN, NAN};
    qsort(values, kept, sizeof *values, compare);
    return (rpi_spread){quantile(values, kept, 0.10), quantile(values, kept, 0.25),
                        quantile(values, kept, 0.50), quantile(values, kept, 0.75),
                        quantile(values, kept, 0.90)};
}

static rpi_spread spread_of(const rpi_metrics_file *file, rpi_step_value which,
                            double *scratch) {
    for (size_t i = 0; i < file->step_count; i++) scratch[i] = file->steps[i].values[which];
    return rpi_spread_of(scratch, file->step_count);
}

/* About a twentieth of the run, odd; too few steps are not smoothed. */
static int64_t window_of(size_t steps) {
    return steps < 10 ? 1 : 2 * (int64_t)((steps + 39) / 40) + 1;
}

/* Mean loss of the steps within half a window; NaN if none is a number, and at a last step
 * whose own loss is none, because that run did not end well. */
static double mean_loss(const rpi_metrics_file *file, size_t at, int64_t window) {
    size_t half = (size_t)window / 2, last = file->step_count - 1;
    size_t from = at > half ? at - half : 0, to = at + half < last ? at + half : last;
    if (at == last && isnan(file->steps[last].values[RPI_STEP_LOSS])) return NAN;
    double sum = 0;
    int64_t count = 0;
    for (size_t i = from; i <= to; i++) {
        double loss = file->steps[i].values[RPI_STEP_LOSS];
        if (isnan(loss)) continue;
        sum += loss;
        count++;
    }
    return count ? sum / (double)count : NAN;
}

static void draw_point(const rpi_metrics_file *file, size_t from, size_t to, int64_t window,
                       rpi_curve_point *point) {
    point->step = (double)file->steps[to - 1].step;
    /* One step is smoothed around itself, several around their middle; the last point always
     * around the last step, which is the run's result. */
    size_t middle = to == file->step_count ? to - 1 : from + (to - from - 1) / 2;
    point->smooth = mean_loss(file, middle, window);
    point->low = point->high = NAN;
    for (size_t i = from; i < to; i++) {
        double loss = file->steps[i].values[RPI_STEP_LOSS];
        point->low = fmin(point->low, loss); /* fmin and fmax pass NaN over */
        point->high = fmax(point->high, loss);
    }
}

/* Adds the values of a step, if they are known. */
static void spend(const double *values, double *seconds, double *bytes) {
    if (isfinite(values[RPI_STEP_S])) *seconds += values[RPI_STEP_S];
    if (isfinite(values[RPI_STEP_WIRE_BYTES])) *bytes += values[RPI_STEP_WIRE_BYTES];
}

static rp_status draw_curve(const rpi_metrics_file *file, int points, rpi_arena *arena,
                            rpi_report_run *run) {
    size_t count = file->step_count;
    size_t kept = count < (size_t)points ? count : (size_t)points;
    RP_TRY(rpi_arena_array(arena, kept, sizeof *run->curve, &run->curve));
    run->window = window_of(count);
    run->single = kept == count;
    run->curve_count = (int)kept;
    size_t at = 0;
    for (size_t p = 0; p < kept; p++) {
        size_t from = p * count / kept, to = (p + 1) * count / kept;
        for (; at < to; at++) spend(file->steps[at].values, &run->seconds, &run->bytes);
        draw_point(file, from, to, run->window, &run->curve[p]);
        run->curve[p].seconds = run->seconds;
        run->curve[p].bytes = run->bytes;
    }
    run->final_window = run->window / 2 + 1;
    run->final_loss = kept ? run->curve[kept - 1].smooth : NAN;
    return RP_OK;
}

static double share_sum(double sum, double count) {
    return count > 0 ? sum / count : NAN;
}

static double mean_of(const rpi_metrics_file *file, int value) {
    double sum = 0, count = 0;
    for (size_t i = 0; i < file->step_count; i++) {
        if (!isfinite(file->steps[i].values[value])) continue;
        sum += file->steps[i].values[value];
        count++;
    }
    return share_sum(sum, count);
}

static double mean_units(const rpi_metrics_file *file) {
    double sum = 0, count = 0;
    for (size_t i = 0; i < file->step_count; i++) {
        const double *values = file->steps[i].values;
        double units = values[RPI_STEP_RATE] * values[RPI_STEP_S];
        if (!isfinite(units)) continue;
        sum += units;
        count++;
    }
    return share_sum(sum, count);
}

/* The sums of the known values of steps with times in this range. */
static void sum_parts(const rpi_metrics_file *file, const rpi_spread *step_s,
                      rpi_report_run *run) {
    double sums[RPI_STEP_VALUES] = {0}, counts[RPI_STEP_VALUES] = {0};
    for (size_t i = 0; i < file->step_count; i++) {
        const double *values = file->steps[i].values;
        double time = values[RPI_STEP_S];
        if (!(time >= step_s->p25 && time <= step_s->p75) && file->step_count > 3) continue;
        for (int v = 0; v < RPI_STEP_VALUES; v++) {
            if (isnan(values[v])) continue;
            sums[v] += values[v];
            counts[v]++;
        }
    }
    double mean[RPI_STEP_VALUES];
    for (int v = 0; v < RPI_STEP_VALUES; v++) mean[v] = share_sum(sums[v], counts[v]);
    double exposed = isnan(mean[RPI_STEP_EXPOSED_S]) ? 0 : mean[RPI_STEP_EXPOSED_S];
    double skew = isnan(mean[RPI_STEP_SKEW_S]) ? 0 : mean[RPI_STEP_SKEW_S];
    if (skew > exposed) skew = exposed;
    run->parts = (rpi_step_parts){
        .step_s = mean[RPI_STEP_S],
        .compute_s = mean[RPI_STEP_S] - exposed,
        .network_s = exposed - skew,
        .skew_s = skew,
        .comm_s = mean[RPI_STEP_COMM_S],
        .codec_s = mean[RPI_STEP_ENCODE_S] + mean[RPI_STEP_DECODE_S],
    };
}

static double number_of(const cJSON *object, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

/* How quick a run is depends on its layout: the steps in the one that it goes on in. */
static rpi_metrics_file in_last_layout(const rpi_metrics_file *file) {
    rpi_metrics_file part = *file;
    while (part.step_count > 0 && part.steps->step < file->layout_from) {
        part.steps++;
        part.step_count--;
    }
    return part;
}

static rp_status measure(const rpi_metrics_file *whole, rpi_report_run *run) {
    const rpi_metrics_file part = in_last_layout(whole), *file = &part;
    double *scratch = NULL;
    RP_TRY(rpi_alloc_array(file->step_count, sizeof *scratch, "a copy of metrics", &scratch));
    run->rate = spread_of(file, RPI_STEP_RATE, scratch);
    run->step_bytes = mean_of(file, RPI_STEP_WIRE_BYTES);
    run->step_units = mean_units(file);
    run->memory_bytes = file->memory_bytes;
    run->unit_flops = number_of(file->header, "sample_flops") *
                      number_of(file->header, "global_batch_size") / run->step_units;
    run->picture = file->picture;
    /* The middle half by time, without outliers; but if most steps exchange nothing, those that
     * do are the slow ones. */
    rpi_spread step_s = spread_of(file, RPI_STEP_S, scratch);
    double median = spread_of(file, RPI_STEP_WIRE_BYTES, scratch).p50;
    if (median < .5 * run->step_bytes) step_s = (rpi_spread){.p25 = -INFINITY, .p75 = INFINITY};
    sum_parts(file, &step_s, run);
    rpi_free(scratch);
    return RP_OK;
}

static rp_status copy_evaluations(const rpi_metrics_file *file, rpi_arena *arena,
                                  rpi_report_run *run) {
    run->best_accuracy = NAN;
    RP_TRY(rpi_arena_array(arena, file->evaluation_count, sizeof *run->evaluations,
                           &run->evaluations));
    run->evaluation_count = (int)file->evaluation_count;
    rpi_run_evaluation so_far = {0};
    size_t at = 0;
    for (size_t i = 0; i < file->evaluation_count; i++) {
        for (; at < file->step_count && file->steps[at].step <= file->evaluations[i].step; at++)
            spend(file->steps[at].values, &so_far.seconds, &so_far.bytes);
        so_far.row = file->evaluations[i];
        run->evaluations[i] = so_far;
        double accuracy = file->evaluations[i].accuracy;
        if (isnan(accuracy) || accuracy <= run->best_accuracy) continue;
        run->best_accuracy = accuracy;
        run->best_step = file->evaluations[i].step;
    }
    return RP_OK;
}

static rp_status text_of(rpi_arena *arena, const cJSON *object, const char *key,
                         const char **out_text) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    *out_text = "";
    if (cJSON_IsString(item)) return rpi_arena_copy(arena, item->valuestring, out_text);
    return RP_OK;
}

static int64_t whole_of(const cJSON *object, const char *key) {
    double value = number_of(object, key);
    return value >= 0 && value <= 1e15 ? (int64_t)value : 0;
}

static rp_status setting_text(rpi_arena *arena, const cJSON *item, const char **out_value) {
    char number[RPI_QUANTITY_TEXT];
    const char *value = "";
    if (cJSON_IsString(item))
        value = item->valuestring;
    else if (cJSON_IsNumber(item))
        value = rpi_exact_text(item->valuedouble, number);
    else if (cJSON_IsBool(item))
        value = cJSON_IsTrue(item) ? "true" : "false";
    return rpi_arena_copy(arena, value, out_value);
}

/* The facts of the header first, then the given options. */
static rp_status copy_settings(const rpi_metrics_file *file, rpi_arena *arena,
                               rpi_report_run *run) {
    const cJSON *options = cJSON_GetObjectItemCaseSensitive(file->header, "options");
    const cJSON *lists[] = {file->header, options};
    int room = cJSON_GetArraySize(file->header) + cJSON_GetArraySize(options);
    RP_TRY(rpi_arena_array(arena, (size_t)room, sizeof *run->settings, &run->settings));
    for (int list = 0; list < 2; list++) {
        const cJSON *item = NULL;
        cJSON_ArrayForEach(item, lists[list]) {
            if (!item->string || cJSON_IsObject(item) || cJSON_IsArray(item)) continue;
            if (list == 0 && strcmp(item->string, "time") == 0) continue;
            rpi_setting *setting = &run->settings[run->setting_count++];
            RP_TRY(rpi_arena_printf(arena, &setting->name, "%s%s", list ? "--" : "",
                                    item->string));
            RP_TRY(setting_text(arena, item, &setting->value));
        }
    }
    return RP_OK;
}

static rp_status copy_header(const rpi_metrics_file *file, rpi_arena *arena,
                             rpi_report_run *run) {
    const cJSON *header = file->header;
    const cJSON *options = cJSON_GetObjectItemCaseSensitive(header, "options");
    RP_TRY(text_of(arena, header, "model", &run->model));
    RP_TRY(text_of(arena, header, "codec", &run->codec));
    RP_TRY(text_of(arena, header, "transport", &run->transport));
    RP_TRY(text_of(arena, options, "data", &run->data));
    RP_TRY(text_of(arena, options, "link", &run->link));
    run->ranks = whole_of(header, "ranks");
    run->tensor_ranks = whole_of(options, "tp");
    run->stages = whole_of(options, "pp");
    run->context_ranks = whole_of(options, "cp");
    run->last_step = whole_of(header, "last_step");
    run->start_time = (double)whole_of(header, "time");
    return copy_settings(file, arena, run);
}

/* One note, with a format. */
#define NOTE(...)                                                                              \
    do {                                                                                       \
        if (run->note_count < LONGEST_NOTES)                                                   \
            RP_TRY(rpi_arena_printf(arena, &run->notes[run->note_count++], __VA_ARGS__));      \
    } while (0)

static rp_status note_resumes(const rpi_metrics_file *file, rpi_arena *arena,
                              rpi_report_run *run) {
    size_t first = file->resumed_count > 3 ? file->resumed_count - 3 : 0;
    if (first > 0) NOTE("resumed %zu times; the last three:", file->resumed_count);
    for (size_t i = first; i < file->resumed_count; i++)
        NOTE("resumed at step %lld", (long long)file->resumed[i]);
    if (file->layout_from > 1)
        NOTE("since step %lld it is over other ranks: rates, times and bytes of a step are of "
             "the "
             "steps from there",
             (long long)file->layout_from);
    if (file->step_count > 0 && file->steps[0].step > 1)
        NOTE("the steps before %lld are not in this folder: times and bytes count from there",
             (long long)file->steps[0].step);
    return RP_OK;
}

static rp_status note_losses(const rpi_metrics_file *file, rpi_arena *arena,
                             rpi_report_run *run) {
    long long none = 0, first = 0;
    for (size_t i = 0; i < file->step_count; i++) {
        if (isfinite(file->steps[i].values[RPI_STEP_LOSS])) continue;
        if (none++ == 0) first = (long long)file->steps[i].step;
    }
    if (none == 1) NOTE("the loss of step %lld is no number", first);
    if (none > 1) NOTE("the loss is no number at %lld steps, the first is %lld", none, first);
    return RP_OK;
}

static rp_status add_notes(const rpi_metrics_file *file, rpi_arena *arena,
                           rpi_report_run *run) {
    RP_TRY(rpi_arena_array(arena, LONGEST_NOTES, sizeof *run->notes, &run->notes));
    if (run->state == RPI_RUN_FAILED)
        NOTE("failed after step %lld: %s", (long long)file->failed_step, file->error);
    if (file->stopped && run->steps > 0)
        NOTE("was told to end: it stopped after step %lld of %lld",
             (long long)file->steps[run->steps - 1].step, (long long)run->last_step);
    if (run->state == RPI_RUN_OPEN && run->steps == 0)
        NOTE("has no steps yet");
    else if (run->state == RPI_RUN_OPEN)
        NOTE("has not said that it ended: it is still at work, or was killed");
    RP_TRY(note_losses(file, arena, run));
    RP_TRY(note_resumes(file, arena, run));
    if (file->replaced_steps > 0)
        NOTE("%lld step%s done again after a resume replace%s those of before",
             (long long)file->replaced_steps, file->replaced_steps == 1 ? "" : "s",
             file->replaced_steps == 1 ? "s" : "");
    if (file->torn_lines + file->last_line_torn > 0)
        NOTE("a line of the file that breaks off was left out");
    return RP_OK;
}

rp_status rpi_run_summarise(const rpi_metrics_file *file, int points, rpi_arena *arena,
                            rpi_report_run *run) {
    run->steps = (int64_t)file->step_count;
    run->unit = file->unit;
    run->state = file->error ? RPI_RUN_FAILED : file->closed ? RPI_RUN_FINISHED : RPI_RUN_OPEN;
    RP_TRY(copy_header(file, arena, run));
    RP_TRY(draw_curve(file, points, arena, run));
    RP_TRY(measure(file, run));
    RP_TRY(copy_evaluations(file, arena, run));
    return add_notes(file, arena, run);
}
