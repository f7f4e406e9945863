/* Images that are held in memory: what an augmentation makes of them, and on what it depends.
 */
#include "harness/check.h"
#include "train/data/source_images.h"

#include <stdlib.h>
#include <string.h>

enum { SIDE = 28, PIXELS = SIDE * SIDE, MOST = SIDE / 8, IMAGES = 24, BATCH = 8, STEPS = 6 };

static void open_source(const char *augment, int rank, int world, rpi_source *source) {
    rpi_source_options options = {.data = "synthetic",
                                  .seed = 3,
                                  .train_count = IMAGES,
                                  .test_count = 4,
                                  .pictures = {.augment = augment},
                                  .global_batch = BATCH,
                                  .most = BATCH,
                                  .rank = rank,
                                  .world = world};
    REQUIRE_OK(rpi_source_open(&options, source));
}

/* Images of a step, all ranks one behind the other. */
static void deal_step(const char *augment, int world, int step, float *out) {
    for (int rank = 0; rank < world; rank++) {
        rpi_source source;
        rpi_source_batch batch;
        open_source(augment, rank, world, &source);
        REQUIRE_OK(rpi_source_deal(&source, step, &batch));
        memcpy(out, batch.inputs[0], (size_t)batch.count * PIXELS * sizeof *out);
        out += batch.count * PIXELS;
        rpi_source_close(&source);
    }
}

static bool is_shifted(const float *plain, const float *shown, int right, int down, bool flips,
                       float black) {
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) {
            int row = y - down, column = (flips ? SIDE - 1 - x : x) - right;
            bool is_inside = row >= 0 && row < SIDE && column >= 0 && column < SIDE;
            float wanted = is_inside ? plain[row * SIDE + column] : black;
            if (shown[y * SIDE + x] != wanted) return false;
        }
    return true;
}

/* 49 shifts, twice: which of them is this? -1: none. */
static int find_shift(const float *plain, const float *shown, float black) {
    for (int right = -MOST; right <= MOST; right++)
        for (int down = -MOST; down <= MOST; down++)
            for (int flips = 0; flips < 2; flips++)
                if (is_shifted(plain, shown, right, down, flips, black))
                    return ((right + MOST) * (2 * MOST + 1) + down + MOST) * 2 + flips;
    return -1;
}

static float black_of(void) {
    rpi_source source;
    float levels[256];
    open_source("none", 0, 1, &source);
    rpi_dataset_levels(rpi_source_images_dataset(&source), 0, levels);
    rpi_source_close(&source);
    return levels[0];
}

static void images_are_shifted_and_mirrored(void) {
    enum { SHIFTS = (2 * MOST + 1) * (2 * MOST + 1) * 2 };
    static float plain[BATCH * PIXELS], shown[BATCH * PIXELS];
    static const char *const names[] = {"flip", "standard"};
    float black = black_of();
    for (int n = 0; n < 2; n++) {
        int seen[SHIFTS] = {0}, kinds = 0, mirrored = 0;
        for (int step = 0; step < STEPS; step++) {
            deal_step("none", 1, step, plain);
            deal_step(names[n], 1, step, shown);
            for (int i = 0; i < BATCH; i++) {
                int shift = find_shift(plain + i * PIXELS, shown + i * PIXELS, black);
                REQUIRE(shift >= 0);
                kinds += seen[shift]++ == 0;
                mirrored += shift % 2;
            }
        }
        CHECK_MSG(mirrored > STEPS * BATCH / 4 && mirrored < STEPS * BATCH * 3 / 4,
                  "%d of %d are mirrored", mirrored, STEPS * BATCH);
        CHECK_MSG(n ? kinds > 25 : kinds == 2, "%s: %d kinds of shifts", names[n], kinds);
    }
}

static bool same(const float *a, const float *b, int count) {
    for (int i = 0; i < count; i++)
        if (a[i] != b[i]) return false;
    return true;
}

static void ranks_see_what_one_would(void) {
    static float wanted[BATCH * PIXELS], got[BATCH * PIXELS];
    for (int step = 0; step < STEPS; step++)
        for (int world = 2; world <= 3; world++) {
            deal_step("standard", 1, step, wanted);
            deal_step("standard", world, step, got);
            CHECK_MSG(same(wanted, got, BATCH * PIXELS), "%d ranks, step %d", world, step);
        }
}

static void the_held_out_stay(void) {
    rpi_source a, b;
    rpi_source_batch plain, shown;
    open_source("none", 0, 1, &a);
    open_source("standard", 0, 1, &b);
    REQUIRE_OK(rpi_source_hold_out(&a, 0, 4, &plain));
    REQUIRE_OK(rpi_source_hold_out(&b, 0, 4, &shown));
    CHECK(same(plain.inputs[0], shown.inputs[0], 4 * PIXELS));
    rpi_source_close(&a);
    rpi_source_close(&b);
}

CASES({"images are shifted and mirrored", images_are_shifted_and_mirrored},
      {"ranks see what one would", ranks_see_what_one_would},
      {"the held out stay", the_held_out_stay})
