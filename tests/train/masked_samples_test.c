/* Rows of a masked language model: how pieces are paired, what is hidden, how much of it, that
 * it stays so, and that ranks share it. */
#include "harness/check.h"

#include "train/data/masked_batches.h"
#include "train/data/token_writer.h"

#include <stdlib.h>

enum { SEQUENCE = 64, WINDOW = SEQUENCE - 3, WORDS = 40, DOCUMENTS = 300 };

/* Ids: 0 to 4 special, then a full stop, first pieces, those that go on. */
enum { PAD = 0, CLS = 2, SEP = 3, MASK = 4, STOP, FIRST, GOES_ON = FIRST + WORDS };

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
                             "\"vocab\":{\"[UNK]\":1,\".\":%d",
                             STOP);
    for (int w = 0; w < 2 * WORDS; w++)
        used += (size_t)snprintf(json + used, sizeof json - used, ",\"%sw%d\":%d",
                                 w < WORDS ? "" : "##", w % WORDS, FIRST + w);
    snprintf(json + used, sizeof json - used, "}}}");
    rpi_tokenizer *tokenizer = NULL;
    CHECK_OK(rpi_tokenizer_parse("pieces", json, strlen(json), &tokenizer));
    return tokenizer;
}

/* Every third piece goes on, and every eleventh is a full stop. */
static uint32_t token_at(int64_t i) {
    if (i % 11 == 10) return STOP;
    return (uint32_t)(i % 3 == 2 ? GOES_ON + i % WORDS : FIRST + (i * 7) % WORDS);
}

/* None, one, some tokens; more than one window. */
static int64_t length_of(int document) {
    return document % 50 == 49 ? 1000 : document % 37;
}

static const char *data_path(void) {
    static char path[600];
    snprintf(path, sizeof path, "%s/words", check_folder());
    return path;
}

static rpi_token_file *make_tokens(const rpi_tokenizer *tokenizer) {
    static uint32_t ids[1000];
    rpi_token_writer *writer = NULL;
    rpi_token_file *file = NULL;
    CHECK_OK(rpi_token_writer_open(data_path(), tokenizer, &writer));
    int64_t at = 0;
    for (int d = 0; d < DOCUMENTS; d++) {
        for (int64_t i = 0; i < length_of(d); i++) ids[i] = token_at(at++);
        CHECK_OK(rpi_token_writer_add(writer, ids, (size_t)length_of(d)));
    }
    CHECK_OK(rpi_token_writer_close(writer, RP_OK));
    CHECK_OK(rpi_token_file_open(data_path(), &file));
    return file;
}

typedef struct fixture {
    rpi_tokenizer *tokenizer;
    rpi_token_file *file;
    rpi_masked_samples *samples;
    rpi_masked_draw draw;
} fixture;

static void begin(fixture *f, uint64_t seed) {
    rpi_masked_options options = {.sequence = SEQUENCE};
    f->tokenizer = make_tokenizer();
    f->file = make_tokens(f->tokenizer);
    REQUIRE_OK(rpi_masked_samples_open(f->file, f->tokenizer, &options, &f->samples));
    f->draw = (rpi_masked_draw){.seed = seed, .count = rpi_masked_samples_count(f->samples)};
}

static void end(fixture *f) {
    rpi_masked_samples_close(f->samples);
    rpi_token_file_close(f->file);
    rpi_tokenizer_close(f->tokenizer);
}

/* A sample as a model sees it. */
typedef struct sample {
    int32_t tokens[SEQUENCE], segments[SEQUENCE], documents[SEQUENCE], labels[SEQUENCE], next;
    int64_t valid;
    int32_t plain[SEQUENCE]; /* before anything was hidden */
    int64_t second, used;    /* where the second piece begins; tokens that are no padding */
} sample;

static void read_sample(const fixture *f, int64_t index, sample *s) {
    rpi_masked_rows rows = {s->tokens, s->segments, s->documents, s->labels, &s->next};
    CHECK_OK(rpi_masked_sample_read(f->samples, &f->draw, index, &rows, 0, &s->valid));
    s->second = s->used = 0;
    for (int64_t i = 0; i < SEQUENCE; i++) {
        bool is_chosen = s->labels[i] != RPI_LABEL_IGNORED;
        s->plain[i] = is_chosen ? s->labels[i] : s->tokens[i];
        s->used += s->documents[i] == 0;
        if (!s->second && s->segments[i]) s->second = i;
    }
}

/* The windows of the file, one after the other, as the test cuts them. */
typedef struct window {
    int document;
    int64_t first, count, at; /* `at`: in the document */
} window;

static bool next_window(window *w) {
    w->at += w->count;
    w->first += w->count;
    for (;;) {
        int64_t left = length_of(w->document) - w->at;
        w->count = left < WINDOW ? left : WINDOW;
        if (w->count >= 2) return true;
        w->first += left;
        w->at = 0;
        if (++w->document == DOCUMENTS) return false;
    }
}

static bool same_tokens(const int32_t *tokens, int64_t first, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (tokens[i] != (int32_t)token_at(first + i)) return false;
    return true;
}

static void check_shape(const sample *s, const window *w) {
    CHECK(s->plain[0] == CLS && s->plain[s->second - 1] == SEP && s->plain[s->used - 1] == SEP);
    CHECK(s->second >= 3 && s->used >= s->second + 2 && s->used <= SEQUENCE);
    if (!s->next) CHECK_EQ(s->used, w->count + 3);
    for (int64_t i = 0; i < SEQUENCE; i++) {
        CHECK_EQ(s->segments[i], i >= s->second && i < s->used);
        CHECK_EQ(s->documents[i], i >= s->used);
        if (i >= s->used) CHECK(s->plain[i] == PAD && s->labels[i] == RPI_LABEL_IGNORED);
        if (s->plain[i] <= MASK) CHECK_EQ(s->labels[i], RPI_LABEL_IGNORED);
    }
}

/* Labels are what was there; whole words are chosen, never a part. */
static void check_hidden(const sample *s) {
    int64_t chosen = 0;
    for (int64_t i = 0; i < s->used; i++) {
        bool is_chosen = s->labels[i] != RPI_LABEL_IGNORED;
        chosen += is_chosen;
        if (s->plain[i] >= GOES_ON && s->plain[i - 1] > MASK)
            CHECK_EQ(is_chosen, s->labels[i - 1] != RPI_LABEL_IGNORED);
    }
    CHECK_EQ(chosen, s->valid);
    CHECK(s->valid <= (int64_t)((double)s->used * 0.15 + 0.5) || s->valid == 1);
}

static void pairs_are_pieces_of_text(void) {
    fixture f;
    window w = {0};
    static sample s;
    int64_t count = 0, follow = 0, own_document = 0, at_stop = 0;
    begin(&f, 1); /* the shares below are of this seed */
    for (; next_window(&w) && !check_failures(); count++) {
        read_sample(&f, count, &s);
        check_shape(&s, &w);
        check_hidden(&s);
        int64_t first = s.second - 2;
        CHECK(same_tokens(s.plain + 1, w.first, first));
        bool follows = s.used - s.second - 1 == w.count - first &&
                       same_tokens(s.plain + s.second, w.first + first, w.count - first);
        if (!s.next) CHECK(follows);
        own_document += s.next && follows && w.count > 5;
        follow += !s.next;
        at_stop += s.plain[s.second - 2] == STOP;
    }
    CHECK_EQ(count, rpi_masked_samples_count(f.samples));
    CHECK_NEAR((double)follow / (double)count, 0.5, 0.07);
    CHECK(own_document * 20 < count);
    CHECK(at_stop * 2 > count); /* a piece ends with a sentence where it can */
    end(&f);
}

static void hides_as_often_as_it_should(void) {
    fixture f;
    static sample s;
    int64_t masked = 0, kept = 0, other = 0, total = 0, used = 0;
    begin(&f, 1); /* the shares below are of this seed */
    for (f.draw.epoch = 0; f.draw.epoch < 6; f.draw.epoch++)
        for (int64_t i = 0; i < f.draw.count; i++) {
            read_sample(&f, i, &s);
            used += s.used;
            total += s.valid;
            for (int p = 0; p < SEQUENCE; p++) {
                if (s.labels[p] == RPI_LABEL_IGNORED) continue;
                masked += s.tokens[p] == MASK;
                kept += s.tokens[p] == s.labels[p];
                other += s.tokens[p] != MASK && s.tokens[p] != s.labels[p];
            }
        }
    double all = (double)total;
    CHECK_NEAR(all / (double)used, 0.15, 0.01);
    CHECK_NEAR((double)masked / all, 0.8, 0.02);
    CHECK_NEAR((double)kept / all, 0.1, 0.02);
    CHECK_NEAR((double)other / all, 0.1, 0.02);
    end(&f);
}

static void follows_from_seed_epoch_and_sample(void) {
    fixture a, b;
    static sample x, y;
    int differ[2] = {0};
    begin(&a, check_seed());
    begin(&b, check_seed() + 1);
    for (int64_t s = 0; s < 50; s++) {
        a.draw.epoch = b.draw.epoch = 1;
        read_sample(&a, s, &x);
        read_sample(&a, s, &y);
        CHECK(memcmp(x.tokens, y.tokens, sizeof x.tokens) == 0);
        CHECK(memcmp(x.labels, y.labels, sizeof x.labels) == 0 && x.next == y.next);
        a.draw.epoch = 2;
        read_sample(&a, s, &y);
        differ[0] += memcmp(x.tokens, y.tokens, sizeof x.tokens) != 0;
        read_sample(&b, s, &y);
        differ[1] += memcmp(x.tokens, y.tokens, sizeof x.tokens) != 0;
    }
    CHECK(differ[0] > 40 && differ[1] > 40);
    end(&a);
    end(&b);
}

/* What is held out is not shown as a second piece, and the other way round: of the long
 * document two windows are named, and text goes on from one to the other and no further. */
static void second_pieces_are_of_the_samples_named(void) {
    fixture f;
    static sample s;
    int64_t goes_on = 0, full = 0;
    window w = {0};
    begin(&f, 2);
    for (; next_window(&w) && length_of(w.document) < 1000;) f.draw.first++;
    f.draw.count = 2;
    CHECK_EQ(w.at, 0);
    for (int64_t i = 0; i < f.draw.first + 2 && !check_failures(); i++) {
        read_sample(&f, i, &s);
        if (!s.next) continue;
        int64_t count = s.used - s.second - 1, end = 2 * WINDOW, at = 1;
        while (at + count <= end && !same_tokens(s.plain + s.second, w.first + at, count)) at++;
        CHECK_MSG(at + count <= end, "the second piece of sample %d", (int)i);
        goes_on += at < WINDOW && at + count > WINDOW;
        full += s.used == SEQUENCE;
    }
    CHECK(goes_on >= 3 && full >= 3);
    f.draw.count = 1; /* there is no other */
    for (int i = 0; i < 20; i++, f.draw.epoch++) {
        read_sample(&f, f.draw.first, &s);
        CHECK_EQ(s.next, 0);
    }
    end(&f);
}

/* A tokenizer without [CLS], [SEP], [MASK] and [PAD] gets them behind its own ids. */
static void any_tokenizer_serves(void) {
    char path[600];
    rpi_tokenizer *bytes = NULL;
    rpi_token_writer *writer = NULL;
    rpi_token_file *file = NULL;
    rpi_masked_samples *samples = NULL;
    static sample s;
    uint32_t ids[200];
    for (uint32_t i = 0; i < 200; i++) ids[i] = i % 10 == 9 ? '.' : 'a' + i % 26;
    ids[199] = 256; /* the end of a document, which is left out */
    snprintf(path, sizeof path, "%s/bytes", check_folder());
    REQUIRE_OK(rpi_tokenizer_open("byte", &bytes));
    REQUIRE_OK(rpi_token_writer_open(path, bytes, &writer));
    CHECK_OK(rpi_token_writer_add(writer, ids, 200));
    REQUIRE_OK(rpi_token_writer_close(writer, RP_OK));
    REQUIRE_OK(rpi_token_file_open(path, &file));
    REQUIRE_OK(rpi_masked_samples_open(file, bytes, &(rpi_masked_options){.sequence = SEQUENCE},
                                       &samples));
    CHECK_EQ(rpi_masked_samples_vocabulary(samples), 261);
    fixture f = {.samples = samples, .draw = {.count = rpi_masked_samples_count(samples)}};
    for (; f.draw.epoch == 0 || s.next; f.draw.epoch++) read_sample(&f, 3, &s);
    CHECK_EQ(s.used, 199 - 3 * WINDOW + 3);
    CHECK(s.plain[0] == 257 && s.plain[s.second - 1] == 258 && s.plain[s.used] == 260);
    CHECK_EQ(s.plain[s.second - 2], '.');
    int masks = 0;
    for (int i = 0; i < s.used; i++) masks += s.tokens[i] == 259;
    CHECK(masks >= 1);
    rpi_masked_samples_close(samples);
    rpi_token_file_close(file);
    rpi_tokenizer_close(bytes);
}

static void refuses_what_cannot_be(void) {
    fixture f;
    rpi_masked_samples *samples = NULL;
    rpi_tokenizer *bytes = NULL;
    begin(&f, 1);
    rpi_masked_options o = {.sequence = 4};
    CHECK_FAILS(rpi_masked_samples_open(f.file, f.tokenizer, &o, &samples), INVALID, "5 is");
    o.sequence = 8, o.share = 1.5;
    CHECK_FAILS(rpi_masked_samples_open(f.file, f.tokenizer, &o, &samples), INVALID, "1.5");
    o.share = 0, o.longest_run = 99;
    CHECK_FAILS(rpi_masked_samples_open(f.file, f.tokenizer, &o, &samples), INVALID, "99");
    o.longest_run = 0;
    REQUIRE_OK(rpi_tokenizer_open("byte", &bytes));
    rpi_token_file larger = *f.file;
    larger.vocabulary = 300;
    CHECK_FAILS(rpi_masked_samples_open(&larger, bytes, &o, &samples), INVALID,
                "the tokens are of 300, the tokenizer has 257");
    rpi_tokenizer_close(bytes);
    static const uint8_t one_each[16] = {1, 0, 0, 0, 0, 0, 0, 0, 2};
    rpi_token_file short_ones = *f.file;
    short_ones.documents = 2;
    short_ones.ends = one_each;
    CHECK_FAILS(rpi_masked_samples_open(&short_ones, f.tokenizer, &o, &samples), INVALID,
                "none has two");
    static sample s;
    rpi_masked_rows rows = {s.tokens, s.segments, s.documents, s.labels, &s.next};
    CHECK_FAILS(rpi_masked_sample_read(f.samples, &f.draw, 1 << 20, &rows, 0, &s.valid),
                INVALID, "there are");
    end(&f);
}

/* ---- batches ---- */

enum { GLOBAL = 10, MOST_ROWS = GLOBAL };

/* What all ranks of a world see at a step, in their order. */
typedef struct step_rows {
    int32_t tokens[MOST_ROWS][SEQUENCE], labels[MOST_ROWS][SEQUENCE], next[MOST_ROWS];
    int64_t count, valid;
} step_rows;

static rpi_masked_batches *open_batches(const fixture *f, int rank, int world, int64_t first) {
    rpi_masked_batches *batches = NULL;
    rpi_masked_batches_options o = {.sequence = SEQUENCE,
                                    .count = f->draw.count,
                                    .global_batch = GLOBAL,
                                    .rank = rank,
                                    .world = world,
                                    .seed = f->draw.seed,
                                    .first_step = first};
    CHECK_OK(rpi_masked_batches_open(f->samples, &o, &batches));
    CHECK_EQ(rpi_masked_batches_step(batches), first);
    return batches;
}

static void read_step(const fixture *f, int world, int64_t step, step_rows *out) {
    memset(out, 0, sizeof *out);
    for (int rank = 0; rank < world; rank++) {
        rpi_masked_batches *batches = open_batches(f, rank, world, step);
        rpi_masked_batch b = {0};
        CHECK_OK(rpi_masked_batches_next(batches, 60, &b));
        for (int64_t i = 0; i < b.count && out->count < MOST_ROWS; i++, out->count++) {
            memcpy(out->tokens[out->count], b.rows.tokens + i * SEQUENCE, sizeof *out->tokens);
            memcpy(out->labels[out->count], b.rows.labels + i * SEQUENCE, sizeof *out->labels);
            out->next[out->count] = b.rows.next[i];
        }
        out->valid += b.valid;
        if (rank == world - 1) {
            CHECK_EQ(b.global_count, out->count);
            CHECK_EQ(b.global_valid, out->valid);
        }
        rpi_masked_batches_close(batches);
    }
}

/* Steps in the middle, the short last one of an epoch, one of the next epoch. */
static void any_world_sees_the_same(void) {
    fixture f;
    static step_rows alone, shared, later;
    begin(&f, check_seed());
    int64_t last = (f.draw.count + GLOBAL - 1) / GLOBAL - 1;
    const int64_t steps[] = {0, 3, last, last + 4};
    for (int i = 0; i < 4; i++) {
        read_step(&f, 1, steps[i], &alone);
        CHECK(alone.count >= 1 && alone.valid >= 1);
        for (int world = 2; world <= 4; world++) {
            read_step(&f, world, steps[i], &shared);
            CHECK_MSG(memcmp(&alone, &shared, sizeof alone) == 0, "step %d of %d ranks",
                      (int)steps[i], world);
        }
        read_step(&f, 1, steps[i] + last + 1, &later); /* an epoch later */
        CHECK(memcmp(alone.labels, later.labels, sizeof alone.labels) != 0);
    }
    end(&f);
}

static void batches_go_on_where_they_were(void) {
    fixture f;
    static step_rows wanted;
    begin(&f, check_seed());
    rpi_masked_batches *batches = open_batches(&f, 0, 1, 0);
    for (int64_t step = 0; step < 9; step++) {
        rpi_masked_batch b;
        REQUIRE_OK(rpi_masked_batches_next(batches, 60, &b));
        CHECK_EQ(rpi_masked_batches_step(batches), step + 1);
        read_step(&f, 1, step, &wanted);
        CHECK(memcmp(b.rows.tokens, wanted.tokens, sizeof wanted.tokens) == 0);
    }
    rpi_masked_batches_close(batches);
    end(&f);
}

CASES({"pairs_are_pieces_of_text", pairs_are_pieces_of_text},
      {"hides_as_often_as_it_should", hides_as_often_as_it_should},
      {"follows_from_seed_epoch_and_sample", follows_from_seed_epoch_and_sample},
      {"second_pieces_are_of_the_samples_named", second_pieces_are_of_the_samples_named},
      {"any_tokenizer_serves", any_tokenizer_serves},
      {"refuses_what_cannot_be", refuses_what_cannot_be},
      {"any_world_sees_the_same", any_world_sees_the_same},
      {"batches_go_on_where_they_were", batches_go_on_where_they_were})
