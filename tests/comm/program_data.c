/* What the ranks of a step give, and what they must get: known without asking anybody.
 *
 * Reductions are of two families. Short ones of any dtype are compared with the serial
 * reduction, of numbers for which every order gives the same. Sums of f32, of any length and
 * through any codec, are of values on the grid that the codec keeps: bucket by bucket a_r *
 * level, with the levels equal on all ranks and both ends of the range in each bucket. Sums and
 * means of these are on such a grid too, so that nothing may be lost, whatever the algorithm.
 */
#include "comm/random_program.h"
#include "comm/serial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GRID_FROM = 3001 };

static bool is_block_kind(int kind) {
    return kind == STEP_REDUCE_SCATTER_V || kind == STEP_ALL_GATHER_V || kind == STEP_GATHER ||
           kind == STEP_SCATTER || kind == STEP_ALL_TO_ALL;
}

static bool has_owners(int kind) {
    return kind == STEP_REDUCE_SCATTER_SEGMENTS || kind == STEP_ALL_GATHER_SEGMENTS;
}

int step_owner(const program *p, const program_step *step, int b) {
    return (int)program_choice(step, b, 42, (uint32_t)p->world);
}

/* Lengths of blocks: of those that depend on two ranks `b` is the receiver, else the owner. */
int64_t step_count(const program *p, const program_step *step, int rank, int b) {
    bool owned = has_owners(step->kind);
    if (owned && program_choice(step, b, 41, 4) == 0) return b % 2; /* short ones, and empty */
    if (owned || step->kind == STEP_ALL_REDUCE) {
        int64_t each = step->count / step->parts;
        return b == step->parts - 1 ? step->count - each * b : each;
    }
    if (!is_block_kind(step->kind)) return step->count;
    int pair = step->kind == STEP_ALL_TO_ALL ? rank * p->world + b : b;
    switch (program_choice(step, pair, 5, 5)) {
    case 0: return 0;
    case 1: return step->count / 3;
    case 2: return step->count ? 1 : 0;
    default: return step->count;
    }
}

rp_codec step_codec(const program_step *step) {
    rp_codec codec = {0};
    (void)rp_codec_parse(step->codec, &codec);
    return codec;
}

/* ---- reductions ---- */

static bool on_grid(const program_step *step) {
    if (step->kind == STEP_NEIGHBORS || step->kind == STEP_ALL_GATHER_SEGMENTS) return true;
    return step->dtype == RP_F32 && (step->reduce == RP_SUM || step->reduce == RP_AVG) &&
           (strcmp(step->codec, "fp32") != 0 || step->count >= GRID_FROM || step->data % 2);
}

static uint32_t level_at(const program_step *step, const rp_codec *codec, int b, int64_t i) {
    uint32_t top = (1u << (codec->bits ? codec->bits : 3)) - 1;
    uint32_t bucket = codec->bucket ? codec->bucket : 64, at = (uint32_t)(i % bucket);
    if (at < 2) return at ? top : 0;
    uint32_t mixed = (uint32_t)i * 2654435761u + step->data + (uint32_t)b * 97u;
    return (mixed >> 13) % (top + 1);
}

/* Means are of equal contributions, so that they are whole numbers of the grid. */
static uint32_t scale_of(const program_step *step, int rank) {
    return step->reduce == RP_AVG ? 2 : 1 + program_choice(step, rank, 9, 3);
}

static uint64_t table_seed(const program_step *step, int b) {
    return step->data + (uint64_t)b * 1000003u;
}

void step_fill(const program *p, const program_step *step, int rank, int b, void *data) {
    int64_t count = step_count(p, step, rank, b);
    if (!on_grid(step)) {
        serial_fill(SERIAL_SMALL, (rp_dtype)step->dtype, table_seed(step, b), rank, data,
                    (size_t)count);
        return;
    }
    rp_codec codec = step_codec(step);
    float *values = data;
    uint32_t scale = scale_of(step, rank);
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)(scale * level_at(step, &codec, b, i));
}

static const char *check_grid(const program *p, const program_step *step, int b,
                              const float *got, char *words) {
    rp_codec codec = step_codec(step);
    int64_t count = step_count(p, step, 0, b);
    uint32_t scale = 0;
    for (int rank = 0; rank < p->world; rank++) scale += scale_of(step, rank);
    if (step->reduce == RP_AVG) scale /= (uint32_t)p->world;
    for (int64_t i = 0; i < count; i++) {
        float want = (float)(scale * level_at(step, &codec, b, i));
        if (got[i] == want) continue;
        snprintf(words, 200, "element %lld of block %d is %g, not %g", (long long)i, b,
                 (double)got[i], (double)want);
        return words;
    }
    return NULL;
}

const char *step_check(const program *p, const program_step *step, int b, const void *data,
                       char *words) {
    if (on_grid(step)) return check_grid(p, step, b, data, words);
    rp_dtype dtype = (rp_dtype)step->dtype;
    size_t count = (size_t)step_count(p, step, 0, b), bytes = rp_dtype_bytes(dtype);
    void *inputs[PROGRAM_RANKS], *want = malloc(count * bytes + 1);
    for (int rank = 0; rank < p->world; rank++) {
        inputs[rank] = malloc(count * bytes + 1);
        step_fill(p, step, rank, b, inputs[rank]);
    }
    serial_reduce((rp_reduction)step->reduce, dtype, inputs, p->world, count, want);
    size_t at = serial_differs(dtype, want, data, count);
    for (int rank = 0; rank < p->world; rank++) free(inputs[rank]);
    free(want);
    if (at == count) return NULL;
    snprintf(words, 200, "element %zu of block %d is not that of the serial answer", at, b);
    return words;
}

const char *step_check_given(const program *p, const program_step *step, int rank, int b,
                             const void *data, char *words) {
    size_t count = (size_t)step_count(p, step, rank, b),
           each = rp_dtype_bytes((rp_dtype)step->dtype);
    void *want = malloc(count * each + 1);
    step_fill(p, step, rank, b, want);
    size_t at = serial_differs((rp_dtype)step->dtype, want, data, count);
    free(want);
    if (at == count) return NULL;
    snprintf(words, 200, "element %zu of segment %d is not what rank %d gave", at, b, rank);
    return words;
}

/* ---- neighbours ---- */

/* A third of all pairs; powers of two, which change no digit of the grid. */
double step_neighbor(const program *p, const program_step *step, int from, int to,
                     double *out_share) {
    static const double weights[] = {0.5, 1, 2};
    int pair = from * p->world + to;
    *out_share = weights[program_choice(step, pair, 21, 3)];
    if (from != to && program_choice(step, pair, 22, 3) != 0) return 0;
    return weights[program_choice(step, pair, 23, 3)];
}

const char *step_check_neighbors(const program *p, const program_step *step, int rank,
                                 const void *data, char *words) {
    rp_codec codec = step_codec(step);
    const float *got = data;
    double scale = 0, edge_weight = 1;
    for (int from = 0; from < p->world; from++) {
        double weight = step_neighbor(p, step, from, rank, &edge_weight);
        scale += weight * (from == rank ? 1 : edge_weight) * scale_of(step, from);
    }
    for (int64_t i = 0; i < step->count; i++) {
        float want = (float)(scale * level_at(step, &codec, 0, i));
        if (got[i] == want) continue;
        snprintf(words, 200, "element %lld is %g, not %g", (long long)i, (double)got[i],
                 (double)want);
        return words;
    }
    return NULL;
}

/* ---- what is moved ---- */

static unsigned char byte_at(const program_step *step, int from, int to, int64_t i) {
    uint64_t mixed = (uint64_t)i * 0x9e3779b97f4a7c15u + step->data;
    return (unsigned char)((mixed >> 32) + (uint64_t)(31 * from + 7 * to));
}

void step_fill_moved(const program_step *step, int from, int to, int64_t count, void *data) {
    unsigned char *bytes = data;
    int64_t length = count * (int64_t)rp_dtype_bytes((rp_dtype)step->dtype);
    for (int64_t i = 0; i < length; i++) bytes[i] = byte_at(step, from, to, i);
}

const char *step_check_moved(const program_step *step, int from, int to, int64_t count,
                             const void *data, char *words) {
    const unsigned char *bytes = data;
    int64_t length = count * (int64_t)rp_dtype_bytes((rp_dtype)step->dtype);
    for (int64_t i = 0; i < length; i++) {
        if (bytes[i] == byte_at(step, from, to, i)) continue;
        snprintf(words, 200, "byte %lld of what rank %d had for rank %d is %d, not %d",
                 (long long)i, from, to, bytes[i], byte_at(step, from, to, i));
        return words;
    }
    return NULL;
}
