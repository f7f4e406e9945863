/* Stages: each deals what a run of its own would, from its first step on. */
#include "harness/check.h"
#include "train/data/dataset.h"
#include "train/data/source.h"
#include "train/data/stages.h"
#include "train/data/token_writer.h"

#include <string.h>

enum { SEQUENCE = 7, BATCH = 5, STEPS = 30, SECOND = 4, THIRD = 19 };

static const char *path_of(const char *name) {
    static char paths[8][700];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", check_folder(), name);
    return path;
}

static void write_tokens(const char *name, int64_t count, uint32_t times) {
    rpi_tokenizer *tokenizer = NULL;
    rpi_token_writer *writer = NULL;
    REQUIRE_OK(rpi_tokenizer_open("byte", &tokenizer));
    REQUIRE_OK(rpi_token_writer_open(path_of(name), tokenizer, &writer));
    for (int64_t i = 0; i < count; i++) {
        uint32_t id = (uint32_t)(i * times % 251);
        CHECK_OK(rpi_token_writer_add(writer, &id, 1));
    }
    CHECK_OK(rpi_token_writer_close(writer, RP_OK));
    rpi_tokenizer_close(tokenizer);
}

static rp_status open_source(const char *data, int rank, int world, bool continues,
                             rpi_source *source) {
    rpi_source_options options = {.data = data,
                                  .seed = 3,
                                  .sequence = SEQUENCE,
                                  .global_batch = BATCH,
                                  .most = BATCH,
                                  .rank = rank,
                                  .world = world,
                                  .continues = continues};
    *source = (rpi_source){0};
    return rpi_source_open(&options, source);
}

/* Epochs of both end within their stages, the second's with a short step. */
static void write_all(char text[4096], char parts[3][800]) {
    write_tokens("a", 15 * SEQUENCE + SEQUENCE + 1, 1);
    write_tokens("b", 42 * SEQUENCE + 1, 3);
    for (int i = 0; i < 3; i++)
        snprintf(parts[i], 800, "tokens:%s", path_of(i == 1 ? "b" : "a"));
    snprintf(text, 4096, "stages:%s;%d=%s;%d=%s", parts[0], SECOND + 1, parts[1], THIRD + 1,
             parts[2]);
}

static void check_step(rpi_source *all, rpi_source parts[3], int64_t step) {
    static const int64_t first[] = {0, SECOND, THIRD};
    int stage = step >= THIRD ? 2 : step >= SECOND ? 1 : 0;
    int64_t own = step - first[stage];
    rpi_source_batch found, wanted;
    REQUIRE_OK(rpi_source_deal(all, step, &found));
    REQUIRE_OK(rpi_source_deal(&parts[stage], own, &wanted));
    REQUIRE(found.count == wanted.count && found.global_count == wanted.global_count);
    CHECK_EQ(found.labels, wanted.labels);
    size_t bytes = (size_t)found.count * SEQUENCE * sizeof(int32_t);
    for (int i = 0; i < 2; i++)
        CHECK(bytes == 0 || memcmp(found.inputs[i], wanted.inputs[i], bytes) == 0);
    CHECK_EQ(rpi_source_count(all, step), rpi_source_count(&parts[stage], own));
    int64_t epoch = rpi_source_steps_per_epoch(&parts[stage]);
    CHECK_EQ(rpi_source_begins_epoch(all, step), own % epoch == 0);
    CHECK_EQ(rpi_source_last_of_epoch(all, step),
             first[stage] + own / epoch * epoch + epoch - 1);
}

static void check_world(int rank, int world, bool continues) {
    char text[4096], names[3][800];
    rpi_source all, parts[3];
    write_all(text, names);
    REQUIRE_OK(open_source(text, rank, world, continues, &all));
    for (int i = 0; i < 3; i++)
        REQUIRE_OK(open_source(names[i], rank, world, continues, &parts[i]));
    CHECK_EQ(all.test_count, parts[0].test_count);
    CHECK_EQ(all.shape.vocabulary, 257);
    for (int64_t step = 0; step < STEPS; step++) check_step(&all, parts, step);
    check_step(&all, parts, SECOND + 1); /* a run that goes on begins anywhere */
    rpi_source_batch found, wanted;
    REQUIRE_OK(rpi_source_hold_out(&all, 0, 1, &found));
    REQUIRE_OK(rpi_source_hold_out(&parts[0], 0, 1, &wanted));
    CHECK(memcmp(found.inputs[0], wanted.inputs[0], SEQUENCE * sizeof(int32_t)) == 0);
    rpi_source_close(&all);
    for (int i = 0; i < 3; i++) rpi_source_close(&parts[i]);
}

static void each_stage_is_a_run_of_its_own(void) {
    check_world(0, 1, false);
    check_world(1, 2, false);
    check_world(0, 1, true);
}

static void what_is_no_stage_is_told(void) {
    static const struct {
        const char *text, *part;
    } rows[] = {
        {"stages:", "'' is no stage; write stages:tokens:PATH;STEP=tokens:PATH"},
        {"stages:a", "'a' is no stage"},
        {"stages:images:a", "'images:a' is no stage"},
        {"stages:tokens:a;", "'' is no stage"},
        {"stages:tokens:a;tokens:b", "'tokens:b' is no stage"},
        {"stages:tokens:a;1=tokens:b", "'1=tokens:b' is no stage"},
        {"stages:tokens:a;5=tokens:b;5=tokens:c", "'5=tokens:c' is no stage"},
        {"stages:tokens:a;9=tokens:b;5=tokens:c", "'5=tokens:c' is no stage"},
        {"stages:tokens:a;-5=tokens:c", "'-5=tokens:c' is no stage"},
        {"stages:tokens:a;5=stages:c", "'5=stages:c' is no stage"},
        {"stages:tokens:a;99999999999999999999=tokens:b", "is no stage"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rpi_stage stage;
        bool more = true;
        rp_status status = RP_OK;
        for (int at = 0; status == RP_OK && more; at++)
            status = rpi_stages_at(rows[i].text, at, &stage, &more);
        CHECK_EQ(status, RP_INVALID);
        CHECK_MSG(strstr(rp_last_error()->message, rows[i].part), "%s",
                  rp_last_error()->message);
    }
    rpi_source source;
    CHECK_EQ(open_source("stages:tokens:nowhere;2=tokens:b", 0, 1, false, &source),
             RP_NOT_FOUND);
}

/* As many stages as there may be, of one file. */
static void as_many_stages_as_may_be(void) {
    char text[RPI_STAGES * 300] = "stages:";
    rpi_source source;
    rpi_source_batch batch;
    write_tokens("a", 15 * SEQUENCE + SEQUENCE + 1, 1);
    size_t used = strlen(text);
    for (int i = 0; i <= RPI_STAGES; i++) {
        if (i == RPI_STAGES) {
            REQUIRE_OK(open_source(text, 0, 1, false, &source));
            rpi_source_limit(&source, 257);
            CHECK_OK(rpi_source_deal(&source, RPI_STAGES + 3, &batch));
            CHECK_EQ(source.train_count % RPI_STAGES, 0);
            rpi_source_close(&source);
        }
        if (i) used += (size_t)snprintf(text + used, sizeof text - used, ";%d=", i + 1);
        used += (size_t)snprintf(text + used, sizeof text - used, "tokens:%s", path_of("a"));
        REQUIRE(used < sizeof text);
    }
    CHECK_FAILS(open_source(text, 0, 1, false, &source), INVALID, "--data stages: more than ");
}

/* Each of them is looked at, before anything else is done. */
static void all_stages_are_probed(void) {
    char text[2000];
    rpi_dataset_options options = {.sequence = SEQUENCE};
    write_tokens("a", 15 * SEQUENCE + SEQUENCE + 1, 1);
    snprintf(text, sizeof text, "stages:tokens:%s;3=tokens:%s", path_of("a"), path_of("a"));
    CHECK_OK(rpi_dataset_probe(text, &options));
    snprintf(text, sizeof text, "stages:tokens:%s;3=tokens:%s", path_of("a"), path_of("none"));
    CHECK_FAILS(rpi_dataset_probe(text, &options), NOT_FOUND, "none");
    snprintf(text, sizeof text, "stages:tokens:%s;3=tokens:%s", path_of("none"), path_of("a"));
    CHECK_FAILS(rpi_dataset_probe(text, &options), NOT_FOUND, "none");
    snprintf(text, sizeof text, "stages:tokens:%s;2", path_of("a"));
    CHECK_FAILS(rpi_dataset_probe(text, &options), INVALID, "'2' is no stage");
}

CASES({"each stage is a run of its own", each_stage_is_a_run_of_its_own},
      {"as many stages as may be", as_many_stages_as_may_be},
      {"all stages are probed", all_stages_are_probed},
      {"what is no stage is told", what_is_no_stage_is_told})
