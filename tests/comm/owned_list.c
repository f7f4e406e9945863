#include "comm/owned_list.h"
#include "comm/serial.h"

#include "base/rng.h"
#include "comm/values/values.h"
#include "harness/check.h"

#include <stdlib.h>

const owned_list owned_lists[] = {
    {"one a rank",
     {{1000, RP_F32, "fp32", 0, 0},
      {1000, RP_F32, "fp32", 1, 0},
      {1000, RP_F32, "fp32", 2, 0},
      {1000, RP_F32, "fp32", 3, 0},
      {1000, RP_F32, "fp32", 4, 0},
      {1000, RP_F32, "fp32", 5, 0},
      {1000, RP_F32, "fp32", 6, 0}},
     7},
    {"uneven, in no order",
     {{1001, RP_F32, "q4", 2, 512},
      {0, RP_F32, "q4", 0, 0},
      {20000, RP_F32, "q8:bucket=64", 1, 64 * 3},
      {63, RP_BF16, "fp32", 0, 7},
      {4097, RP_F32, "fp32", 2, 0},
      {1, RP_F32, "q4:bucket=33,rounding=stochastic", 0, 33}},
     6},
    {"all of one rank",
     {{9000, RP_F32, "q4", 1, 0}, {77, RP_F32, "fp32", 1, 0}, {9001, RP_F32, "q2", 1, 0}},
     3},
    {"of several dtypes",
     {{333, RP_I32, "fp32", 1, 0},
      {5000, RP_F16, "q8", 0, 0},
      {11, RP_U8, "fp32", 3, 0},
      {5000, RP_BF16, "q4", 2, 0},
      {700, RP_F64, "fp32", 2, 0},
      {4000, RP_F32, "bf16", 1, 0},
      {4000, RP_F32, "fp16", 0, 0},
      {9, RP_I64, "fp32", 0, 0}},
     8},
    {"of floats alone",
     {{3000, RP_F16, "fp32", 1, 0},
      {3000, RP_F64, "fp32", 0, 0},
      {3000, RP_C64, "fp32", 2, 0},
      {24000, RP_F32, "fp32", 5, 0}},
     4},
    {"of codecs of any length",
     {{5000, RP_F32, "topk", 0, 0},
      {5000, RP_F32, "randk", 1, 0},
      {5000, RP_F32, "sign:bucket=100", 2, 0},
      {5000, RP_F32, "v4:bucket=1000", 0, 0},
      {5000, RP_F32, "v1:quarters=3", 1, 0},
      {900, RP_F32, "topk:k=5,bucket=64,values=q4", 2, 64}},
     6},
    {"empty ones", {{0, RP_F32, "fp32", 1, 0}, {0, RP_I8, "fp32", 0, 0}}, 2},
    {"nothing", {{0}}, 0},
};
const int owned_list_count = sizeof owned_lists / sizeof owned_lists[0];

static rp_codec codec_of(const owned_row *row) {
    rp_codec codec = {0};
    CHECK_OK(rp_codec_parse(row->codec, &codec));
    return codec;
}

static bool is_exact(const owned_row *row) {
    rp_codec codec = codec_of(row);
    return rp_codec_is_exact(&codec, row->dtype);
}

bool owned_list_takes(const owned_list *list, rp_reduction reduction) {
    bool adds = reduction == RP_SUM || reduction == RP_AVG || reduction == RP_PREMUL_SUM;
    for (size_t i = 0; i < list->count; i++) {
        const owned_row *row = &list->rows[i];
        if (!serial_takes(reduction, row->dtype) || (!adds && !is_exact(row))) return false;
    }
    return true;
}

/* ---- memory ---- */

static void *room(const owned_row *row, int byte) {
    size_t bytes = row->count * rp_dtype_bytes(row->dtype);
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory) abort();
    memset(memory, byte, bytes ? bytes : 1);
    return memory;
}

static bool takes_feedback(const owned_row *row) {
    return rp_dtype_is_float(row->dtype) && row->dtype != RP_F64;
}

static void take_row(const owned_list *list, int i, int rank, int world, bool in_place,
                     bool feedback, owned_memory *out) {
    const owned_row *row = &list->rows[i];
    bool is_owner = row->owner % world == rank;
    out->data[i] = room(row, 0);
    owned_fill(list, i, rank, out->data[i]);
    if (is_owner && !in_place) out->own[i] = room(row, 0xee);
    if (feedback && takes_feedback(row)) {
        out->residuals[i] = calloc(row->count + 1, sizeof(float));
        if (!out->residuals[i]) abort();
    }
    out->segments[i] = (rp_owned_segment){.segment = {.data = row->count ? out->data[i] : NULL,
                                                      .count = row->count,
                                                      .dtype = row->dtype,
                                                      .codec = codec_of(row),
                                                      .residual = out->residuals[i],
                                                      .tensor = 100 + (uint32_t)i,
                                                      .first = row->first},
                                          .owner = row->owner % world,
                                          .own = row->count ? out->own[i] : NULL};
}

void owned_take(const owned_list *list, int rank, int world, bool in_place, bool feedback,
                owned_memory *out) {
    *out = (owned_memory){0};
    for (int i = 0; i < (int)list->count; i++)
        take_row(list, i, rank, world, in_place, feedback, out);
}

void owned_give(const owned_list *list, owned_memory *memory) {
    for (size_t i = 0; i < list->count; i++) {
        free(memory->data[i]);
        free(memory->own[i]);
        free(memory->residuals[i]);
    }
}

void owned_fill(const owned_list *list, int index, int rank, void *data) {
    const owned_row *row = &list->rows[index];
    uint64_t seed = check_seed() + (uint64_t)index;
    if (!takes_feedback(row)) {
        serial_fill(SERIAL_SMALL, row->dtype, seed, rank, data, row->count);
        return;
    }
    rpi_rng rng = rpi_rng_make(seed, RPI_RNG_TEST, (uint64_t)rank);
    float *values = calloc(row->count + 1, sizeof *values);
    if (!values) abort();
    for (size_t i = 0; i < row->count; i++) values[i] = rpi_rng_normal(&rng);
    rpi_values_convert(values, RP_F32, data, row->dtype, row->count);
    free(values);
}

/* ---- through a codec ---- */

typedef struct encoded {
    rp_encode_context context;
    unsigned char *bytes;
    size_t length;
} encoded;

static encoded encode(const owned_list *list, int index, int rank,
                      const rp_collective_options *options, const void *data, float *residual) {
    const owned_row *row = &list->rows[index];
    rp_codec codec = codec_of(row);
    encoded e = {.context = {.seed = options->seed,
                             .step = options->step,
                             .tensor = 100 + (uint32_t)index,
                             .role = 2 * (uint32_t)rank,
                             .first = row->first,
                             .residual = residual}};
    e.bytes = malloc(rp_codec_encoded_bytes(&codec, row->dtype, row->count) + 1);
    if (!e.bytes) abort();
    CHECK_OK(
        rp_codec_encode(&codec, row->dtype, data, row->count, &e.context, e.bytes, &e.length));
    return e;
}

static void add_decoded(const owned_list *list, int index, int rank,
                        const rp_collective_options *options, const void *data, float *sum) {
    const owned_row *row = &list->rows[index];
    rp_codec codec = codec_of(row);
    encoded e = encode(list, index, rank, options, data, NULL);
    CHECK_OK(rp_codec_decode_add(&codec, row->dtype, e.bytes, e.length, row->count, &e.context,
                                 sum));
    free(e.bytes);
}

static void add_own(const owned_row *row, const void *data, float *sum) {
    float *values = calloc(row->count + 1, sizeof *values);
    if (!values) abort();
    rpi_values_convert(data, row->dtype, values, RP_F32, row->count);
    for (size_t i = 0; i < row->count; i++) sum[i] += values[i];
    free(values);
}

static void reduce_lossy(const owned_list *list, int index, int world, rp_reduction reduction,
                         const rp_collective_options *options, void *const *inputs, void *out) {
    const owned_row *row = &list->rows[index];
    float *sum = calloc(row->count + 1, sizeof *sum);
    if (!sum) abort();
    for (int rank = 0; rank < world; rank++) {
        if (reduction == RP_PREMUL_SUM)
            rpi_values_scale(inputs[rank], row->dtype, serial_factor(rank), row->count,
                             inputs[rank]);
        if (rank == row->owner % world)
            add_own(row, inputs[rank], sum);
        else
            add_decoded(list, index, rank, options, inputs[rank], sum);
    }
    for (size_t i = 0; reduction == RP_AVG && i < row->count; i++) sum[i] /= (float)world;
    rpi_values_convert(sum, RP_F32, out, row->dtype, row->count);
    free(sum);
}

void owned_reduced(const owned_list *list, int index, int world, rp_reduction reduction,
                   const rp_collective_options *options, void *out) {
    const owned_row *row = &list->rows[index];
    void *inputs[OWNED_RANKS];
    for (int rank = 0; rank < world; rank++) {
        inputs[rank] = room(row, 0);
        owned_fill(list, index, rank, inputs[rank]);
    }
    if (is_exact(row))
        serial_reduce(reduction, row->dtype, inputs, world, row->count, out);
    else
        reduce_lossy(list, index, world, reduction, options, inputs, out);
    for (int rank = 0; rank < world; rank++) free(inputs[rank]);
}

void owned_gathered(const owned_list *list, int index, int world,
                    const rp_collective_options *options, void *out, float *residual) {
    const owned_row *row = &list->rows[index];
    int owner = row->owner % world;
    rp_codec codec = codec_of(row);
    void *data = room(row, 0);
    owned_fill(list, index, owner, data);
    encoded e = encode(list, index, owner, options, data, residual);
    CHECK_OK(
        rp_codec_decode(&codec, row->dtype, e.bytes, e.length, row->count, &e.context, out));
    free(e.bytes);
    free(data);
}
