/* Which layouts are legal. */
#include "plan/foresight/training_layout.h"

#include "harness/check.h"

static rpi_training_layout llama(void) {
    rpi_training_layout l = {.model = {.layers = 32,
                                       .hidden = 4096,
                                       .heads = 32,
                                       .kv_heads = 8,
                                       .head = 128,
                                       .ffn = 11008,
                                       .vocabulary = 32000,
                                       .gated = true},
                             .sequence = 4096,
                             .micro_batch = 2,
                             .global_batch = 64,
                             .tensor = 2,
                             .pipeline = 4,
                             .context = 1,
                             .data = 4,
                             .interleave = 1};
    CHECK_OK(rpi_precision_find("bf16", &l.precision));
    return l;
}

/* ---- the table: add a row ---- */

typedef struct change {
    int64_t tensor, pipeline, data, interleave, micro_batch, global_batch;
    const char *message; /* NULL: legal */
} change;

static const change changes[] = {
    {2, 4, 4, 1, 2, 64, NULL},
    {16, 1, 1, 1, 1, 1, NULL}, /* keys of 8 heads are held twice */
    {32, 32, 1, 1, 1, 1, NULL},
    {1, 5, 1, 1, 1, 7, NULL}, /* stages of 7, 7, 6, 6 and 6 layers */
    {1, 4, 1, 2, 1, 8, NULL},
    {3, 1, 1, 1, 1, 1, "--tp 3 does not divide the 32 heads"},
    {64, 1, 1, 1, 1, 1, "--tp 64 does not divide"},
    {1, 33, 1, 1, 1, 64, "33 stages are more than the 32 layers"},
    {1, 4, 1, 9, 1, 64, "--pp 4 with --interleave 9: 36 chunks are more than the 32 layers"},
    {1, 1, 1, 2, 1, 64, "--interleave 2 is of a pipeline"},
    {1, 4, 1, 2, 1, 6, "whole rounds of 4 micro-batches; a step has 6"},
    {1, 1, 3, 1, 1, 64, "--dp 3 does not divide the global batch of 64"},
    {1, 1, 4, 1, 3, 64, "--micro-batch-size 3 does not divide the 16 samples"},
    {1, 1, 4, 1, 32, 64, "--micro-batch-size 32 does not divide"},
    {1000000000, 1000000000, 1000000000, 1, 1, 64, "1000000000 tensor-parallel ranks are more"},
    {1, 20000, 1, 1, 1, 64, "20000 stages are more than anybody has; 16384 are the most"},
    {1, 1, 1000000000, 1, 1, 64, "1000000000 replicas are more"},
    {1, 2, 1, 1000000000, 1, 64, "1000000000 chunks are more"},
    {0, 1, 1, 1, 1, 64, "0 tensor-parallel ranks are too few"},
    {1, 1, 1, 1, 0, 64, "0 samples of a micro-batch are too few"},
    {1, 1, 1, 1, 1, 0, "0 samples of a step are too few"},
};

static void legal_and_not(void) {
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        rpi_training_layout l = llama();
        l.tensor = changes[i].tensor;
        l.pipeline = changes[i].pipeline;
        l.data = changes[i].data;
        l.interleave = changes[i].interleave;
        l.micro_batch = changes[i].micro_batch;
        l.global_batch = changes[i].global_batch;
        if (changes[i].message)
            CHECK_FAILS(rpi_layout_check(&l), INVALID, changes[i].message);
        else
            CHECK_OK(rpi_layout_check(&l));
    }
}

static void heads_of_keys_divide_either_way(void) {
    rpi_training_layout l = llama();
    l.model.heads = 12;
    l.model.kv_heads = 4;
    l.tensor = 6;
    CHECK_FAILS(rpi_layout_check(&l), INVALID, "the 4 heads of keys and values");
    l = llama();
    l.sequence_parallel = true;
    l.sequence = 4095;
    CHECK_OK(rpi_layout_check(&l)); /* the last rank has fewer tokens */
}

/* ---- the table: add a row. Sequences over context ranks, and their parts of tensor ranks ----
 */

static void sequences_over_ranks(void) {
    static const struct {
        int64_t sequence, context, tensor;
        bool parallel;
        double tokens, parts;
        const char *message; /* NULL: legal */
    } rows[] = {
        {4096, 1, 2, false, 2 * 4096, 1, NULL},
        {4096, 4, 2, false, 2 * 1024, 1, NULL},
        {4096, 4, 2, true, 2 * 1024, 2, NULL},
        {4096, 2048, 1, true, 2 * 2, 1, NULL},
        {4095, 1, 2, true, 2 * 4095, 4095. / 2048, NULL},
        {60, 2, 4, true, 2 * 30, 30. / 8, NULL},
        {2, 1, 4, true, 2 * 2, 2, NULL},    /* ranks without any */
        {60, 4, 1, false, 2 * 16, 1, NULL}, /* pieces of 8, the last of which is filled up */
        {6, 4, 1, false, 0, 0,
         "--cp 4: sequences of 6 tokens over 4 context ranks, two pieces each: 8 tokens would "
         "fit, or --cp 3"},
        {4096, 0, 1, false, 0, 0, "0 context-parallel ranks are too few"},
        {4096, 1000000000, 1, false, 0, 0, "1000000000 context-parallel ranks are more"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rpi_training_layout l = llama();
        l.sequence = rows[i].sequence;
        l.context = rows[i].context;
        l.tensor = rows[i].tensor;
        l.sequence_parallel = rows[i].parallel;
        if (rows[i].message) {
            CHECK_FAILS(rpi_layout_check(&l), INVALID, rows[i].message);
            continue;
        }
        CHECK_OK(rpi_layout_check(&l));
        CHECK_NEAR(rpi_layout_tokens(&l), rows[i].tokens, 0);
        CHECK_NEAR(rpi_layout_parts(&l), rows[i].parts, 1e-12);
        CHECK_EQ(rpi_layout_ranks(&l), 16 * l.context * l.tensor);
        CHECK_EQ(rpi_layout_sharers(&l), 4 * l.context);
    }
}

static void keys_of_a_rank(void) {
    rpi_training_layout l = llama();
    CHECK_NEAR(rpi_layout_keys(&l), 4 * 128, 0);
    l.tensor = 16; /* of 8 heads each is there twice */
    CHECK_NEAR(rpi_layout_keys(&l), 128, 0);
}

static void counts(void) {
    rpi_training_layout l = llama();
    CHECK_EQ(rpi_layout_ranks(&l), 32);
    CHECK_EQ(rpi_layout_micro_batches(&l), 8);
}

static void precisions_are_named(void) {
    const rpi_precision *p;
    CHECK_FAILS(rpi_precision_find("bf32", &p), INVALID, "unknown precision 'bf32'");
    for (int i = 0; rpi_precision_at(i); i++) {
        CHECK_OK(rpi_precision_find(rpi_precision_at(i)->name, &p));
        CHECK(p == rpi_precision_at(i));
    }
}

CASES({"legal and not", legal_and_not},
      {"heads of keys divide either way", heads_of_keys_divide_either_way}, {"counts", counts},
      {"sequences over ranks", sequences_over_ranks}, {"keys of a rank", keys_of_a_rank},
      {"precisions are named", precisions_are_named})
