/* Memory of a rank, beside what is published. */
#include "plan/foresight/rank_memory.h"

#include "harness/check.h"

#include <stddef.h>

#define GIB 1073741824.

/* A GPT as the papers count it: heads share the width, masks of dropout, vocabulary 51,200. */
static rpi_training_layout gpt(int64_t hidden, int64_t heads, int64_t layers) {
    rpi_training_layout l = {
        .model = {.layers = layers,
                  .hidden = hidden,
                  .heads = heads,
                  .kv_heads = heads,
                  .head = hidden / heads,
                  .ffn = 4 * hidden,
                  .vocabulary = 51200,
                  .positions = 2048,
                  .tied = true,
                  .biases = true,
                  .dropout = true,
                  .attention_dropout = true},
        .sequence = 2048,
        .micro_batch = 1,
        .global_batch = 1,
        .tensor = 1,
        .pipeline = 1,
        .context = 1,
        .data = 1,
        .interleave = 1,
    };
    CHECK_OK(rpi_precision_find("bf16-fp32", &l.precision));
    return l;
}

/* ---- the table: add a row. GiB of stage 0 (arXiv 2205.05198, figure 1; exact): activations
 * under tensor parallelism of 8 alone, and with sequence parallelism and selective
 * recomputation; and 18 bytes for each element of its matrices. ---- */

static const struct {
    const char *name;
    int64_t hidden, heads, layers, micro_batch, pipeline, interleave;
    double tensor_only, all_three, parameters;
} known[] = {
    {"22B", 6144, 64, 48, 4, 1, 1, 59.25, 9.5625, 45.5625},
    {"175B", 12288, 96, 96, 1, 8, 3, 66.84375, 12.3515625, 45.5625},
    {"530B", 20480, 128, 105, 1, 35, 3, 114.0234375, 23.076171875, 31.640625},
    {"1T", 25600, 160, 128, 1, 64, 1, 131.25, 26.5625, 32.958984375},
};
enum { KNOWN = sizeof known / sizeof known[0] };

static rpi_training_layout layout_of(int row) {
    rpi_training_layout l = gpt(known[row].hidden, known[row].heads, known[row].layers);
    l.tensor = 8;
    l.micro_batch = known[row].micro_batch;
    l.pipeline = known[row].pipeline;
    l.interleave = known[row].interleave;
    l.global_batch = l.micro_batch * l.pipeline * 8;
    return l;
}

static double activations_gib(const rpi_training_layout *l) {
    return rpi_rank_memory_of(l, 0, 0, 0).bytes[RPI_MEMORY_KEPT] / GIB;
}

static void known_answers(void) {
    for (int i = 0; i < KNOWN; i++) {
        rpi_training_layout l = layout_of(i);
        REQUIRE_OK(rpi_layout_check(&l));
        CHECK_NEAR(activations_gib(&l), known[i].tensor_only, 1e-9);
        l.sequence_parallel = true;
        l.recompute = RPI_RECOMPUTE_SELECTIVE;
        CHECK_NEAR(activations_gib(&l), known[i].all_three, 1e-9);
        double matrices = rpi_transformer_count(&l.model).layer_matrices / 8;
        CHECK_NEAR((double)rpi_stage_layers(&l, 0) * matrices * 18 / GIB, known[i].parameters,
                   1e-9);
    }
}

/* ---- the table: add a row. Bytes of a layer in units of s b h, without and with t = 8 ---- */

static void by_recomputation(void) {
    rpi_training_layout l = gpt(6144, 64, 48);
    double unit = 2048 * 6144, scores = 5. * 64 * 2048 / 6144;
    const struct {
        int64_t tensor;
        bool sequence_parallel;
        rpi_recompute recompute;
        double units;
    } rows[] = {
        {1, false, RPI_RECOMPUTE_NONE, 34 + scores},
        {8, false, RPI_RECOMPUTE_NONE, 10 + 24. / 8 + scores / 8},
        {8, true, RPI_RECOMPUTE_NONE, (34 + scores) / 8},
        {8, false, RPI_RECOMPUTE_SELECTIVE, 10 + 24. / 8},
        {8, true, RPI_RECOMPUTE_SELECTIVE, 34. / 8},
        {8, false, RPI_RECOMPUTE_FULL, 2},
        {8, true, RPI_RECOMPUTE_FULL, 2. / 8},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        l.tensor = rows[i].tensor;
        l.sequence_parallel = rows[i].sequence_parallel;
        l.recompute = rows[i].recompute;
        CHECK_NEAR(rpi_layer_activation_bytes(&l) / unit, rows[i].units, 1e-12);
    }
    l = gpt(6144, 64, 48);
    l.fused_attention = true;
    CHECK_NEAR(rpi_layer_activation_bytes(&l) / unit, 34 + 4. * 64 / 6144, 1e-12);
}

/* ---- the table: add a row. Bytes a parameter by precision and ZeRO, D data-parallel ranks
 * ---- */

static void bytes_of_parameters(void) {
    const struct {
        const char *precision;
        int zero;
        double fixed, shared; /* + shared / D */
    } rows[] = {
        {"bf16", 0, 16, 0}, {"bf16", 1, 4, 12},      {"bf16", 2, 2, 14},
        {"bf16", 3, 0, 16}, {"bf16-fp32", 0, 18, 0}, {"bf16-fp32", 1, 6, 12},
        {"fp32", 0, 16, 0}, {"fp32", 1, 8, 8},       {"fp16", 0, 20, 0},
        {"fp16", 1, 4, 16},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rpi_training_layout l = gpt(1024, 16, 24);
        l.data = l.global_batch = 64;
        l.zero = rows[i].zero;
        CHECK_OK(rpi_precision_find(rows[i].precision, &l.precision));
        rpi_rank_memory r = rpi_rank_memory_of(&l, 0, 0, 0);
        double bytes = r.bytes[RPI_MEMORY_WEIGHTS] + r.bytes[RPI_MEMORY_GRADIENTS] +
                       r.bytes[RPI_MEMORY_OPTIMIZER];
        CHECK_NEAR(bytes / rpi_stage_parameters(&l, 0), rows[i].fixed + rows[i].shared / 64,
                   1e-9);
    }
}

/* Published: 7.5e9 parameters, D = 64: 120, 31.4, 16.6, 1.9 GB. */
static void zero_as_published(void) {
    static const double gb[] = {120, 31.4, 16.6, 1.9};
    for (int zero = 0; zero <= RPI_ZERO_MOST; zero++) {
        rpi_training_layout l = gpt(1024, 16, 24);
        l.data = l.global_batch = 64;
        l.zero = zero;
        CHECK_OK(rpi_precision_find("bf16", &l.precision));
        rpi_rank_memory r = rpi_rank_memory_of(&l, 0, 0, 0);
        double bytes = r.bytes[RPI_MEMORY_WEIGHTS] + r.bytes[RPI_MEMORY_GRADIENTS] +
                       r.bytes[RPI_MEMORY_OPTIMIZER];
        CHECK_NEAR(bytes / rpi_stage_parameters(&l, 0) * 7.5, gb[zero], .051);
    }
}

static void stages_share_layers_and_micro_batches(void) {
    rpi_training_layout l = gpt(1024, 16, 10);
    int64_t layers = 0;
    double all = 0;
    l.pipeline = 4;
    l.global_batch = 2;
    for (int stage = 0; stage < 4; stage++) {
        layers += rpi_stage_layers(&l, stage);
        all += rpi_stage_parameters(&l, stage);
        CHECK_NEAR(rpi_stage_in_flight(&l, stage), stage < 3 ? 2 : 1, 0);
    }
    CHECK_EQ(layers, 10);
    static const int64_t wanted[] = {2, 3, 3, 2};
    for (int stage = 0; stage < 4; stage++)
        CHECK_EQ(rpi_stage_layers(&l, stage), wanted[stage]);
    l.model.layers = 11;
    CHECK_EQ(rpi_stage_layers(&l, 0), 3);
    CHECK_EQ(rpi_stage_layers(&l, 3), 2);
    l.model.layers = 10;
    /* The tied table is on both ends. */
    CHECK_NEAR(all, rpi_transformer_count(&l.model).all + 51200. * 1024, .5);
}

/* 4 s b h (1 + V / h) / t on the last stage; what is largest is named. */
static void items_sum_up(void) {
    rpi_training_layout l = layout_of(2);
    l.interleave = 1;
    int64_t last = l.pipeline - 1;
    rpi_rank_memory r = rpi_rank_memory_of(&l, last, 5e8, .05);
    double all = 0;
    for (int i = 0; i < RPI_MEMORY_ITEMS; i++) all += r.bytes[i];
    CHECK_NEAR(all, r.all, 1);
    CHECK_NEAR(r.bytes[RPI_MEMORY_LOGITS], 4. * 2048 * 20480 * (1 + 51200. / 20480) / 8, 1);
    CHECK_NEAR(r.bytes[RPI_MEMORY_DEVICE], 5e8 + .05 * (r.all - r.bytes[RPI_MEMORY_DEVICE]), 1);
    CHECK_EQ(rpi_rank_memory_largest(&r), RPI_MEMORY_OPTIMIZER);
    r = rpi_rank_memory_most(&l, 5e8, .05);
    CHECK_EQ(r.stage, 0);
    CHECK_EQ(rpi_rank_memory_largest(&r), RPI_MEMORY_KEPT);
}

/* ---- the table: add a row. GiB that were measured on the fullest rank under 1F1B, and how
 * far off that is (arXiv 2401.10241, tables 3 and 4: sequence 1024, all kept) ---- */

static void peaks_as_measured(void) {
    static const struct {
        int64_t hidden, heads, layers, stages, micro_batch, micro_batches;
        double gib, off;
    } rows[] = {
        {2304, 24, 22, 8, 6, 24, 30, -.086},
        {4096, 32, 30, 8, 3, 32, 39, -.030},
        {5120, 40, 46, 16, 1, 48, 32, .003},
        {6144, 48, 62, 32, 1, 128, 43, -.021},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rpi_training_layout l = gpt(rows[i].hidden, rows[i].heads, rows[i].layers);
        l.sequence = 1024;
        l.pipeline = rows[i].stages;
        l.micro_batch = rows[i].micro_batch;
        l.global_batch = rows[i].micro_batch * rows[i].micro_batches;
        double off = rpi_rank_memory_most(&l, 0, 0).all / GIB / rows[i].gib - 1;
        CHECK_MSG(fabs(off - rows[i].off) < .0006, "row %d: off by %.4f", (int)i, off);
    }
}

/* ---- the table: add a row. Ranks that share each sequence, by hand: 1 / c of what one keeps
 * and of its logits, the keys and values of a layer's 2048 tokens twice in 2 bytes, and ZeRO's
 * shares among replicas and these ---- */

static void sequences_over_ranks(void) {
    static const struct {
        int64_t context, data, tensor;
        int zero;
        double keys_bytes, shares;
    } rows[] = {
        {1, 1, 1, 1, 0, 1},
        {2, 1, 1, 0, 2 * 2 * 2048 * 6144. * 2, 1},
        {2, 1, 1, 1, 2 * 2 * 2048 * 6144. * 2, 2},
        {4, 2, 8, 1, 2 * 2 * 2048 * 768. * 2, 8},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rpi_training_layout alone = gpt(6144, 64, 48), l = gpt(6144, 64, 48);
        alone.tensor = l.tensor = rows[i].tensor;
        alone.global_batch = l.global_batch = 2;
        l.context = rows[i].context;
        l.data = rows[i].data;
        l.zero = rows[i].zero;
        REQUIRE_OK(rpi_layout_check(&l));
        rpi_rank_memory one = rpi_rank_memory_of(&alone, 0, 0, 0);
        rpi_rank_memory r = rpi_rank_memory_of(&l, 0, 0, 0);
        double c = (double)rows[i].context;
        CHECK_NEAR(r.bytes[RPI_MEMORY_KEPT], one.bytes[RPI_MEMORY_KEPT] / c, 1);
        CHECK_NEAR(r.bytes[RPI_MEMORY_LOGITS], one.bytes[RPI_MEMORY_LOGITS] / c, 1);
        CHECK_NEAR(r.bytes[RPI_MEMORY_BUFFERS], rows[i].keys_bytes, 1);
        CHECK_NEAR(r.bytes[RPI_MEMORY_WEIGHTS], one.bytes[RPI_MEMORY_WEIGHTS], 1);
        CHECK_NEAR(r.bytes[RPI_MEMORY_OPTIMIZER],
                   one.bytes[RPI_MEMORY_OPTIMIZER] / rows[i].shares, 1);
    }
}

/* Of 30 tokens the first of 4 ranks has 8, where 7.5 would be even. */
static void parts_are_rounded_up(void) {
    rpi_training_layout l = gpt(64, 4, 2);
    l.tensor = 4;
    l.sequence_parallel = true;
    l.recompute = RPI_RECOMPUTE_FULL;
    l.sequence = 30;
    REQUIRE_OK(rpi_layout_check(&l));
    CHECK_NEAR(rpi_layer_activation_bytes(&l), 8 * 64 * 2, 1e-9);
}

CASES({"known answers", known_answers}, {"sequences over ranks", sequences_over_ranks},
      {"parts are rounded up", parts_are_rounded_up}, {"peaks as measured", peaks_as_measured},
      {"by recomputation", by_recomputation}, {"bytes of parameters", bytes_of_parameters},
      {"ZeRO as published", zero_as_published},
      {"stages share layers and micro-batches", stages_share_layers_and_micro_batches},
      {"items sum up", items_sum_up})
