/* Parameters and operations of transformers, beside what is published. */
#include "plan/foresight/transformer.h"

#include "harness/check.h"

#include <stddef.h>

static rpi_transformer gpt(int64_t hidden, int64_t heads, int64_t layers, int64_t vocabulary) {
    return (rpi_transformer){.layers = layers,
                             .hidden = hidden,
                             .heads = heads,
                             .kv_heads = heads,
                             .head = hidden / heads,
                             .ffn = 4 * hidden,
                             .vocabulary = vocabulary,
                             .positions = 1024,
                             .tied = true,
                             .biases = true};
}

static const rpi_transformer llama_7b = {.layers = 32,
                                         .hidden = 4096,
                                         .heads = 32,
                                         .kv_heads = 32,
                                         .head = 128,
                                         .ffn = 11008,
                                         .vocabulary = 32000,
                                         .gated = true};

static void parameters_as_published(void) {
    rpi_transformer small = gpt(768, 12, 12, 50257), llama_70b = llama_7b;
    CHECK_NEAR(rpi_transformer_count(&small).all, 124439808, .5);
    CHECK_NEAR(rpi_transformer_count(&llama_7b).all, 6738415616., .5);
    llama_70b.layers = 80;
    llama_70b.hidden = 8192;
    llama_70b.heads = 64;
    llama_70b.kv_heads = 8;
    llama_70b.ffn = 28672;
    CHECK_NEAR(rpi_transformer_count(&llama_70b).all, 68976648192., .5);
}

/* A token, with attention in full: 854.4 MFLOP of GPT-2 at 1,024, 46.08 GFLOP of LLaMA-2 7B at
 * 4,096. */
static void operations_as_published(void) {
    rpi_transformer small = gpt(768, 12, 12, 50257);
    CHECK_NEAR(rpi_transformer_step_flops(&small, 1, 1024, RPI_RECOMPUTE_NONE).model * 1e-6,
               854.4, .05);
    CHECK_NEAR(rpi_transformer_step_flops(&llama_7b, 1, 4096, RPI_RECOMPUTE_NONE).model * 1e-9,
               46.08, .005);
}

/* ---- the table: add a row. Seconds of a step from a rate (arXiv 2104.04473, table 1, full
 * recomputation, attention and all in the rate) ---- */

static const struct {
    int64_t heads, hidden, layers, ranks, batch;
    double tflops, seconds;
} steps[] = {
    {24, 2304, 24, 32, 512, 137, 3.528},        {32, 4096, 36, 128, 512, 142, 3.696},
    {64, 8192, 48, 512, 1536, 138, 14.453},     {96, 12288, 80, 1536, 2304, 148, 24.817},
    {128, 20480, 105, 2520, 2520, 163, 54.085},
};

static void seconds_from_a_rate(void) {
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        rpi_transformer m = gpt(steps[i].hidden, steps[i].heads, steps[i].layers, 51200);
        double tokens = 2048. * (double)steps[i].batch;
        double flops =
            rpi_transformer_step_flops(&m, tokens, 2048, RPI_RECOMPUTE_FULL).hardware;
        CHECK_NEAR(flops / (steps[i].tflops * 1e12 * (double)steps[i].ranks), steps[i].seconds,
                   .0006);
    }
}

/* Arithmetic of 2205.05198: table 5's rates from its times (A100, 312 TFLOP/s), in percent as
 * printed there and, of the first, as it is; and what selective recomputation adds. */
static void shares_of_the_peak(void) {
    rpi_transformer m = gpt(6144, 64, 48, 51200), large = gpt(20480, 128, 105, 51200);
    rpi_transformer gpt3 = gpt(12288, 96, 96, 51200);
    rpi_step_flops f = rpi_transformer_step_flops(&m, 4 * 2048, 2048, RPI_RECOMPUTE_SELECTIVE);
    CHECK_NEAR(f.model / (8 * 312e12 * 1.10), .417, .0005);
    f = rpi_transformer_step_flops(&large, 280 * 2048, 2048, RPI_RECOMPUTE_SELECTIVE);
    CHECK_NEAR(f.model / (280 * 312e12 * 37.83), .560, .0005);
    CHECK_NEAR(f.hardware / (280 * 312e12 * 37.83), .570, .0005);
    CHECK_NEAR(f.hardware / f.model - 1, .016, .0005);
    f = rpi_transformer_step_flops(&gpt3, 2048, 2048, RPI_RECOMPUTE_SELECTIVE);
    CHECK_NEAR(f.hardware / f.model - 1, .027, .0005);
}

static void words_are_read(void) {
    rpi_recompute r = RPI_RECOMPUTE_NONE;
    CHECK_OK(rpi_recompute_parse("selective", &r));
    CHECK(r == RPI_RECOMPUTE_SELECTIVE);
    CHECK_FAILS(rpi_recompute_parse("selektive", &r), INVALID, "did you mean 'selective'");
}

static void impossible_shapes_are_refused(void) {
    rpi_transformer m = llama_7b;
    m.kv_heads = 5;
    CHECK_FAILS(rpi_transformer_check(&m), INVALID, "kv-heads=5 is no divisor of heads=32");
    m = llama_7b;
    m.ffn = 0;
    CHECK_FAILS(rpi_transformer_check(&m), INVALID, "intermediate=0");
    m.ffn = INT64_MAX;
    CHECK_FAILS(rpi_transformer_check(&m), INVALID, "intermediate=");
    CHECK_OK(rpi_transformer_check(&llama_7b));
}

CASES({"parameters as published", parameters_as_published},
      {"operations as published", operations_as_published},
      {"seconds from a rate", seconds_from_a_rate}, {"shares of the peak", shares_of_the_peak},
      {"words are read", words_are_read},
      {"impossible shapes are refused", impossible_shapes_are_refused})
