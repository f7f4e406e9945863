/* Stages of models: together they hold every parameter, tied ones twice, and whatever the cut
 * is, activations are handed on one at a time. A model that is added joins by a row. */
#include "base/memory.h"
#include "base/status.h"
#include "harness/check.h"
#include "train/parallel/node_costs.h"
#include "train/parallel/stage.h"

#include <string.h>

typedef struct model_row {
    const char *model;
    rpi_data_shape shape;
    int parts;        /* that it can be cut into */
    const char *tied; /* on the first and the last stage; NULL: nothing is */
} model_row;

#define TOKENS                                                                                 \
    { .sequence = 8, .vocabulary = 40 }
#define PICTURES                                                                               \
    { .channels = 3, .height = 32, .width = 32, .classes = 10 }
static const model_row models[] = {
    {"gpt2:layers=5,hidden=8,heads=2,vocabulary=40,positions=8", TOKENS, 6, "wte.weight"},
    {"llama:layers=5,hidden=8,heads=2,vocabulary=40,positions=8", TOKENS, 6, NULL},
    {"llama:layers=2,hidden=8,heads=2,vocabulary=40,positions=8,tied=on", TOKENS, 3,
     "model.embed_tokens.weight"},
    {"vit:patch=8,layers=3,hidden=8,heads=2", PICTURES, 4, NULL},
    {"resnet20:width=2", PICTURES, 10, NULL},
};
enum { MODELS = sizeof models / sizeof models[0], MOST = 6 };

static const rpi_pipeline_kind *kind_of(const char *name) {
    const rpi_pipeline_kind *kind = NULL;
    CHECK_OK(rpi_pipeline_kind_find(name, &kind));
    return kind;
}

typedef struct cut_model {
    rpi_network network;
    double *costs;
    rpi_model_stage stages[MOST];
    int count;
} cut_model;

static rp_status open_cut(const model_row *row, const char *schedule, int stages,
                          cut_model *cut) {
    *cut = (cut_model){0};
    RP_TRY(rpi_network_build(row->model, &row->shape, &cut->network));
    RP_TRY(rpi_node_costs(&cut->network, &cut->costs));
    for (; cut->count < stages; cut->count++)
        RP_TRY(rpi_stage_open(&cut->network, cut->costs, kind_of(schedule), stages, cut->count,
                              &cut->stages[cut->count]));
    return RP_OK;
}

static void close_cut(cut_model *cut) {
    for (int s = 0; s < cut->count; s++) rpi_stage_close(&cut->stages[s]);
    rpi_free(cut->costs);
    rpi_network_close(&cut->network);
}

/* How many stages hold a record, and how many count it. */
static void check_record(const model_row *row, const cut_model *cut, int record,
                         rpi_weights *const *weights) {
    const char *name = cut->network.parameters[record].name;
    int holders = 0, counters = 0, first, last, wanted = 1;
    for (int s = 0; s < cut->count; s++) {
        bool holds = rpi_stage_holds(&cut->stages[s], &cut->network, record, &first, &last);
        CHECK_EQ(holds, rpi_weights_find(weights[s], name) != NULL);
        holders += holds;
        counters += holds && rpi_stage_counts(&cut->stages[s], record);
        if (holds) CHECK(first <= s && s <= last);
    }
    bool apart = !rpi_stage_ends(&cut->stages[0]); /* the ends of the model, from each other */
    if (row->tied && strcmp(row->tied, name) == 0 && apart) wanted = 2;
    CHECK_MSG(holders == wanted, "%s of %s is on %d stages", name, row->model, holders);
    CHECK_EQ(counters, 1);
}

static void check_cut(const model_row *row, const char *schedule, int stages) {
    cut_model cut;
    rpi_weights *weights[MOST] = {NULL};
    const rpi_weights_memory whole = {&rpi_arena_memory_own, &rpi_arena_memory_own};
    int ends = 0;
    CHECK_OK(open_cut(row, schedule, stages, &cut));
    for (int s = 0; s < cut.count; s++) {
        CHECK_OK(rpi_stage_weights(&cut.stages[s], &cut.network, &whole, &weights[s]));
        ends += rpi_stage_ends(&cut.stages[s]);
        for (int k = 0; k < cut.stages[s].chunks; k++) {
            const rpi_network_part *part = &cut.stages[s].parts[k];
            CHECK(part->first_node < part->end_node);
            CHECK_EQ(part->given == RPI_NO_VALUE, part->part == 0);
            if (part->given == RPI_NO_VALUE) continue;
            CHECK_EQ(2 * rpi_stage_crossing(&cut.network, part->given, 3),
                     rpi_stage_crossing(&cut.network, part->given, 6));
        }
    }
    CHECK_EQ(ends, 1);
    for (int i = 0; i < cut.network.parameter_count; i++) check_record(row, &cut, i, weights);
    for (int s = 0; s < cut.count; s++) rpi_weights_destroy(weights[s]);
    close_cut(&cut);
}

static void stages_hold_a_model_together(void) {
    for (int m = 0; m < MODELS; m++) {
        for (int stages = 2; stages <= models[m].parts && stages <= MOST; stages++)
            check_cut(&models[m], "1f1b", stages);
        if (models[m].parts < 4) continue;
        check_cut(&models[m], "interleaved", 2);
        check_cut(&models[m], "zb-v", 2);
    }
}

static void too_many_stages_are_refused(void) {
    for (int m = 0; m < MODELS; m++) {
        cut_model cut = {0};
        rpi_model_stage stage;
        char would[64];
        snprintf(would, sizeof would, "can be cut into %d parts; --pp %d would fit",
                 models[m].parts, models[m].parts);
        CHECK_OK(open_cut(&models[m], "1f1b", 0, &cut));
        CHECK_FAILS(rpi_stage_open(&cut.network, cut.costs, kind_of("1f1b"),
                                   models[m].parts + 1, 0, &stage),
                    INVALID, would);
        close_cut(&cut);
    }
}

static void a_model_without_blocks_is_refused(void) {
    const model_row row = {"mlp:hidden=8x8", PICTURES, 0, NULL};
    cut_model cut;
    CHECK_FAILS(open_cut(&row, "1f1b", 2, &cut), INVALID, "mlp:hidden=8x8 has no blocks");
    close_cut(&cut);
}

/* The costliest of two stages costs no more than the half and a block. */
static void stages_cost_alike(void) {
    cut_model cut;
    CHECK_OK(open_cut(&models[1], "1f1b", 2, &cut));
    double cost[2] = {0}, all = 0;
    for (int s = 0; s < 2; s++)
        for (int n = cut.stages[s].parts[0].first_node; n < cut.stages[s].parts[0].end_node;
             n++)
            cost[s] += cut.costs[n];
    all = cost[0] + cost[1];
    CHECK(cost[0] > 0.3 * all && cost[1] > 0.3 * all);
    CHECK(
        strstr(cut.stages[0].text, "1f1b over 2 stages: model.embed_tokens to model.layers."));
    CHECK(strcmp(cut.stages[0].text, cut.stages[1].text) == 0);
    close_cut(&cut);
}

CASES({"stages_hold_a_model_together", stages_hold_a_model_together},
      {"too_many_stages_are_refused", too_many_stages_are_refused},
      {"a_model_without_blocks_is_refused", a_model_without_blocks_is_refused},
      {"stages_cost_alike", stages_cost_alike})
