/* The choice of an algorithm: the rule, and measurements that a file remembers. */
#include "engine/onednn/onednn_tuning.h"
#include "harness/check.h"

#include <stdio.h>
#include <stdlib.h>

enum { PATH = 512 };

static rpi_dnn_geometry geometry(int64_t batch, int64_t channels, int64_t size) {
    return (rpi_dnn_geometry){.batch = batch,
                              .channels = channels,
                              .height = size,
                              .width = size,
                              .filters = channels,
                              .window_height = 3,
                              .window_width = 3,
                              .stride = 1,
                              .padding = 1,
                              .threads = 2};
}

/* ---- the rule ---- */

static void fits_only_3x3_of_stride_1(void) {
    rpi_dnn_geometry g = geometry(64, 64, 28);
    CHECK(rpi_dnn_winograd_fits(&g));
    g.stride = 2;
    CHECK(!rpi_dnn_winograd_fits(&g));
    g = geometry(64, 64, 28);
    g.window_width = 1;
    CHECK(!rpi_dnn_winograd_fits(&g));
}

static void pays_with_enough_work(void) {
    static const struct {
        int64_t batch, channels, size;
        bool pays;
    } table[] = {
        {64, 64, 28, true}, {64, 512, 4, true}, {16, 512, 4, false},
        {32, 512, 4, true}, {1, 512, 4, false}, {64, 16, 28, false},
        {8, 32, 14, true},  {64, 32, 4, false}, {32, 256, 7, true},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        rpi_dnn_geometry g = geometry(table[i].batch, table[i].channels, table[i].size);
        CHECK_MSG(rpi_dnn_winograd_pays(&g) == table[i].pays, "row %zu", i);
    }
}

/* ---- measuring: a stand-in with given times ---- */

typedef struct clockwork {
    double direct, winograd;
    int calls;
} clockwork;

static rp_status tell(void *context, bool winograd, double *out_seconds) {
    clockwork *it = context;
    it->calls++;
    *out_seconds = winograd ? it->winograd : it->direct;
    return RP_OK;
}

static rp_status refuse(void *context, bool winograd, double *out_seconds) {
    (void)context, (void)winograd, (void)out_seconds;
    return RP_FAIL(NOMEM, "nothing can be measured");
}

static void rule_without_a_file(void) {
    rpi_dnn_tuning *tuning = NULL;
    clockwork it = {.direct = 1, .winograd = 2};
    bool winograd = false;
    rpi_dnn_geometry g = geometry(64, 64, 28);
    REQUIRE_OK(rpi_dnn_tuning_create(NULL, &tuning));
    CHECK_OK(rpi_dnn_tuning_choose(tuning, &g, tell, &it, &winograd));
    CHECK(winograd);
    CHECK_EQ(it.calls, 0);
    rpi_dnn_tuning_destroy(tuning);
}

static void choose(rpi_dnn_tuning *tuning, rpi_dnn_direction direction, clockwork *it,
                   bool wanted, int calls) {
    rpi_dnn_geometry g = geometry(64, 64, 28);
    bool winograd = !wanted;
    g.direction = direction;
    CHECK_OK(rpi_dnn_tuning_choose(tuning, &g, tell, it, &winograd));
    CHECK_EQ(winograd, wanted);
    CHECK_EQ(it->calls, calls);
}

static void remembers(void) {
    char file[PATH];
    snprintf(file, sizeof file, "%s/tuning", check_folder());
    rpi_dnn_tuning *tuning = NULL;
    clockwork slow = {.direct = 1, .winograd = 2}, quick = {.direct = 2, .winograd = 1};
    REQUIRE_OK(rpi_dnn_tuning_create(file, &tuning));
    choose(tuning, RPI_DNN_FORWARD, &slow, false, 2);
    choose(tuning, RPI_DNN_BACKWARD_DATA, &quick, true, 2);
    choose(tuning, RPI_DNN_FORWARD, &quick, false, 2); /* in the same session */
    rpi_dnn_tuning_destroy(tuning);
    tuning = NULL;
    REQUIRE_OK(rpi_dnn_tuning_create(file, &tuning));
    choose(tuning, RPI_DNN_FORWARD, &quick, false, 2); /* in the next */
    choose(tuning, RPI_DNN_BACKWARD_DATA, &slow, true, 2);
    choose(tuning, RPI_DNN_BACKWARD_WEIGHTS, &slow, false, 4);
    rpi_dnn_tuning_destroy(tuning);
}

static void rule_gives_way_to_a_margin(void) {
    static const struct {
        int64_t channels;
        double direct, winograd;
        bool taken;
    } table[] = {
        {64, 1.0, 1.05, true},
        {64, 1.0, 1.2, false},
        {16, 1.0, 0.95, false},
        {16, 1.0, 0.8, true},
    };
    char file[PATH];
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        rpi_dnn_tuning *tuning = NULL;
        snprintf(file, sizeof file, "%s/margin%zu", check_folder(), i);
        REQUIRE_OK(rpi_dnn_tuning_create(file, &tuning));
        rpi_dnn_geometry g = geometry(64, table[i].channels, 28);
        clockwork it = {.direct = table[i].direct, .winograd = table[i].winograd};
        bool winograd = !table[i].taken;
        CHECK_OK(rpi_dnn_tuning_choose(tuning, &g, tell, &it, &winograd));
        CHECK_MSG(winograd == table[i].taken, "row %zu", i);
        rpi_dnn_tuning_destroy(tuning);
    }
}

static void overlooks_what_it_cannot_read(void) {
    char file[PATH];
    snprintf(file, sizeof file, "%s/scribble", check_folder());
    FILE *stream = fopen(file, "w");
    REQUIRE(stream);
    fputs("\n\xff\xfe winograd\nno choice\n", stream);
    for (int i = 0; i < 1000; i++) fputc('x', stream);
    fputs(" direct", stream);
    fclose(stream);
    rpi_dnn_tuning *tuning = NULL;
    clockwork quick = {.direct = 2, .winograd = 1};
    REQUIRE_OK(rpi_dnn_tuning_create(file, &tuning));
    choose(tuning, RPI_DNN_FORWARD, &quick, true, 2);
    rpi_dnn_tuning_destroy(tuning);
}

static void failures(void) {
    rpi_dnn_tuning *tuning = NULL;
    rpi_dnn_geometry g = geometry(64, 64, 28);
    clockwork it = {.direct = 1, .winograd = 2};
    bool winograd = false;
    CHECK_FAILS(rpi_dnn_tuning_create(check_folder(), &tuning), IO, "tuning file");
    char file[PATH];
    snprintf(file, sizeof file, "%s/nowhere/tuning", check_folder());
    REQUIRE_OK(rpi_dnn_tuning_create(file, &tuning));
    CHECK_FAILS(rpi_dnn_tuning_choose(tuning, &g, refuse, NULL, &winograd), NOMEM, "measured");
    CHECK_FAILS(rpi_dnn_tuning_choose(tuning, &g, tell, &it, &winograd), IO, "tuning file");
    rpi_dnn_tuning_destroy(tuning);
    rpi_dnn_tuning_destroy(NULL);
}

CASES({"fits_only_3x3_of_stride_1", fits_only_3x3_of_stride_1},
      {"pays_with_enough_work", pays_with_enough_work},
      {"rule_without_a_file", rule_without_a_file}, {"remembers", remembers},
      {"rule_gives_way_to_a_margin", rule_gives_way_to_a_margin},
      {"overlooks_what_it_cannot_read", overlooks_what_it_cannot_read}, {"failures", failures})
