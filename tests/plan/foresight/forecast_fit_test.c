/* Errors by hand, and facts that are found again from what they make. */
#include "plan/foresight/forecast_fit.h"

#include "base/memory.h"
#include "plan/foresight/trainings.h"

enum { ROWS = 30 };

/* Layouts, batches and sizes of many kinds, with what a machine takes for them. */
static void make_rows(const rpi_machine *m, rpi_measured_row rows[ROWS]) {
    for (int i = 0; i < ROWS; i++) {
        rpi_training_layout l = small_gpt();
        l.tensor = 1 << (i % 3);
        l.pipeline = 1 << (i / 3 % 3);
        l.data = 16 / l.tensor / l.pipeline * (1 + i % 2);
        l.micro_batch = 1 << (i / 9 % 3);
        l.global_batch = l.data * l.micro_batch * (8 + i);
        l.model.hidden = 1024 << (i / 5 % 3);
        l.model.heads = l.model.kv_heads = l.model.hidden / 64;
        l.model.ffn = 4 * l.model.hidden;
        rows[i] = (rpi_measured_row){i + 1, l, forecast_of(&l, m).step_s};
    }
}

static rpi_machine usual_machine(void) {
    rpi_machine m = perfect_machine(8);
    static const struct {
        int fact;
        double value;
    } facts[] = {{RPI_FACT_GEMM_SHARE, .7},   {RPI_FACT_GEMM_HALF_SIDE, 100},
                 {RPI_FACT_GEMM_POWER, 1},    {RPI_FACT_MEMORY_RATE, 2e12},
                 {RPI_FACT_MEMORY_SHARE, .8}, {RPI_FACT_LAYER_HOST, 5e-4},
                 {RPI_FACT_SUM_HOST, 1e-4},   {RPI_FACT_STEP_HOST, .01},
                 {RPI_FACT_LINK_SHARE, .8},   {RPI_FACT_OVERLAP, .5}};
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++)
        m.device.facts[facts[i].fact].value = facts[i].value;
    return m;
}

/* Of the peak, in products whose smallest side is that. */
static double share_at(const rpi_plan_device *d, double side) {
    double half = rpi_plan_device_value(d, RPI_FACT_GEMM_HALF_SIDE);
    double power = rpi_plan_device_value(d, RPI_FACT_GEMM_POWER);
    return rpi_plan_device_value(d, RPI_FACT_GEMM_SHARE) / (1 + pow(half / side, power));
}

static void facts_are_found_again(void) {
    rpi_machine m = usual_machine(), other = m;
    rpi_measured_row rows[ROWS];
    rpi_plan_device_fit fit;
    other.device.facts[RPI_FACT_GEMM_SHARE].value = .5;
    other.device.facts[RPI_FACT_LINK_SHARE].value = .4;
    other.device.facts[RPI_FACT_STEP_HOST].value = .03;
    make_rows(&other, rows);
    REQUIRE_OK(rpi_forecast_fit(rows, ROWS, &m, &fit));
