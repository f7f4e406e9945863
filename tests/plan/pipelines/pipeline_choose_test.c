/* Which pipeline is taken, and its picture. */
#include "plan/pipelines/pipeline_choose.h"

#include "base/memory.h"
#include "harness/check.h"
#include "plan/pipelines/pipeline_picture.h"

#include <stdlib.h>

enum { STAGES = 8 };
static double units[STAGES], kept[STAGES];

static rpi_pipeline_request request_of(int stages, int micro_batches) {
    for (int i = 0; i < STAGES; i++) units[i] = 1, kept[i] = 100;
    return (rpi_pipeline_request){.stages = stages,
                                  .micro_batches = micro_batches,
                                  .model = {.entries = stages,
                                            .forward_s = units,
                                            .inputs_s = units,
                                            .weights_s = units,
                                            .kept_bytes = kept}};
}

static const char *best_of(const rpi_pipeline_request *request) {
    static rpi_pipeline_row rows[RPI_PIPELINE_ROWS];
    int count = 0, best = -1;
    CHECK_OK(rpi_pipeline_choose(request, rows, &count, &best));
    CHECK(count >= 6);
    for (int i = 0; i < count; i++)
        if (best >= 0 && rows[i].verdict == RPI_PIPELINE_FITS)
            CHECK(rows[best].time_s <= rows[i].time_s * (1 + 1e-5));
    return best < 0 ? "none" : rows[best].kind->name;
}

/* ---- the table: add a row ---- */

/* Passes of 1, and each stage keeps 100 of a micro-batch. */
static const struct {
    int stages, micro_batches;
    double hop_s, memory;
    const char *best;
} known[] = {
    {8, 32, 0, 0, "zb-v"},   /* no bubble but for the skew */
    {8, 32, 1, 0, "zb-h2"},  /* pays for hops once */
    {8, 32, 1, 800, "zb-v"}, /* of half the memory */
    {8, 32, 1, 700, "none"}, /* 1F1B has eight in flight, too */
    {1, 8, 1, 0, "1f1b"},    /* one stage: all alike, which keeps least? */
};

static void the_quickest_is_taken(void) {
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        rpi_pipeline_request request = request_of(known[i].stages, known[i].micro_batches);
        request.model.latency_s = known[i].hop_s;
        request.memory_bytes = known[i].memory;
        const char *best = best_of(&request);
        CHECK_MSG(strcmp(best, known[i].best) == 0, "row %zu: %s, not %s", i, best,
                  known[i].best);
    }
}

/* ---- what is asked for besides ---- */

static const struct {
    int parts;
    bool ends_apart;
    double near, hop_s;
    const char *best;
} asked[] = {
    {0, false, 0, 0, "zb-v"},    /* the quickest of all */
    {0, true, 0, 0, "zb-h1"},    /* zb-v has both ends on one stage; zb-h2 keeps more */
    {8, false, 0, 0, "zb-v"},    /* two chunks on each of four stages, */
    {4, false, 0, 0, "zb-h1"},   /* or one */
    {5, false, 0, 0, "none"},    /* that is neither */
    {4, false, 0.5, 0, "1f1b"},  /* half as much again for the least memory */
    {4, false, 0, 1, "zb-h2"},   /* hops are paid once, */
    {4, false, 0.4, 1, "zb-h1"}, /* and memory is worth two fifths */
};

static void what_is_asked_for_narrows_the_choice(void) {
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        rpi_pipeline_row rows[RPI_PIPELINE_ROWS];
        int count = 0, best = -1;
        rpi_pipeline_request request = request_of(4, 8);
        request.parts = asked[i].parts;
        request.ends_apart = asked[i].ends_apart;
        request.near = asked[i].near;
        request.model.latency_s = asked[i].hop_s;
        CHECK_OK(rpi_pipeline_choose(&request, rows, &count, &best));
        const char *name = best < 0 ? "none" : rows[best].kind->name;
        CHECK_MSG(strcmp(name, asked[i].best) == 0, "row %zu: %s, not %s", i, name,
                  asked[i].best);
    }
}

/* Halves that cost more than the whole do not pay. */
static void a_whole_pass_has_a_time_of_its_own(void) {
    static double whole[STAGES];
    rpi_pipeline_request request = request_of(4, 8);
    request.parts = 4;
    request.model.whole_s = whole;
    for (int i = 0; i < STAGES; i++) whole[i] = 2;
    CHECK(strcmp(best_of(&request), "zb-h1") == 0);
    for (int i = 0; i < STAGES; i++) whole[i] = 1;
    CHECK(strcmp(best_of(&request), "1f1b") == 0);
}

static void rows_say_what_they_come_to(void) {
    rpi_pipeline_request request = request_of(4, 8);
    rpi_pipeline_row row;
    const rpi_pipeline_kind *kind = NULL;
    request.model.latency_s = .25;
    REQUIRE_OK(rpi_pipeline_kind_find("1f1b", &kind));
    REQUIRE_OK(rpi_pipeline_row_make(&request, kind, 0, &row));
    CHECK_NEAR(row.time_s, 37, 1e-9);
    CHECK_NEAR(row.exposed_s, 4, 1e-9);
    CHECK_NEAR(row.bubble, 1 - 24. / 37, 1e-12);
    CHECK_EQ(row.kept, 4);
    CHECK_NEAR(row.kept_bytes, 400, 1e-9);
    CHECK_EQ(row.messages, 2 * 8 * 3);
    CHECK(row.verdict == RPI_PIPELINE_FITS);
    REQUIRE_OK(rpi_pipeline_kind_find("zb-v", &kind));
    REQUIRE_OK(rpi_pipeline_row_make(&request, kind, 0, &row));
    CHECK_EQ(row.messages, 2 * 8 * (2 * 4 - 2));
    REQUIRE_OK(rpi_pipeline_kind_find("interleaved", &kind));
    REQUIRE_OK(rpi_pipeline_row_make(&request, kind, 3, &row));
    CHECK_EQ(row.messages, 2 * 8 * (3 * 4 - 1));
    CHECK_EQ(row.shape.chunks, 3);
}

/* ---- layers ---- */

static void make_layers(rpi_pipeline_layer *layers, int count) {
    for (int i = 0; i < count; i++)
        layers[i] = (rpi_pipeline_layer){.name = "block",
                                         .forward_s = 1,
                                         .inputs_s = 1,
                                         .weights_s = 1,
                                         .kept_bytes = 10,
                                         .weights_bytes = 5};
    layers[0] = (rpi_pipeline_layer){.name = "embedding", .tie = "table"};
    layers[count - 1].name = "head";
    layers[count - 1].tie = "table";
}

static void try_layers(const rpi_pipeline_request *request, const char *name,
                       rpi_pipeline_trial *out) {
    const rpi_pipeline_kind *kind = NULL;
    REQUIRE_OK(rpi_pipeline_kind_find(name, &kind));
    REQUIRE_OK(rpi_pipeline_trial_make(request, kind, 0, out));
}

/* An embedding for nothing, 15 blocks and a head as long as a block, over four stages. */
static void layers_become_parts(void) {
    rpi_pipeline_layer layers[17];
    rpi_pipeline_trial trial = {0};
    rpi_pipeline_tie tie;
    int ties = -1;
    make_layers(layers, 17);
    rpi_pipeline_request request = {
        .stages = 4, .micro_batches = 8, .layers = layers, .layer_count = 17};
    try_layers(&request, "1f1b", &trial);
    static const int first[] = {0, 5, 9, 13, 17};
    for (int k = 0; k <= 4; k++) CHECK_EQ(trial.cut.first[k], first[k]);
    CHECK_NEAR(trial.price.time_s, 4 * 33, 1e-9);
    CHECK_NEAR(trial.price.stage[0].kept_bytes, 4 * 40, 1e-9);
    CHECK_OK(rpi_pipeline_ties(layers, 17, &trial.cut, &trial.orders, &tie, 1, &ties));
    CHECK(ties == 1 && tie.first_stage == 0 && tie.last_stage == 3);
    rpi_pipeline_trial_free(&trial);
    try_layers(&request, "zb-v", &trial); /* both copies are on the first stage */
    CHECK_NEAR(trial.price.time_s, 2 * 51, 1e-9);
    CHECK_OK(rpi_pipeline_ties(layers, 17, &trial.cut, &trial.orders, &tie, 1, &ties));
    CHECK_EQ(ties, 0);
    rpi_pipeline_trial_free(&trial);
}

/* 8 to 10 blocks in 8 parts: those that have two are on different stages, so that none has more
 * than three blocks. */
static void stages_of_several_parts_are_even(void) {
    static const char *const kinds[] = {"interleaved", "zb-v"};
    rpi_pipeline_layer layers[11];
    make_layers(layers, 11);
    for (int k = 0; k < 2; k++)
        for (int count = 9; count <= 11; count++) {
            rpi_pipeline_trial trial = {0};
            rpi_pipeline_request request = {
                .stages = 4, .micro_batches = 16, .layers = layers, .layer_count = count};
            layers[count - 1] = layers[count - 2];
            try_layers(&request, kinds[k], &trial);
            double most = 0;
            for (int s = 0; s < 4; s++) most = fmax(most, trial.price.stage[s].busy_s);
            CHECK_NEAR(most, 3 * 16 * (count == 9 ? 2 : 3), 1e-9);
            rpi_pipeline_trial_free(&trial);
        }
}

static void too_few_layers_are_refused(void) {
    rpi_pipeline_layer layers[6];
    rpi_pipeline_row rows[RPI_PIPELINE_ROWS], row;
    int count = 0, best = -1;
    make_layers(layers, 6);
    rpi_pipeline_request request = {
        .stages = 4, .micro_batches = 8, .layers = layers, .layer_count = 6};
    REQUIRE_OK(rpi_pipeline_choose(&request, rows, &count, &best));
    REQUIRE(best >= 0);
    CHECK_EQ(rows[best].shape.chunks, 1);
    for (int i = 0; i < count; i++)
        CHECK((rows[i].verdict == RPI_PIPELINE_LAYERS) == (rows[i].shape.chunks == 2));
    request.stages = 7;
    CHECK_FAILS(rpi_pipeline_row_make(&request, rpi_pipeline_kind_at(0), 0, &row), INVALID,
                "6 layers cannot be cut into 7 parts");
    REQUIRE_OK(rpi_pipeline_choose(&request, rows, &count, &best));
    CHECK_EQ(best, -1);
    request.stages = 4;
    layers[2].inputs_s = NAN;
    CHECK_FAILS(rpi_pipeline_row_make(&request, rpi_pipeline_kind_at(0), 0, &row), INVALID,
                "the cost of layer 2, block, is negative or no number");
    layers[2].inputs_s = 1;
    for (long n = 1;; n++) {
        rpi_memory_fail_after(n);
        rp_status status = rpi_pipeline_row_make(&request, rpi_pipeline_kind_at(0), 0, &row);
        rpi_memory_fail_after(0);
        if (status == RP_OK) break;
        CHECK_EQ(status, RP_NOMEM);
        REQUIRE(n < 1000);
    }
}

/* ---- pictures ---- */

static void draw(const char *name, int stages, int micro_batches, int most, char *text,
                 size_t bytes) {
    rpi_pipeline_request request = request_of(stages, micro_batches);
    rpi_pipeline_shape shape;
    rpi_pipeline_orders o;
    rpi_pipeline_price p;
    const rpi_pipeline_kind *kind = NULL;
    REQUIRE_OK(rpi_pipeline_kind_find(name, &kind));
    REQUIRE_OK(rpi_pipeline_shape_make(kind, stages, micro_batches, 0, &shape));
    REQUIRE_OK(rpi_pipeline_orders_build(kind, &shape, &o));
    REQUIRE_OK(rpi_pipeline_price_make(&o, &request.model, &p));
    FILE *stream = fmemopen(text, bytes, "w");
    REQUIRE(stream);
    rpi_picture_frame frame = rpi_pipeline_frame(&o, &p, most);
    rpi_pipeline_picture(stream, &o, &p, &frame);
    fclose(stream);
    rpi_pipeline_price_free(&p);
    rpi_pipeline_orders_destroy(&o);
}

static void a_picture_shows_who_does_what_when(void) {
    char text[4096];
    draw("1f1b", 2, 3, 200, text, sizeof text);
    static const char *const whole = "  0     F0 F1       D0--- F2 D1---    D2---\n"
                                     "  1        F0 D0--- F1 D1--- F2 D2---\n";
    CHECK_MSG(strcmp(text, whole) == 0, "\n%s", text);
    draw("zb-h1", 2, 3, 200, text, sizeof text);
    CHECK_MSG(strstr(text, "  1        F0 B0 F1 B1 W0 F2 B2 W1 W2\n"), "\n%s", text);
    draw("zb-v", 1, 1, 200, text, sizeof text);
    CHECK_MSG(strstr(text, "  0     F0a F0b B0b W0b B0a W0a\n"), "\n%s", text);
    draw("1f1b", 1, 12, 72, text, sizeof text); /* half a number would be another one */
    CHECK_MSG(strstr(text, "  0     F D0- F D1- F D2- "), "\n%s", text);
    /* What is too long has a beginning and an end. */
    draw("1f1b", 2, 100, 45, text, sizeof text);
    static const char *const ends = "  0     F0- F1-         D0-- ... D98----     D99----\n"
                                    "  1         F0- D0----- F1-  ... F99 D99----\n";
    CHECK_MSG(strcmp(text, ends) == 0, "\n%s", text);
    draw("zb-h1", 4, 32, 40, text, sizeof text);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        CHECK_MSG(strlen(line) <= 8 + 40, "%s", line);
}

CASES({"the quickest is taken", the_quickest_is_taken},
      {"what is asked for narrows the choice", what_is_asked_for_narrows_the_choice},
      {"a whole pass has a time of its own", a_whole_pass_has_a_time_of_its_own},
      {"rows say what they come to", rows_say_what_they_come_to},
      {"layers become parts", layers_become_parts},
      {"stages of several parts are even", stages_of_several_parts_are_even},
      {"too few layers are refused", too_few_layers_are_refused},
      {"a picture shows who does what when", a_picture_shows_who_does_what_when})
