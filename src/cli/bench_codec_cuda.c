#include "cli/bench_codec_cuda.h"

#include "base/median.h"
#include "base/memory.h"
#include "base/status.h"
#include "cli/command.h"
#include "cli/elements.h"
#include "cli/gaussian.h"
#include "cuda/cuda.h"
#include "cuda/device_codec.h"

#include <cjson/cJSON.h>
#include <math.h>

enum { COPY, ENCODE, DECODE_ADD, MEASURED };

typedef struct bench {
    const rpi_bench_codec_cuda *s;
    const rpi_cuda_library *cuda;
    char name[256];
    size_t bytes, encoded_bytes; /* of the elements; of their encoding, where that varies first
                                  * the most */
    void *x, *copy, *encoded, *sum, *residual, *scratch; /* of the device */
    void *length, *offsets;                              /* of the host, pinned */
    void *begin, *end;                                   /* events */
    double *times[MEASURED];                             /* iters each */
    rpi_device_call encode, decode;
} bench;

static rp_status check(const bench *b, int error, const char *what) {
    return rpi_cuda_check(b->cuda, error, what);
}

static void free_bench(bench *b) {
    void *memory[] = {b->x, b->copy, b->encoded, b->sum, b->residual, b->scratch};
    void *pinned[] = {b->length, b->offsets};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        if (memory[i]) (void)b->cuda->release(memory[i]);
    for (size_t i = 0; i < sizeof pinned / sizeof *pinned; i++)
        if (pinned[i]) (void)b->cuda->unpin(pinned[i]);
    if (b->begin) b->cuda->event_free(b->begin);
    if (b->end) b->cuda->event_free(b->end);
    for (int i = 0; i < MEASURED; i++) rpi_free(b->times[i]);
}

/* Gaussian elements, and sums to add to. */
static rp_status fill(bench *b) {
    size_t count = (size_t)b->s->count;
    float *values = NULL;
    void *elements = NULL;
    rp_status status = rpi_alloc_array(count, sizeof(float), "the input", &values);
    if (status == RP_OK) status = rpi_alloc(b->bytes, "the input", &elements);
    if (status == RP_OK) {
        rpi_gaussian((uint64_t)b->s->seed, 0, 0, count, values);
        rpi_elements_store(b->s->dtype, values, count, elements, 0);
        status = check(b, b->cuda->copy(b->x, elements, b->bytes, NULL), "copying the input");
    }
    if (status == RP_OK)
        status = check(b, b->cuda->copy(b->sum, values, count * sizeof(float), NULL),
                       "copying the sum");
    if (status == RP_OK && b->residual) {
        for (size_t i = 0; i < count; i++) values[i] = 0;
        status = check(b, b->cuda->copy(b->residual, values, count * sizeof(float), NULL),
                       "copying the residual");
    }
    if (status == RP_OK) status = check(b, b->cuda->wait(NULL), "copying");
    rpi_free(values);
    rpi_free(elements);
    return status;
}

static rp_status allocate(bench *b) {
    size_t count = (size_t)b->s->count, floats = count * sizeof(float);
    RP_TRY(check(b, b->cuda->device_name(b->name, sizeof b->name), "its name"));
    RP_TRY(check(b, b->cuda->allocate(b->bytes, &b->x), "the input"));
    RP_TRY(check(b, b->cuda->allocate(b->bytes, &b->copy), "the copy"));
    RP_TRY(check(b, b->cuda->allocate(b->encoded_bytes, &b->encoded), "the encoding"));
    RP_TRY(check(b, b->cuda->allocate(floats, &b->sum), "the sum"));
    if (b->s->error_feedback)
        RP_TRY(check(b, b->cuda->allocate(floats, &b->residual), "the residual"));
    RP_TRY(check(b, b->cuda->event_make(&b->begin), "an event"));
    RP_TRY(check(b, b->cuda->event_make(&b->end), "an event"));
    for (int i = 0; i < MEASURED; i++)
        RP_TRY(rpi_alloc_array((size_t)b->s->iters, sizeof(double), "times", &b->times[i]));
    return fill(b);
}

static rp_status prepare(bench *b) {
    size_t count = (size_t)b->s->count;
    rp_encode_context context = {.seed = (uint64_t)b->s->seed, .residual = b->residual};
    RP_TRY(rpi_device_call_of(&b->s->codec, b->s->dtype, count, &context, &b->encode));
    b->encode.x = b->x;
    b->encode.encoded = b->encoded;
    b->decode = b->encode;
    b->decode.x = NULL; /* it adds to what lies at y */
    b->decode.residual = NULL;
    b->decode.y = b->sum;
    return RP_OK;
}

/* Encodes on the host, and finds from the encoding where its buckets begin. */
static rp_status find_offsets(bench *b) {
    const rpi_bench_codec_cuda *s = b->s;
    void *encoding = NULL;
    RP_TRY(rpi_alloc(b->encoded_bytes, "an encoding", &encoding));
    rp_status status =
        check(b, b->cuda->copy(encoding, b->encoded, b->encoded_bytes, NULL), "copying");
    if (status == RP_OK) status = check(b, b->cuda->wait(NULL), "copying");
    if (status == RP_OK)
        status = rpi_device_offsets(&s->codec, s->dtype, (size_t)s->count, encoding,
                                    b->encoded_bytes, b->offsets);
    rpi_free(encoding);
    return status;
}

/* If sizes vary, the first encoding gives the number of bytes, and is what is decoded. */
static rp_status prepare_varying(bench *b) {
    size_t scratch = 0, places;
    RP_TRY(check(b, b->cuda->scratch_bytes(&b->encode, &scratch), "the scratch memory"));
    if (!scratch) return RP_OK;
    places = (size_t)rpi_device_places(&b->encode);
    RP_TRY(check(b, b->cuda->allocate(scratch, &b->scratch), "the scratch memory"));
    RP_TRY(check(b, b->cuda->pin(sizeof(uint64_t), &b->length), "the length"));
    RP_TRY(check(b, b->cuda->pin(places * sizeof(uint64_t), &b->offsets), "the offsets"));
    b->encode.scratch = b->scratch;
    b->encode.bytes = b->length;
    RP_TRY(check(b, b->cuda->encode(&b->encode, NULL), "encoding"));
    RP_TRY(check(b, b->cuda->wait(NULL), "encoding"));
    b->encoded_bytes = (size_t) * (uint64_t *)b->length;
    b->decode.offsets = b->offsets;
    return find_offsets(b);
}

static int begin_one(bench *b, int which) {
    if (which == COPY) return b->cuda->copy(b->copy, b->x, b->bytes, NULL);
    if (which == ENCODE) return b->cuda->encode(&b->encode, NULL);
    return b->cuda->decode(&b->decode, 1, NULL);
}

/* Measures all three in turn, so that a slow spell of the card affects each alike. */
static rp_status measure(bench *b) {
    static const char *const names[] = {"copying", "encoding", "decoding"};
    for (int64_t i = -b->s->warmup; i < b->s->iters; i++)
        for (int k = 0; k < MEASURED; k++) {
            double seconds = 0;
            RP_TRY(check(b, b->cuda->event_record(b->begin, NULL), "an event"));
            RP_TRY(check(b, begin_one(b, k), names[k]));
            RP_TRY(check(b, b->cuda->event_record(b->end, NULL), "an event"));
            RP_TRY(check(b, b->cuda->event_seconds(b->begin, b->end, &seconds), names[k]));
            if (i >= 0) b->times[k][i] = seconds;
        }
    return RP_OK;
}

/* ---- what is said ---- */

typedef struct rates {
    double seconds[MEASURED];
    double share[MEASURED]; /* of the time that a copy of as many bytes takes */
} rates;

static rates rates_of(const bench *b) {
    double count = (double)b->s->count, floats = count * sizeof(float);
    double moved[MEASURED] = {2 * (double)b->bytes, (double)b->bytes + (double)b->encoded_bytes,
                              (double)b->encoded_bytes + 2 * floats};
    if (b->residual) moved[ENCODE] += 2 * floats;
    rates r = {0};
    for (int k = 0; k < MEASURED; k++) {
        r.seconds[k] = rpi_median(b->times[k], (int)b->s->iters);
        double bound = r.seconds[COPY] * moved[k] / moved[COPY];
        r.share[k] = bound / r.seconds[k];
    }
    return r;
}

static void print_json(const bench *b, const rates *r, const char *codec) {
    double bytes = (double)b->bytes;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "codec", codec);
    cJSON_AddNumberToObject(object, "count", (double)b->s->count);
    cJSON_AddStringToObject(object, "device", b->name);
    cJSON_AddNumberToObject(object, "encode_bytes_s", bytes / r->seconds[ENCODE]);
    cJSON_AddNumberToObject(object, "decode_add_bytes_s", bytes / r->seconds[DECODE_ADD]);
    cJSON_AddNumberToObject(object, "copy_bytes_s", bytes / r->seconds[COPY]);
    cJSON_AddNumberToObject(object, "encode_bound", r->share[ENCODE]);
    cJSON_AddNumberToObject(object, "decode_add_bound", r->share[DECODE_ADD]);
    cJSON_AddNumberToObject(object, "encoded_bytes", (double)b->encoded_bytes);
    cJSON_AddStringToObject(object, "dtype", rp_dtype_name(b->s->dtype));
    cJSON_AddBoolToObject(object, "error_feedback", b->s->error_feedback);
    rpi_command_print_json(object);
}

static void print_table(const bench *b, const rates *r, const char *codec) {
    static const char *const names[] = {"copy", "encode", "decode-add"};
    double bytes = (double)b->bytes;
    printf("%s, %lld %s (%.1f MB), %s%s, median of %lld\n", codec, (long long)b->s->count,
           rp_dtype_name(b->s->dtype), bytes * 1e-6, b->name,
           b->s->error_feedback ? ", error feedback" : "", (long long)b->s->iters);
    printf("%-12s %10s %14s %24s\n", "", "GB/s", "x copy", "of the bound of bytes");
    for (int k = 0; k < MEASURED; k++)
        printf("%-12s %10.2f %14.2f %24.2f\n", names[k], bytes / r->seconds[k] * 1e-9,
               r->seconds[COPY] / r->seconds[k], r->share[k]);
    printf("encoded to %zu bytes (%.2f times less)\n", b->encoded_bytes,
           bytes / (double)b->encoded_bytes);
}

static rp_status run(bench *b) {
    RP_TRY(rpi_cuda_open(&b->cuda));
    RP_TRY(rpi_cuda_prepare(b->cuda, 0));
    RP_TRY(prepare(b)); /* says first what has no kernels */
    RP_TRY(allocate(b));
    RP_TRY(prepare(b));
    RP_TRY(prepare_varying(b));
    RP_TRY(measure(b));
    char codec[64];
    rates r = rates_of(b);
    rp_codec_text(&b->s->codec, codec, sizeof codec);
    if (b->s->json)
        print_json(b, &r, codec);
    else
        print_table(b, &r, codec);
    return RP_OK;
}

rp_status rpi_bench_codec_on_cuda(const rpi_bench_codec_cuda *settings) {
    size_t count = (size_t)settings->count;
    bench b = {.s = settings,
               .bytes = count * rp_dtype_bytes(settings->dtype),
               .encoded_bytes =
                   rp_codec_encoded_bytes(&settings->codec, settings->dtype, count)};
    rp_status status = run(&b);
    free_bench(&b);
    return status;
}
