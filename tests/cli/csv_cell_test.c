/* Texts as cells of CSV files, which no spreadsheet shall run. */
#include "cli/report/csv_cell.h"

#include "harness/check.h"

#include <stdlib.h>

static const struct {
    const char *text, *cell;
} rows[] = {
    {"", ""},
    {"fp32", "fp32"},
    {"a b", "a b"},
    {"a,\"b\"", "\"a,\"\"b\"\"\""},
    {"a\nb", "\"a\nb\""},
    {"a;b", "\"a;b\""},
    {"a=b", "a=b"},
    {"1+1", "1+1"},
    {" ", " "},
    {"a\tb", "\"a\tb\""},
    {"a\rb", "\"a\rb\""},
    {"\"", "\"\"\"\""},
    {"q4:bucket=512", "q4:bucket=512"},

    /* numbers stay numbers */
    {"-1.5", "-1.5"},
    {"+2", "+2"},
    {"-3e-4", "-3e-4"},
    {"-.5E+10", "-.5E+10"},
    {"-7.", "-7."},
    {"-1E5", "-1E5"},
    {"+0.25", "+0.25"},
    {" -1", " -1"},

    /* formulas do not */
    {"=1+1", "\"'=1+1\""},
    {"=cmd|' /C calc'!A0", "\"'=cmd|' /C calc'!A0\""},
    {"=HYPERLINK(\"x\",\"y\")", "\"'=HYPERLINK(\"\"x\"\",\"\"y\"\")\""},
    {"+1+1", "\"'+1+1\""},
    {"-1+1", "\"'-1+1\""},
    {"-1.5.2", "\"'-1.5.2\""},
    {"-", "\"'-\""},
    {"+", "\"'+\""},
    {"+.", "\"'+.\""},
    {"-.e5", "\"'-.e5\""},
    {"--1", "\"'--1\""},
    {"-1e+", "\"'-1e+\""},
    {"-1e5x", "\"'-1e5x\""},
    {"-1e5.0", "\"'-1e5.0\""},
    {" -", "\"' -\""},
    {"-e5", "\"'-e5\""},
    {"-1e", "\"'-1e\""},
    {"-A1", "\"'-A1\""},
    {"@SUM(1)", "\"'@SUM(1)\""},
    {"\t=1", "\"'\t=1\""},
    {"\r=1", "\"'\r=1\""},
    {"\n=1", "\"'\n=1\""},
    {"  =1", "\"'  =1\""},
};

static void no_text_is_a_formula(void) {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *got = NULL;
        size_t bytes = 0;
        FILE *stream = open_memstream(&got, &bytes);
        REQUIRE(stream);
        rpi_csv_put_text(stream, rows[i].text);
        fclose(stream);
        CHECK_MSG(strcmp(got, rows[i].cell) == 0, "row %zu: %s, not %s", i, got, rows[i].cell);
        free(got);
    }
}

CASES({"no text is a formula", no_text_is_a_formula})
