/* A kernel's form is found once, is the first unless another is quicker, and is what
 * REDPOLL_FORMS says. */
#include "base/kernel_form.h"

#include "base/clock.h"
#include "harness/check.h"
#include "redpoll/log.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"slow", "quick", "slower", NULL};
static _Atomic int runs;
static _Atomic bool all_differ;

/* Busy so long: what other processes do may make it longer, never shorter. */
static void spin(double milliseconds) {
    int64_t end = rpi_now_ns() + (int64_t)(1e6 * milliseconds);
    while (rpi_now_ns() < end) continue;
}

static bool run(int form, float *memory) {
    static const double milliseconds[] = {0.3, 0, 0.4};
    enum { COUNT = RPI_FORM_BYTES / sizeof(float) };
    atomic_fetch_add(&runs, 1);
    if (memory[0] == memory[1] || memory[COUNT - 2] == memory[COUNT - 1]) all_differ = false;
    memory[0] = -memory[1];
    spin(milliseconds[form]);
    return true;
}

static bool run_only_form(int form, float *memory) {
    (void)form, (void)memory;
    atomic_fetch_add(&runs, 1);
    return false;
}

static char logged[512];

static void note(void *context, rp_log_level level, const char *line) {
    (void)context, (void)level;
    strncpy(logged, line, sizeof logged - 1);
}

static rpi_kernel_form new_kernel(void) {
    rp_log_set_sink(note, NULL);
    logged[0] = '\0';
    unsetenv("REDPOLL_FORMS");
    runs = 0;
    all_differ = true;
    return (rpi_kernel_form){.kernel = "spin", .names = names, .run = run};
}

static void memory_comes_first_then_the_cache(void) {
    static const struct {
        rpi_form_times times;
        int count, quickest;
    } rows[] = {
        {{{1, 1, 1, 1}, {1, 1, 1, 1}}, 4, 0},
        {{{1, 0.97, 1.2, 0.98}, {1, 1, 1, 1}}, 4, 0},
        {{{1, 0.94, 1, 1}, {1, 9, 1, 1}}, 4, 1},
        {{{1, 0.94, 0.5, 1}, {1, 1, 9, 1}}, 4, 2},
        {{{1, 1, 1.04, 1}, {1, 1, 0.9, 1}}, 4, 2},
        {{{1, 1, 1.06, 1}, {1, 1, 0.5, 1}}, 4, 0},
        {{{1, 1, 1, 1}, {1, 0.97, 0.96, 0.97}}, 4, 0},
        {{{1, 1, 1, 1}, {1, 0.9, 0.89, 0.8}}, 4, 3},
        {{{1.4, 1, 1.4, 0.99}, {1.2, 1.2, 1, 1}}, 4, 3}, /* a Xeon */
        {{{1, 1, 1.17, 2}, {1.2, 1.2, 1, 1}}, 2, 0},     /* Zen 4 */
        {{{1, 0.1}, {1, 0.1}}, 1, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        CHECK_EQ(rpi_form_quickest(&rows[i].times, rows[i].count), rows[i].quickest);
}

static void a_large_call_measures_and_a_small_one_does_not(void) {
    rpi_kernel_form kernel = new_kernel();
    CHECK_EQ(rpi_form_count(&kernel), 3);
    CHECK_EQ(rpi_form_for(&kernel, RPI_FORM_LEAST - 1), 0);
    CHECK_EQ(runs, 0);
    CHECK_EQ(rpi_form_for(&kernel, RPI_FORM_LEAST), 1);
    int measured = runs;
    CHECK(measured >= 3 && all_differ);
    CHECK_EQ(rpi_form_for(&kernel, RPI_FORM_LEAST), 1);
    CHECK_EQ(rpi_form_for(&kernel, 1), 1);
    CHECK_EQ(runs, measured);
}

static void a_kernel_with_one_form_here_takes_the_first(void) {
    rpi_kernel_form kernel = new_kernel();
    kernel.run = run_only_form;
    CHECK_EQ(rpi_form_for(&kernel, RPI_FORM_LEAST), 0);
    CHECK_EQ(rpi_form_for(&kernel, RPI_FORM_LEAST), 0);
    CHECK(runs <= 2);
}

static float *places[RPI_FORMS_MAX];

static bool note_place(int form, float *memory) {
    (void)form;
    for (int i = 0; i < RPI_FORMS_MAX; i++) {
        if (places[i] == memory) break;
        if (places[i]) continue;
        places[i] = memory;
        break;
    }
    memory[RPI_FORM_BYTES / sizeof(float) - 1] = 1; /* is there */
    return true;
}

/* Prefetches of one do not reach what another runs on, as many as there are. */
static void forms_run_on_memory_apart(void) {
    static const char *const most[RPI_FORMS_MAX + 1] = {"a", "b", "c", "d"};
    _Static_assert(RPI_FORMS_MAX == 4, "a name for each");
    rpi_kernel_form kernel = new_kernel();
    kernel.run = note_place;
    kernel.names = most;
    (void)rpi_form_for(&kernel, RPI_FORM_LEAST);
    for (int i = 1; i < RPI_FORMS_MAX; i++) {
        REQUIRE(places[i] != NULL);
        CHECK(places[i] - places[i - 1] >= (RPI_FORM_BYTES + 4096) / (int)sizeof(float));
    }
}

/* A warning has room for some forms, and ends there. */
static void long_names_are_cut(void) {
    static const char *const long_names[] = {
        "a-form-with-a-name-of-fifty-two-letters-and-no-meaning",
        "b-form-with-a-name-of-fifty-two-letters-and-no-meaning",
        "c-form-with-a-name-of-fifty-two-letters-and-no-meaning",
        "d-form-with-a-name-of-fifty-two-letters-and-no-meaning", NULL};
    rpi_kernel_form kernel = new_kernel();
    kernel.names = long_names;
    setenv("REDPOLL_FORMS", "spin=e", 1);
    CHECK_EQ(rpi_form_for(&kernel, 1), 0);
    CHECK_MSG(strstr(logged, long_names[0]) && strstr(logged, long_names[1]) &&
                  !strstr(logged, long_names[2]) && strstr(logged, "; measuring"),
              "'%s'", logged);
}

static void the_environment_says_it(void) {
    static const struct {
        const char *text;
        int form; /* below 0: measured, and with a warning */
    } rows[] = {
        {"spin=slower", 2},
        {"spin=slow", 0},
        {"other=x,spin=slower", 2},
        {"spin=slower,other=y", 2},
        {"spinner=slow,spin=slower", 2},
        {"spin=", -1},
        {"spin=slo", -1},
        {"other=x,spin=slowest,y=z", -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rpi_kernel_form kernel = new_kernel();
        setenv("REDPOLL_FORMS", rows[i].text, 1);
        CHECK_EQ(rpi_form_for(&kernel, 1), rows[i].form < 0 ? 0 : rows[i].form);
        CHECK_EQ(rpi_form_for(&kernel, RPI_FORM_LEAST), rows[i].form < 0 ? 1 : rows[i].form);
        CHECK_EQ(runs > 0, rows[i].form < 0);
        CHECK_MSG((strstr(logged, "slow, quick, slower") != NULL) == (rows[i].form < 0),
                  "'%s' logs '%s'", rows[i].text, logged);
    }
}

static void others_are_nothing_to_a_kernel(void) {
    static const char *const texts[] = {"",     ",", "other=slow", "spinner=slow",
                                        "spin", "=", "spi=slow"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        rpi_kernel_form kernel = new_kernel();
        setenv("REDPOLL_FORMS", texts[i], 1);
        CHECK_EQ(rpi_form_for(&kernel, RPI_FORM_LEAST), 1);
        CHECK_MSG(!logged[0], "'%s' logs '%s'", texts[i], logged);
    }
}

enum { THREADS = 8 };
static rpi_kernel_form shared;

static void *ask(void *out) {
    *(int *)out = rpi_form_for(&shared, RPI_FORM_LEAST);
    return NULL;
}

/* Whoever comes while another measures goes on with the first. */
static void threads_measure_once_and_wait_for_nobody(void) {
    shared = new_kernel();
    CHECK_EQ(rpi_form_for(&shared, RPI_FORM_LEAST), 1);
    const int once = runs;
    shared = new_kernel();
    pthread_t threads[THREADS];
    int forms[THREADS];
    for (int i = 0; i < THREADS; i++)
        REQUIRE(!pthread_create(&threads[i], NULL, ask, &forms[i]));
    for (int i = 0; i < THREADS; i++) REQUIRE(!pthread_join(threads[i], NULL));
    for (int i = 0; i < THREADS; i++) CHECK(forms[i] == 0 || forms[i] == 1);
    CHECK_EQ(runs, once);
    CHECK_EQ(rpi_form_for(&shared, 1), 1);
}

static void tests_set_it(void) {
    rpi_kernel_form kernel = new_kernel();
    rpi_form_set(&kernel, 2);
    CHECK_EQ(rpi_form_for(&kernel, RPI_FORM_LEAST), 2);
    CHECK_EQ(runs, 0);
    rpi_form_set(&kernel, -1);
    CHECK_EQ(rpi_form_for(&kernel, RPI_FORM_LEAST), 1);
}

CASES({"memory_comes_first_then_the_cache", memory_comes_first_then_the_cache},
      {"tests_set_it", tests_set_it},
      {"a_large_call_measures_and_a_small_one_does_not",
       a_large_call_measures_and_a_small_one_does_not},
      {"a_kernel_with_one_form_here_takes_the_first",
       a_kernel_with_one_form_here_takes_the_first},
      {"forms_run_on_memory_apart", forms_run_on_memory_apart},
      {"long_names_are_cut", long_names_are_cut},
      {"the_environment_says_it", the_environment_says_it},
      {"others_are_nothing_to_a_kernel", others_are_nothing_to_a_kernel},
      {"threads_measure_once_and_wait_for_nobody", threads_measure_once_and_wait_for_nobody})
