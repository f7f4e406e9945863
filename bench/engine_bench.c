/* Time of a training step in the engine: forward, backward, SGD; synthetic data, one process.
 *
 *     engine_bench [--model resnet18] [--backend cpu] [--batch-size 64] [--threads 2] ...
 *     engine_bench --model gpt2 --batch-size 4 --seq-length 64 --dtype bf16
 *     engine_bench --model resnet50 --channels 3 --size 224 --batch-size 16
 *
 * `cpu_s` is the processor time of a step, of all threads: with one thread that is what it
 * would take on a machine that does nothing else. With `--dtype both` there are two sessions,
 * of fp32 and bf16, and their steps take turns, so that what else the machine does meets both
 * alike.
 *
 * Prints one JSON line for each session, and with --profile the time of each kind of step
 * before it. `memory_bytes` is what the program asked for, `peak_bytes` the most that the
 * process had. bench/peers/compare_models.py sets PyTorch beside it. */
#include "base/clock.h"
#include "base/cpu.h"
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
#include <sys/resource.h>
#include <time.h>

typedef struct settings {
    const char *model, *backend, *dtype;
    int64_t batch, channels, size, classes, sequence, threads, iterations, warmup;
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
    {.name = "batch-size",
     .type = RPI_OPTION_COUNT,
     .offset = offsetof(settings, batch),
     .fallback = "64",
     .min = 1,
     .max = 65536,
     .value = "N",
     .help = "images, or sequences, a step"},
    {.name = "seq-length",
     .type = RPI_OPTION_COUNT,
     .offset = offsetof(settings, sequence),
     .fallback = "64",
     .min = 1,
     .max = 1 << 20,
     .value = "N",
     .help = "tokens of a sequence, for models of language"},
    {.name = "dtype",
     .type = RPI_OPTION_TEXT,
     .offset = offsetof(settings, dtype),
     .fallback = "fp32",
     .value = "TYPE",
     .help = "fp32, bf16, or both in turns: what products and convolutions take"},
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
    {.name = "classes",
     .type = RPI_OPTION_COUNT,
     .offset = offsetof(settings, classes),
     .fallback = "10",
     .min = 2,
     .max = 1 << 20,
     .value = "N",
     .help = "of images"},
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

enum { VALUES = 10, MOST_ENGINES = 2 }; /* tokens and labels are below the first */

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

/* A model with parameters of its own, compiled for one dtype. */
typedef struct engine {
    rp_dtype compute;
    rpi_weights *weights;
    rpi_session *session;
    rpi_program *program;
    rpi_instance *instance;
    float *momentum;
    rpi_profile profile;
    double *times, *cpu_times;
} engine;

typedef struct bench {
    settings settings;
    const rpi_backend *backend;
    const rpi_optimizer *optimizer;
    rpi_network network;
    engine engines[MOST_ENGINES];
    int engine_count;
    void *inputs[RPI_TASK_INPUTS];
    int64_t samples;           /* labels of a batch, which the loss is the mean over */
    float scale, sample_scale; /* the latter where a task has a second loss */
} bench;

static int64_t size_of_axis(const bench *it, const char *axis) {
    if (strcmp(axis, "batch") == 0) return it->settings.batch;
    return rpi_data_axis(&it->network.shape, axis);
}

/* Inputs that are all zeros here: the second sentence of BERT, and the numbers of texts that
 * share a row. */
static bool is_zero(const rpi_task_input *input) {
    return strcmp(input->name, "segments") == 0 || strcmp(input->name, "documents") == 0;
}

/* Floats are normally distributed. Integers are labels or tokens, of which every model has at
 * least two or ten. */
static rp_status make_input(bench *it, int index, rpi_rng *rng) {
    const rpi_task_input *input = &it->network.task->inputs[index];
    const int values = strcmp(input->name, "next") == 0 ? 2 : VALUES;
    int64_t count = 1;
    for (int i = 0; input->axes[i]; i++) count *= size_of_axis(it, input->axes[i]);
    RP_TRY(rpi_alloc_array((size_t)count, rp_dtype_bytes(input->dtype), "an input",
                           &it->inputs[index]));
    float *floats = it->inputs[index];
    int32_t *integers = it->inputs[index];
    for (int64_t i = 0; i < count; i++) {
        if (input->dtype == RP_F32)
            floats[i] = rpi_rng_normal(rng);
        else
            integers[i] = is_zero(input) ? 0 : (int32_t)rpi_rng_below(rng, values);
    }
    if (strcmp(input->name, "labels") == 0) it->samples = count;
    return RP_OK;
}

static rp_status make_inputs(bench *it) {
    rpi_rng rng = rpi_rng_make(1, RPI_RNG_SYNTHETIC, 0);
    for (int i = 0; i < it->network.task->input_count; i++) RP_TRY(make_input(it, i, &rng));
    it->scale = 1.0f / (float)it->samples;
    it->sample_scale = 1.0f / (float)it->settings.batch;
    return RP_OK;
}

static bool has_sequence(const rpi_graph *graph) {
    for (int i = 0; i < rpi_graph_dimension_count(graph); i++)
        if (strcmp(rpi_graph_dimension_name(graph, i), "sequence") == 0) return true;
    return false;
}

static rp_status open_engine(const bench *it, engine *e) {
    const settings *s = &it->settings;
    rpi_backend_options threads = {.threads = (int)s->threads};
    rpi_program_options program = {
        .training = true, .compute = e->compute, .dimensions = {{"batch", s->batch}}};
    if (has_sequence(it->network.graph))
        program.dimensions[1] = (rpi_dimension_binding){"sequence", s->sequence};
    RP_TRY(rpi_weights_create(it->network.graph, it->network.loss, &e->weights));
    rpi_network_initialise(&it->network, e->weights, 1);
    RP_TRY(rpi_alloc_array((size_t)rpi_weights_count(e->weights), sizeof(float), "momentum",
                           &e->momentum));
    RP_TRY(rpi_alloc_array((size_t)s->iterations, sizeof(double), "times", &e->times));
    RP_TRY(rpi_alloc_array((size_t)s->iterations, sizeof(double), "times", &e->cpu_times));
    RP_TRY(rpi_session_create(e->weights, it->backend, &threads, &e->session));
    RP_TRY(rpi_program_compile(e->session, it->network.graph, it->network.loss, &program,
                               &e->program));
    return rpi_instance_create(e->program, &e->instance);
}

static rp_status choose_engines(bench *it) {
    bool both = strcmp(it->settings.dtype, "both") == 0;
    it->engine_count = both ? 2 : 1;
    it->engines[0].compute = RP_F32;
    it->engines[1].compute = RP_BF16;
    return both ? RP_OK : rpi_compute_parse(it->settings.dtype, &it->engines[0].compute);
}

static rp_status prepare(bench *it) {
    const settings *s = &it->settings;
    rpi_data_shape shape = {.channels = (int)s->channels,
                            .height = (int)s->size,
                            .width = (int)s->size,
                            .classes = (int)s->classes,
                            .sequence = (int)s->sequence};
    rpi_model_choice choice;
    RP_TRY(rpi_model_parse(s->model, &choice));
    if (strcmp(choice.model->task, "classification") != 0)
        shape = (rpi_data_shape){.sequence = (int)s->sequence};
    it->backend = rpi_backend_default();
    if (s->backend) RP_TRY(rpi_backend_find(s->backend, &it->backend));
    RP_TRY(choose_engines(it));
    RP_TRY(rpi_optimizer_find("sgd", &it->optimizer));
    RP_TRY(rpi_network_build(s->model, &shape, &it->network));
    for (int i = 0; i < it->engine_count; i++) RP_TRY(open_engine(it, &it->engines[i]));
    return make_inputs(it);
}

static rp_status run_engine(const bench *it, engine *e, bool profiled) {
    const void *inputs[RPI_NETWORK_INPUTS];
    int count = it->network.task->input_count;
    for (int i = 0; i < count; i++) inputs[i] = it->inputs[i];
    inputs[count] = &it->scale;
    inputs[count + 1] = &it->sample_scale;
    rpi_run_options run = {.inputs = inputs};
    if (profiled) run.on_step = add_to_profile, run.context = &e->profile;
    RP_TRY(rpi_instance_run(e->instance, &run));
    int64_t start = rpi_now_ns();
    int64_t elements = rpi_weights_count(e->weights);
    rpi_optimizer_rates rates = {.learning_rate = 0.01f,
                                 .momentum = 0.9f,
                                 .weight_decay = 1e-4f,
                                 .threads = it->settings.threads ? (int)it->settings.threads
                                                                 : rpi_cpu_count()};
    it->optimizer->update(&rates, 1, elements, rpi_weights_values(e->weights),
                          rpi_weights_gradients(e->weights), &e->momentum);
    rpi_weights_changed(e->weights, 0, elements);
    if (profiled)
        rpi_profile_add(&e->profile, "update", it->optimizer->name, rpi_now_ns() - start);
    return RP_OK;
}

static rp_status measure(bench *it) {
    for (int64_t i = -it->settings.warmup; i < it->settings.iterations; i++)
        for (int j = 0; j < it->engine_count; j++) {
            engine *e = &it->engines[j];
            int64_t start = rpi_now_ns();
            clock_t cpu_start = clock();
            RP_TRY(run_engine(it, e, it->settings.profile && i >= 0));
            if (i < 0) continue;
            e->times[i] = rpi_seconds(rpi_now_ns() - start);
            e->cpu_times[i] = (double)(clock() - cpu_start) / CLOCKS_PER_SEC;
        }
    return RP_OK;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(double *times, int64_t n) {
    qsort(times, (size_t)n, sizeof *times, by_value);
    return n % 2 ? times[n / 2] : (times[n / 2 - 1] + times[n / 2]) / 2;
}

static int64_t peak_bytes(void) {
    struct rusage usage;
    (void)getrusage(RUSAGE_SELF, &usage); /* cannot fail */
    return 1024 * (int64_t)usage.ru_maxrss;
}

static void print_result(const bench *it, engine *e) {
    const settings *s = &it->settings;
    int64_t n = s->iterations;
    const char *unit = it->network.task->unit;
    rpi_program_facts facts = rpi_program_get_facts(e->program);
    double median = median_of(e->times, n), cpu = median_of(e->cpu_times, n);
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += e->times[i];
    double flops = (double)(facts.forward_flops + facts.backward_flops);
    if (s->profile) print_profile(&e->profile, n);
    printf("{\"what\": \"redpoll\", \"backend\": \"%s\", \"dtype\": \"%s\", \"model\": \"%s\", "
           "\"batch_size\": %lld, "
           "\"threads\": %lld, \"iters\": %lld, \"steps_s\": %.3f, \"step_s\": %.6f, "
           "\"step_min_s\": %.6f, "
           "\"step_max_s\": %.6f, \"cpu_s\": %.6f, \"%s_s\": %.2f, \"gflop_s\": %.1f, "
           "\"memory_bytes\": %zu, \"peak_bytes\": %lld}\n",
           it->backend->name, rpi_compute_name(e->compute), s->model, (long long)s->batch,
           (long long)s->threads, (long long)n, (double)n / sum, median, e->times[0],
           e->times[n - 1], cpu, unit, (double)it->samples / median, flops / median * 1e-9,
           facts.memory_bytes + facts.workspace_bytes, (long long)peak_bytes());
}

static void close_bench(bench *it) {
    for (int i = 0; i < it->engine_count; i++) {
        rpi_instance_destroy(it->engines[i].instance);
        rpi_program_destroy(it->engines[i].program);
        rpi_session_destroy(it->engines[i].session);
        rpi_weights_destroy(it->engines[i].weights);
        rpi_free(it->engines[i].momentum);
        rpi_free(it->engines[i].times);
        rpi_free(it->engines[i].cpu_times);
    }
    rpi_network_close(&it->network);
    for (int i = 0; i < RPI_TASK_INPUTS; i++) rpi_free(it->inputs[i]);
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
        for (int i = 0; i < it.engine_count && status == RP_OK; i++)
            print_result(&it, &it.engines[i]);
        close_bench(&it);
    }
    if (status == RP_OK) return 0;
    fprintf(stderr, "engine_bench: %s\n", rp_last_error()->message);
    return failure;
}
