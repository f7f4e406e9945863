/* Tables of measured trainings, and what is wrong with some. */
#include "plan/foresight/measured_table.h"

#include "base/memory.h"
#include "plan/foresight/trainings.h"

static rp_status parse(const char *text, rpi_measured_table *out) {
    char copy[2048];
    rpi_training_layout l = small_gpt();
    snprintf(copy, sizeof copy, "%s", text);
    return rpi_measured_table_parse(copy, &l, out);
}

static void rows_are_read(void) {
    rpi_measured_table t;
    REQUIRE_OK(parse("# source: here\n# rule: all\n"
                     "row,hidden,heads, layers,gpus,tensor,pipeline,global_batch,note,"
                     "iteration_ms,recompute,zero\r\n"
                     "1,2048,16,24,16,2,4,64,\"one, of \"\"two\"\"\",410.5,full,1\r\n\n"
                     "2,1024,16,8,1,1,1,8,,99,none,0",
                     &t));
    CHECK_EQ(t.count, 2);
    CHECK(strcmp(t.unused, "row, note") == 0);
    const rpi_measured_row *row = t.rows;
    CHECK_EQ(row->line, 4);
    CHECK_EQ(row->layout.data, 2);
    CHECK_EQ(row->layout.model.ffn, 8192); /* as many times hidden */
    CHECK_EQ(row->layout.model.head, 128);
    CHECK_EQ(row->layout.model.kv_heads, 16);
    CHECK_EQ(row->layout.sequence, 512); /* as no column says */
    CHECK(row->layout.recompute == RPI_RECOMPUTE_FULL && row->layout.zero == 1);
    CHECK_NEAR(row->step_s, .4105, 1e-12);
    CHECK_EQ(t.rows[1].line, 6);
    CHECK_EQ(t.rows[1].layout.model.ffn, 4096);
    rpi_free(t.rows);
}

static void rates_are_times(void) {
    static const char *const tables[] = {"gpus,global_batch,tokens_per_s\n4,8,1024",
                                         "gpus,global_batch,tokens_per_s_gpu\n4,8,256",
                                         "gpus,global_batch,iteration_s\n4,8,4",
                                         "\xef\xbb\xbfgpus,global_batch,iteration_s\n4,8,4"};
    for (int i = 0; i < 4; i++) {
        rpi_measured_table t;
        REQUIRE_OK(parse(tables[i], &t));
        CHECK_NEAR(t.rows[0].step_s, 4, 1e-12);
        rpi_free(t.rows);
    }
}

/* ---- the table of mistakes: add a row ---- */

static const struct {
    const char *text, *message;
} mistakes[] = {
    {"", "the table has no rows"},
    {"iteration_s\n", "the table has no rows"},
    {"hidden,layers\n3,4", "line 1: no column says how long a step took"},
    {"iteration_s,iteration_s\n3,4", "line 1: the column iteration_s stands twice"},
    {"gpus,iteration_s\n1,", "line 2: iteration_s is empty"},
    {"gpus,iteration_s\n1", "line 2: iteration_s is empty"},
    {"gpus,iteration_s\n,3", "line 2: gpus is empty"},
    {"gpus,iteration_s\n1,3\n1,-3", "line 3: iteration_s: '-3' is not above 0"},
    {"gpus,iteration_s\n1,0", "iteration_s: '0' is not above 0"},
    {"gpus,iteration_s\n1,nan", "iteration_s: 'nan' is not"},
    {"gpus,iteration_s\n1,3s", "iteration_s: '3s' is not a number"},
    {"gpus,iteration_s\n1,1,000", "line 2: 3 cells, and the first line names 2"},
    {"gpus,iteration_s\n1.5,3", "gpus: '1.5' is no whole number"},
    {"gpus,iteration_s\n-1,3", "gpus: '-1' is no whole number"},
    {"gpus,iteration_s\n0,3", "gpus: 0 is too few"},
    {"gpus,tensor,iteration_s\n6,4,3", "6 gpus are not whole replicas of 4 x 1"},
    {"gpus,data,global_batch,iteration_s\n6,4,4,3",
     "tensor x context x pipeline x data is 4, and gpus 6"},
    {"heads,tensor,data,iteration_s\n4,3,1,3", "--tp 3 does not divide"},
    {"hidden,heads,iteration_s\n1000,16,3", "hidden=1000 is no multiple of heads=16"},
    {"zero,iteration_s\n4,3", "zero is 0 to 3"},
    {"recompute,iteration_s\nsome,3", "unknown recomputation 'some'"},
    {"precision,iteration_s\nbf17,3", "did you mean 'bf16'"},
};

static void mistakes_are_named(void) {
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        rpi_measured_table t;
        CHECK_FAILS(parse(mistakes[i].text, &t), INVALID, mistakes[i].message);
    }
}

static void lack_of_memory_is_passed_on(void) {
    rpi_measured_table t;
    (void)rpi_memory_fail_after(1);
    CHECK_FAILS(parse("gpus,iteration_s\n1,3", &t), NOMEM, "rows");
    (void)rpi_memory_fail_after(2);
    CHECK_FAILS(parse("gpus,iteration_s\n1,3\n1,4\n", &t), NOMEM, "rows");
    (void)rpi_memory_fail_after(0);
}

static void columns_are_explained(void) {
    for (int i = 0; rpi_measured_column_at(i); i++)
        CHECK(strlen(rpi_measured_column_at(i)->help) > 3);
}

CASES({"rows are read", rows_are_read}, {"rates are times", rates_are_times},
      {"mistakes are named", mistakes_are_named},
      {"lack of memory is passed on", lack_of_memory_is_passed_on},
      {"columns are explained", columns_are_explained})
