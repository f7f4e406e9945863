/* A table of measured trainings: each row that is read is forecast, too. */
#include "fuzz_input.h"

#include "base/memory.h"
#include "plan/foresight/measured_table.h"
#include "plan/foresight/step_forecast.h"

#include <string.h>

static const rpi_training_layout otherwise = {.model = {.layers = 12,
                                                        .hidden = 768,
                                                        .heads = 12,
                                                        .kv_heads = 12,
                                                        .head = 64,
                                                        .ffn = 3072,
                                                        .vocabulary = 50257},
                                              .sequence = 1024,
                                              .micro_batch = 1,
                                              .global_batch = 1,
                                              .tensor = 1,
                                              .pipeline = 1,
                                              .context = 1,
                                              .data = 1,
                                              .interleave = 1};

static void forecast(const rpi_measured_table *t) {
    rpi_plan_device_table *devices = NULL;
    rpi_machine m = {.ranks_per_host = 8,
                     .link_bytes_s = 1e10,
                     .local_bytes_s = 1e11,
                     .local_latency_s = 1e-6};
    rpi_forecast f;
    if (rpi_plan_device_table_make(&devices) != RP_OK) return;
    if (rpi_plan_device_find(devices, "h100", &m.device) == RP_OK)
        for (int i = 0; i < t->count; i++) (void)rpi_forecast_step(&t->rows[i].layout, &m, &f);
    rpi_plan_device_table_destroy(devices);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char *text = NULL;
    rpi_measured_table t;
    rpi_training_layout layout = otherwise;
    if (bytes > 1 << 16 || rpi_precision_find("bf16", &layout.precision) != RP_OK) return 0;
    if (rpi_alloc(bytes + 1, "a table", &text) != RP_OK) return 0;
    memcpy(text, data, bytes);
    if (rpi_measured_table_parse(text, &layout, &t) == RP_OK) {
        forecast(&t);
        rpi_free(t.rows);
    }
    rpi_free(text);
    return 0;
}
