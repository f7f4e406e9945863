/* A step in a line of any width, and numbers as people read them. */
#include "cli/progress.h"

#include "cli/numbers.h"
#include "harness/check.h"

static const rpi_progress_step some = {50, 100, 2.30259, 105.23, 62, "images"};

static const char *line(const rpi_progress_step *step, int columns) {
    static char text[256];
    return rpi_progress_text(step, true, columns, text, sizeof text);
}

static void what_matters_least_goes_first(void) {
    static const struct {
        int columns;
        const char *text;
    } known[] = {
        {200,
         "[############............] step 50/100  loss 2.3026  105.2 images/s  62.00 s left"},
        {83,
         "[############............] step 50/100  loss 2.3026  105.2 images/s  62.00 s left"},
        {70, "[######.......] step 50/100  loss 2.3026  105.2 images/s  62.00 s left"},
        {57, "step 50/100  loss 2.3026  105.2 images/s  62.00 s left"},
        {50, "[####.....] step 50/100  loss 2.3026  62.00 s left"},
        {39, "step 50/100  loss 2.3026  62.00 s left"},
        {31, "[##..] step 50/100  loss 2.3026"},
        {20, "[###...] step 50/100"},
        {12, "step 50/100"},
        {6, "step 5"},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        CHECK_MSG(strcmp(line(&some, known[i].columns), known[i].text) == 0, "%d columns: '%s'",
                  known[i].columns, line(&some, known[i].columns));
}

static void no_line_is_wider_than_its_terminal(void) {
    static const rpi_progress_step steps[] = {
        {1, 1, 0, 0, 0, "images"},
        {50, 100, 2.3, 105.2, 62, "images"},
        {123456789012, 999999999999, 1.0e36, 123456.7, 1e9, "images"},
        {7, 0, NAN, INFINITY, NAN, "images"},
        {0, 10, -INFINITY, 1e300, 1e300, "images"},
    };
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        for (int columns = 1; columns <= 250; columns++)
            CHECK_MSG(strlen(line(&steps[i], columns)) <= (size_t)columns,
                      "step %zu in %d: '%s'", i, columns, line(&steps[i], columns));
}

static void numbers_are_for_people(void) {
    static const struct {
        double value;
        const char *text;
    } numbers[] = {{2.302585, "2.3026"}, {0, "0.0000"},      {0.00015, "0.0001"},
                   {12.345, "12.35"},    {4321, "4321"},     {-3, "-3.0000"},
                   {1e36, "1.0e+36"},    {1.5e-7, "1.5e-07"}},
      times[] = {
          {0, "0 s"},         {1.2272, "1.227 s"}, {0.16556, "165.6 ms"}, {2.03e-5, "20.30 us"},
          {3e-9, "3.000 ns"}, {61.5, "61.50 s"},   {723, "12:03"},        {3723, "1:02:03"}};
    char text[RPI_TIME_BYTES];
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        CHECK_MSG(strcmp(rpi_loss_text(numbers[i].value, text), numbers[i].text) == 0,
                  "%g is written %s", numbers[i].value, text);
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
        CHECK_MSG(strcmp(rpi_time_text(times[i].value, text), times[i].text) == 0,
                  "%g s is written %s", times[i].value, text);
    CHECK(strstr(rpi_loss_text(NAN, text), "nan") != NULL);
    CHECK(strstr(rpi_loss_text(INFINITY, text), "inf") != NULL);
}

CASES({"what matters least goes first", what_matters_least_goes_first},
      {"no line is wider than its terminal", no_line_is_wider_than_its_terminal},
      {"numbers are for people", numbers_are_for_people})
