/* How much a lossy sum is wrong: the algorithms simulated on one process with the public
 * functions, against the reference's figures for i.i.d. Gaussian data. */
#include "codec_cases.h"

enum { COUNT = 1 << 17, RANKS_MAX = 16 };

typedef struct world {
    int ranks;
    float *x[RANKS_MAX]; /* COUNT elements a rank */
    double *sum;         /* the true one */
    float *result, *partial;
    uint8_t *wire;
} world;

static world make_world(int ranks) {
    world w = {.ranks = ranks};
    rpi_rng rng = rpi_rng_make(7, RPI_RNG_TEST, (uint64_t)ranks);
    w.sum = calloc(COUNT, sizeof *w.sum);
    w.result = codec_buffer(4 * COUNT);
    w.partial = codec_buffer(4 * COUNT);
    w.wire = codec_buffer(8 * COUNT + 8);
    if (!w.sum) abort();
    for (int r = 0; r < ranks; r++) {
        w.x[r] = codec_buffer(4 * COUNT);
        codec_fill(w.x[r], RP_F32, COUNT, INPUT_NORMAL, &rng);
        for (int i = 0; i < COUNT; i++) w.sum[i] += (double)w.x[r][i];
    }
    return w;
}

static void free_world(world *w) {
    for (int r = 0; r < w->ranks; r++) free(w->x[r]);
    free(w->sum), free(w->result), free(w->partial), free(w->wire);
}

/* One quantisation of `count` elements from x, decoded into or added to y. */
static void quantised(world *w, const rp_codec *codec, const float *x, size_t count, float *y,
                      int add) {
    size_t bytes = rp_codec_encoded_bytes(codec, RP_F32, count);
    CHECK_OK(rp_codec_encode(codec, RP_F32, x, count, NULL, w->wire, NULL));
    CHECK_OK(add ? rp_codec_decode_add(codec, RP_F32, w->wire, bytes, count, NULL, y)
                 : rp_codec_decode(codec, RP_F32, w->wire, bytes, count, NULL, y));
}

typedef void (*simulation)(world *w, const rp_codec *codec, int owner, size_t at, size_t count);

/* Everybody sends the owner its slice, encoded once; the owner's own enters as it is, the sum
 * is made in rank order and encoded once. */
static void sra_slice(world *w, const rp_codec *codec, int owner, size_t at, size_t count) {
    memset(w->partial, 0, 4 * count);
    for (int r = 0; r < w->ranks; r++)
        if (r != owner)
            quantised(w, codec, w->x[r] + at, count, w->partial, 1);
        else
            for (size_t i = 0; i < count; i++) w->partial[i] += w->x[r][at + i];
    quantised(w, codec, w->partial, count, w->result + at, 0);
}

/* The partial sum is quantised at every hop, and the whole one once more. */
static void ring_slice(world *w, const rp_codec *codec, int owner, size_t at, size_t count) {
    int rank = (owner + 1) % w->ranks;
    memcpy(w->partial, w->x[rank] + at, 4 * count);
    for (int hop = 1; hop < w->ranks; hop++) {
        rank = (rank + 1) % w->ranks;
        memcpy(w->result + at, w->x[rank] + at, 4 * count);
        quantised(w, codec, w->partial, count, w->result + at, 1);
        memcpy(w->partial, w->result + at, 4 * count);
    }
    quantised(w, codec, w->partial, count, w->result + at, 0);
}

static void all_gather_slice(world *w, const rp_codec *codec, int owner, size_t at,
                             size_t count) {
    (void)owner;
    memset(w->result + at, 0, 4 * count);
    for (int r = 0; r < w->ranks; r++)
        quantised(w, codec, w->x[r] + at, count, w->result + at, 1);
}

static double relative_error(world *w, const rp_codec *codec, simulation slice) {
    size_t buckets = (COUNT + codec->bucket - 1) / codec->bucket;
    for (int owner = 0; owner < w->ranks; owner++) {
        size_t from = buckets * (size_t)owner / (size_t)w->ranks * codec->bucket;
        size_t to = buckets * (size_t)(owner + 1) / (size_t)w->ranks * codec->bucket;
        if (to > COUNT) to = COUNT;
        if (from < to) slice(w, codec, owner, from, to - from);
    }
    double error = 0, norm = 0;
    for (int i = 0; i < COUNT; i++) {
        double difference = (double)w->result[i] - w->sum[i];
        error += difference * difference;
        norm += w->sum[i] * w->sum[i];
    }
    return sqrt(error / norm);
}

typedef struct figure {
    simulation slice;
    int ranks, bits;
    uint32_t bucket;
    double wanted;
} figure;

static void meet(const figure *figures, size_t count) {
    for (int ranks = 2; ranks <= RANKS_MAX; ranks *= 2) {
        world w = {0};
        for (size_t i = 0; i < count; i++) {
            const figure *f = &figures[i];
            if (f->ranks != ranks) continue;
            if (!w.ranks) w = make_world(ranks);
            rp_codec codec = rpi_codec_default(rpi_codec_by_wire_id(4), f->bits);
            codec.bucket = f->bucket;
            double error = relative_error(&w, &codec, f->slice);
            CHECK_MSG(fabs(error - f->wanted) <= 0.03 * f->wanted,
                      "figure %zu: %d bits, bucket %u, %d ranks: %.4g, reference %.4g", i,
                      f->bits, f->bucket, ranks, error, f->wanted);
        }
        if (w.ranks) free_world(&w);
    }
}

static void sra_meets_the_reference(void) {
    static const figure figures[] = {
        {sra_slice, 8, 2, 512, 0.875},   {sra_slice, 8, 3, 512, 0.350},
        {sra_slice, 8, 4, 512, 0.161},   {sra_slice, 8, 5, 512, 0.0779},
        {sra_slice, 8, 6, 512, 0.0383},  {sra_slice, 8, 7, 512, 0.0190},
        {sra_slice, 8, 8, 512, 0.00945}, {sra_slice, 2, 4, 512, 0.144},
        {sra_slice, 16, 4, 512, 0.164}};
    meet(figures, sizeof figures / sizeof figures[0]);
}

static void ring_meets_the_reference(void) {
    static const figure figures[] = {
        {ring_slice, 8, 2, 512, 1.59},   {ring_slice, 8, 3, 512, 0.577},
        {ring_slice, 8, 4, 512, 0.253},  {ring_slice, 8, 5, 512, 0.121},
        {ring_slice, 8, 6, 512, 0.0595}, {ring_slice, 8, 7, 512, 0.0294},
        {ring_slice, 8, 8, 512, 0.0147}, {ring_slice, 16, 4, 512, 0.356}};
    meet(figures, sizeof figures / sizeof figures[0]);
}

static void all_gather_meets_the_reference(void) {
    static const figure figures[] = {{all_gather_slice, 2, 4, 512, 0.117},
                                     {all_gather_slice, 8, 4, 512, 0.117}};
    meet(figures, sizeof figures / sizeof figures[0]);
}

static void bucket_sweep_meets_the_reference(void) {
    static const figure figures[] = {
        {sra_slice, 8, 4, 64, 0.123},   {sra_slice, 8, 4, 128, 0.137},
        {sra_slice, 8, 4, 256, 0.150},  {sra_slice, 8, 4, 1024, 0.172},
        {sra_slice, 8, 4, 2048, 0.183}, {sra_slice, 8, 4, 16384, 0.212}};
    meet(figures, sizeof figures / sizeof figures[0]);
}

static void one_bit_is_useless_alone(void) {
    static const figure figures[] = {{sra_slice, 2, 1, 512, 3.68},
                                     {sra_slice, 8, 1, 512, 7.14}};
    meet(figures, sizeof figures / sizeof figures[0]);
}

/* With error feedback what was decoded so far is what went in so far, up to the residual, which
 * never exceeds half a step of the last quantiser (all of it when rounding is stochastic). */
enum { TRACKED = 700, STEPS = 60 };

typedef struct track {
    float residual[TRACKED], y[TRACKED], fed[TRACKED];
    double in[TRACKED], out[TRACKED];
    char x[4 * TRACKED];
    uint8_t wire[16 * TRACKED];
} track;

static void track_step(track *t, const rp_codec *codec, rp_dtype dtype, uint64_t step,
                       rpi_rng *rng) {
    static const rp_codec exact = {0};
    size_t bytes = rp_codec_encoded_bytes(codec, RP_F32, TRACKED);
    codec_fill(t->x, dtype, TRACKED, INPUT_NORMAL, rng);
    memset(t->fed, 0, sizeof t->fed);
    REQUIRE_OK(rp_codec_decode_add(&exact, dtype, t->x, TRACKED * rp_dtype_bytes(dtype),
                                   TRACKED, NULL, t->fed));
    rp_encode_context context = {.seed = 3, .step = step, .residual = t->residual};
    REQUIRE_OK(rp_codec_encode(codec, dtype, t->x, TRACKED, &context, t->wire, NULL));
    REQUIRE_OK(rp_codec_decode(codec, RP_F32, t->wire, bytes, TRACKED, NULL, t->y));
    for (int i = 0; i < TRACKED; i++) {
        t->in[i] += (double)t->fed[i];
        t->out[i] += (double)t->y[i];
    }
}

static void sum_is_tracked(const rp_codec *codec, rp_dtype dtype, rpi_rng *rng) {
    static track t;
    memset(&t, 0, sizeof t);
    for (uint64_t step = 0; step < STEPS; step++) track_step(&t, codec, dtype, step, rng);
    size_t stride = rp_codec_encoded_bytes(codec, RP_F32, codec->bucket);
    for (int i = 0; i < TRACKED; i++) {
        float unit;
        memcpy(&unit, t.wire + (size_t)i / codec->bucket * stride + 4, 4);
        double share = codec->rounding == RP_STOCHASTIC ? 1.0001 : 0.50001;
        CHECK_NEAR(t.out[i], t.in[i], unit * share + 1e-3);
        CHECK_NEAR(t.in[i] - t.out[i], (double)t.residual[i], 1e-3);
        CHECK_MSG(unit < 500, "a step has grown to %g at %d bits", unit, codec->bits);
    }
}

/* One bit with stochastic rounding is refused: its residual would double every step. */
static void error_feedback_tracks_the_sum(void) {
    static const rp_dtype dtypes[] = {RP_F32, RP_F16, RP_BF16};
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 8);
    for (int bits = 1; bits <= 8; bits++)
        for (int d = 0; d < 3; d++)
            for (int rounding = 0; rounding <= (bits > 1); rounding++) {
                rp_codec codec = rpi_codec_default(rpi_codec_by_wire_id(4), bits);
                codec.bucket = 128;
                codec.rounding = (uint8_t)rounding;
                sum_is_tracked(&codec, dtypes[d], &rng);
            }
}

CASES({"sra_meets_the_reference", sra_meets_the_reference},
      {"ring_meets_the_reference", ring_meets_the_reference},
      {"all_gather_meets_the_reference", all_gather_meets_the_reference},
      {"bucket_sweep_meets_the_reference", bucket_sweep_meets_the_reference},
      {"one_bit_is_useless_alone", one_bit_is_useless_alone},
      {"error_feedback_tracks_the_sum", error_feedback_tracks_the_sum})
