/* `redpoll bench all-reduce`: seconds, bytes and error of an all-reduce, as nccl-tests print
 * them. */
#include "cli/commands.h"

#include "base/clock.h"
#include "base/median.h"
#include "base/memory.h"
#include "base/status.h"
#include "cli/elements.h"
#include "cli/gaussian.h"
#include "cli/world.h"
#include "plan/choose.h"
#include "redpoll/comm.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    rpi_world_settings world;
    const char *codec_text, *dtype_text, *algorithm;
    int64_t count, iters, warmup, seed;
    bool json;
    rp_codec codec;
    rp_dtype dtype;
} settings;

#define FIELD(name) offsetof(settings, name)
static const rpi_option options[] = {
    RPI_WORLD_OPTIONS(settings, world),
    {"count", NULL, NULL, RPI_OPTION_COUNT, FIELD(count), "25557032", 0, 1e11, "N", "elements",
     NULL},
    {"dtype", NULL, NULL, RPI_OPTION_TEXT, FIELD(dtype_text), "f32", 0, 0, "TYPE",
     "f32, f16 or bf16", NULL},
    {"codec", NULL, NULL, RPI_OPTION_TEXT, FIELD(codec_text), "fp32", 0, 0, "CODEC",
     "codec; fp32 is exact", rpi_check_codec},
    {"algorithm", NULL, NULL, RPI_OPTION_TEXT, FIELD(algorithm), NULL, 0, 0, "NAME",
     "ring or sra; chosen by cost when absent", rpi_check_all_reduce},
    {"iters", NULL, NULL, RPI_OPTION_COUNT, FIELD(iters), "5", 1, 100000, "N",
     "timed repeats; the median counts", NULL},
    {"warmup", NULL, NULL, RPI_OPTION_COUNT, FIELD(warmup), "1", 0, 100000, "N",
     "repeats before", NULL},
    {"seed", NULL, NULL, RPI_OPTION_COUNT, FIELD(seed), "1", 0, 0, "N",
     "of the Gaussian inputs", NULL},
    {"json", NULL, NULL, RPI_OPTION_FLAG, FIELD(json), NULL, 0, 0, NULL,
     "one JSON object (docs/json.md)", NULL},
    {0},
};

typedef struct bench {
    const settings *s;
    rp_comm *comm;
    const char *algorithm; /* named, or what the communicator would choose itself */
    void *input, *data; /* count elements of dtype: this rank's vector, and its working copy */
    float *scratch;     /* PIECE floats */
    void *rounded;      /* PIECE elements of dtype */
    double *sums;       /* PIECE doubles */
    double *times;      /* iters: of the slowest rank */
} bench;

typedef struct result {
    double time_s, time_min_s, time_max_s;
    double wire_bytes;
    double error;
    bool replicas_equal;
} result;

enum { PIECE = 1 << 18 }; /* elements handled at once when inputs are made and compared */

static size_t piece_at(size_t first, size_t end) {
    return end - first < PIECE ? end - first : PIECE;
}

static rp_status choose_algorithm(bench *b) {
    const settings *s = b->s;
    const rpi_algorithm *algorithm = NULL;
    bool lossy = !rp_codec_is_exact(&s->codec, s->dtype);
    size_t bytes = (size_t)s->count * rp_dtype_bytes(s->dtype);
    b->algorithm = s->algorithm;
    if (b->algorithm) return RP_OK;
    RP_TRY(rpi_algorithm_default(RPI_ALL_REDUCE, rp_comm_world(b->comm), lossy, bytes,
                                 &algorithm));
    b->algorithm = algorithm->name;
    return RP_OK;
}

static rp_status prepare(bench *b) {
    const settings *s = b->s;
    size_t count = (size_t)s->count;
    RP_TRY(choose_algorithm(b));
    RP_TRY(rpi_alloc_array(count, rp_dtype_bytes(s->dtype), "the input", &b->input));
    RP_TRY(rpi_alloc_array(count, rp_dtype_bytes(s->dtype), "the result", &b->data));
    RP_TRY(rpi_alloc_array(PIECE, sizeof(float), "a piece", &b->scratch));
    RP_TRY(rpi_alloc_array(PIECE, sizeof(float), "a piece", &b->rounded));
    RP_TRY(rpi_alloc_array(PIECE, sizeof(double), "a piece", &b->sums));
    RP_TRY(rpi_alloc_array((size_t)s->iters, sizeof(double), "times", &b->times));
    for (size_t first = 0; first < count; first += PIECE) {
        size_t n = piece_at(first, count);
        rpi_gaussian((uint64_t)s->seed, rp_comm_rank(b->comm), first, n, b->scratch);
        rpi_elements_store(s->dtype, b->scratch, n, b->input, first);
    }
    return RP_OK;
}

/* Largest value over the ranks. */
static rp_status max_over_ranks(rp_comm *comm, double value, double *out_max) {
    int world = rp_comm_world(comm);
    double *values = NULL;
    RP_TRY(rpi_alloc_array((size_t)world, sizeof *values, "values of all ranks", &values));
    rp_status status = rp_all_gather(comm, &value, values, 1, RP_F64, NULL, NULL);
    double largest = values[0];
    for (int r = 1; r < world; r++) largest = values[r] > largest ? values[r] : largest;
    rpi_free(values);
    *out_max = largest;
    return status;
}

static void reset(bench *b) {
    memcpy(b->data, b->input, (size_t)b->s->count * rp_dtype_bytes(b->s->dtype));
}

static rp_status reduce(bench *b, uint64_t step) {
    const settings *s = b->s;
    rp_segment segment = {
        .data = b->data, .count = (size_t)s->count, .dtype = s->dtype, .codec = s->codec};
    rp_collective_options collective = {
        .algorithm = b->algorithm, .seed = (uint64_t)s->seed, .step = step};
    return rp_all_reduce(b->comm, &segment, 1, &collective);
}

static rp_status one_call(bench *b, uint64_t step, double *out_seconds) {
    reset(b);
    RP_TRY(rp_barrier(b->comm));
    int64_t start = rpi_now_ns();
    RP_TRY(reduce(b, step));
    return max_over_ranks(b->comm, rpi_seconds(rpi_now_ns() - start), out_seconds);
}

static uint64_t bytes_sent(rp_comm *comm) {
    rp_comm_stats stats;
    rp_comm_get_stats(comm, &stats);
    return stats.wire_bytes_sent;
}

/* Bytes of one call alone: the barrier and the exchange of times are not part of it. */
static rp_status measure_bytes(bench *b, uint64_t step, result *out) {
    reset(b);
    uint64_t before = bytes_sent(b->comm);
    RP_TRY(reduce(b, step));
    return max_over_ranks(b->comm, (double)(bytes_sent(b->comm) - before), &out->wire_bytes);
}

/* Every rank checks its share of the elements against a float64 sum of all inputs. */
static rp_status measure_error(bench *b, result *out) {
    const settings *s = b->s;
    int rank = rp_comm_rank(b->comm), world = rp_comm_world(b->comm);
    size_t count = (size_t)s->count;
    size_t begin = count * (size_t)rank / (size_t)world,
           end = count * (size_t)(rank + 1) / (size_t)world;
    double squares[2] = {0, 0}; /* of the error, of the sum */
    for (size_t first = begin; first < end; first += PIECE) {
        size_t n = piece_at(first, end);
        memset(b->sums, 0, n * sizeof(double));
        for (int r = 0; r < world; r++) {
            rpi_gaussian((uint64_t)s->seed, r, first, n, b->scratch);
            rpi_elements_store(s->dtype, b->scratch, n, b->rounded, 0);
            for (size_t i = 0; i < n; i++)
                b->sums[i] += (double)rpi_element_load(s->dtype, b->rounded, i);
        }
        for (size_t i = 0; i < n; i++) {
            double difference =
                (double)rpi_element_load(s->dtype, b->data, first + i) - b->sums[i];
            squares[0] += difference * difference;
            squares[1] += b->sums[i] * b->sums[i];
        }
    }
    rp_segment segment = {.data = squares, .count = 2, .dtype = RP_F64};
    RP_TRY(rp_all_reduce(b->comm, &segment, 1, NULL));
    out->error = squares[1] > 0 ? sqrt(squares[0] / squares[1]) : 0;
    return RP_OK;
}

/* Byte by byte, each rank against the next: when all neighbours agree, all ranks do. */
static rp_status compare_replicas(bench *b, result *out) {
    int rank = rp_comm_rank(b->comm), world = rp_comm_world(b->comm);
    size_t bytes = (size_t)b->s->count * rp_dtype_bytes(b->s->dtype);
    double differs = 0;
    for (size_t first = 0; world > 1 && first < bytes; first += PIECE * sizeof(float)) {
        size_t n =
            bytes - first < PIECE * sizeof(float) ? bytes - first : PIECE * sizeof(float);
        rp_request *receive = NULL, *send = NULL;
        RP_TRY(
            rp_recv_start(b->comm, b->scratch, n, RP_U8, (rank + world - 1) % world, &receive));
        RP_TRY(rp_send_start(b->comm, (const char *)b->data + first, n, RP_U8,
                             (rank + 1) % world, &send));
        rp_status sent = rp_request_wait(&send);
        RP_TRY(rp_request_wait(&receive));
        RP_TRY(sent);
        if (memcmp(b->scratch, (const char *)b->data + first, n) != 0) differs = 1;
    }
    RP_TRY(max_over_ranks(b->comm, differs, &differs));
    out->replicas_equal = differs == 0;
    return RP_OK;
}

static rp_status measure(bench *b, result *out) {
    const settings *s = b->s;
    RP_TRY(prepare(b));
    for (int64_t i = -s->warmup; i < s->iters; i++) {
        double seconds;
        RP_TRY(one_call(b, (uint64_t)(i + s->warmup), &seconds));
        if (i >= 0) b->times[i] = seconds;
    }
    out->time_s = rpi_median(b->times, (int)s->iters); /* sorts them */
    out->time_min_s = b->times[0];
    out->time_max_s = b->times[s->iters - 1];
    RP_TRY(measure_bytes(b, (uint64_t)(s->iters + s->warmup), out));
    RP_TRY(measure_error(b, out));
    return compare_replicas(b, out);
}

static double bus_factor(int world) {
    return 2.0 * (world - 1) / world;
}

static void print_json(const bench *b, const result *r, const char *codec, bool lossy) {
    const settings *s = b->s;
    int world = rp_comm_world(b->comm);
    double bytes = (double)s->count * (double)rp_dtype_bytes(s->dtype);
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "op", "all-reduce");
    cJSON_AddNumberToObject(object, "ranks", world);
    cJSON_AddNumberToObject(object, "count", (double)s->count);
    cJSON_AddStringToObject(object, "dtype", rp_dtype_name(s->dtype));
    cJSON_AddNumberToObject(object, "bytes", bytes);
    cJSON_AddStringToObject(object, "codec", codec);
    cJSON_AddStringToObject(object, "algorithm", b->algorithm);
    cJSON_AddStringToObject(object, "transport", rp_comm_transport(b->comm));
    cJSON_AddNumberToObject(object, "iters", (double)s->iters);
    cJSON_AddNumberToObject(object, "time_s", r->time_s);
    cJSON_AddNumberToObject(object, "time_min_s", r->time_min_s);
    cJSON_AddNumberToObject(object, "time_max_s", r->time_max_s);
    cJSON_AddNumberToObject(object, "algbw_bytes_s", bytes / r->time_s);
    if (lossy)
        cJSON_AddNullToObject(object, "busbw_bytes_s");
    else
        cJSON_AddNumberToObject(object, "busbw_bytes_s", bytes / r->time_s * bus_factor(world));
    cJSON_AddNumberToObject(object, "wire_bytes", r->wire_bytes);
    cJSON_AddNumberToObject(object, "rel_l2_error", r->error);
    cJSON_AddBoolToObject(object, "replicas_equal", r->replicas_equal);
    rpi_command_print_json(object);
}

static void print_table(const bench *b, const result *r, const char *codec, bool lossy) {
    const settings *s = b->s;
    int world = rp_comm_world(b->comm);
    double bytes = (double)s->count * (double)rp_dtype_bytes(s->dtype);
    printf("all-reduce of %lld %s on %d ranks by %s over %s, codec %s, median of %lld\n",
           (long long)s->count, rp_dtype_name(s->dtype), world, b->algorithm,
           rp_comm_transport(b->comm), codec, (long long)s->iters);
    printf("%12s %10s %10s %10s %12s %12s %12s %10s %9s\n", "bytes", "time s", "min", "max",
           "algbw MB/s", "busbw MB/s", "wire bytes", "error", "replicas");
    char bus[32];
    snprintf(bus, sizeof bus, "%.1f", bytes / r->time_s * bus_factor(world) * 1e-6);
    printf("%12.0f %10.6f %10.6f %10.6f %12.1f %12s %12.0f %10.3g %9s\n", bytes, r->time_s,
           r->time_min_s, r->time_max_s, bytes / r->time_s * 1e-6, lossy ? "-" : bus,
           r->wire_bytes, r->error, r->replicas_equal ? "equal" : "DIFFER");
}

static void help(void) {
    printf("usage: redpoll bench all-reduce [OPTIONS]\n\n"
           "Times an all-reduce of Gaussian vectors. With -n it starts that many ranks on this "
           "machine;\n"
           "without, a process started by redpoll run, torchrun, mpirun or srun joins that "
           "world.\n\n");
    rpi_options_help(options, stdout);
    printf("\nexamples:\n  redpoll bench all-reduce -n 4 --count 25557032 --link 1Gbit,50us\n"
           "  redpoll bench all-reduce -n 4 --codec q4 --link 1Gbit,50us --json\n"
           "  redpoll run -n 4 redpoll bench all-reduce --count 16M --transport tcp\n");
}

static rp_status read_settings(int argc, char **argv, settings *s, bool *wants_help) {
    RP_TRY(rpi_options_defaults(options, s));
    RP_TRY(rpi_options_environment(options, getenv, s));
    RP_TRY(rpi_options_parse(options, argc, argv, s, NULL, wants_help));
    if (*wants_help) return RP_OK;
    RP_TRY(rp_codec_parse(s->codec_text, &s->codec));
    RP_TRY(rpi_parse_float_dtype(s->dtype_text, &s->dtype));
    s->world.greeting = s->json ? stderr : stdout; /* JSON stands alone */
    return rpi_world_check(&s->world);
}

static void free_bench(bench *b) {
    rpi_free(b->input);
    rpi_free(b->data);
    rpi_free(b->scratch);
    rpi_free(b->rounded);
    rpi_free(b->sums);
    rpi_free(b->times);
}

static int run_rank(const settings *s) {
    bench b = {.s = s};
    result r = {0};
    rpi_world world = {0};
    rp_status status = rpi_world_join(&s->world, &world);
    b.comm = world.comm;
    if (status == RP_OK) status = measure(&b, &r);
    if (status == RP_OK && world.rank == 0) {
        char codec[64];
        rp_codec_text(&s->codec, codec, sizeof codec);
        bool lossy = !rp_codec_is_exact(&s->codec, s->dtype);
        if (s->json)
            print_json(&b, &r, codec, lossy);
        else
            print_table(&b, &r, codec, lossy);
        if (!r.replicas_equal)
            status = RP_FAIL(CORRUPT, "the ranks hold different results: please report this");
    }
    int code = status == RP_OK        ? RPI_EXIT_DONE
               : status == RP_INVALID ? rpi_command_misused("bench all-reduce", status)
                                      : rpi_command_failed(status);
    rpi_world_leave(&world);
    free_bench(&b);
    return code;
}

static int run(int argc, char **argv) {
    settings s = {0};
    bool wants_help = false;
    rp_status status = read_settings(argc, argv, &s, &wants_help);
    if (status != RP_OK) return rpi_command_misused("bench all-reduce", status);
    if (wants_help) {
        help();
        return RPI_EXIT_DONE;
    }
    if (rpi_world_must_launch(&s.world))
        return rpi_world_launch(&s.world, "bench all-reduce", argc, argv);
    return run_rank(&s);
}

const rpi_command rpi_command_bench_all_reduce = {
    .name = "bench all-reduce",
    .summary = "time an all-reduce: seconds, bytes, error",
    .options = options,
    .run = run,
};
