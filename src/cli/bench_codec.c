/* `redpoll bench codec`: a codec on one core, in bytes of elements per second, beside memcpy;
 * or on a GPU (bench_codec_cuda.c). */
#include "cli/commands.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "base/median.h"
#include "base/memory.h"
#include "base/status.h"
#include "cli/bench_codec_cuda.h"
#include "cli/bench_collective.h"
#include "cli/elements.h"
#include "cli/gaussian.h"
#include "cli/option_rows.h"
#include "redpoll/codec.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    const char *codec_text, *dtype_text, *device;
    int64_t count, iters, warmup, seed;
    bool error_feedback, json;
    rp_codec codec;
    rp_dtype dtype;
} settings;

#define FIELD(name) offsetof(settings, name)

static const rpi_option options[] = {
    RPI_ROW_CODEC(FIELD(codec_text), NULL, "q4",
                  "codec, as q4:bucket=512,rounding=stochastic or topk:k=32,bucket=4096"),
    {"count", NULL, NULL, RPI_OPTION_COUNT, FIELD(count), "25000000", 1, 1e10, "N", "elements",
     NULL},
    {"dtype", NULL, NULL, RPI_OPTION_TEXT, FIELD(dtype_text), "f32", 0, 0, "TYPE",
     "f32, f16 or bf16", NULL},
    {"device", NULL, NULL, RPI_OPTION_TEXT, FIELD(device), "cpu", 0, 0, "DEVICE",
     "cpu: one core; cuda: a GPU, beside its own copies", rpi_check_device},
    {"error-feedback", NULL, NULL, RPI_OPTION_FLAG, FIELD(error_feedback), NULL, 0, 0, NULL,
     "encode with error feedback", NULL},
    RPI_ROW_ITERS(FIELD(iters), "11"),
    RPI_ROW_WARMUP(FIELD(warmup), "2"),
    RPI_ROW_SEED(FIELD(seed), "of the Gaussian input"),
    RPI_ROW_JSON(FIELD(json), "one JSON object (docs/json.md)"),
    {0},
};

typedef struct buffers {
    void *x, *copy; /* count elements */
    unsigned char *encoded;
    float *sum, *residual; /* count floats; residual NULL without error feedback */
    double *times[3];      /* memcpy, encode, decode-add: iters each */
} buffers;

typedef struct result {
    double rates[3]; /* bytes of elements a second: memcpy, encode, decode-add */
    double error;
    size_t encoded_bytes;
} result;

static void free_buffers(buffers *b) {
    rpi_free(b->x);
    rpi_free(b->copy);
    rpi_free(b->encoded);
    rpi_free(b->sum);
    rpi_free(b->residual);
    for (int i = 0; i < 3; i++) rpi_free(b->times[i]);
}

static rp_status allocate(const settings *s, buffers *b) {
    size_t count = (size_t)s->count, bytes = count * rp_dtype_bytes(s->dtype);
    RP_TRY(rpi_alloc(bytes, "the input", &b->x));
    RP_TRY(rpi_alloc(bytes, "the copy", &b->copy));
    RP_TRY(rpi_alloc(rp_codec_encoded_bytes(&s->codec, s->dtype, count), "the encoding",
                     &b->encoded));
    RP_TRY(rpi_alloc_array(count, sizeof(float), "the sum", &b->sum));
    if (s->error_feedback)
        RP_TRY(rpi_alloc_array(count, sizeof(float), "the residual", &b->residual));
    for (int i = 0; i < 3; i++)
        RP_TRY(rpi_alloc_array((size_t)s->iters, sizeof(double), "times", &b->times[i]));
    rpi_gaussian((uint64_t)s->seed, 0, 0, count, b->sum);
    rpi_elements_store(s->dtype, b->sum, count, b->x, 0);
    return RP_OK;
}

/* One repeat of all three, interleaved, so that a slow spell of the machine affects each alike.
 */
static rp_status repeat(const settings *s, buffers *b, uint64_t step, double seconds[3]) {
    size_t count = (size_t)s->count, bytes = 0;
    rp_encode_context context = {
        .seed = (uint64_t)s->seed, .step = step, .residual = b->residual};
    int64_t start = rpi_now_ns();
    memcpy(b->copy, b->x, count * rp_dtype_bytes(s->dtype));
    int64_t copied = rpi_now_ns();
    RP_TRY(rp_codec_encode(&s->codec, s->dtype, b->x, count, &context, b->encoded, &bytes));
    int64_t encoded = rpi_now_ns();
    RP_TRY(
        rp_codec_decode_add(&s->codec, s->dtype, b->encoded, bytes, count, &context, b->sum));
    int64_t decoded = rpi_now_ns();
    seconds[0] = rpi_seconds(copied - start);
    seconds[1] = rpi_seconds(encoded - copied);
    seconds[2] = rpi_seconds(decoded - encoded);
    return RP_OK;
}

/* Bytes and relative L2 error of one encoding without error feedback. */
static rp_status measure_error(const settings *s, buffers *b, result *out) {
    size_t count = (size_t)s->count, bytes = 0;
    rp_encode_context context = {.seed = (uint64_t)s->seed};
    RP_TRY(rp_codec_encode(&s->codec, s->dtype, b->x, count, &context, b->encoded, &bytes));
    RP_TRY(rp_codec_decode(&s->codec, s->dtype, b->encoded, bytes, count, &context, b->copy));
    double error = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        double x = rpi_element_load(s->dtype, b->x, i),
               difference = rpi_element_load(s->dtype, b->copy, i) - x;
        error += difference * difference;
        norm += x * x;
    }
    out->error = norm > 0 ? sqrt(error / norm) : 0;
    out->encoded_bytes = bytes;
    return RP_OK;
}

static rp_status measure(const settings *s, buffers *b, result *out) {
    RP_TRY(allocate(s, b));
    double seconds[3];
    for (int64_t i = -s->warmup; i < s->iters; i++) {
        RP_TRY(repeat(s, b, (uint64_t)(i + s->warmup), seconds));
        for (int k = 0; k < 3 && i >= 0; k++) b->times[k][i] = seconds[k];
    }
    double bytes = (double)s->count * (double)rp_dtype_bytes(s->dtype);
    for (int k = 0; k < 3; k++) out->rates[k] = bytes / rpi_median(b->times[k], (int)s->iters);
    return measure_error(s, b, out);
}

static void print_json(const settings *s, const result *r, const char *codec) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "codec", codec);
    cJSON_AddNumberToObject(object, "count", (double)s->count);
    cJSON_AddStringToObject(object, "isa", rpi_isa_name(rpi_cpu_isa()));
    cJSON_AddNumberToObject(object, "encode_bytes_s", r->rates[1]);
    cJSON_AddNumberToObject(object, "decode_add_bytes_s", r->rates[2]);
    cJSON_AddNumberToObject(object, "memcpy_bytes_s", r->rates[0]);
    cJSON_AddNumberToObject(object, "encoded_bytes", (double)r->encoded_bytes);
    cJSON_AddNumberToObject(object, "rel_l2_error", r->error);
    cJSON_AddStringToObject(object, "dtype", rp_dtype_name(s->dtype));
    cJSON_AddBoolToObject(object, "error_feedback", s->error_feedback);
    rpi_command_print_json(object);
}

static void print_table(const settings *s, const result *r, const char *codec) {
    printf("%s, %lld %s (%.1f MB), %s%s, one core, median of %lld\n", codec,
           (long long)s->count, rp_dtype_name(s->dtype),
           (double)s->count * (double)rp_dtype_bytes(s->dtype) * 1e-6,
           rpi_isa_name(rpi_cpu_isa()), s->error_feedback ? ", error feedback" : "",
           (long long)s->iters);
    static const char *const names[] = {"memcpy", "encode", "decode-add"};
    printf("%-12s %10s %14s\n", "", "GB/s", "x memcpy");
    for (int k = 0; k < 3; k++)
        printf("%-12s %10.2f %14.2f\n", names[k], r->rates[k] * 1e-9,
               r->rates[k] / r->rates[0]);
    printf("encoded to %zu bytes (%.2f times less), relative L2 error %.4g\n", r->encoded_bytes,
           (double)s->count * (double)rp_dtype_bytes(s->dtype) / (double)r->encoded_bytes,
           r->error);
}

static rp_status read_settings(int argc, char **argv, settings *s, bool *wants_help) {
    RP_TRY(rpi_options_defaults(options, s));
    RP_TRY(rpi_options_environment(options, getenv, s));
    RP_TRY(rpi_options_parse(options, argc, argv, s, NULL, wants_help));
    if (*wants_help) return RP_OK;
    RP_TRY(rp_codec_parse(s->codec_text, &s->codec));
    RP_TRY(rpi_parse_float_dtype(s->dtype_text, &s->dtype));
    return RP_OK;
}

static rp_status run_on_cuda(const settings *s) {
    return rpi_bench_codec_on_cuda(&(rpi_bench_codec_cuda){
        .codec = s->codec,
        .dtype = s->dtype,
        .count = s->count,
        .iters = s->iters,
        .warmup = s->warmup,
        .seed = s->seed,
        .error_feedback = s->error_feedback,
        .json = s->json,
    });
}

static int run(int argc, char **argv) {
    settings s = {0};
    bool wants_help = false;
    rp_status status = read_settings(argc, argv, &s, &wants_help);
    if (status != RP_OK) return rpi_command_misused("bench codec", status);
    if (wants_help) {
        rpi_command_print_help(&rpi_command_bench_codec, stdout);
        return RPI_EXIT_DONE;
    }
    if (strcmp(s.device, "cuda") == 0) {
        status = run_on_cuda(&s);
        return status == RP_OK ? RPI_EXIT_DONE : rpi_command_failed(status);
    }
    buffers b = {0};
    result r = {0};
    status = measure(&s, &b, &r);
    free_buffers(&b);
    if (status != RP_OK) return rpi_command_failed(status);
    char codec[64];
    rp_codec_text(&s.codec, codec, sizeof codec);
    if (s.json)
        print_json(&s, &r, codec);
    else
        print_table(&s, &r, codec);
    return RPI_EXIT_DONE;
}

const rpi_command rpi_command_bench_codec = {
    .name = "bench codec",
    .summary = "time a codec on one core, or on a GPU, beside copies",
    .about =
        "Times encode and decode-and-add of a codec on one core over arrays that do not fit "
        "the caches, in bytes of elements a second, interleaved with memcpy. With --device "
        "cuda "
        "on a GPU, beside copies within its memory, and beside the time that the bytes which "
        "are read and written need at the rate of these copies.",
    .examples = "  redpoll bench codec --codec q4 --json\n"
                "  redpoll bench codec --codec q4:rounding=stochastic\n"
                "  redpoll bench codec --codec q4 --error-feedback\n"
                "  redpoll bench codec --codec q4 --device cuda --count 268435456\n",
    .options = options,
    .run = run,
};
