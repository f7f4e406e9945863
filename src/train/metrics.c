#include "train/metrics.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "base/memory.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "redpoll/version.h"
#include "train/checkpoint/option_json.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

struct rpi_metrics {
    FILE *stream;
    char path[1024];
};

/* The end of the last whole line, found by reading backwards; `tail`: bytes after it. */
static rp_status find_tail(FILE *stream, int64_t bytes, int64_t *out_end) {
    char block[4096];
    for (int64_t end = bytes; end > 0;) {
        int64_t length = end < (int64_t)sizeof block ? end : (int64_t)sizeof block;
        if (fseeko(stream, end - length, SEEK_SET) != 0 ||
            fread(block, 1, (size_t)length, stream) != (size_t)length)
            return RP_FAIL_ERRNO(IO, "cannot read it back");
        const char *newline = memrchr(block, '\n', (size_t)length);
        end -= length;
        if (!newline) continue;
        *out_end = end + (newline - block) + 1;
        return RP_OK;
    }
    *out_end = 0;
    return RP_OK;
}

/* Is the tail a whole object that only lacks its newline? */
static bool tail_is_whole(FILE *stream, int64_t from, int64_t bytes) {
    enum { LONGEST = 1 << 16 };
    int64_t length = bytes - from;
    if (length > LONGEST || fseeko(stream, from, SEEK_SET) != 0) return false;
    char *text = NULL;
    if (rpi_alloc((size_t)length + 1, "a line", &text) != RP_OK) return false;
    bool got = fread(text, 1, (size_t)length, stream) == (size_t)length;
    cJSON *object = got ? cJSON_ParseWithOpts(text, NULL, true) : NULL;
    bool whole = cJSON_IsObject(object);
    cJSON_Delete(object);
    rpi_free(text);
    return whole;
}

/* A run that died while it wrote has left a part of a line, to which the next line would be
 * appended. It is removed, unless only its newline is missing. */
static rp_status mend_tail(const char *path) {
    FILE *stream = NULL;
    int64_t bytes = 0, end = 0;
    rp_status status = rpi_regular_file_open(path, &stream, &bytes);
    if (status != RP_OK) return status == RP_NOT_FOUND ? RP_OK : status;
    status = find_tail(stream, bytes, &end);
    bool torn = status == RP_OK && end < bytes;
    bool whole = torn && tail_is_whole(stream, end, bytes);
    fclose(stream);
    RP_TRY(status);
    if (torn && !whole && truncate(path, end) != 0)
        return RP_FAIL_ERRNO(IO, "cannot cut off its torn last line");
    if (!whole) return RP_OK;
    RP_TRY(rpi_regular_file_write(path, "ab", &stream));
    bool done = fputc('\n', stream) != EOF;
    return fclose(stream) == 0 && done ? RP_OK : RP_FAIL_ERRNO(IO, "cannot end its last line");
}

rp_status rpi_metrics_open(const char *folder, bool keep, rpi_metrics **out_metrics) {
    rpi_metrics *metrics = NULL;
    RP_TRY(rpi_alloc(sizeof *metrics, "metrics", &metrics));
    snprintf(metrics->path, sizeof metrics->path, "%s/metrics.jsonl", folder);
    rp_status status = keep ? mend_tail(metrics->path) : RP_OK;
    if (status != RP_OK) rpi_fail_context(status, "%s: ", metrics->path);
    if (status == RP_OK)
        status = rpi_regular_file_write(metrics->path, keep ? "ab" : "wb", &metrics->stream);
    if (status != RP_OK) {
        rpi_free(metrics);
        return status;
    }
    *out_metrics = metrics;
    return RP_OK;
}

rp_status rpi_metrics_close(rpi_metrics *metrics) {
    if (!metrics) return RP_OK;
    bool done = fclose(metrics->stream) == 0;
    rp_status status = done ? RP_OK : RP_FAIL_ERRNO(IO, "cannot write %s", metrics->path);
    rpi_free(metrics);
    return status;
}

/* Writes an object as one line and frees it. */
static rp_status put(rpi_metrics *metrics, cJSON *object) {
    char *text = cJSON_PrintUnformatted(object);
    cJSON_Delete(object);
    if (!text) return RP_FAIL(NOMEM, "no memory for a line of %s", metrics->path);
    bool done = fprintf(metrics->stream, "%s\n", text) > 0 && fflush(metrics->stream) == 0;
    rp_status status = done ? RP_OK : RP_FAIL_ERRNO(IO, "cannot write %s", metrics->path);
    cJSON_free(text);
    return status;
}

/* JSON has no infinity: numbers that are not finite become null. */
static void add_number(cJSON *object, const char *key, double value) {
    if (isfinite(value))
        cJSON_AddNumberToObject(object, key, value);
    else
        cJSON_AddNullToObject(object, key);
}

/* "images_s", "test_images": keys name what is counted. */
static void add_counted(cJSON *object, const char *format, const char *unit, double value) {
    char key[64];
    snprintf(key, sizeof key, format, unit);
    add_number(object, key, value);
}

static void add_host(cJSON *object) {
    struct utsname host;
    if (uname(&host) == 0) {
        cJSON_AddStringToObject(object, "host", host.nodename);
        cJSON_AddStringToObject(object, "kernel", host.release);
    }
    cJSON_AddStringToObject(object, "isa", rpi_isa_name(rpi_cpu_isa()));
    cJSON_AddNumberToObject(object, "cores", rpi_cpu_count());
    cJSON_AddNumberToObject(object, "time", (double)time(NULL));
}

/* For each rank, the number of its samples of each label. */
static void add_split(cJSON *object, const rpi_split_parts *parts) {
    if (!parts) return;
    cJSON *ranks = cJSON_AddArrayToObject(object, "split_labels");
    for (int rank = 0; rank < parts->world; rank++) {
        cJSON *labels = cJSON_CreateArray();
        for (int c = 0; c < parts->classes; c++) {
            int64_t count = parts->of_labels[(int64_t)rank * parts->classes + c];
            cJSON_AddItemToArray(labels, cJSON_CreateNumber((double)count));
        }
        cJSON_AddItemToArray(ranks, labels);
    }
}

/* For replicas of several ranks. */
static void add_layout(cJSON *object, const rpi_trainer *t) {
    const int *size = t->place.grid.size;
    if (rpi_train_place_is_alone(&t->place)) return;
    cJSON_AddNumberToObject(object, "replicas", t->place.replicas);
    cJSON_AddNumberToObject(object, "tensor_ranks", size[RPI_AXIS_TENSOR]);
    cJSON_AddNumberToObject(object, "stages", size[RPI_AXIS_STAGE]);
    cJSON_AddNumberToObject(object, "context_ranks", size[RPI_AXIS_CONTEXT]);
}

/* Operations of a sample, counted from the graph; NaN: nothing was compiled, because nothing is
 * left to train. */
static double sample_flops(const rpi_trainer *t) {
    if (t->sample_flops > 0) return t->sample_flops;
    for (int i = 0; i < t->programs.count; i++) {
        const rpi_program_entry *entry = &t->programs.entries[i];
        if (!entry->training) continue;
        rpi_program_facts facts = rpi_program_get_facts(entry->program);
        return (double)(facts.forward_flops + facts.backward_flops) / (double)entry->batch *
               t->place.grid.size[RPI_AXIS_TENSOR] * t->place.grid.size[RPI_AXIS_CONTEXT];
    }
    return NAN;
}

rp_status rpi_metrics_header(rpi_metrics *metrics, const rpi_trainer *t) {
    if (!metrics) return RP_OK;
    char codec[RP_ADAPTIVE_TEXT];
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "redpoll", rp_version());
    add_host(object);
    cJSON_AddStringToObject(object, "model", t->network.text);
    add_number(object, "parameters",
               (double)rpi_parameters_total(t->network.parameters, t->network.parameter_count));
    cJSON_AddNumberToObject(object, "ranks", t->place.world);
    add_layout(object, t);
    cJSON_AddStringToObject(object, "transport", rp_comm_transport(t->comm));
    cJSON_AddStringToObject(object, "codec", rp_adaptive_codec_text(&t->codec, codec));
    cJSON_AddStringToObject(object, "backend", rpi_session_backend(t->programs.session)->name);
    add_number(object, "global_batch_size", (double)t->global_batch);
    add_number(object, "sample_flops", sample_flops(t));
    cJSON_AddStringToObject(object, "task", t->network.task->name);
    add_counted(object, "train_%s", t->network.task->unit,
                (double)(t->source.train_count * t->source.sample_units));
    add_split(object, t->source.parts);
    add_number(object, "first_step", (double)(t->step + 1));
    add_number(object, "last_step", (double)t->total_steps);
    cJSON *options = cJSON_AddObjectToObject(object, "options");
    for (const rpi_option *o = t->options->table; o && o->name; o++)
        rpi_option_add_json(options, o, t->options->target);
    return put(metrics, object);
}

rp_status rpi_metrics_step(rpi_metrics *metrics, const rpi_step_metrics *step) {
    if (!metrics) return RP_OK;
    cJSON *object = cJSON_CreateObject();
    add_number(object, "step", (double)step->step);
    add_number(object, "loss", step->loss);
    add_number(object, "lr", step->lr);
    if (!isnan(step->gradient_norm)) add_number(object, "grad_norm", step->gradient_norm);
    if (!isnan(step->outer_gradient_norm))
        add_number(object, "outer_grad_norm", step->outer_gradient_norm);
    if (!isnan(step->autocorrelation))
        add_number(object, "autocorrelation", step->autocorrelation);
    if (!isnan(step->staleness_mean)) {
        add_number(object, "staleness_mean", step->staleness_mean);
        add_number(object, "staleness_max", step->staleness_max);
        add_number(object, "missed_updates", step->missed_updates);
    }
    add_counted(object, "%s_s", step->unit, (double)step->count / step->step_s);
    add_number(object, "step_s", step->step_s);
    add_number(object, "compute_s", step->compute_s);
    add_number(object, "comm_s", step->comm_s);
    add_number(object, "encode_s", step->encode_s);
    add_number(object, "decode_s", step->decode_s);
    add_number(object, "exposed_s", step->exposed_s);
    add_number(object, "skew_s", step->skew_s);
    add_number(object, "wire_bytes", (double)step->wire_bytes);
    if (!isnan(step->staleness_mean))
        add_number(object, "wire_bytes_received", (double)step->wire_bytes_received);
    return put(metrics, object);
}

/* "test_nsp_loss", "test_nsp_accuracy" */
static void add_sample_metric(cJSON *object, const rpi_evaluation *evaluation) {
    if (!evaluation->sample_metric) return;
    add_counted(object, "test_%s_loss", evaluation->sample_metric, evaluation->sample_loss);
    add_counted(object, "test_%s_accuracy", evaluation->sample_metric,
                evaluation->sample_accuracy);
}

/* "test_exact_match", "test_f1", "test_questions" */
static void add_scores(cJSON *object, const rpi_scores *scores) {
    for (int i = 0; i < scores->count; i++)
        add_counted(object, "test_%s", scores->at[i].key, scores->at[i].percent);
    if (scores->count) add_counted(object, "test_%s", scores->unit, (double)scores->over);
}

rp_status rpi_metrics_evaluation(rpi_metrics *metrics, int64_t step,
                                 const rpi_evaluation *evaluation) {
    if (!metrics) return RP_OK;
    cJSON *object = cJSON_CreateObject();
    add_number(object, "evaluated_step", (double)step);
    if (evaluation->count > 0) {
        add_number(object, "test_accuracy", evaluation->accuracy);
        add_number(object, "test_loss", evaluation->loss);
    }
    if (!isnan(evaluation->consensus_distance))
        add_number(object, "consensus_distance", evaluation->consensus_distance);
    if (!isnan(evaluation->perplexity))
        add_number(object, "test_perplexity", evaluation->perplexity);
    add_sample_metric(object, evaluation);
    add_scores(object, &evaluation->scores);
    add_counted(object, "test_%s", evaluation->unit, (double)evaluation->count);
    return put(metrics, object);
}

rp_status rpi_metrics_sample(rpi_metrics *metrics, int64_t step, const char *prompt,
                             const char *text) {
    if (!metrics) return RP_OK;
    cJSON *object = cJSON_CreateObject();
    add_number(object, "sampled_step", (double)step);
    cJSON_AddStringToObject(object, "prompt", prompt);
    cJSON_AddStringToObject(object, "text", text);
    return put(metrics, object);
}

static void add_ranks(cJSON *object, const char *key, const int *ranks, int count) {
    cJSON *list = cJSON_AddArrayToObject(object, key);
    for (int i = 0; i < count; i++) cJSON_AddItemToArray(list, cJSON_CreateNumber(ranks[i]));
}

rp_status rpi_metrics_loss(rpi_metrics *metrics, const rpi_trainer *t, const rpi_loss *loss) {
    if (!metrics) return RP_OK;
    cJSON *object = cJSON_CreateObject();
    add_number(object, "lost_step", (double)loss->step);
    add_ranks(object, "lost_ranks", loss->ranks, loss->count);
    add_ranks(object, "ranks_left", t->losses.members, t->place.world);
    cJSON_AddStringToObject(object, "what", loss->line);
    return put(metrics, object);
}

rp_status rpi_metrics_return(rpi_metrics *metrics, const rpi_trainer *t, const rpi_back *back) {
    if (!metrics) return RP_OK;
    cJSON *object = cJSON_CreateObject();
    add_number(object, "returned_step", (double)back->step);
    add_ranks(object, "returned_ranks", back->ranks, back->count);
    add_ranks(object, "ranks_left", t->losses.members, t->place.world);
    cJSON_AddStringToObject(object, "what", back->line);
    return put(metrics, object);
}

int64_t rpi_metrics_last_step(const char *folder) {
    char path[1024], *line = NULL;
    FILE *stream = NULL;
    int64_t bytes = 0;
    size_t room = 0;
    long long last = 0, step = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    if (rpi_regular_file_open(path, &stream, &bytes) != RP_OK) return -1;
    while (getline(&line, &room, stream) >= 0)
        if (sscanf(line, "{\"step\":%lld,", &step) == 1)
            last = step;
        else if (strncmp(line, "{\"redpoll\":", 11) == 0)
            last = 0; /* another run begins */
    free(line);
    fclose(stream);
    return last;
}

rp_status rpi_metrics_failure(rpi_metrics *metrics, int64_t step, const char *message) {
    if (!metrics) return RP_OK;
    cJSON *object = cJSON_CreateObject();
    add_number(object, "failed_step", (double)step);
    cJSON_AddStringToObject(object, "error", message);
    return put(metrics, object);
}

static void add_profile(cJSON *object, const rpi_profile *profile) {
    if (!profile->steps) return;
    double steps = (double)profile->steps;
    cJSON *rows = cJSON_AddArrayToObject(object, "profile");
    for (int i = 0; i < profile->count; i++) {
        cJSON *row = cJSON_CreateObject();
        cJSON_AddStringToObject(row, "phase", profile->rows[i].phase);
        cJSON_AddStringToObject(row, "what", profile->rows[i].what);
        add_number(row, "calls", (double)profile->rows[i].calls / steps);
        add_number(row, "step_s", rpi_seconds(profile->rows[i].ns) / steps);
        cJSON_AddItemToArray(rows, row);
    }
    add_number(object, "gflop_s", 1e-9 * profile->flops / rpi_seconds(profile->step_ns));
    add_number(object, "matrix_gflop_s", 1e-9 * profile->matrix_flop_s);
}

rp_status rpi_metrics_put(rpi_metrics *metrics, cJSON *object) {
    if (metrics && object) return put(metrics, object);
    cJSON_Delete(object);
    return RP_OK;
}

rp_status rpi_metrics_closing(rpi_metrics *metrics, const rpi_train_result *result) {
    if (!metrics) return RP_OK;
    cJSON *object = cJSON_CreateObject();
    add_number(object, "steps", (double)result->steps);
    add_number(object, "seconds", result->seconds);
    add_counted(object, "%s_s_median", result->unit, result->rate_median);
    add_number(object, "step_s_median", result->step_s_median);
    add_number(object, "comm_s_median", result->comm_s_median);
    add_number(object, "exposed_s_median", result->exposed_s_median);
    add_number(object, "wire_bytes_median", result->wire_bytes_median);
    add_number(object, "exposed_s_mean", result->exposed_s_mean);
    add_number(object, "wire_bytes_mean", result->wire_bytes_mean);
    add_number(object, "memory_bytes", result->memory_bytes);
    if (!isnan(result->activations_error))
        add_number(object, "activations_error", result->activations_error);
    if (!isnan(result->activation_gradients_error))
        add_number(object, "activation_gradients_error", result->activation_gradients_error);
    add_number(object, "last_loss", result->last_loss);
    double none = NAN;
    add_number(object, "test_accuracy", result->evaluated ? result->test.accuracy : none);
    add_number(object, "test_loss", result->evaluated ? result->test.loss : none);
    if (result->evaluated && !isnan(result->test.perplexity))
        add_number(object, "test_perplexity", result->test.perplexity);
    if (result->evaluated) add_sample_metric(object, &result->test);
    if (result->evaluated) add_scores(object, &result->test.scores);
    add_counted(object, "test_%s", result->unit,
                result->evaluated ? (double)result->test.count : none);
    cJSON_AddBoolToObject(object, "stopped", result->stopped);
    if (result->lost[0]) cJSON_AddStringToObject(object, "lost", result->lost);
    if (result->back[0]) cJSON_AddStringToObject(object, "back", result->back);
    add_profile(object, &result->profile);
    return put(metrics, object);
}
