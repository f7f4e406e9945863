/* Rows of a masked language model: what is hidden, how much of it, and that it stays so. */
#include "harness/check.h"

#include "train/data/masked_samples.h"
#include "train/data/token_writer.h"

#include <stdlib.h>

enum { SEQUENCE = 64, WORDS = 40, DOCUMENT_TOKENS = 20000 };

/* Ids: 0 to 4 special, then first pieces, then those that go on. */
enum { CLS = 2, SEP = 3, MASK = 4, FIRST = 5, GOES_ON = FIRST + WORDS };

static rpi_tokenizer *make_tokenizer(void) {
    static char json[8000];
    static const char *const special[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    size_t used = (size_t)snprintf(json, sizeof json, "{\"added_tokens\":[");
    for (int i = 0; i < 5; i++)
        used += (size_t)snprintf(json + used, sizeof json - used,
                                 "%s{\"id\":%d,\"content\":\"%s\",\"special\":true}",
                                 i ? "," : "", i, special[i]);
    used += (size_t)snprintf(json + used, sizeof json - used,
                             "],\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\","
                             "\"vocab\":{\"[UNK]\":1");
    for (int w = 0; w < 2 * WORDS; w++)
        used += (size_t)snprintf(json + used, sizeof json - used, ",\"%sw%d\":%d",
                                 w < WORDS ? "" : "##", w % WORDS, FIRST + w);
    snprintf(json + used, sizeof json - used, "}}}");
    rpi_tokenizer *tokenizer = NULL;
    CHECK_OK(rpi_tokenizer_parse("pieces", json, strlen(json), &tokenizer));
    return tokenizer;
}

/* Every third piece goes on. */
static rpi_token_file *make_tokens(const rpi_tokenizer *tokenizer) {
    static uint32_t ids[DOCUMENT_TOKENS];
    char path[600];
    rpi_token_writer *writer = NULL;
    rpi_token_file *file = NULL;
    snprintf(path, sizeof path, "%s/words", check_folder());
    for (uint32_t i = 0; i < DOCUMENT_TOKENS; i++)
        ids[i] = i % 3 == 2 ? GOES_ON + i % WORDS : FIRST + (i * 7) % WORDS;
    CHECK_OK(rpi_token_writer_open(path, tokenizer, &writer));
    CHECK_OK(rpi_token_writer_add(writer, ids, DOCUMENT_TOKENS));
    CHECK_OK(rpi_token_writer_close(writer, RP_OK));
    CHECK_OK(rpi_token_file_open(path, &file));
    return file;
}

typedef struct fixture {
    rpi_tokenizer *tokenizer;
    rpi_token_file *file;
    rpi_masked_samples *samples;
} fixture;

static void begin(fixture *f, uint64_t seed) {
    rpi_masked_options options = {.sequence = SEQUENCE, .seed = seed};
    f->tokenizer = make_tokenizer();
    f->file = make_tokens(f->tokenizer);
    CHECK_OK(rpi_masked_samples_open(f->file, f->tokenizer, &options, &f->samples));
}

static void end(fixture *f) {
    rpi_masked_samples_close(f->samples);
    rpi_token_file_close(f->file);
    rpi_tokenizer_close(f->tokenizer);
}

static void read_sample(const fixture *f, int64_t epoch, int64_t index, int32_t *inputs,
                        int32_t *labels, int64_t *valid) {
    rpi_token_rows rows = {inputs, labels, NULL};
    CHECK_OK(rpi_masked_sample_read(f->samples, epoch, index, &rows, 0, valid));
}

static bool is_chosen(const int32_t *labels, int64_t i) {
    return labels[i] != RPI_LABEL_IGNORED;
}

/* Labels are what was there; whole words are chosen, never a part. */
static void check_row(const fixture *f, int64_t index, const int32_t *inputs,
                      const int32_t *labels, int64_t valid) {
    uint32_t plain[SEQUENCE];
    int64_t window = SEQUENCE - 2, chosen = 0;
    CHECK_OK(rpi_token_file_read(f->file, index * window, window, plain + 1));
    CHECK(inputs[0] == CLS && inputs[SEQUENCE - 1] == SEP);
    CHECK(!is_chosen(labels, 0) && !is_chosen(labels, SEQUENCE - 1));
    for (int64_t i = 1; i <= window; i++) {
        chosen += is_chosen(labels, i);
        CHECK_EQ(is_chosen(labels, i) ? labels[i] : inputs[i], plain[i]);
        CHECK(inputs[i] != CLS && inputs[i] != SEP && inputs[i] > 1);
        if (i > 1 && plain[i] >= GOES_ON)
            CHECK_EQ(is_chosen(labels, i), is_chosen(labels, i - 1));
    }
    CHECK_EQ(chosen, valid);
    CHECK(valid >= 1 && valid <= 10); /* 15 % of 64 are 9.6 */
}

static void hides_whole_words(void) {
    fixture f;
    int32_t inputs[SEQUENCE], labels[SEQUENCE];
    int64_t masked = 0, kept = 0, other = 0, total = 0;
    begin(&f, 1); /* the shares below are of this seed */
    CHECK_EQ(rpi_masked_samples_count(f.samples), DOCUMENT_TOKENS / (SEQUENCE - 2));
    for (int64_t epoch = 0; epoch < 4; epoch++)
        for (int64_t s = 0; s < rpi_masked_samples_count(f.samples); s++) {
            int64_t valid = 0;
            read_sample(&f, epoch, s, inputs, labels, &valid);
            check_row(&f, s, inputs, labels, valid);
            if (check_failures()) break;
            total += valid;
            for (int i = 0; i < SEQUENCE; i++) {
                if (!is_chosen(labels, i)) continue;
                masked += inputs[i] == MASK;
                kept += inputs[i] == labels[i];
                other += inputs[i] != MASK && inputs[i] != labels[i];
            }
        }
    double all = (double)total, rows = 4.0 * (double)rpi_masked_samples_count(f.samples);
    CHECK_NEAR(all / rows, 10, 0.5);
    CHECK_NEAR((double)masked / all, 0.8, 0.02);
    CHECK_NEAR((double)kept / all, 0.1, 0.02);
    CHECK_NEAR((double)other / all, 0.1, 0.02);
    end(&f);
}

static void follows_from_seed_epoch_and_sample(void) {
    fixture a, b;
    int32_t x[2][SEQUENCE], y[2][SEQUENCE];
    int64_t valid;
    int differ[2] = {0};
    begin(&a, check_seed());
    begin(&b, check_seed() + 1);
    for (int64_t s = 0; s < 50; s++) {
        read_sample(&a, 1, s, x[0], y[0], &valid);
        read_sample(&a, 1, s, x[1], y[1], &valid);
        CHECK(memcmp(x[0], x[1], sizeof x[0]) == 0 && memcmp(y[0], y[1], sizeof y[0]) == 0);
        read_sample(&a, 2, s, x[1], y[1], &valid);
        differ[0] += memcmp(y[0], y[1], sizeof y[0]) != 0;
        read_sample(&b, 1, s, x[1], y[1], &valid);
        differ[1] += memcmp(y[0], y[1], sizeof y[0]) != 0;
    }
    CHECK(differ[0] > 45 && differ[1] > 45);
    end(&a);
    end(&b);
}

static void refuses_what_cannot_be(void) {
    fixture f;
    rpi_masked_samples *samples = NULL;
    rpi_tokenizer *bytes = NULL;
    begin(&f, 1);
    rpi_masked_options o = {.sequence = 2};
    CHECK_FAILS(rpi_masked_samples_open(f.file, f.tokenizer, &o, &samples), INVALID, "3 is");
    o.sequence = DOCUMENT_TOKENS + 3;
    CHECK_FAILS(rpi_masked_samples_open(f.file, f.tokenizer, &o, &samples), INVALID, "too few");
    o.sequence = 8, o.share = 1.5;
    CHECK_FAILS(rpi_masked_samples_open(f.file, f.tokenizer, &o, &samples), INVALID, "1.5");
    o.share = 0, o.longest_run = 99;
    CHECK_FAILS(rpi_masked_samples_open(f.file, f.tokenizer, &o, &samples), INVALID, "99");
    REQUIRE_OK(rpi_tokenizer_open("byte", &bytes));
    o.longest_run = 0;
    CHECK_FAILS(rpi_masked_samples_open(f.file, bytes, &o, &samples), INVALID,
                "byte lacks [CLS]");
    rpi_tokenizer_close(bytes);
    int32_t inputs[SEQUENCE], labels[SEQUENCE];
    int64_t valid;
    rpi_token_rows rows = {inputs, labels, NULL};
    CHECK_FAILS(rpi_masked_sample_read(f.samples, 0, 1 << 20, &rows, 0, &valid), INVALID,
                "there are");
    end(&f);
}

CASES({"hides_whole_words", hides_whole_words},
      {"follows_from_seed_epoch_and_sample", follows_from_seed_epoch_and_sample},
      {"refuses_what_cannot_be", refuses_what_cannot_be})
