#include "kernel_fixture.h"

#include "engine/backends/cpu/kernels/kernel_attention.h"

enum { BATCH = 3, KEYS = 400 };

static void forward(const rpi_kernel_run *run, const void *args) {
    rpi_kernel_attention_forward(run, (const rpi_kernel_attention *)args);
}

static void backward(const rpi_kernel_run *run, const void *args) {
    rpi_kernel_attention_backward(run, (const rpi_kernel_attention *)args);
}

typedef struct problem {
    rpi_kernel_attention args;
    int64_t q_count, k_count; /* elements of out, of dk */
    int32_t lengths[BATCH], starts[BATCH * KEYS];
} problem;

static rpi_kernel_heads heads(bool bf16, int64_t count, int64_t length, int64_t token,
                              int64_t head, uint64_t stream) {
    void *data =
        bf16 ? (void *)kernel_bf16s(count, 1, stream) : (void *)kernel_normal(count, 1, stream);
    return (rpi_kernel_heads){data, length * token, token, head, bf16 ? RP_BF16 : RP_F32};
}

static rpi_kernel_heads part(rpi_kernel_heads all, int64_t elements) {
    size_t size = all.dtype == RP_BF16 ? sizeof(uint16_t) : sizeof(float);
    all.data = (char *)all.data + (size_t)elements * size;
    return all;
}

/* q, k, v in one matrix, as one GEMM writes them, where the lengths allow it. */
static void place(problem *it, bool bf16) {
    rpi_kernel_attention *a = &it->args;
    int64_t d = a->head_size, q_token = a->heads * d, kv_token = a->kv_heads * d;
    it->q_count = a->batch * a->q_length * q_token;
    it->k_count = a->batch * a->k_length * kv_token;
    if (a->q_length == a->k_length) {
        int64_t token = q_token + 2 * kv_token;
        a->q = heads(bf16, a->batch * a->q_length * token, a->q_length, token, d, 1);
        a->k = part(a->q, q_token);
        a->v = part(a->k, kv_token);
    } else {
        a->q = heads(bf16, it->q_count, a->q_length, q_token, d, 1);
        a->k = heads(bf16, it->k_count, a->k_length, kv_token, d, 2);
        a->v = heads(bf16, it->k_count, a->k_length, kv_token, d, 3);
    }
    a->out = heads(bf16, it->q_count, a->q_length, q_token, d, 4);
    a->dout = heads(bf16, it->q_count, a->q_length, q_token, d, 5);
    a->dq = heads(bf16, it->q_count, a->q_length, q_token, d, 6);
    a->dk = heads(bf16, it->k_count, a->k_length, kv_token, d, 7);
    a->dv = heads(bf16, it->k_count, a->k_length, kv_token, d, 8);
    a->lse = kernel_floats(a->batch * a->heads * a->q_length);
    a->scratch = kernel_floats(rpi_kernel_attention_scratch(a));
}

static void draw_documents(problem *it, rpi_rng *rng) {
    for (int64_t b = 0; b < it->args.batch; b++) {
        int32_t start = 0;
        for (int32_t j = 0; j < it->args.k_length; j++) {
            if (rpi_rng_below(rng, 30) == 0) start = j;
            it->starts[b * it->args.k_length + j] = start;
        }
    }
    it->args.document_starts = it->starts;
}

static rpi_dropout_mask some_mask(rpi_rng *rng) {
    static const double probabilities[] = {0.1, 0.5, 0.003, 1};
    return (rpi_dropout_mask){.probability = probabilities[rpi_rng_below(rng, 4)],
                              .seed = (uint64_t)rpi_rng_u32(rng) << 32 | rpi_rng_u32(rng),
                              .step = rpi_rng_u32(rng),
                              .tensor = rpi_rng_u32(rng)};
}

static void draw(problem *it, rpi_rng *rng, int index) {
    static const int64_t sizes[] = {64, 16, 41, 80, 128, 7, 256, 96};
    int64_t kv_heads = 1 + (int64_t)rpi_rng_below(rng, 2), group = index % 3 == 1 ? 3 : 1;
    *it = (problem){.args = {.batch = 1 + (int64_t)rpi_rng_below(rng, BATCH),
                             .heads = kv_heads * group,
                             .kv_heads = kv_heads,
                             .q_length = kernel_size(rng, index == 0 ? 300 : 90),
                             .head_size = sizes[index % 8],
                             .causal = rpi_rng_below(rng, 2)}};
    rpi_kernel_attention *a = &it->args;
    a->scale = 1 / sqrtf((float)a->head_size);
    a->k_length = a->q_length;
    if (index % 4 == 3) { /* after cached keys */
        a->q_offset = kernel_size(rng, 100);
        a->k_length += a->q_offset;
    }
    if (rpi_rng_below(rng, 3) == 0) a->window = kernel_size(rng, 100);
    if (rpi_rng_below(rng, 3) == 0) draw_documents(it, rng);
    if (rpi_rng_below(rng, 3) == 0) {
        for (int64_t b = 0; b < a->batch; b++)
            it->lengths[b] = (int32_t)rpi_rng_below(rng, (uint32_t)a->k_length + 1);
        a->lengths = it->lengths;
    }
    if (index % 2) a->dropout = some_mask(rng);
    place(it, index % 5 == 4);
}

static kernel_output output(const char *name, rpi_kernel_heads m, int64_t count) {
    bool bf16 = m.dtype == RP_BF16;
    return (kernel_output){
        name, m.data, count, m.dtype, bf16 ? 0x1p-7 : 1e-5, bf16 ? 2e-3 : 2e-5};
}

static void check(problem *it, const char *name) {
    const rpi_kernel_attention *a = &it->args;
    kernel_output lse = {"lse", a->lse, a->batch * a->heads * a->q_length, RP_F32, 1e-6, 1e-5};
    kernel_check(&(kernel_case){name, forward, a, {output("out", a->out, it->q_count), lse}});
    kernel_check(
        &(kernel_case){name,
                       backward,
                       a,
                       {output("dq", a->dq, it->q_count), output("dk", a->dk, it->k_count),
                        output("dv", a->dv, it->k_count)}});
}

static void masks_and_shapes_match(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    static problem it;
    for (int i = 0; i < 24; i++) {
        char name[160];
        draw(&it, &rng, i);
        const rpi_kernel_attention *a = &it.args;
        (void)snprintf(
            name, sizeof name,
            "attention %d: batch %d, heads %d of %d, %d queries, %d keys, size %d%s, "
            "window %d%s%s, dropout %g",
            i, (int)a->batch, (int)a->heads, (int)a->kv_heads, (int)a->q_length,
            (int)a->k_length, (int)a->head_size, a->causal ? ", causal" : "", (int)a->window,
            a->lengths ? ", lengths" : "", a->document_starts ? ", documents" : "",
            a->dropout.probability);
        check(&it, name);
        kernel_buffers_free();
    }
}

/* The answer for a token alone, after its cached keys, has the bits of the answer in its row.
 */
static void cached_keys_give_the_same_bits(void) {
    enum { LENGTH = 150, SIZE = 64 };
    rpi_kernel_run run = {.threads = 1, .isa = rpi_cpu_isa()};
    static problem all;
    all = (problem){.args = {.batch = 1,
                             .heads = 2,
                             .kv_heads = 1,
                             .q_length = LENGTH,
                             .k_length = LENGTH,
                             .head_size = SIZE,
                             .scale = 0.125f,
                             .causal = true}};
    place(&all, false);
    rpi_kernel_attention_forward(&run, &all.args);
    const float *wanted = all.args.out.data;
    for (int64_t t = 0; t < LENGTH; t += 7) {
        float out[2 * SIZE];
        rpi_kernel_attention one = all.args;
        one.q = part(one.q, t * one.q.token);
        one.q_length = 1;
        one.q_offset = t;
        one.k_length = t + 1;
        one.lse = NULL;
        one.out.data = out;
        rpi_kernel_attention_forward(&run, &one);
        for (int c = 0; c < 2 * SIZE; c++)
            CHECK_MSG(out[c] == wanted[t * 2 * SIZE + c],
                      "token %d, element %d: %.9g, not %.9g", (int)t, c, out[c],
                      wanted[t * 2 * SIZE + c]);
    }
    kernel_buffers_free();
}

/* Large scores neither overflow nor lose the sum. */
static void large_scores(void) {
    static problem it;
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 3);
    draw(&it, &rng, 0);
    it.args.scale = 30;
    it.args.window = 0;
    kernel_output out = output("out", it.args.out, it.q_count);
    out.relative = 1e-3,
    out.absolute = 1e-2; /* scores of hundreds have errors of 1e-5 and more */
    kernel_check(&(kernel_case){"large scores", forward, &it.args, {out}});
    kernel_buffers_free();
}

/* NaN and infinity reach who sees them and nobody else. */
static void nonfinite_values_pass(void) {
    enum { LENGTH = 130, SIZE = 16, TOKEN = 3 * SIZE };
    static problem it;
    for (int where = 0; where < 3; where++) {
        it = (problem){.args = {.batch = 1,
                                .heads = 1,
                                .kv_heads = 1,
                                .q_length = LENGTH,
                                .k_length = LENGTH,
                                .head_size = SIZE,
                                .scale = 0.25f,
                                .causal = true}};
        place(&it, false);
        float *qkv = it.args.q.data, *out = it.args.out.data;
        qkv[70 * TOKEN + where * SIZE + 3] = where == 1 ? INFINITY : NAN;
        kernel_output close = output("out", it.args.out, it.q_count);
        close.absolute = 1e-4;
        kernel_check(&(kernel_case){"nonfinite", forward, &it.args, {close}});
        for (int t = 0; t < 70; t++)
            CHECK(isfinite(out[t * SIZE]) && isfinite(out[t * SIZE + 3]));
        /* a score of -infinity is one of no weight */
        CHECK(where == 1 || isnan(out[70 * SIZE + 3]));
        kernel_buffers_free();
    }
}

/* Equal scores and one-hot values: the output is the mask, where kernel_attention.h says that
 * its elements lie. */
static void masks_lie_where_documented(void) {
    enum { B = 2, HEADS = 3, QUERIES = 7, K = 130, SIZE = 144, BLOCKS = 3, PAIRS = 4 };
    enum { ELEMENTS = B * HEADS * PAIRS * BLOCKS * 128 };
    static problem it;
    it = (problem){.args = {.batch = B,
                            .heads = HEADS,
                            .kv_heads = HEADS,
                            .q_length = QUERIES,
                            .k_length = K,
                            .head_size = SIZE,
                            .scale = 1,
                            .dropout = {0.4, 0x123456789a, 3, 77}}};
    rpi_kernel_attention *a = &it.args;
    place(&it, false);
    memset(a->q.data, 0, (size_t)it.q_count * sizeof(float));
    memset(a->v.data, 0, (size_t)it.k_count * sizeof(float));
    for (int64_t b = 0; b < B; b++)
        for (int64_t j = 0; j < K; j++)
            for (int64_t h = 0; h < HEADS; h++)
                ((float *)a->v.data)[((b * K + j) * HEADS + h) * SIZE + j] = 1;
    float *ones = kernel_floats(ELEMENTS), *mask = kernel_floats(ELEMENTS);
    for (int64_t e = 0; e < ELEMENTS; e++) ones[e] = 1;
    rpi_kernel_run run = {2, rpi_cpu_isa()};
    rpi_kernel_dropout_apply(&run, &(rpi_kernel_dropout){.mask = a->dropout,
                                                         .count = ELEMENTS,
                                                         .x = rpi_kernel_f32(ones, ELEMENTS),
                                                         .y = rpi_kernel_f32(mask, ELEMENTS)});
    forward(&run, a);
    for (int64_t b = 0; b < B; b++)
        for (int64_t i = 0; i < QUERIES; i++)
            for (int64_t h = 0; h < HEADS; h++)
                for (int64_t j = 0; j < K; j++) {
                    int64_t group = ((b * HEADS + h) * PAIRS + i / 2) * BLOCKS + j / 64;
                    float m = mask[group * 128 + 64 * (i % 2) + j % 64];
                    float *out = a->out.data;
                    CHECK_NEAR(out[((b * QUERIES + i) * HEADS + h) * SIZE + j], m / K, 1e-6);
                }
    kernel_buffers_free();
}

/* ---- distances of Transformer-XL ---- */

typedef struct relative_problem {
    problem p;
    rpi_kernel_relative relative;
} relative_problem;

static void draw_relative(relative_problem *it, int64_t batch, int64_t heads, int64_t queries,
                          int64_t memory, int64_t size) {
    *it = (relative_problem){.p.args = {.batch = batch,
                                        .heads = heads,
                                        .kv_heads = heads,
                                        .q_length = queries,
                                        .k_length = queries + memory,
                                        .q_offset = memory,
                                        .head_size = size,
                                        .scale = 1 / sqrtf((float)size),
                                        .causal = true}};
    rpi_kernel_attention *a = &it->p.args;
    int64_t width = heads * size, rows = a->k_length * width;
    it->relative =
        (rpi_kernel_relative){.r = kernel_normal(rows, 1, 20),
                              .u = kernel_normal(width, 1, 21),
                              .v = kernel_normal(width, 1, 22),
                              .dr = kernel_floats(rows),
                              .du = kernel_floats(width),
                              .dv = kernel_floats(width),
                              .packed = kernel_floats(rpi_kernel_attention_packed(a))};
    a->relative = &it->relative;
    place(&it->p, false);
}

static void check_relative(relative_problem *it, const char *name) {
    const rpi_kernel_attention *a = &it->p.args;
    int64_t width = a->heads * a->head_size;
    kernel_output dr = {"dr", it->relative.dr, a->k_length * width, RP_F32, 1e-5, 5e-5};
    kernel_output du = {"du", it->relative.du, width, RP_F32, 1e-5, 2e-4};
    kernel_output dv = {"dv", it->relative.dv, width, RP_F32, 1e-5, 2e-4};
    check(&it->p, name);
    kernel_check(&(kernel_case){name, backward, a, {dr, du, dv}});
}

static void distances_match(void) {
    static const int64_t sizes[] = {64, 41, 16, 7, 128, 256};
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 4);
    static relative_problem it;
    for (int i = 0; i < 12; i++) {
        char name[160];
        int64_t batch = 1 + (int64_t)rpi_rng_below(&rng, BATCH);
        int64_t heads = 1 + (int64_t)rpi_rng_below(&rng, 3);
        int64_t queries = kernel_size(&rng, i == 0 ? 200 : 80);
        int64_t memory = i % 4 == 1 ? 0 : kernel_size(&rng, 130);
        draw_relative(&it, batch, heads, queries, memory, sizes[i % 6]);
        if (i % 3 == 2)
            it.p.args.first_key = (int64_t)rpi_rng_below(&rng, (uint32_t)memory + 1);
        if (i % 5 == 3) it.p.args.window = kernel_size(&rng, 70);
        if (i % 2) it.p.args.dropout = some_mask(&rng);
        (void)snprintf(
            name, sizeof name,
            "distances %d: batch %d, heads %d, %d queries behind %d keys from %d on, "
            "size %d, window %d, dropout %g",
            i, (int)batch, (int)heads, (int)queries, (int)memory, (int)it.p.args.first_key,
            (int)sizes[i % 6], (int)it.p.args.window, it.p.args.dropout.probability);
        check_relative(&it, name);
        kernel_buffers_free();
    }
}

/* Each gradient against differences of the definition. */
static void gradients_of_distances_are_differences(void) {
    enum { QUERIES = 5, MEMORY = 4, SIZE = 3, HEADS = 2, WIDTH = HEADS * SIZE };
    const rpi_kernel_run run = {.threads = 1, .isa = RPI_ISA_SCALAR};
    static relative_problem it;
    draw_relative(&it, 2, HEADS, QUERIES, MEMORY, SIZE);
    it.p.args.first_key = 2;
    it.p.args.dropout = (rpi_dropout_mask){0.3, 11, 2, 5};
    const rpi_kernel_attention *a = &it.p.args;
    forward(&run, a);
    backward(&run, a);
    const struct {
        const char *name;
        const void *values, *gradient;
        int64_t count;
    } all[] = {{"q", a->q.data, a->dq.data, it.p.q_count},
               {"k", a->k.data, a->dk.data, it.p.k_count},
               {"v", a->v.data, a->dv.data, it.p.k_count},
               {"r", it.relative.r, it.relative.dr, (QUERIES + MEMORY) * WIDTH},
               {"u bias", it.relative.u, it.relative.du, WIDTH},
               {"v bias", it.relative.v, it.relative.dv, WIDTH}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        kernel_check_gradient(
            &(kernel_gradient){all[i].name, forward, a, (float *)(uintptr_t)all[i].values,
                               (float *)(uintptr_t)all[i].gradient, all[i].count, a->out.data,
                               a->dout.data, it.p.q_count, 1e-2, 3e-3});
    kernel_buffers_free();
}

static void gradients_are_differences(void) {
    enum { LENGTH = 9, SIZE = 5, HEADS = 2, TOKEN = HEADS * SIZE + 2 * SIZE };
    const rpi_kernel_run run = {.threads = 1, .isa = RPI_ISA_SCALAR};
    static problem it;
    it = (problem){.args = {.batch = 1,
                            .heads = HEADS,
                            .kv_heads = 1,
                            .q_length = LENGTH,
                            .k_length = LENGTH,
                            .head_size = SIZE,
                            .scale = 0.4f,
                            .window = 6,
                            .dropout = {0.3, 11, 2, 5},
                            .causal = true}};
    place(&it, false);
    const rpi_kernel_attention *a = &it.args;
    forward(&run, a);
    backward(&run, a);
    float *all = kernel_floats(LENGTH * TOKEN); /* the gradients, placed as q, k, v are */
    for (int t = 0; t < LENGTH; t++)
        for (int c = 0; c < TOKEN; c++) {
            const float *dq = a->dq.data, *dk = a->dk.data, *dv = a->dv.data;
            int k = c - HEADS * SIZE;
            all[t * TOKEN + c] = k < 0      ? dq[t * HEADS * SIZE + c]
                                 : k < SIZE ? dk[t * SIZE + k]
                                            : dv[t * SIZE + k - SIZE];
        }
    kernel_check_gradient(&(kernel_gradient){"q, k, v", forward, a, a->q.data, all,
                                             LENGTH * TOKEN, a->out.data, a->dout.data,
                                             it.q_count, 1e-2, 3e-3});
    kernel_buffers_free();
}

CASES({"masks_and_shapes_match", masks_and_shapes_match},
      {"cached_keys_give_the_same_bits", cached_keys_give_the_same_bits},
      {"large_scores", large_scores}, {"nonfinite_values_pass", nonfinite_values_pass},
      {"masks_lie_where_documented", masks_lie_where_documented},
      {"distances_match", distances_match},
      {"gradients_of_distances_are_differences", gradients_of_distances_are_differences},
      {"gradients_are_differences", gradients_are_differences})
