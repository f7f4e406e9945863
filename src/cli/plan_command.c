/* `redpoll plan`: print the schedule of a collective and predict its time. */
#include "cli/commands.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/suggest.h"
#include "cli/gaussian.h"
#include "cli/option_rows.h"
#include "net/link_shape.h"
#include "plan/choose.h"
#include "redpoll/codec.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    const char *algorithm, *codec_text, *link;
    int64_t ranks, rank, root, count, bytes, chunk_bytes;
    bool brief, json;
    rp_codec codec;
    rpi_collective collective;
} settings;

#define FIELD(name) offsetof(settings, name)
static const rpi_option options[] = {
    RPI_ROWS_RANKS(FIELD(ranks), NULL, "4", 1, 16384, "ranks of the world"),
    RPI_ROW_ALGORITHM(FIELD(algorithm), NULL,
                      "as redpoll info lists them; what a run would choose when absent", NULL),
    {"size", NULL, NULL, RPI_OPTION_BYTES, FIELD(bytes), "100MB", 0, 1e15, "BYTES",
     "of the floats: a vector, or the parts or blocks of all ranks together", NULL},
    {"count", NULL, NULL, RPI_OPTION_COUNT, FIELD(count), NULL, 0, 1e14, "N",
     "floats, instead of --size", NULL},
    RPI_ROW_CODEC(FIELD(codec_text), NULL, "fp32", "codec; fp32 is exact"),
    RPI_ROW_LINK(FIELD(link), NULL, "1Gbit,50us", "of each rank, each way"),
    {"rank", NULL, NULL, RPI_OPTION_COUNT, FIELD(rank), "0", 0, 16383, "R",
     "whose steps to print", NULL},
    {"root", NULL, NULL, RPI_OPTION_COUNT, FIELD(root), "0", 0, 16383, "R",
     "of a broadcast, reduce, gather or scatter", NULL},
    {"chunk", NULL, NULL, RPI_OPTION_BYTES, FIELD(chunk_bytes), NULL, 0, 1e9, "BYTES",
     "in flight as one piece; the executor's choice when absent", NULL},
    {"brief", NULL, NULL, RPI_OPTION_FLAG, FIELD(brief), NULL, 0, 0, NULL,
     "the prediction alone", NULL},
    RPI_ROW_JSON(FIELD(json), "the prediction as one JSON object (docs/json.md)"),
    {0},
};

static const char *collective_at(const void *context, int index) {
    (void)context;
    return index < RPI_COLLECTIVES ? rpi_collective_name((rpi_collective)index) : NULL;
}

/* How fast this machine encodes and decodes: a fraction of a second, best of a few. */
static rp_status measure_codec(const rp_codec *codec, rpi_cost_model *model) {
    enum { COUNT = 1 << 20, REPEATS = 5 };
    float *x = NULL;
    void *encoded = NULL;
    size_t bytes = rp_codec_encoded_bytes(codec, RP_F32, COUNT);
    RP_TRY(rpi_alloc_array(COUNT, sizeof *x, "a sample", &x));
    rp_status status = rpi_alloc(bytes, "a sample", &encoded);
    if (status == RP_OK) rpi_gaussian(1, 0, 0, COUNT, x);
    double encode_s = 1e9, decode_s = 1e9;
    for (int i = 0; i < REPEATS && status == RP_OK; i++) {
        int64_t start = rpi_now_ns();
        status = rp_codec_encode(codec, RP_F32, x, COUNT, NULL, encoded);
        int64_t middle = rpi_now_ns();
        if (status == RP_OK)
            status = rp_codec_decode_add(codec, RP_F32, encoded, bytes, COUNT, x);
        int64_t end = rpi_now_ns();
        if (rpi_seconds(middle - start) < encode_s) encode_s = rpi_seconds(middle - start);
        if (rpi_seconds(end - middle) < decode_s) decode_s = rpi_seconds(end - middle);
    }
    model->encode_bytes_s = COUNT * sizeof(float) / encode_s;
    model->decode_add_bytes_s = COUNT * sizeof(float) / decode_s;
    rpi_free(x);
    rpi_free(encoded);
    return status;
}

static rp_status make_model(const settings *s, rpi_cost_model *model) {
    rpi_link_shape shape;
    RP_TRY(rpi_link_shape_parse(s->link, &shape));
    *model = (rpi_cost_model){.bytes_per_s = shape.bytes_per_s,
                              .latency_s = shape.latency_s,
                              .frame_bytes = 64,
                              .chunk_bytes = (size_t)s->chunk_bytes};
    return measure_codec(&s->codec, model);
}

typedef struct prediction {
    const rpi_algorithm *algorithm;
    size_t bytes, encoded;
    rpi_cost_model model;
    rpi_cost cost;
} prediction;

static rp_status predict(const settings *s, prediction *p) {
    p->bytes = (size_t)s->count * sizeof(float);
    p->encoded = rp_codec_encoded_bytes(&s->codec, RP_F32, (size_t)s->count);
    RP_TRY(make_model(s, &p->model));
    bool lossy = !rp_codec_is_exact(&s->codec, RP_F32);
    if (s->algorithm)
        RP_TRY(rpi_algorithm_find(s->collective, s->algorithm, &p->algorithm));
    else
        RP_TRY(rpi_algorithm_default(s->collective, (int)s->ranks, lossy, p->bytes,
                                     &p->algorithm));
    return rpi_plan_cost(p->algorithm, (int)s->ranks, p->bytes, p->encoded, &p->model,
                         &p->cost);
}

static void print_json(const settings *s, const prediction *p, const char *codec) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "op", rpi_collective_name(s->collective));
    cJSON_AddNumberToObject(object, "ranks", (double)s->ranks);
    cJSON_AddNumberToObject(object, "bytes", (double)p->bytes);
    cJSON_AddStringToObject(object, "codec", codec);
    cJSON_AddNumberToObject(object, "encoded_bytes", (double)p->encoded);
    cJSON_AddStringToObject(object, "algorithm", p->algorithm->name);
    cJSON_AddNumberToObject(object, "link_bytes_s", p->model.bytes_per_s);
    cJSON_AddNumberToObject(object, "link_latency_s", p->model.latency_s);
    cJSON_AddNumberToObject(object, "time_s", p->cost.time_s);
    cJSON_AddNumberToObject(object, "wire_bytes", p->cost.wire_bytes);
    cJSON_AddNumberToObject(object, "wire_s", p->cost.wire_s);
    cJSON_AddNumberToObject(object, "encode_s", p->cost.encode_s);
    cJSON_AddNumberToObject(object, "decode_s", p->cost.decode_s);
    cJSON_AddNumberToObject(object, "frames", (double)p->cost.frames);
    rpi_command_print_json(object);
}

static rp_status print_schedule(const settings *s, const prediction *p) {
    rpi_plan_request request = {
        .world = (int)s->ranks, .rank = (int)s->rank, .root = (int)s->root};
    rpi_schedule schedule;
    RP_TRY(rpi_schedule_build(p->algorithm, &request, &schedule));
    rpi_schedule_print(stdout, &schedule);
    rpi_schedule_destroy(&schedule);
    printf("\n");
    return RP_OK;
}

static void print_prediction(const settings *s, const prediction *p, const char *codec) {
    printf("%s by %s, %lld ranks, %.1f MB as %s (%.1f MB encoded), link %s\n",
           rpi_collective_name(s->collective), p->algorithm->name, (long long)s->ranks,
           (double)p->bytes * 1e-6, codec, (double)p->encoded * 1e-6, s->link);
    printf("predicted: %.4f s; %.2f MB sent by a rank in %lld frame%s (%.4f s on the wire), "
           "encoding %.4f s, decoding %.4f s\n",
           p->cost.time_s, p->cost.wire_bytes * 1e-6, (long long)p->cost.frames,
           p->cost.frames == 1 ? "" : "s", p->cost.wire_s, p->cost.encode_s, p->cost.decode_s);
}

static void help(void) {
    printf(
        "usage: redpoll plan COLLECTIVE [OPTIONS]\n\n"
        "Prints the schedule of one rank and predicts the time of the whole: each rank's link "
        "has a\n"
        "rate and a latency, and encoding and decoding run as fast as measured here and now.\n"
        "COLLECTIVE is ");
    for (int i = 0; i < RPI_COLLECTIVES; i++)
        printf("%s%s", i ? ", " : "", rpi_collective_name((rpi_collective)i));
    printf(".\n\n");
    rpi_options_help(options, stdout);
    printf("\nexamples:\n  redpoll plan all-reduce --algorithm sra --ranks 8 --size 100MB "
           "--link 1Gbit,50us\n"
           "  redpoll plan all-reduce --ranks 64 --size 100MB --codec q4 --link 10Gbit,20us "
           "--brief\n");
}

static rp_status read_settings(int argc, char **argv, settings *s, bool *wants_help) {
    const char *words[1];
    rpi_positional positional = {.words = words, .capacity = 1};
    RP_TRY(rpi_options_defaults(options, s));
    RP_TRY(rpi_options_environment(options, getenv, s));
    RP_TRY(rpi_options_parse(options, argc, argv, s, &positional, wants_help));
    if (*wants_help) return RP_OK;
    if (positional.count == 0) return RP_FAIL(INVALID, "which collective? all-reduce, for one");
    char hint[64];
    int c = 0;
    while (c < RPI_COLLECTIVES && strcmp(words[0], rpi_collective_name((rpi_collective)c)) != 0)
        c++;
    if (c == RPI_COLLECTIVES)
        return RP_FAIL(INVALID, "no collective '%s'%s", words[0],
                       rpi_suggest_text(words[0], collective_at, NULL, hint, sizeof hint));
    s->collective = (rpi_collective)c;
    if (s->rank >= s->ranks)
        return RP_FAIL(INVALID, "--rank %lld is not in a world of %lld", (long long)s->rank,
                       (long long)s->ranks);
    if (s->root >= s->ranks)
        return RP_FAIL(INVALID, "--root %lld is not in a world of %lld", (long long)s->root,
                       (long long)s->ranks);
    if (!s->count) s->count = s->bytes / (int64_t)sizeof(float);
    return rp_codec_parse(s->codec_text, &s->codec);
}

static int run(int argc, char **argv) {
    settings s = {0};
    bool wants_help = false;
    rp_status status = read_settings(argc, argv, &s, &wants_help);
    if (status != RP_OK) return rpi_command_misused("plan", status);
    if (wants_help) {
        help();
        return RPI_EXIT_DONE;
    }
    prediction p = {0};
    status = predict(&s, &p);
    if (status == RP_INVALID || status == RP_NOT_FOUND || status == RP_UNSUPPORTED)
        return rpi_command_misused("plan", status);
    if (status == RP_OK && !s.brief && !s.json) status = print_schedule(&s, &p);
    if (status != RP_OK) return rpi_command_failed(status);
    char codec[64];
    rp_codec_text(&s.codec, codec, sizeof codec);
    if (s.json)
        print_json(&s, &p, codec);
    else
        print_prediction(&s, &p, codec);
    return RPI_EXIT_DONE;
}

const rpi_command rpi_command_plan = {
    .name = "plan",
    .summary = "print a schedule and predict its time",
    .options = options,
    .run = run,
};
