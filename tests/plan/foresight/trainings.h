/* A training and a machine for tests of forecasts: a small GPT on a device that is perfect, so
 * that what a step takes is known. */
#ifndef TESTS_PLAN_FORESIGHT_TRAININGS_H
#define TESTS_PLAN_FORESIGHT_TRAININGS_H

#include "harness/check.h"
#include "plan/foresight/step_forecast.h"

static inline rpi_training_layout small_gpt(void) {
    rpi_training_layout l = {.model = {.layers = 8,
                                       .hidden = 1024,
                                       .heads = 16,
                                       .kv_heads = 16,
                                       .head = 64,
                                       .ffn = 4096,
                                       .vocabulary = 1000},
                             .sequence = 512,
                             .micro_batch = 1,
                             .global_batch = 32,
                             .tensor = 1,
                             .pipeline = 1,
                             .context = 1,
                             .data = 1,
                             .interleave = 1,
                             .fused_attention = true};
    CHECK_OK(rpi_precision_find("bf16", &l.precision));
    return l;
}

/* Computes at its peak of 1e14 at every size, reads memory and starts work in no time. */
static inline rpi_machine perfect_machine(int64_t ranks_per_host) {
    static const char text[] = "perfect like a100-80g assumed test\n"
                               "perfect bf16_flops 1e14 assumed test\n"
                               "perfect memory_bytes_s 1e18 assumed test\n"
                               "perfect local_start_s 0 assumed test\n"
                               "perfect gemm_share 1 assumed test\n"
                               "perfect gemm_half_side 0 assumed test\n"
                               "perfect tiles_at_once 0 assumed test\n"
                               "perfect attention_share 1 assumed test\n"
                               "perfect memory_share 1 assumed test\n"
                               "perfect layer_host_s 0 assumed test\n"
                               "perfect sum_host_s 0 assumed test\n"
                               "perfect sum_hidden 0 assumed test\n"
                               "perfect step_host_s 0 assumed test\n"
                               "perfect shard_host_s 0 assumed test\n"
                               "perfect softmax_host_s 0 assumed test\n"
                               "perfect link_share 1 assumed test\n"
                               "perfect overlap 0 assumed test\n"
                               "perfect context_bytes 0 assumed test\n"
                               "perfect fragment_share 0 assumed test\n"
                               "perfect residual 1.1 assumed test\n"
                               "perfect residual_far 1.5 assumed test\n"
                               "perfect fitted_ranks 64 assumed test\n"
                               "perfect fitted_pass_flops 1e9 assumed test\n";
    rpi_plan_device_table *table = NULL;
    rpi_machine m = {
        .ranks_per_host = ranks_per_host, .link_bytes_s = 1e10, .local_bytes_s = 1e11};
    CHECK_OK(rpi_plan_device_table_make(&table));
    if (!table) return m;
    CHECK_OK(rpi_plan_device_table_add(table, text, "test"));
    CHECK_OK(rpi_plan_device_find(table, "perfect", &m.device));
    for (int i = 0; i < RPI_FACTS; i++)
        if (m.device.facts[i].source) m.device.facts[i].source = "test";
    rpi_plan_device_table_destroy(table);
    return m;
}

static inline rpi_forecast forecast_of(const rpi_training_layout *l, const rpi_machine *m) {
    rpi_forecast f = {0};
    CHECK_OK(rpi_layout_check(l));
    CHECK_OK(rpi_forecast_step(l, m, &f));
    return f;
}

#endif
