/* In bf16 units of convolutional networks hand bf16 on: so they do from stage to stage, in half
 * of the bytes, and stages compute, bit for bit, what one rank does.
 *
 * Add a row to `layouts`. */
#include "base/memory.h"
#include "base/status.h"
#include "harness/check.h"
#include "train/parallel/border_dtypes.h"
#include "train/parallel/node_costs.h"
#include "train/parallel/verify.h"
#include "train_ranks.h"

#include <stdio.h>
#include <string.h>

/* Widths of 16, 32 and 64, which lie in whole blocks of any processor. */
#define MODEL "resnet20:width=16"
enum { BATCH = 8 };

typedef struct layout_row {
    int stages;
    const char *schedule;
    int64_t micro_batch;
    bool recompute;
} layout_row;

static const layout_row layouts[] = {
    {2, "1f1b", 4, false},
    {3, "zb-h1", 2, false},
    {2, "interleaved", 4, true},
    {2, "zb-v", 8, false},
};

static rpi_train_options options_of(const layout_row *layout, const char *dtype) {
    rpi_train_options options = ranks_options();
    options.model = MODEL;
    options.train_images = 24;
    options.test_images = 5;
    options.global_batch_size = BATCH;
    options.micro_batch_size = layout->micro_batch;
    options.recompute = layout->recompute;
    options.steps = 3;
    options.backend = "cpu";
    options.dtype = dtype;
    options.threads = 1;
    options.clip = 1;
    return options;
}

static bool has_bf16(void) {
    const rpi_backend *cpu = NULL;
    return rpi_backend_find("cpu", &cpu) == RP_OK &&
           rpi_backend_check_compute(cpu, RP_BF16) == RP_OK;
}

static void check_layout(const layout_row *layout) {
    rpi_train_result one = {0}, many = {0};
    rpi_train_options options = options_of(layout, "bf16");
    rpi_verify_difference kinds[RPI_VERIFY_KINDS];
    options.overwrite = true;
    options.out = ranks_folder("one");
    REQUIRE_OK(ranks_train(&options, 1, &one));
    options.stages = layout->stages;
    options.schedule = layout->schedule;
    options.out = ranks_folder("stages");
    REQUIRE_OK(ranks_train(&options, layout->stages, &many));
    CHECK_MSG(one.last_loss == many.last_loss, "%s: %.9g, %.9g", layout->schedule,
              one.last_loss, many.last_loss);
    CHECK_MSG(one.test.loss == many.test.loss, "%s: %.9g, %.9g", layout->schedule,
              one.test.loss, many.test.loss);
    CHECK_OK(rpi_verify_checkpoints(ranks_folder("one"), ranks_folder("stages"), 0, kinds));
    for (int k = RPI_VERIFY_PARAMETERS; k < RPI_VERIFY_KINDS; k++)
        CHECK_MSG(kinds[k].differing == 0, "%s: %s, off by %.3g", layout->schedule,
                  kinds[k].first.name, kinds[k].largest);
}

static void stages_are_one_rank(void) {
    if (!has_bf16()) {
        check_skip("no kernels of bf16 on this processor");
        return;
    }
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
        if (i < 2 || check_long()) check_layout(&layouts[i]);
}

/* Stage 0 sends activations: a message for each of two micro-batches, in frames of which there
 * may be fewer then. */
static void messages_have_half_of_the_bytes(void) {
    rpi_train_result whole = {0}, half = {0};
    rpi_network network = {0};
    rpi_model_stage stage = {0};
    const rpi_pipeline_kind *kind = NULL;
    double *costs = NULL;
    const rpi_data_shape shape = {.channels = 1, .height = 28, .width = 28, .classes = 10};
    if (!has_bf16()) {
        check_skip("no kernels of bf16 on this processor");
        return;
    }
    rpi_train_options options = options_of(&layouts[0], NULL);
    options.stages = 2;
    REQUIRE_OK(ranks_train(&options, 2, &whole));
    options.dtype = "bf16";
    REQUIRE_OK(ranks_train(&options, 2, &half));
    REQUIRE_OK(rpi_network_build(MODEL, &shape, &network));
    REQUIRE_OK(rpi_node_costs(&network, &costs));
    REQUIRE_OK(rpi_pipeline_kind_find("1f1b", &kind));
    REQUIRE_OK(rpi_stage_open(&network, costs, kind, 2, 0, &stage));
    REQUIRE_OK(rpi_border_dtypes_find(&network, NULL, RP_BF16, false, 4, &stage));
    CHECK(stage.parts[0].seed_as.value == RP_BF16 &&
          stage.parts[0].seed_as.gradient == RP_BF16);
    CHECK(stage.all[1].given_as.value == RP_BF16 && stage.all[1].given_as.gradient == RP_BF16);
    double sent =
        2 * (double)rpi_stage_crossing(&network, stage.parts[0].seed, 4) * sizeof(float);
    CHECK_NEAR(whole.wire_bytes_median - half.wire_bytes_median, sent / 2, 0.01 * sent);
    rpi_stage_close(&stage);
    rpi_free(costs);
    rpi_network_close(&network);
}

/* Transformers hand f32 on: nothing changes there. */
static void what_is_f32_stays_so(void) {
    static const rpi_data_shape shape = {.sequence = 8, .vocabulary = 64};
    rpi_network network = {0};
    rpi_model_stage stage = {0};
    const rpi_pipeline_kind *kind = NULL;
    double *costs = NULL;
    if (!has_bf16()) {
        check_skip("no kernels of bf16 on this processor");
        return;
    }
    REQUIRE_OK(rpi_network_build("gpt2:layers=2,hidden=16,heads=2,vocabulary=64,positions=8",
                                 &shape, &network));
    REQUIRE_OK(rpi_node_costs(&network, &costs));
    REQUIRE_OK(rpi_pipeline_kind_find("1f1b", &kind));
    REQUIRE_OK(rpi_stage_open(&network, costs, kind, 2, 0, &stage));
    REQUIRE_OK(rpi_border_dtypes_find(&network, NULL, RP_BF16, false, 2, &stage));
    CHECK(stage.parts[0].seed_as.value != RP_BF16);
    CHECK(stage.all[1].given_as.gradient != RP_BF16);
    rpi_stage_close(&stage);
    rpi_free(costs);
    rpi_network_close(&network);
}

CASES({"stages_are_one_rank", stages_are_one_rank},
      {"messages_have_half_of_the_bytes", messages_have_half_of_the_bytes},
      {"what_is_f32_stays_so", what_is_f32_stays_so})
