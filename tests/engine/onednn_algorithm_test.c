/* The choice of an algorithm. */
#include "engine/onednn/onednn_algorithm.h"
#include "harness/check.h"

#include <string.h>

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

static void is_told_in_words(void) {
    char text[RPI_DNN_GEOMETRY_TEXT];
    rpi_dnn_geometry g = geometry(8, 256, 14);
    g.direction = RPI_DNN_BACKWARD_WEIGHTS;
    rpi_dnn_geometry_text(&g, text);
    const char *words = strchr(text, ' ');
    CHECK_MSG(words && strcmp(words, " backward-weights n8 c256 h14 w14 k256 r3 s3 stride1 "
                                     "padding1 threads2") == 0,
              "got %s", text);
    g.is_bf16 = true;
    rpi_dnn_geometry_text(&g, text);
    CHECK(strstr(text, "threads2 bf16") != NULL);
}

CASES({"fits_only_3x3_of_stride_1", fits_only_3x3_of_stride_1},
      {"pays_with_enough_work", pays_with_enough_work}, {"is_told_in_words", is_told_in_words})
