/* A machine that was measured as a device: a step on it takes what its items say. */
#include "plan/foresight/machine_account.h"
#include "plan/foresight/rank_scaling.h"

#include "plan/foresight/layer_time.h"
#include "plan/foresight/trainings.h"

/* ---- the table: add a row. What is not in a row is 0 ---- */

static const rpi_machine_item items[] = {
    {RPI_WORK_PRODUCT, 0, "fp32", {512, 1024, 1024}, 1e11, .9e11, 1.1e11, 5},
    {RPI_WORK_PRODUCT, 0, "fp32", {64, 64, 64}, .5e11, .5e11, .5e11, 5},
    {RPI_WORK_ATTENTION, 0, "", {512, 64, 16}, 2e10, 2e10, 2e10, 5},
    {RPI_WORK_ATTENTION, 1, "", {512, 64, 16}, 4e10, 4e10, 4e10, 5},
    {RPI_WORK_REST, 0, "", {1e6}, 1e10, 1e10, 1e10, 5},
    {RPI_WORK_REST, 1, "", {1e6}, .5e10, .5e10, .5e10, 5},
    {RPI_WORK_HEAD, 0, "", {512, 1000, 1024}, 1e11, 1e11, 1e11, 5},
    {RPI_WORK_HEAD, 1, "", {512, 1000, 1024}, 1e11, 1e11, 1e11, 5},
    {RPI_WORK_LAYER, 0, "", {0}, 1e-5, 1e-5, 1e-5, 5},
    {RPI_WORK_STEP, 0, "", {0}, 1e-4, 1e-4, 1e-4, 5},
    {RPI_WORK_OPTIMIZER, 0, "", {1e6}, 2e10, 2e10, 2e10, 5},
    {RPI_WORK_COPY, 0, "", {1e8}, 1e10, 1e10, 1e10, 5},
    {RPI_WORK_SUM, 0, "", {1e3}, 1e7, 1e7, 1e7, 5},
    {RPI_WORK_SUM, 0, "", {1e8}, 2e9, 2e9, 2e9, 5},
    {RPI_WORK_CODEC, 0, "q4:bucket=512", {0}, 8e9, 8e9, 8e9, 5},
    {RPI_WORK_CODEC, 1, "q4:bucket=512", {0}, 8e9, 8e9, 8e9, 5},
    {RPI_WORK_DISK, 0, "", {0}, 5e8, 5e8, 5e8, 5},
};
enum { ITEMS = sizeof items / sizeof items[0] };

typedef struct measured {
    rpi_machine_account account;
    rpi_measured_rates rates;
    rpi_machine machine;
} measured;

static measured *measure(int ranks) {
    static measured m;
    m = (measured){.account = {.ranks = ranks, .threads = 1, .memory_bytes = 16e9},
                   .machine = {.ranks_per_host = ranks, .rates = &m.rates}};
    for (int i = 0; i < ITEMS; i++) CHECK_OK(rpi_machine_account_add(&m.account, &items[i]));
    CHECK_OK(rpi_machine_account_device(&m.account, "test", &m.machine.device, &m.rates));
    m.machine.link_bytes_s = 1e8;
    m.machine.local_bytes_s = rpi_plan_device_value(&m.machine.device, RPI_FACT_LOCAL_RATE);
    return &m;
}

static rpi_training_layout small(void) {
    rpi_training_layout l = small_gpt();
    CHECK_OK(rpi_precision_find("fp32", &l.precision));
    return l;
}

/* The program is what was measured, or, in files without it, what is assumed. */
static void the_program_is_a_row(void) {
    measured *m = measure(1);
    const rpi_plan_device_fact *fact = &m->machine.device.facts[RPI_FACT_CONTEXT_BYTES];
    const rpi_machine_item program = {RPI_WORK_PROGRAM, 0, "", {0}, 31e6, 30e6, 32e6, 1};
    CHECK(fact->kind == RPI_KNOWN_ASSUMED && fact->value == RPI_MACHINE_PROGRAM);
    double factor = rpi_plan_device_value(&m->machine.device, RPI_FACT_RESIDUAL);
    CHECK_OK(rpi_machine_account_add(&m->account, &program));
    CHECK_OK(rpi_machine_account_device(&m->account, "test", &m->machine.device, &m->rates));
    CHECK(fact->kind == RPI_KNOWN_MEASURED && fact->value == 31e6);
    CHECK(strcmp(fact->source, "test") == 0);
    /* No time: it says nothing of how far times are apart. */
    CHECK(rpi_plan_device_value(&m->machine.device, RPI_FACT_RESIDUAL) == factor);
}

static void every_fact_says_how_it_is_known(void) {
    const measured *m = measure(2);
    for (int i = 0; i < RPI_FACTS; i++) {
        const rpi_plan_device_fact *f = &m->machine.device.facts[i];
        if (rpi_fact_at(i)->needed) CHECK_MSG(f->source, "%s", rpi_fact_at(i)->name);
        if (!f->source) continue;
        CHECK(f->kind == RPI_KNOWN_MEASURED || f->kind == RPI_KNOWN_ASSUMED);
        CHECK((f->kind == RPI_KNOWN_MEASURED) ==
              (strcmp(f->source, "test") == 0 || i == RPI_FACT_FP16 || i == RPI_FACT_BF16 ||
               i == RPI_FACT_RESIDUAL));
    }
    const rpi_plan_device *d = &m->machine.device;
    CHECK_NEAR(rpi_plan_device_value(d, RPI_FACT_FP32) / 1e11, 1, 1e-9);
    CHECK(rpi_plan_device_value(d, RPI_FACT_BF16) == 0);
    /* A start of 100 us, and 2 (n - 1) / n of 2e9 bytes a second behind it. */
    CHECK_NEAR(rpi_plan_device_value(d, RPI_FACT_LOCAL_START), 1e-4, 1e-9);
    CHECK_NEAR(rpi_plan_device_value(d, RPI_FACT_LOCAL_RATE) / 2e9, 1, .01);
}

/* Each term by hand, from the items at its size. */
static void a_step_takes_what_was_measured(void) {
    measured *m = measure(2);
    rpi_training_layout l = small();
    l.global_batch = 1;
    rpi_forecast f = forecast_of(&l, &m->machine);
    double attention = 4. * 512 * 512 * 1024, head = 2. * 512 * 1000 * 1024;
    CHECK_NEAR(f.terms.attention_s * 2e10 / attention, 1, 1e-9);
    CHECK_NEAR(f.terms.memory_s * 1e10 / rpi_layer_rest_bytes(&l), 1, 1e-9);
    CHECK_NEAR(f.terms.head_s * 1e11 / (3 * head), 1, 1e-9);
    double products = 2. * 512 * 12 * 1024 * 1024;
    CHECK_NEAR(f.terms.products_s * 1e11 / products, 1, .1);
    double backward =
        f.terms.backward_s - 2.5 * attention / 4e10 - rpi_layer_rest_bytes(&l) / .5e10;
    CHECK_NEAR(backward * 1e11 / (2 * products), 1, .1);
    CHECK_NEAR(f.seconds[RPI_TIME_OPTIMIZER] * 2e10 / (24 * rpi_stage_parameters(&l, 0)), 1,
               1e-9);
    CHECK_NEAR(f.seconds[RPI_TIME_HOST], 1e-4, 1e-12);
}

/* Of what was not measured, as in files of before, a forecast has nothing. */
static void each_gradient_is_looked_at(void) {
    measured *m = measure(2);
    rpi_training_layout l = small();
    const rpi_machine_item looked_at = {RPI_WORK_GRADIENTS, 0, "", {1e6}, 4e9, 4e9, 4e9, 5};
    l.global_batch = 1;
    CHECK_OK(rpi_machine_account_add(&m->account, &looked_at));
    CHECK_OK(rpi_machine_account_device(&m->account, "test", &m->machine.device, &m->rates));
    rpi_forecast f = forecast_of(&l, &m->machine);
    CHECK_NEAR(f.seconds[RPI_TIME_HOST] - 1e-4, rpi_stage_parameters(&l, 0) * 1e-9, 1e-9);
}

/* Inside a host cores are the link: nothing hides what they sum. Over a link all but the last
 * bucket may be hidden from the first full one on, but not what they encode. */
static void what_keeps_cores_busy_is_not_hidden(void) {
    measured *m = measure(2);
    rpi_training_layout l = small();
    l.data = 2;
    rpi_forecast f = forecast_of(&l, &m->machine);
    const double bucket = RPI_MACHINE_BUCKET;
    double bytes = 4 * rpi_stage_parameters(&l, 0);
    double sum_s = bytes / rpi_rate_at(&m->rates.sums, &bucket);
    CHECK_NEAR(f.seconds[RPI_TIME_DATA] / sum_s, 1, 1e-9);
    m->machine.ranks_per_host = 1;
    m->machine.link_bytes_s = 1e15;
    f = forecast_of(&l, &m->machine);
    CHECK_NEAR(f.seconds[RPI_TIME_DATA] / sum_s, 1, 1e-3);
    m->machine.link_bytes_s = bytes; /* a second: less than a backward pass */
    f = forecast_of(&l, &m->machine);
    double last_s = bucket / bytes / RPI_MACHINE_LINK_SHARE;
    CHECK_NEAR(f.seconds[RPI_TIME_DATA] - sum_s, last_s, .01 * last_s);
    m->machine.link_bytes_s = bytes * 1e-3; /* a thousand seconds: more than that */
    f = forecast_of(&l, &m->machine);
    double hidden_s = (double)f.terms.layers * f.terms.backward_s * (1 - bucket / bytes);
    CHECK_NEAR(f.terms.hidden_s / hidden_s, 1, 1e-9);
    double exposed_s = 1e3 / RPI_MACHINE_LINK_SHARE - hidden_s;
    CHECK_NEAR(f.seconds[RPI_TIME_DATA] - sum_s, exposed_s, 1e-6 * exposed_s);
    m->machine.link_bytes_s = bytes;
    m->machine.codec_bytes = .5;
    m->machine.codec_s = rpi_machine_account_codec_s(&m->account, "q4:bucket=512");
    CHECK_NEAR(m->machine.codec_s * 1e9, 1, 1e-9);
    f = forecast_of(&l, &m->machine);
    CHECK_NEAR(f.terms.codec_s / (bytes / 4 * 1e-9), 1, 1e-9);
    CHECK(f.seconds[RPI_TIME_DATA] < sum_s + last_s);
    CHECK(rpi_machine_account_codec_s(&m->account, "q7") < 0);
    CHECK_NEAR(rpi_machine_account_save_s(&m->account, 1e9), 2, 1e-9);
}

/* Between products a sum takes longer than alone, and tensor-parallel ranks have such ones;
 * over a link they have the link. */
static void tensor_sums_are_those_between_products(void) {
    measured *m = measure(2);
    rpi_training_layout l = small();
    const rpi_machine_item sum = {RPI_WORK_LAYER_SUM, 0, "", {1e6}, 1e9, 1e9, 1e9, 5};
    l.tensor = 2;
    l.sequence_parallel = false;
    double alone_s = forecast_of(&l, &m->machine).terms.sums_s;
    CHECK_OK(rpi_machine_account_add(&m->account, &sum));
    CHECK_OK(rpi_machine_account_device(&m->account, "test", &m->machine.device, &m->rates));
    double bytes = rpi_layout_tokens(&l) * (double)l.model.hidden * 4;
    CHECK_NEAR(forecast_of(&l, &m->machine).terms.sums_s, 2 * bytes * 1e-9, 1e-12);
    m->machine.ranks_per_host = 1;
    m->machine.link_bytes_s = 1e15;
    CHECK(forecast_of(&l, &m->machine).terms.sums_s < alone_s);
}

static void cores_that_compute_also_send(void) {
    measured *m = measure(2);
    rpi_scaling_work work = {0};
    const double bucket = 1e8;
    rpi_scaling_know_cores(&m->machine, bucket, &work);
    CHECK_NEAR(work.sum_bytes_s * 1e-9, 2, 1e-9);
    CHECK_NEAR(work.memory_bytes_s * 1e-9, 10, 1e-9);
    m->machine.rates = NULL;
    work = (rpi_scaling_work){0};
    rpi_scaling_know_cores(&m->machine, bucket, &work);
    CHECK(work.sum_bytes_s == 0 && work.memory_bytes_s == 0);
}

static void what_is_no_machine_is_refused(void) {
    rpi_machine_account a = {.ranks = 1, .threads = 1, .memory_bytes = 1e9};
    rpi_plan_device d;
    rpi_measured_rates r;
    CHECK_FAILS(rpi_machine_account_device(&a, "test", &d, &r), INVALID, "it has no product");
    CHECK_OK(rpi_machine_account_add(&a, &items[0]));
    CHECK_FAILS(rpi_machine_account_device(&a, "test", &d, &r), INVALID, "it has no copy");
    CHECK(rpi_machine_account_save_s(&a, 1) < 0);
    rpi_machine_item item = items[0];
    item.value = -1;
    CHECK_FAILS(rpi_machine_account_add(&a, &item), INVALID, "is no measurement");
    item = items[0];
    item.at[1] = 0;
    CHECK_FAILS(rpi_machine_account_add(&a, &item), INVALID, "n of 0 is no size");
    while (a.count < RPI_MACHINE_ITEMS) CHECK_OK(rpi_machine_account_add(&a, &items[0]));
    CHECK_FAILS(rpi_machine_account_add(&a, &items[0]), INVALID, "are the most");
    CHECK_OK(rpi_machine_account_add(&(rpi_machine_account){0}, &items[11]));
}

/* One rank: the way to others is a guess, and says so. */
static void a_rank_alone(void) {
    rpi_machine_account a = {.ranks = 1, .threads = 1, .memory_bytes = 1e9};
    rpi_plan_device d;
    rpi_measured_rates r;
    CHECK_OK(rpi_machine_account_add(&a, &items[0]));
    CHECK_OK(rpi_machine_account_add(&a, &items[11]));
    CHECK_OK(rpi_machine_account_device(&a, "test", &d, &r));
    CHECK(d.facts[RPI_FACT_LOCAL_RATE].kind == RPI_KNOWN_ASSUMED);
    CHECK(d.facts[RPI_FACT_MEMORY_SHARE].kind == RPI_KNOWN_ASSUMED);
    rpi_training_layout l = small();
    rpi_machine m = {.device = d, .rates = &r, .ranks_per_host = 1};
    CHECK(forecast_of(&l, &m).step_s > 0);
}

CASES({"the program is a row", the_program_is_a_row},
      {"every fact says how it is known", every_fact_says_how_it_is_known},
      {"a step takes what was measured", a_step_takes_what_was_measured},
      {"each gradient is looked at", each_gradient_is_looked_at},
      {"what keeps cores busy is not hidden", what_keeps_cores_busy_is_not_hidden},
      {"tensor sums are those between products", tensor_sums_are_those_between_products},
      {"cores that compute also send", cores_that_compute_also_send},
      {"what is no machine is refused", what_is_no_machine_is_refused},
      {"a rank alone", a_rank_alone})
