/* --codec auto:like=q4: what runs with it do. */
#include "harness/check.h"
#include "redpoll/adaptive.h"
#include "train/checkpoint/safetensors.h"
#include "train/data/token_writer.h"
#include "train/strategies/bit_chooser.h"
#include "train_ranks.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* ---- the choice, by two ranks ---- */

enum { TENSORS = 4, COUNT = 20000 };

static uint8_t chosen[2][TENSORS];

/* Tensor 0 is large in scale, 3 is exact; ranks differ. */
static rp_status choose_once(void *context, rp_comm *comm) {
    (void)context;
    static float values[2][TENSORS][COUNT];
    static const float scales[TENSORS] = {1, 0.1f, 0.01f, 1};
    int rank = rp_comm_rank(comm);
    rp_codec like;
    RP_TRY(rp_codec_parse("q4", &like));
    rp_segment segments[TENSORS];
    uint32_t word = 12345u + (uint32_t)rank;
    for (int t = 0; t < TENSORS; t++) {
        for (int i = 0; i < COUNT; i++) {
            word = word * 1664525u + 1013904223u;
            values[rank][t][i] = scales[t] * ((float)(word >> 8) / 8388608.0f - 1);
        }
        segments[t] = (rp_segment){.data = values[rank][t],
                                   .count = COUNT,
                                   .dtype = RP_F32,
                                   .codec = t < 3 ? like : (rp_codec){0},
                                   .tensor = (uint32_t)t};
    }
    rpi_bit_chooser chooser;
    char text[RPI_BIT_CHOICE_TEXT];
    memset(chosen[rank], 0, TENSORS);
    RP_TRY(rpi_bit_chooser_open(&like, segments, TENSORS, chosen[rank], &chooser));
    rpi_bit_chooser_clear(&chooser);
    rp_status status = RP_OK;
    for (int t = 0; t < TENSORS && status == RP_OK; t++)
        status = rpi_bit_chooser_measure(&chooser, t);
    if (status == RP_OK) status = rpi_bit_chooser_choose(&chooser, comm, text);
    CHECK_MSG(strstr(text, "times fewer bytes than q4:bucket=512; tensors at v1"), "%s", text);
    rpi_bit_chooser_apply(&chooser);
    rp_codec wanted;
    CHECK_OK(rp_level_codec(&like, chosen[rank][0], &wanted));
    CHECK(segments[0].codec.kind == wanted.kind && segments[0].codec.bits == wanted.bits &&
          segments[3].codec.kind == NULL);
    if (status == RP_OK) status = rpi_bit_chooser_choose(&chooser, comm, text);
    rpi_bit_chooser_close(&chooser);
    return status;
}

static void ranks_choose_alike_and_by_scale(void) {
    REQUIRE_OK(ranks_run(2, choose_once, NULL));
    CHECK(memcmp(chosen[0], chosen[1], TENSORS) == 0);
    CHECK_MSG(chosen[0][0] > 12 && chosen[0][1] < 12 && chosen[0][2] <= chosen[0][1] &&
                  chosen[0][3] == 0,
              "%d %d %d %d", chosen[0][0], chosen[0][1], chosen[0][2], chosen[0][3]);
}

/* ---- runs ---- */

static rpi_train_options auto_options(const char *folder) {
    rpi_train_options options = ranks_options();
    options.model = "mlp:hidden=16x1000x16"; /* three tensors that compress */
    options.codec = "auto:like=q4:bucket=64,every=5";
    options.error_feedback = true;
    options.steps = 30;
    options.out = ranks_folder(folder);
    return options;
}

static void runs_learn_and_tell_what_was_chosen(void) {
    rpi_train_options options = auto_options("auto");
    rpi_train_result result = {0};
    options.model = "mlp:hidden=128x128x100";
    options.steps = 60;
    REQUIRE_OK(ranks_train(&options, 2, &result));
    CHECK_MSG(result.test.accuracy > 0.9, "accuracy is %g", result.test.accuracy);
    CHECK_MSG(strstr(ranks_notes(), "codec auto, from step 2 on: "), "%s", ranks_notes());
    CHECK(strstr(ranks_notes(), "fewer bytes than q4:bucket=64"));
}

/* Levels that are not q4's, or the test below would say nothing. */
static bool has_levels(const char *folder) {
    rpi_safetensors *file = NULL;
    CHECK_OK(rpi_safetensors_open(ranks_path(folder, "model.safetensors"), &file));
    const char *digits = file ? rpi_safetensors_metadata(file, "codec_levels") : NULL;
    bool found = digits && digits[strspn(digits, "0")];
    rpi_safetensors_close(file);
    return found;
}

/* A run that was interrupted between two choices ends with the bytes of one that was not. */
static void interrupted_runs_end_alike(void) {
    rpi_train_options options = auto_options("whole");
    options.checkpoint = true;
    REQUIRE_OK(ranks_train(&options, 2, NULL));
    rpi_train_options first = auto_options("parts"), second = first;
    first.checkpoint = second.checkpoint = true;
    ranks_ask((ranks_wish){.rank = 0, .step = 8, .what = RPI_ASKED_SAVE | RPI_ASKED_STOP});
    REQUIRE_OK(ranks_train(&first, 2, NULL));
    ranks_ask((ranks_wish){0});
    CHECK(has_levels(first.out));
    second.resume = first.out;
    REQUIRE_OK(ranks_train(&second, 2, NULL));
    CHECK(ranks_same_file(ranks_path(options.out, "model.safetensors"),
                          ranks_path(first.out, "model.safetensors")));
}

/* ---- lossy where that is faster ---- */

/* Three buckets: 10,000 elements that would be lossy, 30,000, and none. */
static void short_buckets_travel_exact(void) {
    enum { SEGMENTS = 4 };
    static const size_t counts[SEGMENTS] = {10000, 20000, 10000, 500};
    uint8_t levels[SEGMENTS] = {13, 13, 13, 0};
    rp_codec like;
    REQUIRE_OK(rp_codec_parse("q4", &like));
    static const struct {
        int64_t lossy_from;
        bool lossy[SEGMENTS];
    } cases[] = {{0, {true, true, true, false}},
                 {10000, {true, true, true, false}},
                 {10001, {false, true, true, false}},
                 {30001, {false}},
                 {RPI_LOSSY_NEVER, {false}}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        rp_segment segments[SEGMENTS];
        for (int i = 0; i < SEGMENTS; i++)
            segments[i] = (rp_segment){.count = counts[i],
                                       .codec = i < 3 ? like : (rp_codec){0},
                                       .tensor = (uint32_t)i};
        rpi_bucket three[] = {{.segment = 0, .segment_count = 1},
                              {.segment = 1, .segment_count = 2},
                              {.segment = 3, .segment_count = 1}};
        rpi_buckets buckets = {
            .buckets = three, .count = 3, .segments = segments, .segment_count = SEGMENTS};
        rpi_bit_chooser chooser;
        REQUIRE_OK(rpi_bit_chooser_open(&like, segments, SEGMENTS, levels, &chooser));
        rpi_bit_chooser_limit(&chooser, &buckets, cases[c].lossy_from);
        rpi_bit_chooser_apply(&chooser);
        for (int i = 0; i < SEGMENTS; i++)
            CHECK_EQ(!rp_codec_is_exact(&segments[i].codec, RP_F32), cases[c].lossy[i]);
        CHECK_EQ(rpi_bit_chooser_is_needed(&chooser), cases[c].lossy_from <= 30000);
        rpi_bit_chooser_close(&chooser);
    }
}

/* A slow link decides for few bits; what was found out is kept with the run. */
static void slow_links_are_found_out_once(void) {
    rpi_train_options options = auto_options("slow"), more;
    options.codec = "auto:every=5";
    options.checkpoint = true;
    options.steps = 18; /* the trial takes 14 */
    ranks_shape("10Mbit,1us");
    REQUIRE_OK(ranks_train(&options, 2, NULL));
    CHECK_MSG(strstr(ranks_notes(), "codec auto: v4:bucket=16384 from "), "%s", ranks_notes());
    CHECK_MSG(strstr(ranks_notes(), "codec auto: lossy: steps take "), "%s", ranks_notes());
    CHECK(strstr(ranks_notes(), "fewer bytes than q4"));
    CHECK(has_levels(options.out));
    more = options;
    more.resume = options.out;
    more.steps = 20;
    REQUIRE_OK(ranks_train(&more, 2, NULL));
    CHECK_MSG(!strstr(ranks_notes(), "fp32 below"), "%s", ranks_notes());
    ranks_shape(NULL);
}

/* Whatever is faster here: all ranks do the same, or their frames would not match. */
static void any_link_trains(void) {
    rpi_train_options options = auto_options("any");
    options.codec = "auto";
    options.steps = 16;
    REQUIRE_OK(ranks_train(&options, 3, NULL));
    CHECK_MSG(strstr(ranks_notes(), "codec auto: "), "%s", ranks_notes());
}

/* The ratio in the notes; 0: none is told. */
static double times_fewer(void) {
    const char *told = strstr(ranks_notes(), "codec auto, from step ");
    const char *number = told ? strstr(told, "on: ") : NULL;
    return number ? strtod(number + 4, NULL) : 0;
}

/* Tokens of which some are frequent and most are rare, as in a text. */
static const char *tokens(void) {
    enum { TOKENS = 4000 };
    static char data[700];
    static uint32_t ids[TOKENS];
    char path[600];
    uint32_t word = 777;
    rpi_tokenizer *tokenizer = NULL;
    rpi_token_writer *writer = NULL;
    for (int i = 0; i < TOKENS; i++) {
        word = word * 1664525u + 1013904223u;
        double u = (double)(word >> 8) / 16777216;
        ids[i] = (uint32_t)(256 * u * u * u);
    }
    snprintf(path, sizeof path, "%s/text", check_folder());
    CHECK_OK(rpi_tokenizer_open("byte", &tokenizer));
    CHECK_OK(rpi_token_writer_open(path, tokenizer, &writer));
    CHECK_OK(rpi_token_writer_add(writer, ids, TOKENS));
    CHECK_OK(rpi_token_writer_close(writer, RP_OK));
    rpi_tokenizer_close(tokenizer);
    snprintf(data, sizeof data, "tokens:%s", path);
    return data;
}

static void expect_shorter(const char *model, const char *folder) {
    rpi_train_options options = ranks_options();
    options.model = model;
    options.codec = "auto:like=q4,every=2";
    options.error_feedback = true;
    options.eval = false;
    options.lr = 0.01;
    options.global_batch_size = 8;
    options.steps = 3;
    options.out = ranks_folder(folder);
    if (strncmp(model, "gpt2", 4) == 0) {
        options.data = tokens();
        options.train_images = options.test_images = 0;
        options.seq_length = 32;
        options.optimizer = "adamw";
        options.lr = 6e-4;
    }
    REQUIRE_OK(ranks_train(&options, 2, NULL));
    CHECK_MSG(times_fewer() >= 1.25, "%s: %s", model, ranks_notes());
}

/* At no more error than q4's: the test of the choice. */
static void gradients_of_networks_travel_a_quarter_shorter(void) {
    expect_shorter("gpt2:layers=2,hidden=96,heads=4,vocabulary=257,positions=32", "gpt");
    if (check_long()) expect_shorter("resnet18", "resnet");
}

CASES({"ranks_choose_alike_and_by_scale", ranks_choose_alike_and_by_scale},
      {"short_buckets_travel_exact", short_buckets_travel_exact},
      {"slow_links_are_found_out_once", slow_links_are_found_out_once},
      {"any_link_trains", any_link_trains},
      {"runs_learn_and_tell_what_was_chosen", runs_learn_and_tell_what_was_chosen},
      {"gradients_of_networks_travel_a_quarter_shorter",
       gradients_of_networks_travel_a_quarter_shorter},
      {"interrupted_runs_end_alike", interrupted_runs_end_alike})
