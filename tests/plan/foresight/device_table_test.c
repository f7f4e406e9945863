/* The table of devices: what is known, and lines that are none. */
#include "plan/foresight/device_table.h"

#include "base/memory.h"
#include "harness/check.h"

static void known_devices_are_whole(void) {
    static const char *const names[] = {"a100-40g", "a100-80g", "h100",     "h200",
                                        "v100",     "rtx3090",  "rtx2080ti"};
    rpi_plan_device_table *table = NULL;
    rpi_plan_device device;
    REQUIRE_OK(rpi_plan_device_table_make(&table));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        CHECK_OK(rpi_plan_device_find(table, names[i], &device));
    for (int i = 0; rpi_plan_device_at(table, i); i++) {
        rpi_fact peak;
        CHECK_OK(rpi_plan_device_find(table, rpi_plan_device_at(table, i)->name, &device));
        CHECK_OK(rpi_plan_device_peak(&device, "fp16", &peak));
        for (int fact = 0; fact < RPI_FACTS; fact++)
            CHECK(!device.facts[fact].source || strlen(device.facts[fact].source) > 3);
    }
    CHECK_FAILS(rpi_plan_device_find(table, "a100-80gb", &device), INVALID,
                "did you mean 'a100-80g'");
    rpi_plan_device_table_destroy(table);
}

static void users_add_their_own(void) {
    rpi_plan_device_table *table = NULL;
    rpi_plan_device device;
    rpi_fact peak;
    REQUIRE_OK(rpi_plan_device_table_make(&table));
    CHECK_OK(
        rpi_plan_device_table_add(table,
                                  "# mine\n\n\tmine like a100-80g assumed the same card\r\n"
                                  "mine gemm_share 0.5 measured here, 3 May \n"
                                  "a100-80g watts 300 measured a limit",
                                  "mine.txt"));
    CHECK_OK(rpi_plan_device_find(table, "mine", &device));
    CHECK_NEAR(rpi_plan_device_value(&device, RPI_FACT_GEMM_SHARE), .5, 0);
    CHECK_NEAR(rpi_plan_device_value(&device, RPI_FACT_MEMORY_BYTES), 80e9, 0);
    CHECK_NEAR(rpi_plan_device_value(&device, RPI_FACT_WATTS), 400, 0);
    CHECK(device.facts[RPI_FACT_GEMM_SHARE].kind == RPI_KNOWN_MEASURED);
    CHECK(strcmp(device.facts[RPI_FACT_GEMM_SHARE].source, "here, 3 May") == 0);
    CHECK_OK(rpi_plan_device_find(table, "a100-80g", &device));
    CHECK_NEAR(rpi_plan_device_value(&device, RPI_FACT_WATTS), 300, 0);
    CHECK_OK(rpi_plan_device_find(table, "v100", &device));
    CHECK_FAILS(
        rpi_plan_device_peak(&device, "bf16", &peak), INVALID,
        "v100 has no bf16_flops: it does not multiply in bf16; --precision fp16 or fp32");
    rpi_plan_device_table_destroy(table);
}

/* ---- the table of mistakes: add a row ---- */

static const struct {
    const char *text, *message;
} mistakes[] = {
    {"a", "x.txt, line 1: a line is DEVICE FACT VALUE KIND SOURCE"},
    {"\na watts 3", "line 2: a line is DEVICE FACT"},
    {"a watts 3 measured", "watts of a has no source"},
    {"a wats 3 measured here", "did you mean 'watts'"},
    {"a watts three measured here", "watts: 'three' is not a number"},
    {"a watts -3 measured here", "watts: '-3' is out of range"},
    {"a gemm_share 1.5 measured here", "out of range, 0.001 to 1"},
    {"a watts nan measured here", "watts: 'nan' is not a number"},
    {"a watts 3 mesured here", "did you mean 'measured'"},
    {"a like b assumed why", "'a' is like an unknown device 'b'"},
    {"a like a assumed why", "unknown device 'a'"},
    {"a like h10 assumed why", "did you mean 'h100'"},
    {"a-name-that-is-longer-than-any-name-of-a-device-may-ever-be watts 3 measured here",
     "is longer than 47 letters"},
};

static void mistakes_are_named(void) {
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        rpi_plan_device_table *table = NULL;
        REQUIRE_OK(rpi_plan_device_table_make(&table));
        CHECK_FAILS(rpi_plan_device_table_add(table, mistakes[i].text, "x.txt"), INVALID,
                    mistakes[i].message);
        rpi_plan_device_table_destroy(table);
    }
}

static void what_is_lacking_is_named(void) {
    rpi_plan_device_table *table = NULL;
    rpi_plan_device device;
    REQUIRE_OK(rpi_plan_device_table_make(&table));
    CHECK_OK(rpi_plan_device_table_add(table, "cpu memory_bytes 64e9 measured here", "x.txt"));
    CHECK_FAILS(rpi_plan_device_find(table, "cpu", &device), INVALID,
                "cpu lacks memory_bytes_s");
    rpi_plan_device_table_destroy(table);
}

/* What was fitted is written, and read again. */
static void fitted_facts_go_round(void) {
    char text[8192];
    rpi_plan_device_table *table = NULL;
    rpi_plan_device device;
    REQUIRE_OK(rpi_plan_device_table_make(&table));
    REQUIRE_OK(rpi_plan_device_find(table, "h100", &device));
    device.facts[RPI_FACT_GEMM_SHARE].value = .4321;
    rpi_plan_device_print(&device, "3 rows of x.csv", text, sizeof text);
    CHECK_OK(rpi_plan_device_table_add(table, text, "fitted"));
    REQUIRE_OK(rpi_plan_device_find(table, "h100", &device));
    CHECK_NEAR(rpi_plan_device_value(&device, RPI_FACT_GEMM_SHARE), .4321, 0);
    CHECK(device.facts[RPI_FACT_OVERLAP].kind == RPI_KNOWN_FITTED);
    CHECK(strcmp(device.facts[RPI_FACT_OVERLAP].source, "3 rows of x.csv") == 0);
    rpi_plan_device_table_destroy(table);
}

static void lack_of_memory_is_passed_on(void) {
    rpi_plan_device_table *table = NULL;
    (void)rpi_memory_fail_after(1);
    CHECK_FAILS(rpi_plan_device_table_make(&table), NOMEM, "the table of devices");
    (void)rpi_memory_fail_after(5);
    CHECK(rpi_plan_device_table_make(&table) == RP_NOMEM);
    (void)rpi_memory_fail_after(0);
}

CASES({"known devices are whole", known_devices_are_whole},
      {"users add their own", users_add_their_own}, {"mistakes are named", mistakes_are_named},
      {"what is lacking is named", what_is_lacking_is_named},
      {"fitted facts go round", fitted_facts_go_round},
      {"lack of memory is passed on", lack_of_memory_is_passed_on})
