/* Which schedule and cut are taken, by times and links that are made up. Add a row to `known`:
 * what is asked for, and what it comes to. */
#include "base/memory.h"
#include "base/status.h"
#include "harness/check.h"
#include "train/parallel/layer_times.h"
#include "train/parallel/node_costs.h"
#include "train/parallel/stage_choice.h"

#include <string.h>

enum { LAYERS = 9 }; /* eight blocks, and what follows */
#define SIZES  "layers=8,hidden=8,heads=2,vocabulary=40,positions=8"
#define UNTIED "llama:" SIZES
#define TIED   "llama:" SIZES ",tied=on"
#define BLOCK  "model.layers."

/* Each block takes 1 forward, for inputs and for weights; 2 a backward pass in one. */
typedef struct choice_row {
    const char *model;
    int stages, micro_batches;
    const char *schedule, *cut;
    double head; /* the last layer, in blocks */
    double hop_s, memory;
    const char *record; /* of the run that goes on */
    const char *taken;  /* as it is recorded */
} choice_row;

static const choice_row known[] = {
    /* No link: the least bubble, but for a table at both ends, which one stage would add up in
     * another order. */
    {UNTIED, 2, 8, "auto", NULL, 0, 0, 0, NULL,
     "priced zb-v 2 8 " BLOCK "2 " BLOCK "4 " BLOCK "6"},
    {TIED, 2, 8, "auto", NULL, 0, 0, 0, NULL, "priced zb-h1 2 8 " BLOCK "4"},
    /* A slow link is paid for once. */
    {UNTIED, 4, 32, "auto", NULL, 0, 2, 0, NULL,
     "priced zb-h2 4 32 " BLOCK "2 " BLOCK "4 " BLOCK "6"},
    /* A head of three blocks has one beside it. */
    {TIED, 2, 8, "auto", NULL, 4, 0, 0, NULL, "priced zb-h1 2 8 " BLOCK "6"},
    {UNTIED, 2, 8, "1f1b", "measured", 4, 0, 0, NULL, "priced 1f1b 2 8 " BLOCK "6"},
    /* By operations, whatever was measured. */
    {UNTIED, 2, 8, "1f1b", NULL, 40, 0, 0, NULL, "asked 1f1b 2 8 " BLOCK "4"},
    {UNTIED, 2, 8, "1f1b", "counted", 40, 0, 0, NULL, "asked 1f1b 2 8 " BLOCK "4"},
    {TIED, 2, 8, "auto", "counted", 40, 0, 0, NULL, "priced zb-h1 2 8 " BLOCK "4"},
    /* As named. */
    {UNTIED, 2, 8, NULL, BLOCK "1", 1, 0, 0, NULL, "asked 1f1b 2 8 " BLOCK "1"},
    {UNTIED, 2, 8, "auto", BLOCK "4", 0, 0, 0, NULL, "priced zb-h1 2 8 " BLOCK "4"},
    {UNTIED, 2, 8, "interleaved", BLOCK "1," BLOCK "2," BLOCK "3", 1, 0, 0, NULL,
     "asked interleaved 2 8 " BLOCK "1 " BLOCK "2 " BLOCK "3"},
    /* What the run took before, but of another pipeline, or another model. */
    {UNTIED, 2, 8, "auto", NULL, 0, 0, 0, "priced afab 2 8 " BLOCK "3",
     "priced afab 2 8 " BLOCK "3"},
    {UNTIED, 2, 8, "1f1b", "measured", 1, 0, 0, "priced 1f1b 2 8 " BLOCK "3",
     "priced 1f1b 2 8 " BLOCK "3"},
    {TIED, 2, 8, "auto", NULL, 0, 0, 0, "priced afab 3 8 " BLOCK "3 " BLOCK "6",
     "priced zb-h1 2 8 " BLOCK "4"},
    {TIED, 2, 8, "auto", NULL, 0, 0, 0, "priced afab 2 8 h.3", "priced zb-h1 2 8 " BLOCK "4"},
    {TIED, 2, 8, "auto", NULL, 0, 0, 0, "priced afab 2 8", "priced zb-h1 2 8 " BLOCK "4"},
    {TIED, 2, 8, "auto", NULL, 0, 0, 0, "of later days", "priced zb-h1 2 8 " BLOCK "4"},
    {TIED, 2, 8, "auto", NULL, 0, 0, 0, "asked afab 2 8 " BLOCK "3",
     "priced zb-h1 2 8 " BLOCK "4"},
    {UNTIED, 2, 8, "1f1b", NULL, 0, 0, 0, "priced afab 2 8 " BLOCK "3",
     "asked 1f1b 2 8 " BLOCK "4"},
    /* Memory for as many as 1F1B has in flight. */
    {TIED, 4, 32, "auto", NULL, 0, 2, 800, NULL,
     "priced zb-h1 4 32 " BLOCK "2 " BLOCK "4 " BLOCK "6"},
};
enum { KNOWN = sizeof known / sizeof known[0] };

static const struct {
    choice_row row;
    const char *words;
} refused[] = {
    {{UNTIED, 2, 8, "1f1b", "h.3", 1, 0, 0, NULL, NULL},
     "no stage can begin with 'h.3' there; in this order can "
     "model.layers.1, model.layers.2"},
    {{UNTIED, 3, 8, "1f1b", BLOCK "3," BLOCK "2", 1, 0, 0, NULL, NULL},
     "no stage can begin with 'model.layers.2'"},
    {{UNTIED, 2, 8, "1f1b", BLOCK "0", 1, 0, 0, NULL, NULL},
     "no stage can begin with 'model.layers.0'"},
    {{UNTIED, 2, 8, "1f1b", BLOCK "3," BLOCK "4", 1, 0, 0, NULL, NULL},
     "makes 3 parts, and 1f1b over 2 stages has 2: name 1 layer, or say --stage-cut counted"},
    {{UNTIED, 2, 8, "auto", BLOCK "3," BLOCK "4", 1, 0, 0, NULL, NULL},
     "name 1 layer, or 3, or say --stage-cut counted"},
    {{UNTIED, 12, 8, "auto", NULL, 1, 0, 0, NULL, NULL},
     "can be cut into 9 parts; --pp 9 would fit"},
    {{UNTIED, 12, 8, "1f1b", "measured", 1, 0, 0, NULL, NULL},
     "can be cut into 9 parts; --pp 9 would fit"},
    {{UNTIED, 5, 8, "zb-v", "measured", 1, 0, 0, NULL, NULL},
     "can be cut into 9 parts; --pp 4 would fit"},
};

typedef struct given {
    rpi_network network;
    rpi_model_layers layers;
    double *costs;
    rpi_pipeline_layer times[LAYERS];
    rpi_pipeline_model links;
    rpi_stage_request request;
} given;

static void close_given(given *g) {
    rpi_free(g->costs);
    rpi_model_layers_free(&g->layers);
    rpi_network_close(&g->network);
}

static rp_status open_given(const choice_row *row, given *g) {
    const rpi_data_shape shape = {.sequence = 8, .vocabulary = 40};
    double *costs = NULL;
    *g = (given){.links = {.latency_s = row->hop_s}};
    RP_TRY(rpi_network_build(row->model, &shape, &g->network));
    RP_TRY(rpi_model_layers_find(&g->network, &g->layers));
    RP_TRY(rpi_node_costs(&g->network, &costs));
    RP_TRY(rpi_model_layers_costs(&g->layers, costs, &g->costs));
    rpi_free(costs);
    CHECK_EQ(g->layers.count, LAYERS);
    for (int i = 0; i < LAYERS; i++) {
        double of = i == LAYERS - 1 ? row->head : 1;
        g->times[i] = (rpi_pipeline_layer){.forward_s = of,
                                           .inputs_s = of,
                                           .weights_s = of,
                                           .whole_s = 2 * of,
                                           .kept_bytes = of > 0 ? 100 : 0,
                                           .weights_bytes = of > 0 ? 100 : 0};
    }
    g->request = (rpi_stage_request){.network = &g->network,
                                     .layers = &g->layers,
                                     .costs = g->costs,
                                     .stages = row->stages,
                                     .micro_batches = row->micro_batches,
                                     .schedule = row->schedule,
                                     .cut = row->cut,
                                     .record = row->record,
                                     .memory_bytes = row->memory};
    if (!rpi_stage_choice_measures(&g->request)) return RP_OK;
    g->request.times = g->times;
    g->request.links = &g->links;
    return RP_OK;
}

static void what_is_known_is_taken(void) {
    for (int i = 0; i < KNOWN; i++) {
        given g;
        char record[RPI_STAGE_RECORD];
        rpi_stage_choice choice = {0};
        REQUIRE_OK(open_given(&known[i], &g));
        REQUIRE_OK(rpi_stage_choose(&g.request, &choice));
        rpi_stage_record(&g.request, &choice, record);
        CHECK_MSG(strcmp(record, known[i].taken) == 0, "row %d: '%s', not '%s'", i, record,
                  known[i].taken);
        bool is_auto = known[i].schedule && strcmp(known[i].schedule, "auto") == 0;
        CHECK_MSG(is_auto == (choice.note[0] != '\0'), "row %d: '%s'", i, choice.note);
        rpi_stage_choice_free(&choice);
        close_given(&g);
    }
}

static void what_cannot_be_is_refused(void) {
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        given g;
        rpi_stage_choice choice;
        REQUIRE_OK(open_given(&refused[i].row, &g));
        CHECK_FAILS(rpi_stage_choose(&g.request, &choice), INVALID, refused[i].words);
        close_given(&g);
    }
}

static void too_little_memory_says_what_would_help(void) {
    const choice_row row = {UNTIED, 2, 8, "auto", NULL, 1, 0, 150, NULL, NULL};
    given g;
    rpi_stage_choice choice;
    REQUIRE_OK(open_given(&row, &g));
    CHECK_FAILS(rpi_stage_choose(&g.request, &choice), NOMEM, "smaller --micro-batch-size");
    close_given(&g);
}

/* Blocks of one kind are run once; of pictures they change their sizes on the way. */
static void layers_are_alike_by_what_they_do(void) {
    const rpi_data_shape pictures = {.channels = 3, .height = 32, .width = 32, .classes = 10};
    given g;
    REQUIRE_OK(open_given(&known[0], &g));
    for (int i = 2; i < LAYERS - 1; i++)
        CHECK(rpi_layers_are_alike(&g.network, &g.layers, 1, i));
    CHECK(!rpi_layers_are_alike(&g.network, &g.layers, 0, 1)); /* it has the table */
    CHECK(!rpi_layers_are_alike(&g.network, &g.layers, 1, LAYERS - 1));
    close_given(&g);
    g = (given){0};
    REQUIRE_OK(rpi_network_build("resnet20:width=2", &pictures, &g.network));
    REQUIRE_OK(rpi_model_layers_find(&g.network, &g.layers));
    CHECK(rpi_layers_are_alike(&g.network, &g.layers, 1, 2));
    CHECK(!rpi_layers_are_alike(&g.network, &g.layers, 1, 4));
    close_given(&g);
}

static void lack_of_memory_is_told(void) {
    given g;
    REQUIRE_OK(open_given(&known[0], &g));
    for (long n = 1;; n++) {
        rpi_stage_choice choice = {0};
        rpi_memory_fail_after(n);
        rp_status status = rpi_stage_choose(&g.request, &choice);
        rpi_memory_fail_after(0);
        rpi_stage_choice_free(&choice);
        if (status == RP_OK) break;
        CHECK_EQ(status, RP_NOMEM);
        REQUIRE(n < 100000);
    }
    close_given(&g);
}

CASES({"what is known is taken", what_is_known_is_taken},
      {"what cannot be is refused", what_cannot_be_is_refused},
      {"too little memory says what would help", too_little_memory_says_what_would_help},
      {"layers are alike by what they do", layers_are_alike_by_what_they_do},
      {"lack of memory is told", lack_of_memory_is_told})
