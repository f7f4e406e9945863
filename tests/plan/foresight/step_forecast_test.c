/* What a step takes on a machine that is perfect is known, and what is missing adds to it. */
#include "plan/foresight/step_forecast.h"

#include "plan/foresight/trainings.h"

/* Operations over the peak's; fused attention makes its scores again for the backward pass,
 * half of a forward pass of it. */
static void a_perfect_machine_reaches_its_peak(void) {
    rpi_machine m = perfect_machine(8);
    for (int recompute = 0; recompute < RPI_RECOMPUTES; recompute += 2) {
        rpi_training_layout l = small_gpt();
        l.recompute = (rpi_recompute)recompute;
        l.fused_attention = false;
        rpi_forecast f = forecast_of(&l, &m);
        double tokens = 32. * 512;
        rpi_step_flops flops = rpi_transformer_step_flops(&l.model, tokens, 512, l.recompute);
        CHECK_NEAR(f.step_s * 1e14 / flops.hardware, 1, 1e-4);
        CHECK_NEAR(f.tokens_per_s * f.step_s, tokens, 1e-6);
        CHECK_NEAR(f.mfu, flops.model / flops.hardware, 1e-4);
        l.fused_attention = true;
        double more = 8 * .5 * 4 * 512 * 1024 * tokens;
        CHECK_NEAR(forecast_of(&l, &m).step_s - f.step_s, more / 1e14, 1e-4 * more / 1e14);
    }
}

/* (p - 1) / (m + p - 1) of a step, less with chunks. */
static void bubbles(void) {
    rpi_machine m = perfect_machine(8);
    rpi_training_layout l = small_gpt();
    l.model.vocabulary = 1;
    l.pipeline = 4;
    m.local_bytes_s = 1e18;
    rpi_forecast f = forecast_of(&l, &m), bound;
    CHECK_OK(rpi_forecast_bound(&l, &m, &bound));
    CHECK(bound.step_s <= f.step_s * (1 + 1e-9));
    CHECK_NEAR(f.seconds[RPI_TIME_BUBBLE] / f.step_s, 3. / 35, 1e-4);
    l.interleave = 2;
    f = forecast_of(&l, &m);
    CHECK_NEAR(f.seconds[RPI_TIME_BUBBLE] / f.step_s, 3. / (2 * 32 + 3), 1e-4);
}

/* Of 8 stages the first micro-batch waits for 7 hops each way; 32 wait for no more than each
 * for two of them besides. */
static void hops(void) {
    rpi_machine m = perfect_machine(8);
    rpi_training_layout l = small_gpt();
    l.pipeline = 8;
    m.local_latency_s = 1e-4;
    rpi_forecast f = forecast_of(&l, &m);
    CHECK_NEAR(f.terms.hop_s, 1e-4 + 512 * 1024 * 2 / 1e11, 1e-12);
    CHECK(f.seconds[RPI_TIME_HOPS] >= 14 * f.terms.hop_s * (1 - 1e-9));
    CHECK(f.seconds[RPI_TIME_HOPS] <= (14 + 2 * 32) * f.terms.hop_s);
    /* Over hosts of 4, whose one rank of the last stage there sends, or all of two replicas'.
     */
    m = perfect_machine(4);
    f = forecast_of(&l, &m);
    CHECK_NEAR(f.terms.hop_s, 512 * 1024 * 2 / 1e10, 1e-12);
    l.data = 2;
    f = forecast_of(&l, &m);
    CHECK_NEAR(f.terms.hop_s, 2 * 512 * 1024 * 2 / 1e10, 1e-12);
    l.data = 8;
    f = forecast_of(&l, &m);
    CHECK_NEAR(f.terms.hop_s, 4 * 512 * 1024 * 2 / 1e10, 1e-12);
}

/* ---- the table: add a row. Seconds of the sums of 1e9 bytes of gradients, by hand ---- */

static void sums_of_gradients(void) {
    static const struct {
        int64_t ranks, per_host;
        int zero;
        double codec_bytes, vectors_inside, vectors_between; /* of bytes over the rates */
    } rows[] = {
        {8, 8, 0, 0, 2 * 7. / 8, 0},               /* one host */
        {8, 1, 0, 0, 0, 2 * 7. / 8},               /* each on its own */
        {8, 2, 0, 0, 2 * 1. / 2, 2 * 3. / 4},      /* 4 hosts */
        {8, 2, 1, 0, 2 * 1. / 2, 2 * 3. / 4},      /* scatter, and gather of weights */
        {8, 2, 0, .5, 2 * 1. / 2, 2 * 3. / 4 / 4}, /* a quarter of 2 bytes */
        {8, 2, 2, 0, 5 * 1. / 2, 5 * 3. / 4},      /* a scatter for each of 4 micro-batches */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rpi_machine m = perfect_machine(rows[i].per_host);
        rpi_training_layout l = small_gpt();
        l.data = rows[i].ranks;
        l.zero = rows[i].zero;
        m.codec_bytes = rows[i].codec_bytes;
        rpi_forecast f = forecast_of(&l, &m);
        double bytes = 2 * rpi_stage_parameters(&l, 0);
        CHECK_NEAR(f.terms.data_bytes, bytes, .5);
        double wanted =
            bytes * (rows[i].vectors_inside / 1e11 + rows[i].vectors_between / 1e10);
        CHECK_MSG(fabs(f.terms.data_s / wanted - 1) < 1e-5, "row %d: %g s, not %g", (int)i,
                  f.terms.data_s, wanted);
        CHECK_NEAR(f.seconds[RPI_TIME_DATA], f.terms.data_s, 1e-12);
    }
}

/* Tensor-parallel ranks of a host share its link among their groups. */
static void groups_share_a_link(void) {
    rpi_machine m = perfect_machine(8);
    rpi_training_layout l = small_gpt();
    l.tensor = 8;
    l.data = 2;
    rpi_forecast f = forecast_of(&l, &m);
    double bytes = 2 * rpi_stage_parameters(&l, 0);
    CHECK_NEAR(f.terms.data_s, 2 * bytes / 2 * 8 / 1e10, 1e-12);
    /* 4 sums a layer of b s h in two bytes, of 8 layers and 16 micro-batches. */
    double sum_s = 2 * 7. / 8 * 512 * 1024 * 2 / 1e11;
    CHECK_NEAR(f.seconds[RPI_TIME_TENSOR], 16 * 8 * 4 * sum_s, 1e-9);
}

/* ---- the table: add a row. A gather of keys and values by hand: 512 tokens of 2 x 1024 / t
 * numbers in two bytes, of which a rank gets what c - 1 others have; three of them a layer and
 * micro-batch, as full recomputation makes the forward pass's again in the place of the
 * backward pass's ---- */

static void keys_are_gathered(void) {
    static const struct {
        int64_t context, tensor, per_host;
        bool remade;
        double bytes_inside, bytes_between, inside_latencies, between_latencies;
    } rows[] = {
        {2, 1, 8, false, 1. / 2, 0, 1, 0}, /* one host */
        {4, 1, 8, false, 3. / 4, 0, 3, 0},         {4, 1, 8, true, 3. / 4, 0, 3, 0},
        {2, 1, 1, false, 0, 1. / 2, 0, 1},         /* each on its own */
        {4, 1, 2, false, 1. / 2, 1. / 2, 1, 1},    /* two hosts, whose link one group has */
        {4, 2, 8, false, 3. / 4 / 2, 0, 3, 0},     /* with half of the heads */
        {2, 4, 4, false, 0, 4 * 1. / 2 / 4, 0, 1}, /* four groups on one link */
    };
    double whole = 2 * 512 * 1024 * 2;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rpi_machine m = perfect_machine(rows[i].per_host);
        rpi_training_layout l = small_gpt();
        m.local_latency_s = 1e-5;
        m.link_latency_s = 1e-3;
        l.context = rows[i].context;
        l.tensor = rows[i].tensor;
        l.recompute = rows[i].remade ? RPI_RECOMPUTE_FULL : RPI_RECOMPUTE_NONE;
        rpi_forecast f = forecast_of(&l, &m);
        double wanted = whole * (rows[i].bytes_inside / 1e11 + rows[i].bytes_between / 1e10) +
                        1e-5 * rows[i].inside_latencies + 1e-3 * rows[i].between_latencies;
        CHECK_MSG(fabs(f.terms.keys_s / wanted - 1) < 1e-9, "row %d: %g s, not %g", (int)i,
                  f.terms.keys_s, wanted);
        CHECK_NEAR(f.seconds[RPI_TIME_KEYS], 32 * 8 * 3 * wanted, 1e-9);
    }
}

/* A perfect machine whose ranks share sequences computes as long as one whose ranks have
 * samples of their own, and sums as many gradients. */
static void shared_sequences_are_as_much_work(void) {
    rpi_machine m = perfect_machine(8);
    rpi_training_layout l = small_gpt(), other = small_gpt();
    l.context = other.data = 4;
    for (int fused = 0; fused < 2; fused++) {
        l.fused_attention = other.fused_attention = fused;
        rpi_forecast f = forecast_of(&l, &m), g = forecast_of(&other, &m);
        CHECK_NEAR(f.seconds[RPI_TIME_COMPUTE] / g.seconds[RPI_TIME_COMPUTE], 1, 1e-5);
        CHECK_NEAR(f.seconds[RPI_TIME_DATA] / g.seconds[RPI_TIME_DATA], 1, 1e-9);
        CHECK_NEAR(f.mfu * f.step_s / (g.mfu * g.step_s), 1, 1e-9);
        CHECK(g.seconds[RPI_TIME_KEYS] == 0 && f.step_s > g.step_s);
    }
}

/* The first rank's part of 511 tokens is half of 512. */
static void uneven_parts_are_waited_for(void) {
    rpi_machine m = perfect_machine(8);
    rpi_training_layout l = small_gpt(), even = small_gpt();
    l.tensor = even.tensor = 2;
    l.sequence_parallel = even.sequence_parallel = true;
    l.sequence = 511;
    CHECK_NEAR(forecast_of(&l, &m).terms.sums_s, forecast_of(&even, &m).terms.sums_s, 1e-15);
}

static void what_overlaps_is_hidden(void) {
    rpi_machine m = perfect_machine(1);
    rpi_training_layout l = small_gpt();
    l.data = 2;
    double shown = forecast_of(&l, &m).seconds[RPI_TIME_DATA];
    m.device.facts[RPI_FACT_OVERLAP].value = 1;
    rpi_forecast f = forecast_of(&l, &m);
    CHECK_NEAR(f.seconds[RPI_TIME_DATA], shown - 8 * f.terms.backward_s, 1e-9);
    m.link_bytes_s = 1e15;
    CHECK_NEAR(forecast_of(&l, &m).seconds[RPI_TIME_DATA], 0, 0);
    /* ZeRO 3 gathers while it computes: what is longer, and a layer's own. */
    l.zero = 3;
    m.link_bytes_s = 1e6;
    f = forecast_of(&l, &m);
    CHECK_NEAR(f.step_s / f.terms.data_s, 1 + 1. / 16 / 8, .001);
}

/* ---- what the host and memory have to do besides ---- */

/* The kernel of a fused softmax takes a multiple of 4 matrices, of heads and samples. */
static void softmax_of_few_matrices(void) {
    static const struct {
        int64_t tensor, micro_batch;
        bool fused_attention, is_slow;
    } rows[] = {
        {8, 1, false, true},  {8, 1, true, false},  {8, 2, false, false},  {4, 1, false, false},
        {16, 2, false, true}, {1, 1, false, false}, {16, 4, false, false},
    };
    rpi_machine m = perfect_machine(16);
    m.device.facts[RPI_FACT_LAYER_HOST].value = 1;
    m.device.facts[RPI_FACT_SOFTMAX_HOST].value = .5;
    m.device.facts[RPI_FACT_SOFTMAX_MULTIPLE].value = 4;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rpi_training_layout l = small_gpt();
        l.tensor = rows[i].tensor;
        l.micro_batch = rows[i].micro_batch;
        l.fused_attention = rows[i].fused_attention;
        CHECK_NEAR(forecast_of(&l, &m).terms.start_s, rows[i].is_slow ? 1.5 : 1, 1e-9);
    }
    m.device.facts[RPI_FACT_SOFTMAX_MULTIPLE].value = 0;
    rpi_training_layout l = small_gpt();
    l.tensor = 8;
    l.fused_attention = false;
    CHECK_NEAR(forecast_of(&l, &m).terms.start_s, 1, 1e-9);
}

static void shards_take_the_host_longer(void) {
    rpi_machine m = perfect_machine(8);
    m.device.facts[RPI_FACT_STEP_HOST].value = .01;
    m.device.facts[RPI_FACT_SHARD_HOST].value = .1;
    for (int zero = 0; zero <= 3; zero++) {
        rpi_training_layout l = small_gpt();
        l.zero = zero;
        CHECK_NEAR(forecast_of(&l, &m).seconds[RPI_TIME_HOST], .01, 1e-12);
        l.data = 8;
        CHECK_NEAR(forecast_of(&l, &m).seconds[RPI_TIME_HOST], zero < 2 ? .01 : .11, 1e-12);
    }
}

/* Three passes over them for each micro-batch, where products do not add to wider ones; four to
 * clip and clear them, and one that the optimizer reads. */
static void gradients_are_added_and_cleared(void) {
    static const struct {
        const char *precision;
        int zero;
        double added, stepped; /* bytes of a parameter */
    } rows[] = {{"bf16", 0, 6, 5 * 2 + 2 + 2 * 12},
                {"bf16-fp32", 0, 0, 5 * 4 + 2 + 2 * 12},
                {"bf16", 1, 6, (5 * 2 + 2 + 2 * 12) / 8.},
                {"bf16", 3, 0, (5 * 2 + 2 + 2 * 12) / 8.}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rpi_machine m = perfect_machine(8);
        rpi_training_layout l = small_gpt();
        l.data = 8;
        l.zero = rows[i].zero;
        CHECK_OK(rpi_precision_find(rows[i].precision, &l.precision));
        m.device.facts[RPI_FACT_MEMORY_RATE].value = 1e12;
        rpi_forecast f = forecast_of(&l, &m);
        double n = rpi_stage_parameters(&l, 0), layers = (double)l.model.layers;
        double rest_s = layers * (f.terms.forward_s + f.terms.backward_s) + f.terms.head_s;
        CHECK_NEAR((f.terms.slot_s - rest_s) * 1e12 / n, rows[i].added, 1e-6);
        CHECK_NEAR(f.seconds[RPI_TIME_OPTIMIZER] * 1e12 / n, rows[i].stepped, 1e-6);
    }
}

/* ---- properties ---- */

static void items_sum_up_and_nothing_hurts_that_is_better(void) {
    rpi_machine m = perfect_machine(4), better = m;
    rpi_training_layout l = small_gpt();
    l.tensor = 2;
    l.pipeline = 2;
    l.data = 4;
    m.device.facts[RPI_FACT_GEMM_HALF_SIDE].value = 100;
    m.device.facts[RPI_FACT_LAYER_HOST].value = 1e-4;
    m.device.facts[RPI_FACT_STEP_HOST].value = .01;
    rpi_forecast f = forecast_of(&l, &m);
    double all = 0;
    for (int i = 0; i < RPI_TIME_ITEMS; i++) {
        CHECK(f.seconds[i] >= 0);
        all += f.seconds[i];
    }
    CHECK_NEAR(all, f.step_s, 1e-12);
    static const int more[] = {RPI_FACT_GEMM_SHARE, RPI_FACT_MEMORY_SHARE, RPI_FACT_LINK_SHARE};
    for (int i = 0; i < 3; i++) {
        better = m;
        better.device.facts[more[i]].value *= .9;
        CHECK(forecast_of(&l, &better).step_s > f.step_s);
    }
    better = m;
    better.link_bytes_s *= 2;
    CHECK(forecast_of(&l, &better).step_s < f.step_s);
    l.global_batch *= 2;
    double twice = forecast_of(&l, &m).step_s;
    CHECK(twice > f.step_s && twice < 2 * f.step_s);
}

static void intervals_are_wider_far_from_what_was_measured(void) {
    rpi_machine m = perfect_machine(8);
    rpi_training_layout l = small_gpt();
    rpi_forecast f = forecast_of(&l, &m);
    CHECK(!f.is_far);
    CHECK_NEAR(f.high_s / f.step_s, 1.1, 1e-12);
    CHECK_NEAR(f.step_s / f.low_s, 1.1, 1e-12);
    /* 512 tokens of 24 h^2 + 4 s h */
    CHECK_NEAR(rpi_pass_flops(&l), 512 * (24. * 1024 * 1024 + 4. * 512 * 1024), .5);
    l.sequence = 32;
    CHECK(!forecast_of(&l, &m).is_far);
    m.device.facts[RPI_FACT_LAYER_HOST].value = 1e-3; /* for which the device waits */
    CHECK(forecast_of(&l, &m).is_far);
    m.device.facts[RPI_FACT_FITTED_PASS].value = 1e8;
    CHECK(!forecast_of(&l, &m).is_far);
    l.sequence = 512;
    l.data = l.global_batch = 128;
    f = forecast_of(&l, &m);
    CHECK(f.is_far);
    CHECK_NEAR(f.high_s / f.step_s, 1.5, 1e-12);
}

static void what_cannot_be_is_refused(void) {
    rpi_machine m = perfect_machine(8);
    rpi_training_layout l = small_gpt();
    rpi_forecast f;
    l.data = 12;
    l.global_batch = 12;
    CHECK_FAILS(rpi_forecast_step(&l, &m, &f), INVALID, "12 ranks are no whole hosts of 8");
    l.data = 8;
    m.device.facts[RPI_FACT_BF16].value = 0;
    CHECK_FAILS(rpi_forecast_step(&l, &m, &f), INVALID, "does not multiply in bf16");
    m = perfect_machine(8);
    m.device.facts[RPI_FACT_MEMORY_BYTES].value = 1e6;
    l.data = l.global_batch = 8;
    CHECK(!forecast_of(&l, &m).fits);
}

/* ---- the table: add a row. Milliseconds of one layer of 22B (hidden 6144, 64 heads, sequence
 * 2048, micro-batch 4, 8 tensor-parallel A100), forward and backward with what is made again
 * (arXiv 2205.05198, table 4, its odd rows) ---- */

/* Both together are met within 2.9 percent, forward within 8.6 and backward within 6.5. */
static void a_layer_as_measured(void) {
    static const struct {
        bool sequence_parallel;
        rpi_recompute recompute;
        double forward_ms, backward_ms;
    } rows[] = {
        {false, RPI_RECOMPUTE_NONE, 7.7, 11.9},
        {false, RPI_RECOMPUTE_FULL, 7.7, 19.5},
        {true, RPI_RECOMPUTE_SELECTIVE, 7.2, 13.1},
    };
    rpi_plan_device_table *table = NULL;
    rpi_machine m = {.ranks_per_host = 8};
    REQUIRE_OK(rpi_plan_device_table_make(&table));
    CHECK_OK(rpi_plan_device_find(table, "a100-80g", &m.device));
    m.local_bytes_s = rpi_plan_device_value(&m.device, RPI_FACT_LOCAL_RATE);
    m.local_latency_s = rpi_plan_device_value(&m.device, RPI_FACT_LOCAL_LATENCY);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rpi_training_layout l = small_gpt();
        l.model = (rpi_transformer){.layers = 48,
                                    .hidden = 6144,
                                    .heads = 64,
                                    .kv_heads = 64,
                                    .head = 96,
                                    .ffn = 4 * 6144,
                                    .vocabulary = 51200,
                                    .dropout = true,
                                    .attention_dropout = true};
        l.sequence = 2048;
        l.micro_batch = l.global_batch = 4;
        l.tensor = 8;
        l.fused_attention = false;
        l.sequence_parallel = rows[i].sequence_parallel;
        l.recompute = rows[i].recompute;
        rpi_step_terms x = forecast_of(&l, &m).terms;
        double forward = 1e3 * x.forward_s, backward = 1e3 * (x.backward_s + x.again_s);
        CHECK_NEAR(forward / rows[i].forward_ms, 1, .086);
        CHECK_NEAR(backward / rows[i].backward_ms, 1, .065);
        CHECK_NEAR((forward + backward) / (rows[i].forward_ms + rows[i].backward_ms), 1, .029);
    }
    rpi_plan_device_table_destroy(table);
}

CASES({"a perfect machine reaches its peak", a_perfect_machine_reaches_its_peak},
      {"a layer as measured", a_layer_as_measured}, {"bubbles", bubbles}, {"hops", hops},
      {"sums of gradients", sums_of_gradients}, {"groups share a link", groups_share_a_link},
      {"keys are gathered", keys_are_gathered},
      {"shared sequences are as much work", shared_sequences_are_as_much_work},
      {"uneven parts are waited for", uneven_parts_are_waited_for},
      {"what overlaps is hidden", what_overlaps_is_hidden},
      {"softmax of few matrices", softmax_of_few_matrices},
      {"shards take the host longer", shards_take_the_host_longer},
      {"gradients are added and cleared", gradients_are_added_and_cleared},
      {"items sum up, and nothing hurts that is better",
       items_sum_up_and_nothing_hurts_that_is_better},
      {"intervals are wider far from what was measured",
       intervals_are_wider_far_from_what_was_measured},
      {"what cannot be is refused", what_cannot_be_is_refused})
