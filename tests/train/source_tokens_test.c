/* Tokens as a source of batches: what ranks get, what is held out, what is refused. */
#include "base/memory.h"
#include "base/rng.h"
#include "harness/check.h"
#include "train/data/dataset.h"
#include "train/data/source.h"
#include "train/data/token_data.h"
#include "train/data/token_writer.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SEQUENCE = 7, BATCH = 5, MOST = 64 };

static const char *path_of(const char *name) {
    static char paths[8][700];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", check_folder(), name);
    return path;
}

/* Documents of 10 tokens; token i is i % 251. */
static void write_tokens(const char *name, int64_t count) {
    rpi_tokenizer *tokenizer = NULL;
    rpi_token_writer *writer = NULL;
    REQUIRE_OK(rpi_tokenizer_open("byte", &tokenizer));
    REQUIRE_OK(rpi_token_writer_open(path_of(name), tokenizer, &writer));
    for (int64_t done = 0; done < count;) {
        uint32_t ids[10];
        size_t length = 0;
        for (; length < 10 && done < count; done++) ids[length++] = (uint32_t)(done % 251);
        CHECK_OK(rpi_token_writer_add(writer, ids, length));
    }
    CHECK_OK(rpi_token_writer_close(writer, RP_OK));
    rpi_tokenizer_close(tokenizer);
}

static rp_status open_source(const char *data, int rank, int world, rpi_source *source) {
    rpi_source_options options = {.data = data,
                                  .seed = 3,
                                  .sequence = SEQUENCE,
                                  .global_batch = BATCH,
                                  .most = MOST,
                                  .rank = rank,
                                  .world = world};
    *source = (rpi_source){0};
    return rpi_source_open(&options, source);
}

static const char *data_of(const char *name, const char *more) {
    static char text[1024];
    snprintf(text, sizeof text, "tokens:%s%s", path_of(name), more);
    return text;
}

/* Row r of a step goes on where row r of the step before ended, and at the end of an epoch
 * where the first row began; the rows of all ranks are those of one. */
static void check_rows(int world) {
    enum { STEPS = 8 }; /* of 40 samples, 2 of the 42 being held out, in 5 rows */
    int32_t next[BATCH] = {0}, begin[BATCH] = {0};
    for (int64_t step = 0; step < 2 * STEPS; step++) {
        int row = 0;
        for (int rank = 0; rank < world; rank++) {
            rpi_source source;
            rpi_source_batch batch;
            rpi_source_options options = {.data = data_of("streams", ""),
                                          .sequence = SEQUENCE,
                                          .global_batch = BATCH,
                                          .most = MOST,
                                          .rank = rank,
                                          .world = world,
                                          .continues = true};
            REQUIRE_OK(rpi_source_open(&options, &source));
            CHECK_EQ(rpi_source_steps_per_epoch(&source), STEPS);
            REQUIRE_OK(rpi_source_deal(&source, step, &batch));
            CHECK_EQ(batch.global_count, BATCH);
            const int32_t *in = batch.inputs[0], *out = batch.inputs[1];
            for (int64_t i = 0; i < batch.count; i++, row++) {
                if (step == 0) begin[row] = in[i * SEQUENCE];
                CHECK_EQ(in[i * SEQUENCE], step % STEPS ? next[row] : begin[row]);
                next[row] = out[(i + 1) * SEQUENCE - 1];
            }
            rpi_source_close(&source);
        }
        CHECK_EQ(row, BATCH);
    }
    for (int row = 0; row + 1 < BATCH; row++) CHECK_EQ(next[row], begin[row + 1]);
}

static void rows_go_on(void) {
    write_tokens("streams", 296);
    for (int world = 1; world <= 3; world++) check_rows(world);
}

static void too_few_segments_for_the_rows(void) {
    rpi_source source;
    write_tokens("short", 40);
    rpi_source_options options = {.data = data_of("short", ""),
                                  .sequence = SEQUENCE,
                                  .global_batch = 8,
                                  .most = MOST,
                                  .world = 1,
                                  .continues = true};
    CHECK_FAILS(rpi_source_open(&options, &source), INVALID,
                "4 segments of 7 tokens, and a global batch of 8 rows that go on");
    options.data = "synthetic";
    CHECK_FAILS(rpi_source_open(&options, &source), INVALID,
                "its samples do not go on from one another");
}

static void the_parts_of_ranks_make_the_whole(void) {
    rpi_source whole, part;
    write_tokens("whole", 300); /* 37 samples, 2 of them held out: 35 */
    REQUIRE_OK(open_source(data_of("whole", ""), 0, 1, &whole));
    CHECK_EQ(whole.train_count, 35);
    CHECK_EQ(whole.test_count, 2);
    CHECK_EQ(whole.sample_units, SEQUENCE);
    CHECK_EQ(whole.shape.vocabulary, 257);
    for (int64_t step = 0; step < 9; step++) {
        rpi_source_batch all, some;
        int64_t row = 0;
        REQUIRE_OK(rpi_source_deal(&whole, step, &all));
        CHECK_EQ(all.global_labels, all.count * SEQUENCE);
        for (int rank = 0; rank < 3; rank++) {
            /* Opened in the middle: what a step has follows from its number. */
            REQUIRE_OK(open_source(data_of("whole", ""), rank, 3, &part));
            REQUIRE_OK(rpi_source_deal(&part, step, &some));
            size_t bytes = (size_t)some.count * SEQUENCE * sizeof(int32_t);
            CHECK_EQ(some.global_labels, all.global_labels);
            CHECK_EQ(some.labels, some.count * SEQUENCE);
            for (int i = 0; i < 2; i++)
                CHECK(memcmp(some.inputs[i], (const int32_t *)all.inputs[i] + row * SEQUENCE,
                             bytes) == 0);
            row += some.count;
            rpi_source_close(&part);
        }
        CHECK_EQ(row, all.count);
    }
    rpi_source_close(&whole);
}

/* First token of a row: which sample it is. */
static int sample_of(const rpi_source_batch *batch, int64_t row) {
    return ((const int32_t *)batch->inputs[0])[row * SEQUENCE] / (SEQUENCE + 1);
}

static void what_is_held_out_is_not_learnt(void) {
    rpi_source source;
    rpi_source_batch batch;
    int seen[40] = {0};
    write_tokens("held", 240); /* 30 samples; ids below 251 tell them apart */
    REQUIRE_OK(open_source(data_of("held", ",validation=10%"), 0, 1, &source));
    CHECK_EQ(source.train_count, 27);
    CHECK_EQ(source.test_count, 3);
    for (int64_t step = 0; step < rpi_source_steps_per_epoch(&source); step++) {
        REQUIRE_OK(rpi_source_deal(&source, step, &batch));
        CHECK_EQ(batch.count, rpi_source_count(&source, step));
        for (int64_t row = 0; row < batch.count; row++) seen[sample_of(&batch, row)]++;
    }
    REQUIRE_OK(rpi_source_hold_out(&source, 0, 3, &batch));
    CHECK_EQ(batch.labels, 3 * SEQUENCE);
    for (int64_t row = 0; row < 3; row++) CHECK_EQ(sample_of(&batch, row), 27 + row);
    for (int s = 0; s < 30; s++) CHECK_EQ(seen[s], s < 27);
    /* Back and forth: the ring starts anew. */
    REQUIRE_OK(rpi_source_deal(&source, 1, &batch));
    int first = sample_of(&batch, 0);
    REQUIRE_OK(rpi_source_deal(&source, 4, &batch));
    REQUIRE_OK(rpi_source_deal(&source, 1, &batch));
    CHECK_EQ(sample_of(&batch, 0), first);
    rpi_source_close(&source);
}

static void a_file_of_its_own_is_held_out(void) {
    rpi_source source;
    rpi_source_batch batch;
    char more[800];
    write_tokens("learnt", 80);
    write_tokens("other", 160);
    snprintf(more, sizeof more, ",validation=%s", path_of("other"));
    REQUIRE_OK(open_source(data_of("learnt", more), 0, 1, &source));
    CHECK_EQ(source.train_count, 10);
    CHECK_EQ(source.test_count, 20);
    REQUIRE_OK(rpi_source_hold_out(&source, 18, 2, &batch));
    CHECK_EQ(sample_of(&batch, 0), 18);
    rpi_source_close(&source);
}

static void folders_stand_for_their_files(void) {
    rpi_token_data data;
    const char *folder = path_of("folder");
    char text[800];
    REQUIRE(mkdir(folder, 0700) == 0);
    snprintf(text, sizeof text, "tokens:%s", folder);
    CHECK_FAILS(rpi_token_data_parse(text, &data), NOT_FOUND, "holds no tokens: no NAME.ds");
    write_tokens("folder/text", 80);
    REQUIRE_OK(rpi_token_data_parse(text, &data));
    CHECK(strcmp(data.train, path_of("folder/text")) == 0);
    CHECK(data.validation[0] == '\0');
    write_tokens("folder/valid", 80);
    REQUIRE_OK(rpi_token_data_parse(text, &data));
    CHECK(strcmp(data.train, path_of("folder/text")) == 0);
    CHECK(strcmp(data.validation, path_of("folder/valid")) == 0);
    write_tokens("folder/third", 80);
    CHECK_FAILS(rpi_token_data_parse(text, &data), INVALID, "several files of tokens");
}

/* As nanoGPT leaves it: a mark in front says of what type the ids are. */
static void folders_of_raw_ids_stand_for_their_files(void) {
    rpi_token_data data;
    char text[800], wanted[800];
    const char *folder = path_of("nano");
    REQUIRE(mkdir(folder, 0700) == 0);
    static const char *const names[] = {"nano/train.bin", "nano/val.bin", "nano/meta.pkl"};
    for (int i = 0; i < 3; i++) {
        FILE *stream = fopen(path_of(names[i]), "wb");
        REQUIRE(stream);
        fputs("abcdefgh", stream);
        fclose(stream);
    }
    snprintf(text, sizeof text, "tokens:uint16:%s", path_of("nano"));
    REQUIRE_OK(rpi_token_data_parse(text, &data));
    snprintf(wanted, sizeof wanted, "uint16:%s", path_of("nano/train.bin"));
    CHECK_MSG(strcmp(data.train, wanted) == 0, "%s", data.train);
    snprintf(wanted, sizeof wanted, "uint16:%s", path_of("nano/val.bin"));
    CHECK_MSG(strcmp(data.validation, wanted) == 0, "%s", data.validation);
}

/* No vocabulary of their own, as Megatron's and other writers' files: the model's is the limit.
 */
static void tokens_beyond_the_model_are_named(void) {
    rpi_source source;
    rpi_source_batch batch;
    char part[800], metadata[700];
    write_tokens("foreign", 80);
    snprintf(metadata, sizeof metadata, "%s.ds.metadata", path_of("foreign"));
    FILE *stream = fopen(metadata, "w");
    REQUIRE(stream);
    fprintf(stream, "somebody's|2\n80\n80\n");
    fclose(stream);
    REQUIRE_OK(open_source(data_of("foreign", ""), 0, 1, &source));
    CHECK_EQ(source.shape.vocabulary, 0);
    rpi_source_limit(&source, 60);
    rp_status status = RP_OK;
    for (int64_t step = 0; step < 2 && status == RP_OK; step++)
        status = rpi_source_deal(&source, step, &batch);
    snprintf(part, sizeof part, "%s.ds: token ", path_of("foreign"));
    CHECK_FAILS(status, CORRUPT, part);
    CHECK_FAILS(status, CORRUPT, "; the vocabulary of somebody's has 60 tokens");
    rpi_source_close(&source);
}

static void mistakes_say_what_to_do(void) {
    static const struct {
        const char *name, *more, *part;
        rp_status status;
    } rows[] = {
        {"missing", "", "no tokens at ", RP_NOT_FOUND},
        {"short", "", "too few for one sequence of 7 and the token behind it", RP_INVALID},
        {"single", "", "a smaller --seq-length, or validation=PATH", RP_INVALID},
        {"some", ",validation=", "validation= is empty; write tokens:PATH", RP_INVALID},
        {"some", ",validation=0%", "a share above 0 and below 1", RP_INVALID},
        {"some", ",validation=1.5", "a share above 0 and below 1", RP_INVALID},
        {"some", ",validaton=5%", "'validaton=5%' is no option of tokens", RP_INVALID},
        {"some", ",validation=nowhere", "no tokens at nowhere", RP_NOT_FOUND},
    };
    rpi_source source;
    write_tokens("short", 7);
    write_tokens("single", 15);
    write_tokens("some", 80);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *data = data_of(rows[i].name, rows[i].more);
        rpi_dataset_options options = {.sequence = SEQUENCE};
        CHECK(rpi_dataset_probe(data, &options) == rows[i].status);
        CHECK_MSG(strstr(rp_last_error()->message, rows[i].part), "%zu: '%s'", i,
                  rp_last_error()->message);
        CHECK(open_source(data, 0, 1, &source) == rows[i].status);
        CHECK_MSG(strstr(rp_last_error()->message, rows[i].part), "%zu: '%s'", i,
                  rp_last_error()->message);
    }
    CHECK_FAILS(open_source("tokens", 0, 1, &source), INVALID, "needs more than its name");
    CHECK_FAILS(open_source("tokens:", 0, 1, &source), INVALID, "no file of tokens is named");
    CHECK_FAILS(open_source("synthetic:x", 0, 1, &source), INVALID, "takes nothing behind");
    CHECK_FAILS(open_source("token:x", 0, 1, &source), INVALID, "did you mean 'tokens'");
}

static void memory_that_runs_out_is_reported(void) {
    rpi_source source;
    write_tokens("memory", 80);
    for (long n = 1; n < 1000; n++) {
        rpi_memory_fail_after(n);
        rp_status status = open_source(data_of("memory", ""), 0, 1, &source);
        rpi_memory_fail_after(0);
        if (status == RP_OK) {
            CHECK(n > 4);
            rpi_source_close(&source);
            return;
        }
        CHECK_EQ(status, RP_NOMEM);
    }
    CHECK(!"it never succeeds");
}

CASES({"rows_go_on", rows_go_on},
      {"too_few_segments_for_the_rows", too_few_segments_for_the_rows},
      {"the_parts_of_ranks_make_the_whole", the_parts_of_ranks_make_the_whole},
      {"what_is_held_out_is_not_learnt", what_is_held_out_is_not_learnt},
      {"a_file_of_its_own_is_held_out", a_file_of_its_own_is_held_out},
      {"folders_stand_for_their_files", folders_stand_for_their_files},
      {"folders_of_raw_ids_stand_for_their_files", folders_of_raw_ids_stand_for_their_files},
      {"tokens_beyond_the_model_are_named", tokens_beyond_the_model_are_named},
      {"mistakes_say_what_to_do", mistakes_say_what_to_do},
      {"memory_that_runs_out_is_reported", memory_that_runs_out_is_reported})
