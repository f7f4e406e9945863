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
    CHECK_MSG(fit.own.mean < .01, "errs by %g", fit.own.mean);
    CHECK_MSG(fit.unseen.mean < .02, "errs by %g on rows that it has not seen",
              fit.unseen.mean);
    CHECK_NEAR(share_at(&fit.device, 1024), share_at(&other.device, 1024), .02);
    CHECK_NEAR(rpi_plan_device_value(&fit.device, RPI_FACT_LINK_SHARE), .4, .05);
    CHECK(fit.device.facts[RPI_FACT_GEMM_SHARE].kind == RPI_KNOWN_FITTED);
    CHECK_NEAR(rpi_plan_device_value(&fit.device, RPI_FACT_RESIDUAL), fit.unseen.factor, 0);
    CHECK_NEAR(rpi_plan_device_value(&fit.device, RPI_FACT_FITTED_RANKS), 32, 0);
    rpi_plan_device_fit again;
    REQUIRE_OK(rpi_forecast_fit(rows, ROWS, &m, &again));
    CHECK(memcmp(&fit.own, &again.own, sizeof fit.own) == 0);
}

static void few_rows_are_refused(void) {
    rpi_machine m = usual_machine();
    rpi_measured_row rows[ROWS];
    rpi_plan_device_fit fit;
    make_rows(&m, rows);
    CHECK_FAILS(rpi_forecast_fit(rows, 9, &m, &fit), INVALID, "9 rows are too few");
    rows[0].layout.data = 12;
    CHECK_FAILS(rpi_forecast_fit(rows, ROWS, &m, &fit), INVALID, "no whole hosts of 8");
    make_rows(&m, rows);
    (void)rpi_memory_fail_after(1);
    CHECK_FAILS(rpi_forecast_fit(rows, ROWS, &m, &fit), NOMEM, "forecasts");
    (void)rpi_memory_fail_after(0);
}

/* Four rows: predicted over measured 1.1, .9, 1, 1.4. */
static void errors_by_hand(void) {
    static const double measured[] = {1, 2, 3, 2.1}, predicted[] = {1.1, 1.8, 3, 2.94};
    rpi_measured_row rows[4];
    rpi_forecast forecasts[4];
    rpi_forecast_errors e;
    memset(forecasts, 0, sizeof forecasts);
    for (int i = 0; i < 4; i++) {
        rows[i] = (rpi_measured_row){i, small_gpt(), measured[i]};
        forecasts[i].step_s = predicted[i];
        forecasts[i].low_s = predicted[i] / 1.2;
        forecasts[i].high_s = predicted[i] * 1.2;
    }
    REQUIRE_OK(rpi_forecast_errors_of(rows, forecasts, 4, &e));
    CHECK_NEAR(e.mean, (.1 + .1 + 0 + .4) / 4, 1e-12);
    CHECK_NEAR(e.median, .1, 1e-12);
    CHECK_NEAR(e.worst, .4, 1e-12);
    CHECK_NEAR(e.bias, (.1 - .1 + 0 + .4) / 4, 1e-12);
    CHECK_NEAR(e.covered, .75, 1e-12);
    CHECK_NEAR(e.order, 1, 1e-12);
    CHECK_NEAR(e.factor, 1.4, 1e-12);
    /* All rows are one layout: at the median rate, (1 / 2 + 1 / 2.1) / 2, a step takes 2.0488
     * s. */
    CHECK_NEAR(e.constant_mean, (1.0488 + .0244 + .3171 + .0244) / 4, .001);
    CHECK_NEAR(e.skill, 1 - .15 / e.constant_mean, 1e-12);
    forecasts[2].step_s = .5;
    REQUIRE_OK(rpi_forecast_errors_of(rows, forecasts, 4, &e));
    CHECK_NEAR(e.order, (3. - 3) / 6, 1e-12);
    (void)rpi_memory_fail_after(1);
    CHECK_FAILS(rpi_forecast_errors_of(rows, forecasts, 4, &e), NOMEM, "errors");
    (void)rpi_memory_fail_after(0);
}

CASES({"facts are found again", facts_are_found_again},
      {"few rows are refused", few_rows_are_refused}, {"errors by hand", errors_by_hand})
