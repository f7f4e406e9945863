/* Which encodings of a sum are never made: its readers take the exact values where they lie. */
#include "comm/core/chunk.h"
#include "comm/core/communicator.h"
#include "comm/parts/parts.h"

#include "harness/check.h"

enum { COUNT = 4000, WORLD = 4 };

/* Add a row: what is summed, and whether the finished sum stays as it is. */
static const struct {
    rp_dtype dtype;
    const char *codec;
    bool feedback, stays;
} sums[] = {
    {RP_F32, "fp32", false, true},   {RP_F64, "fp32", false, true},
    {RP_I32, "fp32", false, true},   {RP_F32, "fp32", true, false}, /* the residual is added */
    {RP_F32, "q4", false, false},    {RP_F32, "bf16", false, false},
    {RP_BF16, "fp32", false, false}, /* the accumulator is wider */
    {RP_F16, "fp32", false, false},
};

static void cut(rpi_partition *partition, rp_dtype dtype, const char *codec, float *residual,
                int parts) {
    REQUIRE_OK(rpi_partition_reserve(partition, 1));
    partition->count = 1;
    partition->extents[0] = (rpi_extent){.count = COUNT, .dtype = dtype, .residual = residual};
    REQUIRE_OK(rp_codec_parse(codec, &partition->extents[0].codec));
    REQUIRE_OK(rpi_partition_make(partition, RPI_SPLIT_VECTOR, parts, 0, 1 << 20));
}

static void check_sums(rpi_compiled_schedule *compiled, size_t row) {
    static float residual[COUNT];
    rp_request request = {.compiled = compiled};
    rpi_chunk chunk = {.request = &request};
    int encodings = 0;
    cut(&request.partition, sums[row].dtype, sums[row].codec,
        sums[row].feedback ? residual : NULL, compiled->schedule.parts);
    for (int i = 0; i < compiled->schedule.count; i++) {
        const rpi_instruction *it = &compiled->instruction[i];
        if (it->kind != RPI_STEP_ENCODE || it->fused || it->from != RPI_SLOT_SUM) continue;
        encodings++;
        CHECK_MSG(rpi_instruction_stays_values(&chunk, it) == sums[row].stays, "%s of %s",
                  sums[row].codec, rp_dtype_name(sums[row].dtype));
    }
    CHECK_EQ(encodings, 1);
    rpi_partition_free(&request.partition);
}

static void exact_sums_stay_where_they_are(void) {
    const rpi_algorithm *sra = NULL;
    rpi_plan_request request = {.world = WORLD, .rank = 2};
    rpi_compiled_schedule *compiled = NULL;
    REQUIRE_OK(rpi_algorithm_find(RPI_ALL_REDUCE, "sra", &sra));
    REQUIRE_OK(rpi_schedule_compile(sra, &request, false, false, &compiled));
    for (size_t row = 0; row < sizeof sums / sizeof sums[0]; row++) check_sums(compiled, row);
    rpi_compiled_destroy(compiled);
}

CASES({"exact sums stay where they are", exact_sums_stay_where_they_are})
