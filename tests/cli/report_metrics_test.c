/* What the report reads from metrics.jsonl and benchmarks, and what it makes of it. */
#include "cli/report/markup.h"
#include "cli/report/run_summary.h"
#include "harness/check.h"

#include <stdlib.h>

static rpi_arena *arena;
static rpi_metrics_file file;

static rp_status read_text(const char *text, size_t bytes) {
    FILE *stream = fmemopen((void *)(uintptr_t)text, bytes, "r");
    if (!stream) return RP_FAIL(IO, "no stream");
    rp_status status = rpi_metrics_file_read(stream, "m", arena, &file);
    fclose(stream);
    return status;
}

static rp_status read_lines(const char *text) {
    return read_text(text, strlen(text));
}

#define HEADER(first)                                                                          \
    "{\"redpoll\":\"0.1.0\",\"model\":\"mlp\",\"ranks\":2,\"first_step\":" first "}\n"
#define STEP(step, loss)                                                                       \
    "{\"step\":" step ",\"loss\":" loss ",\"step_s\":0.5,\"wire_bytes\":10}\n"
#define CLOSING "{\"steps\":1,\"images_s_median\":5}\n"

static double loss_at(size_t index) {
    return file.steps[index].values[RPI_STEP_LOSS];
}

static void a_run_is_read(void) {
    REQUIRE_OK(read_lines(HEADER("1") STEP("1", "2.5") STEP(
        "2", "null") "\n"
                     "{\"evaluated_step\":2,\"test_accuracy\":0.5,\"later_key\":[1]}\n"
                     "{\"a_later_kind\":true}\n" CLOSING));
    CHECK(file.step_count == 2 && file.steps[1].step == 2);
    CHECK_NEAR(loss_at(0), 2.5, 0);
    CHECK(isnan(loss_at(1)) && isnan(file.steps[0].values[RPI_STEP_SKEW_S]));
    CHECK(file.evaluation_count == 1 && file.evaluations[0].accuracy == 0.5);
    CHECK(file.closed && !file.error && file.resumed_count == 0 && file.torn_lines == 0);
    rpi_metrics_file_close(&file);
}

static void later_steps_replace_earlier_ones(void) {
    REQUIRE_OK(read_lines(HEADER("1") STEP("1", "1") STEP("2", "2") STEP(
        "3", "3") "{\"evaluated_step\":3,\"test_accuracy\":0.1}\n" HEADER("2") STEP("2", "20")
                              STEP("3", "30") STEP("4", "40")));
    CHECK(file.step_count == 4 && file.evaluation_count == 0);
    CHECK(loss_at(0) == 1 && loss_at(1) == 20 && loss_at(2) == 30 && loss_at(3) == 40);
    CHECK(file.replaced_steps == 2 && file.resumed_count == 1 && file.resumed[0] == 2);
    CHECK(!file.closed);
    rpi_metrics_file_close(&file);
}

static void a_header_lost_behind_a_torn_line_is_found(void) {
    REQUIRE_OK(
        read_lines(HEADER("1") STEP("1", "1") "{\"step\":2,\"lo" HEADER("2") STEP("2", "5")));
    CHECK(file.step_count == 2 && loss_at(1) == 5 && file.torn_lines == 1);
    CHECK(file.resumed_count == 1);
    rpi_metrics_file_close(&file);
    REQUIRE_OK(read_lines(HEADER("1") "{\"step\":1,\"lo\n" HEADER("1") STEP("1", "5")));
    CHECK(file.step_count == 1 && file.torn_lines == 1);
    rpi_metrics_file_close(&file);
}

static void a_line_that_is_being_written_is_left_out(void) {
    REQUIRE_OK(read_lines(HEADER("1") STEP("1", "1") "{\"step\":2,\"loss\":1."));
    CHECK(file.step_count == 1 && file.last_line_torn);
    rpi_metrics_file_close(&file);
    REQUIRE_OK(read_lines("{\"redpoll\":\"0.1"));
    CHECK(file.last_line_torn && !file.header);
    rpi_metrics_file_close(&file);
    REQUIRE_OK(read_lines(""));
    rpi_metrics_file_close(&file);
}

static void numbers_that_are_none_are_read(void) {
    REQUIRE_OK(read_lines(STEP("1", "NaN") STEP("2", "-Infinity") STEP("3", "inf")
                              STEP("4", "1e400") STEP("5", "\"text NaN\"")));
    REQUIRE(file.step_count == 5);
    for (size_t i = 0; i < 5; i++) CHECK(!isfinite(loss_at(i)));
    rpi_metrics_file_close(&file);
}

static void what_is_no_json_is_named_with_its_line(void) {
    CHECK_FAILS(read_lines(HEADER("1") "hello\n" STEP("1", "1")), CORRUPT, "m:2: not JSON");
    CHECK_FAILS(read_lines(HEADER("1") "hello\n"), CORRUPT, "m:2: not JSON");
    CHECK_FAILS(read_lines("[1,2]\n"), CORRUPT, "m:1: not JSON");
    CHECK_FAILS(read_lines(STEP("1", "1") "{\"step\":1}{\"step\":2}\n" STEP("3", "1")), CORRUPT,
                "m:2");
    CHECK_FAILS(read_lines(STEP("-1", "1")), CORRUPT, "m:1: \"step\" is no number of steps");
    CHECK_FAILS(read_lines(STEP("\"x\"", "1")), CORRUPT, "\"step\"");
    CHECK_FAILS(read_lines(STEP("1e300", "1")), CORRUPT, "\"step\"");
    CHECK_FAILS(read_lines("{\"who\":1}\n"), CORRUPT, "holds nothing");
    CHECK_FAILS(read_text("{\"step\":1,\0}\n", 13), CORRUPT, "m:1");
    char *deep = malloc(200001);
    REQUIRE(deep);
    memset(deep, '[', 200000);
    deep[199999] = '\n';
    CHECK_FAILS(read_text(deep, 200000), CORRUPT, "m:1");
    free(deep);
}

/* Damaged bytes are read or refused, and nothing else happens. */
static void any_damage_is_survived(void) {
    static const char whole[] = HEADER("1") STEP("1", "2.25") STEP("2", "1.5") HEADER("2") STEP(
        "2", "1.25") "{\"evaluated_step\":2,\"test_accuracy\":0.5}\n"
                     "{\"failed_step\":2,\"error\":\"rank 1 \\u00e9 left\"}\n"
                     "{\"op\":\"all-reduce\",\"ranks\":2,\"bytes\":64,\"time_s\":1}\n" CLOSING;
    srand48((long)check_seed());
    for (int i = 0; i < 3000; i++) {
        char damaged[sizeof whole];
        size_t bytes = sizeof whole - 1;
        memcpy(damaged, whole, sizeof whole);
        for (long d = lrand48() % 4; d >= 0; d--)
            damaged[lrand48() % (long)bytes] = (char)(lrand48() % 256);
        if (i % 3 == 0) bytes = 1 + (size_t)(lrand48() % (long)bytes);
        if (read_text(damaged, bytes) != RP_OK) continue;
        rpi_report_run run = {0};
        CHECK_OK(rpi_run_summarise(&file, 50, arena, &run));
        rpi_metrics_file_close(&file);
    }
}

static void a_run_is_summed_up(void) {
    REQUIRE_OK(read_lines(HEADER("1") "{\"step\":1,\"loss\":3,\"images_s\":10,\"step_s\":4,"
                                      "\"exposed_s\":1,\"skew_s\":0.5,\"wire_bytes\":100}\n"
                                      "{\"step\":2,\"loss\":1,\"images_s\":20,\"step_s\":2,"
                                      "\"exposed_s\":1,\"skew_s\":0.25,\"wire_bytes\":100}\n"
                                      "{\"evaluated_step\":1,\"test_accuracy\":0.9}\n{"
                                      "\"evaluated_step\":2,\"test_accuracy\":0.8}\n"
                                      "{\"failed_step\":2,\"error\":\"rank 1 left\"}\n"));
    rpi_report_run run = {0};
    REQUIRE_OK(rpi_run_summarise(&file, 100, arena, &run));
    CHECK(run.steps == 2 && run.curve_count == 2 && run.single && run.window == 1);
    CHECK_NEAR(run.seconds, 6, 1e-12);
    CHECK_NEAR(run.bytes, 200, 0);
    CHECK_NEAR(run.final_loss, 1, 0);
    CHECK_NEAR(run.best_accuracy, 0.9, 0);
    CHECK(run.best_step == 1);
    CHECK_NEAR(run.rate.p50, 15, 1e-12);
    CHECK_NEAR(run.rate.p10, 11, 1e-12);
    CHECK_NEAR(run.parts.step_s, 3, 1e-12);
    CHECK_NEAR(run.parts.compute_s, 2, 1e-12);
    CHECK_NEAR(run.parts.skew_s, 0.375, 1e-12);
    CHECK_NEAR(run.parts.network_s, 0.625, 1e-12);
    CHECK(run.state == RPI_RUN_FAILED && run.note_count == 1);
    CHECK(run.note_count && strcmp(run.notes[0], "failed after step 2: rank 1 left") == 0);
    rpi_metrics_file_close(&file);
}

/* A spike in one of 100,000 steps is in the band; the curve stays short. */
static void long_runs_are_thinned_out_and_keep_their_extremes(void) {
    enum { STEPS = 100000, POINTS = 300 };
    file = (rpi_metrics_file){.step_count = STEPS, .unit = "images"};
    REQUIRE_OK(rpi_alloc_array(STEPS, sizeof *file.steps, "steps", &file.steps));
    for (int i = 0; i < STEPS; i++) {
        file.steps[i].step = i + 1;
        for (int v = 0; v < RPI_STEP_VALUES; v++) file.steps[i].values[v] = 1;
    }
    file.steps[54321].values[RPI_STEP_LOSS] = 77;
    file.steps[12345].values[RPI_STEP_LOSS] = NAN;
    rpi_report_run run = {0};
    REQUIRE_OK(rpi_run_summarise(&file, POINTS, arena, &run));
    CHECK(run.curve_count == POINTS && !run.single);
    double high = 0;
    for (int i = 0; i < POINTS; i++) {
        high = fmax(high, run.curve[i].high);
        CHECK(run.curve[i].low == 1);
        CHECK(i == 0 || run.curve[i].step > run.curve[i - 1].step);
    }
    CHECK(high == 77);
    CHECK_NEAR(run.curve[POINTS - 1].step, STEPS, 0);
    CHECK_NEAR(run.seconds, STEPS, 1e-6);
    rpi_metrics_file_close(&file);
}

static void a_diverged_run_has_no_final_loss(void) {
    REQUIRE_OK(read_lines(STEP("1", "1") STEP("2", "2") STEP("3", "null")));
    rpi_report_run run = {0};
    REQUIRE_OK(rpi_run_summarise(&file, 100, arena, &run));
    CHECK(isnan(run.final_loss));
    CHECK(run.note_count == 2 && strstr(run.notes[1], "the loss of step 3 is no number"));
    rpi_metrics_file_close(&file);
}

/* Wherever memory runs out: a status, and nothing is leaked (as the sanitizers see). */
static void memory_that_runs_out_is_a_status(void) {
    static const char text[] = HEADER("1") STEP("1", "2.25") HEADER("2")
        STEP("2", "1.25") "{\"failed_step\":2,\"error\":\"rank 1 "
                          "left\"}\n{\"op\":\"all-reduce\",\"bytes\":64}\n";
    bool succeeded = false;
    for (long n = 1; n < 500 && !succeeded; n++) {
        rpi_arena *small = arena;
        REQUIRE_OK(rpi_arena_create(64, &arena));
        rpi_memory_fail_after(n);
        rpi_report_run run = {0};
        rp_status status = read_lines(text);
        bool was_read = status == RP_OK;
        if (was_read) status = rpi_run_summarise(&file, 50, arena, &run);
        rpi_memory_fail_after(0);
        CHECK(status == RP_OK || status == RP_NOMEM);
        if (was_read) rpi_metrics_file_close(&file);
        rpi_arena_destroy(arena);
        arena = small;
        succeeded = status == RP_OK;
    }
    CHECK(succeeded);
}

static const char *escaped(const char *text) {
    static char out[512];
    memset(out, 0, sizeof out);
    FILE *stream = fmemopen(out, sizeof out, "w");
    rpi_markup_text(stream, text);
    fclose(stream);
    return out;
}

static void text_of_others_is_text(void) {
    static const struct {
        const char *text, *wanted;
    } cases[] = {
        {"<script>alert('1')</script>", "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;"},
        {"\" onload=\"x&amp;", "&quot; onload=&quot;x&amp;amp;"},
        {"a\x01\x7f", "a\xef\xbf\xbd\xef\xbf\xbd"},
        {"caf\xc3\xa9 \xf0\x9f\x90\xa6", "caf\xc3\xa9 \xf0\x9f\x90\xa6"},
        {"\xc3", "\xef\xbf\xbd"},                                 /* cut off */
        {"\xc0\xbc", "\xef\xbf\xbd\xef\xbf\xbd"},                 /* an overlong '<' */
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* a surrogate */
        {"\xef\xbf\xbf", "\xef\xbf\xbd"},                         /* no character */
        {"\x80", "\xef\xbf\xbd"},                                 /* a lead that is none */
        {"\xbf\x80\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xc1\xbf", "\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xf5\x80\x80\x80",
         "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* beyond U+10FFFF */
        {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xff\x80\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xf0\x8f\xbf\xbf", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* overlong */
        {"\xe0\x9f\xbf", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xf4\x8f\xbf\xbf",
         "\xef\xbf\xbd\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xf4\x8f\xbf\xbf"},
        {"]]>", "]]&gt;"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        CHECK_MSG(strcmp(escaped(cases[i].text), cases[i].wanted) == 0, "%zu: '%s'", i,
                  escaped(cases[i].text));
    char cut[32];
    CHECK(strcmp(rpi_markup_cut("run-with-a-name-1", 11, cut, sizeof cut), "run-wi…me-1") == 0);
    CHECK(strcmp(rpi_markup_cut("caf\xc3\xa9s", 4, cut, sizeof cut), "c…\xc3\xa9s") == 0);
    CHECK(strcmp(rpi_markup_cut("caf\xc3\xa9", 4, cut, sizeof cut), "caf\xc3\xa9") == 0);
    CHECK(rpi_markup_length("caf\xc3\xa9") == 4);
}

static void with_arena(void (*body)(void)) {
    REQUIRE_OK(rpi_arena_create(1 << 14, &arena));
    body();
    rpi_arena_destroy(arena);
}

#define WITH_ARENA(name)                                                                       \
    static void name##_case(void) {                                                            \
        with_arena(name);                                                                      \
    }
WITH_ARENA(a_run_is_read)
WITH_ARENA(later_steps_replace_earlier_ones)
WITH_ARENA(a_header_lost_behind_a_torn_line_is_found)
WITH_ARENA(a_line_that_is_being_written_is_left_out)
WITH_ARENA(numbers_that_are_none_are_read)
WITH_ARENA(what_is_no_json_is_named_with_its_line)
WITH_ARENA(any_damage_is_survived)
WITH_ARENA(a_run_is_summed_up)
WITH_ARENA(long_runs_are_thinned_out_and_keep_their_extremes)
WITH_ARENA(a_diverged_run_has_no_final_loss)
WITH_ARENA(memory_that_runs_out_is_a_status)

CASES({"a run is read", a_run_is_read_case},
      {"later steps replace earlier ones", later_steps_replace_earlier_ones_case},
      {"a header lost behind a torn line is found",
       a_header_lost_behind_a_torn_line_is_found_case},
      {"a line that is being written is left out",
       a_line_that_is_being_written_is_left_out_case},
      {"numbers that are none are read", numbers_that_are_none_are_read_case},
      {"what is no JSON is named with its line", what_is_no_json_is_named_with_its_line_case},
      {"any damage is survived", any_damage_is_survived_case},
      {"a run is summed up", a_run_is_summed_up_case},
      {"long runs are thinned out and keep their extremes",
       long_runs_are_thinned_out_and_keep_their_extremes_case},
      {"a diverged run has no final loss", a_diverged_run_has_no_final_loss_case},
      {"memory that runs out is a status", memory_that_runs_out_is_a_status_case},
      {"text of others is text", text_of_others_is_text})
