/* The shape that the vector kernels of the quantiser share, written once for vectors of any
 * width. A file for an instruction set includes it after it has said what its vectors are:
 *
 *     LANES, floats, integers       elements a vector, and its types
 *     V(op)                         its intrinsics: _mm256_##op
 *     widen16(random)               LANES numbers of 16 bits as integers
 *     set1_64(number), xor3(a, b, c)
 *     packing, packing_of(bits), pack_block(how, level, out)
 *                                   how BLOCK levels become 4 * bits * LANES / 8 bytes; `reach`
 *                                   of a packing: how many bytes it writes
 *     block_order(), philox_store(words, out)
 *                                   which blocks of random bits a vector of them holds
 *
 *
 * and defines dequantise_run(), range() and moments() after it.
 *
 * Multiplications and additions are separate instructions (the build forbids the compiler to
 * contract them), and the division is a true one: it hides behind the memory. */
#ifndef RPI_CODEC_QUANT_VECTOR_H
#define RPI_CODEC_QUANT_VECTOR_H

#define INLINE static inline __attribute__((always_inline))
enum { BLOCK = 4 * LANES };

/* ---- encode -------------------------------------------------------------------------- */

typedef struct scaling {
    floats min, unit, most; /* the highest level, as a float */
    integers top;           /* and as an integer */
} scaling;

INLINE scaling scaling_of(rpi_quant_scale scale, int bits) {
    return (scaling){V(set1_ps)(scale.min), V(set1_ps)(scale.unit),
                     V(set1_ps)((float)((1 << bits) - 1)), V(set1_epi32)((1 << bits) - 1)};
}

INLINE floats fraction_of(const uint16_t *random) {
    floats number = V(cvtepi32_ps)(widen16(random));
    return V(add_ps)(V(mul_ps)(number, V(set1_ps)(0x1p-16f)), V(set1_ps)(0x1p-17f));
}

INLINE integers level_of(floats y, floats r, const scaling *scale) {
    floats quotient = V(div_ps)(V(sub_ps)(y, scale->min), scale->unit);
    floats level = V(max_ps)(V(add_ps)(quotient, r), V(set1_ps)(0));
    return V(cvttps_epi32)(V(min_ps)(level, scale->most));
}

INLINE floats value_of(integers level, const scaling *scale) {
    return V(add_ps)(scale->min, V(mul_ps)(scale->unit, V(cvtepi32_ps)(level)));
}

typedef struct piece {
    const float *x;
    float *residual;
    const uint16_t *random;
    uint8_t *out;
} piece;

/* Inlined with constant flags, so that each combination is a loop without branches. */
INLINE void quantise_block(piece at, int feedback, int stochastic, const scaling *scale,
                           const packing *how) {
    integers level[4];
    for (int v = 0; v < 4; v++) {
        floats y = V(loadu_ps)(at.x + LANES * v), r = V(set1_ps)(0.5f);
        if (feedback) y = V(add_ps)(y, V(loadu_ps)(at.residual + LANES * v));
        if (stochastic) r = fraction_of(at.random + LANES * v);
        level[v] = level_of(y, r, scale);
        if (feedback)
            V(storeu_ps)(at.residual + LANES * v, V(sub_ps)(y, value_of(level[v], scale)));
    }
    pack_block(how, level, at.out);
}

/* Up to BLOCK elements, filled up with the minimum, whose level is 0. */
INLINE void quantise_tail(piece at, size_t count, int feedback, int stochastic,
                          const scaling *scale, const packing *how) {
    float x[BLOCK], residual[BLOCK] = {0};
    uint16_t random[BLOCK] = {0};
    uint8_t out[BLOCK];
    for (int v = 0; v < 4; v++) V(storeu_ps)(x + LANES * v, scale->min);
    memcpy(x, at.x, count * sizeof *x);
    if (feedback) memcpy(residual, at.residual, count * sizeof *residual);
    if (stochastic) memcpy(random, at.random, count * sizeof *random);
    quantise_block((piece){x, residual, random, out}, feedback, stochastic, scale, how);
    if (feedback) memcpy(at.residual, residual, count * sizeof *residual);
    memcpy(at.out, out, rpi_packed_bytes(count, how->bits));
}

INLINE void quantise_run(const rpi_quant_run *run, const packing *how, int feedback,
                         int stochastic) {
    scaling scale = scaling_of(run->scale, run->bits);
    piece at = {run->x, run->residual, run->random, run->out};
    const uint8_t *end = run->out + rpi_packed_bytes(run->count, run->bits);
    for (size_t left = run->count, done; left > 0; left -= done) {
        done = left < BLOCK ? left : BLOCK;
        if (done == BLOCK && end - at.out >= how->reach)
            quantise_block(at, feedback, stochastic, &scale, how);
        else
            quantise_tail(at, done, feedback, stochastic, &scale, how);
        at.x += done;
        at.out += BLOCK / 8 * how->bits;
        if (feedback) at.residual += done;
        if (stochastic) at.random += done;
    }
}

static void quantise(const rpi_quant_run *run) {
    packing how = packing_of(run->bits);
    if (run->residual && run->random)
        quantise_run(run, &how, 1, 1);
    else if (run->residual)
        quantise_run(run, &how, 1, 0);
    else if (run->random)
        quantise_run(run, &how, 0, 1);
    else
        quantise_run(run, &how, 0, 0);
}

/* ---- buckets ------------------------------------------------------------------------- */

static void range(const float *x, const float *residual, size_t count, rpi_quant_range *range);

enum { LINE = 64, AHEAD = 8192 }; /* bytes */

/* Asks memory for what lies AHEAD of `count` elements: the processor's own guesses end at every
 * page. Behind the end there is nothing to read, which does no harm. */
INLINE void fetch_ahead(const float *x, size_t count) {
    const char *at = (const char *)x + AHEAD;
    for (size_t k = 0; k < count * sizeof *x; k += LINE) __builtin_prefetch(at + k);
}

INLINE rpi_quant_scale scale_of_bucket(const rpi_quant_buckets *all, size_t begin, int form) {
    rpi_quant_range found = rpi_quant_no_range();
    size_t count = all->count - begin < all->bucket ? all->count - begin : all->bucket;
    if (form & RPI_QUANT_FETCHES) fetch_ahead(all->x + begin, count);
    range(all->x + begin, all->residual ? all->residual + begin : NULL, count, &found);
    return rpi_quant_scale_of(&found, all->bits);
}

INLINE void quantise_flat(const rpi_quant_run *run) {
    memset(run->out, 0, rpi_packed_bytes(run->count, run->bits));
    if (run->residual) rpi_quant_settle(run->x, run->residual, run->count, run->scale.min);
}

/* Inlined with constant flags. RPI_QUANT_RANGES_FIRST: neither the range of the next bucket nor
 * the levels of this one wait for the other, and the processor does both at once. Where
 * residuals are written it would read, two buckets further on, the same place of a page, for
 * which processors wait. */
INLINE void quantise_all(const rpi_quant_buckets *all, int feedback, int form) {
    packing how = packing_of(all->bits);
    rpi_quant_run run = {
        .x = all->x, .residual = all->residual, .bits = all->bits, .out = all->out};
    const int ahead = form & RPI_QUANT_RANGES_FIRST;
    rpi_quant_scale next = {0, 0};
    if (ahead) next = scale_of_bucket(all, 0, form);
    for (size_t i = 0; i < all->count; i += run.count) {
        run.count = all->count - i < all->bucket ? all->count - i : all->bucket;
        run.scale = ahead ? next : scale_of_bucket(all, i, form);
        if (ahead && i + run.count < all->count)
            next = scale_of_bucket(all, i + run.count, form);
        memcpy(run.out, &run.scale, RPI_QUANT_HEAD);
        run.out += RPI_QUANT_HEAD;
        if (run.scale.unit > 0)
            quantise_run(&run, &how, feedback, 0);
        else /* all equal, or nearer than f32 tells apart in 2^bits steps, or damaged */
            quantise_flat(&run);
        run.out += rpi_packed_bytes(run.count, run.bits);
        run.x += run.count;
        if (feedback) run.residual += run.count;
    }
}

static void quantise_buckets(const rpi_quant_buckets *all) {
    enum { BOTH = RPI_QUANT_FETCHES | RPI_QUANT_RANGES_FIRST };
    if (all->residual)
        quantise_all(all, 1, 0);
    else if (all->form == BOTH)
        quantise_all(all, 0, BOTH);
    else if (all->form == RPI_QUANT_RANGES_FIRST)
        quantise_all(all, 0, RPI_QUANT_RANGES_FIRST);
    else if (all->form == RPI_QUANT_FETCHES)
        quantise_all(all, 0, RPI_QUANT_FETCHES);
    else
        quantise_all(all, 0, 0);
}

/* ---- decode -------------------------------------------------------------------------- */

/* base: NULL, or what is added to. */
static inline void dequantise_run(const uint8_t *in, int bits, rpi_quant_scale scale,
                                  size_t count, const float *base, float *y);

static void dequantise(const uint8_t *in, int bits, rpi_quant_scale scale, size_t count,
                       float *y) {
    dequantise_run(in, bits, scale, count, NULL, y);
}

static void dequantise_sum(const uint8_t *in, int bits, rpi_quant_scale scale, size_t count,
                           const float *base, float *sum) {
    dequantise_run(in, bits, scale, count, base, sum);
}

/* ---- random bits --------------------------------------------------------------------- */

enum { ROUNDS = 10, QWORDS = LANES / 2 };

/* A block a qword. Only the lower dword of each is kept exact: the multiplication ignores the
 * upper one, so a product serves as its own low word. */
INLINE void philox_round(integers word[4], integers key0, integers key1) {
    integers p0 = V(mul_epu32)(word[0], set1_64(0xD2511F53));
    integers p1 = V(mul_epu32)(word[2], set1_64(0xCD9E8D57));
    word[0] = xor3(V(srli_epi64)(p1, 32), word[1], key0);
    word[2] = xor3(V(srli_epi64)(p0, 32), word[3], key1);
    word[1] = p1;
    word[3] = p0;
}

static void random_bits(const rpi_quant_stream *stream, uint64_t block, size_t blocks,
                        uint16_t *out) {
    integers key0[ROUNDS], key1[ROUNDS];
    for (uint32_t round = 0; round < ROUNDS; round++) {
        key0[round] = set1_64((uint32_t)(stream->key[0] + round * 0x9E3779B9u));
        key1[round] = set1_64((uint32_t)(stream->key[1] + round * 0xBB67AE85u));
    }
    integers number = V(add_epi64)(set1_64((long long)block), block_order());
    for (size_t i = 0; i < blocks; i += QWORDS, out += 8 * QWORDS) {
        integers word[4] = {number, V(srli_epi64)(number, 32), set1_64(stream->name[0]),
                            set1_64(stream->name[1])};
        for (int round = 0; round < ROUNDS; round++)
            philox_round(word, key0[round], key1[round]);
        philox_store(word, out);
        number = V(add_epi64)(number, set1_64(QWORDS));
    }
}

#endif
