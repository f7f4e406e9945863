/* Time of a training step in the engine: forward, backward, SGD; synthetic data, one process.
 *
 *     engine_bench [--model resnet18] [--backend onednn] [--batch-size 64] [--threads 2] ...
 *
 * Prints one JSON line with the keys of bench/peers/resnet18_torch.py, and with --profile the
 * time of each kind of step before it. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/option.h"
#include "base/rng.h"
#include "base/status.h"
#include "engine/instance.h"
#include "engine/optimizer.h"
#include "train/models/network.h"
#include "train/profile.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    const char *model, *backend, *tuning;
    int64_t batch, channels, size, threads, iterations, warmup;
    bool profile;
} settings;

static const rpi_option options[] = {
    {.name = "model",
     .type = RPI_OPTION_TEXT,
     .offset = offsetof(settings, model),
     .fallback = "resnet18",
     .value = "NAME",
     .help = "what to train"},
    {.name = "backend",
     .type = RPI_OPTION_TEXT,
     .offset = offsetof(settings, backend),
     .value = "NAME",
     .help = "what runs it; the fastest there is when not given"},
    {.name = "tuning-file",
     .type = RPI_OPTION_TEXT,
     .offset = offsetof(settings, tuning),
     .value = "FILE",
     .help = "measure algorithms and remember them here"},
    {.name = "batch-size",
     .type = RPI_OPTION_COUNT,
     .offset = offsetof(settings, batch),
     .fallback = "64",
     .min = 1,
     .max = 65536,
     .value = "N",
     .help = "images a step"},
    {.name = "channels",
     .type = RPI_OPTION_COUNT,
     .offset = offsetof(settings, channels),
     .fallback = "1",
     .min = 1,
     .max = 1024,
     .value = "N",
     .help = "channels of an image"},
    {.name = "size",
     .type = RPI_OPTION_COUNT,
     .offset = offsetof(settings, size),
     .fallback = "28",
     .min = 1,
     .max = 4096,
     .value = "N",
     .help = "pixels along a side"},
    {.name = "threads",
     .type = RPI_OPTION_COUNT,
     .offset = offsetof(settings, threads),
     .fallback = "0",
     .min = 0,
     .max = 1024,
     .value = "N",
     .help = "0: one a core"},
    {.name = "iters",
     .type = RPI_OPTION_COUNT,
     .offset = offsetof(settings, iterations),
     .fallback = "7",
     .min = 1,
     .max = 100000,
     .value = "N",
     .help = "steps that count"},
    {.name = "warmup",
     .type = RPI_OPTION_COUNT,
     .offset = offsetof(settings, warmup),
     .fallback = "2",
     .min = 0,
     .max = 100000,
     .value = "N",
     .help = "steps before them"},
    {.name = "profile",
     .type = RPI_OPTION_FLAG,
     .offset = offsetof(settings, profile),
     .help = "time of each kind of step"},
    {.name = NULL},
};

enum { CLASSES = 10 };

/* ---- the profile: seconds by pass and kind of step ---- */

static void add_to_profile(void *context, const rpi_step_report *report) {
    rpi_profile_kernel(context, report);
}

static void print_profile(rpi_profile *it, int64_t runs) {
    rpi_profile_sort(it);
    for (int i = 0; i < it->count; i++)
        printf("%-8s %-28s %4lld %9.3f ms\n", it->rows[i].phase, it->rows[i].what,
               (long long)(it->rows[i].calls / runs),
               1e3 * rpi_seconds(it->rows[i].ns) / (double)runs);
}

/* ---- the work ---- */

typedef struct bench {
    settings settings;
    const rpi_backend *backend;
    const rpi_optimizer *optimizer;
    rpi_network network;
    rpi_weights *weights;
    rpi_session *session;
    rpi_program *program;
    rpi_instance *instance;
    float *images, *momentum;
    int32_t *labels;
    float scale;
    rpi_profile profile;
    double *times;
} bench;

static rp_status make_data(bench *it) {
    const settings *s = &it->settings;
    int64_t pixels = s->batch * s->channels * s->size * s->size;
    rpi_rng rng = rpi_rng_make(1, RPI_RNG_SYNTHETIC, 0);
    RP_TRY(rpi_alloc_array((size_t)pixels, sizeof(float), "images", &it->images));
    RP_TRY(rpi_alloc_array((size_t)s->batch, sizeof(int32_t), "labels", &it->labels));
    RP_TRY(rpi_alloc_array((size_t)rpi_weights_count(it->weights), sizeof(float), "momentum",
                           &it->momentum));
    RP_TRY(rpi_alloc_array((size_t)s->iterations, sizeof(double), "times", &it->times));
    for (int64_t i = 0; i < pixels; i++) it->images[i] = rpi_rng_normal(&rng);
    for (int64_t i = 0; i < s->batch; i++)
        it->labels[i] = (int32_t)rpi_rng_below(&rng, CLASSES);
    it->scale = 1.0f / (float)s->batch;
    return RP_OK;
}

static rp_status prepare(bench *it) {
    const settings *s = &it->settings;
    rpi_data_shape shape = {.channels = (int)s->channels,
                            .height = (int)s->size,
                            .width = (int)s->size,
                            .classes = CLASSES};
    it->backend = rpi_backend_default();
    if (s->backend) RP_TRY(rpi_backend_find(s->backend, &it->backend));
    RP_TRY(rpi_optimizer_find("sgd", &it->optimizer));
    RP_TRY(rpi_network_build(s->model, &shape, &it->network));
    RP_TRY(rpi_weights_create(it->network.graph, it->network.loss, &it->weights));
    rpi_network_initialise(&it->network, it->weights, 1);
    rpi_backend_options threads = {.threads = (int)s->threads, .tuning_file = s->tuning};
    rpi_program_options program = {.training = true, .dimensions = {{"batch", s->batch}}};
    RP_TRY(rpi_session_create(it->weights, it->backend, &threads, &it->session));
    RP_TRY(rpi_program_compile(it->session, it->network.graph, it->network.loss, &program,
                               &it->program));
    RP_TRY(rpi_instance_create(it->program, &it->instance));
    return make_data(it);
}

static rp_status run_step(bench *it, bool profiled) {
    const void *inputs[] = {it->images, it->labels, &it->scale};
    rpi_run_options run = {.inputs = inputs};
    if (profiled) run.on_step = add_to_profile, run.context = &it->profile;
    RP_TRY(rpi_instance_run(it->instance, &run));
    int64_t start = rpi_now_ns();
    int64_t count = rpi_weights_count(it->weights);
    rpi_optimizer_rates rates = {
        .learning_rate = 0.01f, .momentum = 0.9f, .weight_decay = 1e-4f};
    it->optimizer->update(&rates, 1, count, rpi_weights_values(it->weights),
                          rpi_weights_gradients(it->weights), &it->momentum);
    rpi_weights_changed(it->weights, 0, count);
    if (profiled)
        rpi_profile_add(&it->profile, "update", it->optimizer->name, rpi_now_ns() - start);
    return RP_OK;
}

static rp_status measure(bench *it) {
    for (int64_t i = 0; i < it->settings.warmup; i++) RP_TRY(run_step(it, false));
    for (int64_t i = 0; i < it->settings.iterations; i++) {
        int64_t start = rpi_now_ns();
        RP_TRY(run_step(it, it->settings.profile));
        it->times[i] = rpi_seconds(rpi_now_ns() - start);
    }
    return RP_OK;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_result(bench *it) {
    const settings *s = &it->settings;
    int64_t n = s->iterations;
    rpi_program_facts facts = rpi_program_get_facts(it->program);
    qsort(it->times, (size_t)n, sizeof *it->times, by_value);
    double median = n % 2 ? it->times[n / 2] : (it->times[n / 2 - 1] + it->times[n / 2]) / 2;
    double flops = (double)(facts.forward_flops + facts.backward_flops);
    if (s->profile) print_profile(&it->profile, n);
    printf(
        "{\"what\": \"redpoll\", \"backend\": \"%s\", \"model\": \"%s\", \"batch_size\": %lld, "
        "\"threads\": %lld, \"iters\": %lld, \"step_s\": %.6f, \"step_min_s\": %.6f, "
        "\"step_max_s\": %.6f, \"images_s\": %.2f, \"gflop_s\": %.1f, \"memory_bytes\": %zu}\n",
        it->backend->name, s->model, (long long)s->batch, (long long)s->threads, (long long)n,
        median, it->times[0], it->times[n - 1], (double)s->batch / median,
        flops / median * 1e-9, facts.memory_bytes + facts.workspace_bytes);
}

static void close_bench(bench *it) {
    rpi_instance_destroy(it->instance);
    rpi_program_destroy(it->program);
    rpi_session_destroy(it->session);
    rpi_weights_destroy(it->weights);
    rpi_network_close(&it->network);
    rpi_free(it->images);
    rpi_free(it->labels);
    rpi_free(it->momentum);
    rpi_free(it->times);
}

int main(int argc, char **argv) {
    static bench it;
    bool help = false;
    rp_status status = rpi_options_defaults(options, &it.settings);
    if (status == RP_OK)
        status = rpi_options_parse(options, argc, argv, &it.settings, NULL, &help);
    if (status == RP_OK && help) {
        rpi_options_help(options, stdout);
        return 0;
    }
    int failure = 2;
    if (status == RP_OK) {
        failure = 1;
        status = prepare(&it);
        if (status == RP_OK) status = measure(&it);
        if (status == RP_OK) print_result(&it);
        close_bench(&it);
    }
    if (status == RP_OK) return 0;
    fprintf(stderr, "engine_bench: %s\n", rp_last_error()->message);
    return failure;
}
