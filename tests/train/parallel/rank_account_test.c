/* What a rank holds, counted: of one rank what the model's account says, of stages what their
 * schedules keep. Add a row to `layouts`. */
#include "base/memory.h"
#include "base/status.h"
#include "harness/check.h"
#include "train/model_account.h"
#include "train/parallel/node_costs.h"
#include "train/parallel/rank_account.h"

#include <string.h>

#define MODEL "gpt2:layers=4,hidden=16,heads=2,vocabulary=64,positions=16"
static const rpi_data_shape shape = {.sequence = 16, .vocabulary = 64};

typedef struct layout_row {
    const char *schedule; /* NULL: one rank has all layers */
    int stages, micro_batches, zero, sharers;
    int in_flight[3]; /* of the stages */
} layout_row;

static const layout_row layouts[] = {
    {NULL, 1, 1, 0, 1, {1}},         {NULL, 1, 1, 1, 4, {1}},
    {NULL, 1, 1, 2, 4, {1}},         {"1f1b", 2, 8, 0, 1, {2, 1}},
    {NULL, 1, 1, 3, 4, {1}},         {"1f1b", 2, 8, 3, 4, {2, 1}},
    {"1f1b", 3, 8, 1, 2, {3, 2, 1}}, {"1f1b", 3, 2, 0, 1, {2, 2, 1}},
    {"afab", 2, 8, 0, 1, {8, 8}},    {"zb-h1", 3, 8, 0, 1, {3, 3, 3}},
    {"zb-h2", 2, 8, 0, 1, {3, 3}},   {"eager-1f1b", 3, 8, 0, 1, {5, 3, 1}},
};

/* What ranks share is their part, and buckets that are there for a while. */
static void check_arena(double bytes, double arena, double part, bool is_shared) {
    if (is_shared)
        CHECK_MSG(bytes > 1.02 * part && bytes < arena, "%g of %g, of which %g is owned", bytes,
                  arena, part);
    else
        CHECK_NEAR(bytes, arena, 0.5);
}

/* Tables at both ends are held twice. */
static void check_layout(const rpi_network *network, const double *costs,
                         const layout_row *row) {
    enum { WTE = 64 * 16, SLOTS = 2 };
    const rpi_pipeline_kind *kind = NULL;
    int64_t parameters = 0;
    if (row->schedule) REQUIRE_OK(rpi_pipeline_kind_find(row->schedule, &kind));
    for (int s = 0; s < row->stages; s++) {
        rpi_model_stage stage = {0};
        rpi_rank_account a;
        if (kind) REQUIRE_OK(rpi_stage_open(network, costs, kind, row->stages, s, &stage));
        const rpi_rank_account_options options = {.network = network,
                                                  .stage = kind ? &stage : NULL,
                                                  .compute = RP_F32,
                                                  .micro_batch = 2,
                                                  .micro_batches = row->micro_batches,
                                                  .slots = SLOTS,
                                                  .zero = row->zero,
                                                  .sharers = row->sharers,
                                                  .bucket_bytes = 2048};
        REQUIRE_OK(rpi_rank_account_make(&options, &a));
        double arena = (double)a.parameters * sizeof(float);
        double part = arena / row->sharers, all = 0, line = 0.02 * arena;
        bool shares = row->sharers > 1 && row->zero > 0;
        CHECK_EQ(a.in_flight, row->in_flight[s]);
        check_arena(a.bytes[RPI_HELD_PARAMETERS], arena, part, row->zero >= 3);
        check_arena(a.bytes[RPI_HELD_GRADIENTS], arena, part, row->zero >= 2);
        CHECK_NEAR(a.bytes[RPI_HELD_OPTIMIZER], SLOTS * (shares ? part : arena),
                   shares ? SLOTS * line : 0.5);
        CHECK((a.bytes[RPI_HELD_MESSAGES] > 0) == (kind != NULL));
        for (int k = 0; k < RPI_HELD_KINDS; k++) all += a.bytes[k];
        CHECK_NEAR(a.all, all, 0.5);
        CHECK(a.bytes[rpi_rank_account_largest(&a)] >= a.bytes[RPI_HELD_ACTIVATIONS]);
        parameters += a.parameters;
        rpi_stage_close(&stage);
    }
    CHECK_EQ(parameters, rpi_parameters_total(network->parameters, network->parameter_count) +
                             (kind ? WTE : 0));
}

static void layouts_hold_what_they_should(void) {
    rpi_network network = {0};
    double *costs = NULL;
    REQUIRE_OK(rpi_network_build(MODEL, &shape, &network));
    REQUIRE_OK(rpi_node_costs(&network, &costs));
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
        check_layout(&network, costs, &layouts[i]);
    rpi_free(costs);
    rpi_network_close(&network);
}

static rpi_rank_account account_of(const rpi_network *network, int64_t samples,
                                   bool recompute) {
    const rpi_rank_account_options options = {.network = network,
                                              .compute = RP_F32,
                                              .recompute = recompute,
                                              .micro_batch = samples,
                                              .micro_batches = 1,
                                              .slots = 2};
    rpi_rank_account a = {0};
    CHECK_OK(rpi_rank_account_make(&options, &a));
    return a;
}

/* One rank's is the account that `redpoll info` prints. */
static void one_rank_is_the_models_account(void) {
    rpi_network network = {0};
    rpi_model_account whole = {0};
    const rpi_account_options options = {.batch = 3, .shape = shape, .compute = RP_F32};
    REQUIRE_OK(rpi_network_build(MODEL, &shape, &network));
    REQUIRE_OK(rpi_model_account_make(MODEL, &options, &whole));
    rpi_rank_account a = account_of(&network, 3, false);
    CHECK_EQ(a.parameters, whole.parameters);
    CHECK_EQ(a.bytes[RPI_HELD_ACTIVATIONS], whole.facts.memory_bytes);
    CHECK_EQ(a.bytes[RPI_HELD_WORKSPACE], whole.facts.workspace_bytes);
    CHECK_EQ(a.forward_flops, whole.facts.forward_flops);
    CHECK(account_of(&network, 3, true).all < a.all);
    CHECK(account_of(&network, 1, false).all < a.all);
    rpi_model_account_free(&whole);
    rpi_network_close(&network);
}

CASES({"layouts hold what they should", layouts_hold_what_they_should},
      {"one rank is the model's account", one_rank_is_the_models_account})
