/* Samples of tokens, their order, and the ring that makes batches ahead. */
#include "harness/check.h"

#include "base/memory.h"
#include "base/rng.h"
#include "train/data/batch_ring.h"
#include "train/data/token_batches.h"
#include "train/data/token_writer.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum { PATIENCE_S = 60 };

static const char *data_path(void) {
    static char path[600];
    snprintf(path, sizeof path, "%s/tokens", check_folder());
    return path;
}

/* Documents of random lengths, some of them empty; token i is i % 251. */
static rpi_token_file *make_tokens(int64_t count, rpi_rng *rng) {
    rpi_tokenizer *tokenizer = NULL;
    rpi_token_writer *writer = NULL;
    rpi_token_file *file = NULL;
    CHECK_OK(rpi_tokenizer_open("byte", &tokenizer));
    CHECK_OK(rpi_token_writer_open(data_path(), tokenizer, &writer));
    for (int64_t done = 0; done < count;) {
        uint32_t ids[40];
        int64_t length = rpi_rng_below(rng, 5) == 0 ? 0 : (int64_t)rpi_rng_below(rng, 40);
        if (length > count - done) length = count - done;
        for (int64_t i = 0; i < length; i++) ids[i] = (uint32_t)((done + i) % 251);
        CHECK_OK(rpi_token_writer_add(writer, ids, (size_t)length));
        done += length;
    }
    CHECK_OK(rpi_token_writer_close(writer, RP_OK));
    rpi_tokenizer_close(tokenizer);
    CHECK_OK(rpi_token_file_open(data_path(), &file));
    return file;
}

static rpi_rng test_rng(uint64_t index) {
    return rpi_rng_make(check_seed(), RPI_RNG_TEST, index);
}

/* ---- samples ---- */

/* The place of a token in its document, by looking from the beginning. */
static int64_t begin_of_document(const rpi_token_file *file, int64_t token) {
    int64_t begin = 0;
    for (int64_t d = 0; d < file->documents; d++) {
        int64_t end = rpi_token_file_end(file, d);
        if (token < end) break;
        begin = end;
    }
    return begin;
}

static void check_sample(const rpi_token_samples *s, int64_t index) {
    int32_t inputs[64], labels[64], positions[64], plain[64];
    rpi_token_rows rows = {inputs, labels, positions}, without = {inputs, plain, NULL};
    int64_t valid = 0, counted = 0, first = index * (s->sequence + 1);
    CHECK_OK(rpi_token_sample_read(s, index, &without, 0, &valid));
    CHECK_EQ(valid, s->sequence);
    CHECK_OK(rpi_token_sample_read(s, index, &rows, 0, &valid));
    for (int64_t i = 0; i < s->sequence; i++) {
        int64_t begin = begin_of_document(s->file, first + i);
        bool goes_on = begin_of_document(s->file, first + i + 1) == begin;
        CHECK_EQ(inputs[i], (first + i) % 251);
        CHECK_EQ(plain[i], (first + i + 1) % 251);
        CHECK_EQ(labels[i], goes_on ? plain[i] : RPI_LABEL_IGNORED);
        CHECK_EQ(positions[i], first + i - (begin > first ? begin : first));
        counted += goes_on;
    }
    CHECK_EQ(valid, counted);
    CHECK_EQ(rpi_token_sample_valid(s, index), counted);
}

static void samples_are_windows_across_documents(void) {
    for (uint64_t trial = 0; trial < 8 && check_failures() == 0; trial++) {
        rpi_rng rng = test_rng(trial);
        rpi_token_file *file = make_tokens(400 + rpi_rng_below(&rng, 300), &rng);
        rpi_token_samples samples;
        int64_t sequence = 1 + rpi_rng_below(&rng, 60);
        REQUIRE_OK(rpi_token_samples_open(file, sequence, &samples));
        CHECK_EQ(samples.count, file->count / (sequence + 1));
        for (int64_t i = 0; i < samples.count && check_failures() == 0; i++)
            check_sample(&samples, i);
        int32_t list[64];
        int64_t valid;
        rpi_token_rows rows = {list, list, NULL};
        CHECK_FAILS(rpi_token_sample_read(&samples, samples.count, &rows, 0, &valid), INVALID,
                    "there are");
        rpi_token_file_close(file);
    }
}

/* ---- batches ---- */

static rpi_token_batches_options usual(void) {
    return (rpi_token_batches_options){.sequence = 7, .global_batch = 6, .seed = 3};
}

static rpi_token_file *some_tokens(void) {
    rpi_rng rng = test_rng(99);
    return make_tokens(8 * 40 + 3, &rng); /* 40 samples, 7 steps, the last of 4 */
}

static void ranks_share(bool isolates) {
    rpi_token_file *file = some_tokens();
    rpi_token_batches *whole = NULL, *parts[3] = {NULL};
    rpi_token_batches_options o = usual();
    o.isolates = isolates;
    REQUIRE_OK(rpi_token_batches_open(file, &o, &whole));
    CHECK_EQ(rpi_token_batches_steps_per_epoch(whole), 7);
    o.world = 3;
    for (o.rank = 0; o.rank < 3; o.rank++)
        REQUIRE_OK(rpi_token_batches_open(file, &o, &parts[o.rank]));
    for (int step = 0; step < 20 && check_failures() == 0; step++) {
        rpi_token_batch all, part;
        int64_t row = 0, valid = 0;
        REQUIRE_OK(rpi_token_batches_next(whole, PATIENCE_S, &all));
        CHECK(all.step == step && all.epoch == step / 7 && all.count == all.global_count);
        CHECK_EQ(all.count, step % 7 == 6 ? 4 : 6);
        for (int rank = 0; rank < 3; rank++) {
            REQUIRE_OK(rpi_token_batches_next(parts[rank], PATIENCE_S, &part));
            CHECK_EQ(part.global_count, all.count);
            CHECK_EQ(part.global_valid, all.valid);
            valid += part.valid;
            size_t bytes = (size_t)(7 * part.count) * sizeof(int32_t);
            CHECK(memcmp(part.rows.inputs, all.rows.inputs + 7 * row, bytes) == 0);
            CHECK(memcmp(part.rows.labels, all.rows.labels + 7 * row, bytes) == 0);
            row += part.count;
        }
        CHECK_EQ(row, all.count);
        CHECK_EQ(valid, all.valid);
    }
    for (int rank = 0; rank < 3; rank++) rpi_token_batches_close(parts[rank]);
    rpi_token_batches_close(whole);
    rpi_token_file_close(file);
}

static void ranks_share_what_one_sees(void) {
    ranks_share(false);
    ranks_share(true);
}

static void an_epoch_sees_every_sample_once(void) {
    rpi_token_file *file = some_tokens();
    int moved = 0;
    for (int in_order = 0; in_order < 2; in_order++) {
        rpi_token_batches *batches = NULL;
        rpi_token_batches_options o = usual();
        o.in_order = in_order;
        REQUIRE_OK(rpi_token_batches_open(file, &o, &batches));
        int seen[251] = {0}, at = 0;
        for (int step = 0; step < 7; step++) {
            rpi_token_batch batch;
            REQUIRE_OK(rpi_token_batches_next(batches, PATIENCE_S, &batch));
            CHECK_EQ(batch.valid, 7 * batch.count);
            for (int64_t row = 0; row < batch.count; row++, at++) {
                int32_t first = batch.rows.inputs[7 * row];
                seen[first]++;
                if (in_order) CHECK_EQ(first, 8 * at % 251);
                moved += !in_order && first != 8 * at % 251;
            }
        }
        for (int i = 0; i < 40; i++) CHECK_EQ(seen[8 * i % 251], 1);
        rpi_token_batches_close(batches);
    }
    CHECK(moved > 20);
    rpi_token_file_close(file);
}

/* Rows, labels and positions of all steps from `first` on, as one list. */
static void record(const rpi_token_file *file, int64_t first, int64_t end, int threads,
                   int32_t *out) {
    rpi_token_batches *batches = NULL;
    rpi_token_batches_options o = usual();
    o.isolates = true;
    o.threads = threads;
    o.first_step = first;
    REQUIRE_OK(rpi_token_batches_open(file, &o, &batches));
    for (int64_t step = first; step < end; step++) {
        rpi_token_batch b;
        CHECK_EQ(rpi_token_batches_step(batches), step);
        REQUIRE_OK(rpi_token_batches_next(batches, PATIENCE_S, &b));
        int32_t *to = out + step * 3 * 42;
        memset(to, 0, 3 * 42 * sizeof *to);
        size_t bytes = (size_t)(7 * b.count) * sizeof *to;
        memcpy(to, b.rows.inputs, bytes);
        memcpy(to + 42, b.rows.labels, bytes);
        memcpy(to + 84, b.rows.positions, bytes);
    }
    rpi_token_batches_close(batches);
}

static void resumes_exactly(void) {
    enum { STEPS = 30 };
    static int32_t whole[STEPS * 126], resumed[STEPS * 126];
    rpi_token_file *file = some_tokens();
    record(file, 0, STEPS, 1, whole);
    for (int64_t first = 0; first < STEPS && check_failures() == 0; first += 5) {
        memcpy(resumed, whole, sizeof resumed);
        record(file, first, STEPS, 1 + (int)first % 4, resumed);
        CHECK(memcmp(whole, resumed, sizeof whole) == 0);
    }
    rpi_token_file_close(file);
}

static void a_bad_token_comes_in_its_turn(void) {
    rpi_rng rng = test_rng(5);
    rpi_token_file *file = make_tokens(8 * 12, &rng);
    char path[700];
    snprintf(path, sizeof path, "%s.ds", data_path());
    rpi_token_file_close(file);
    FILE *stream = fopen(path, "r+b");
    REQUIRE(stream);
    fseek(stream, 2 * 50, SEEK_SET); /* token 50 is in sample 6, step 3 of batches of 2 */
    fwrite("\xff\xff", 1, 2, stream);
    fclose(stream);
    REQUIRE_OK(rpi_token_file_open(data_path(), &file));
    rpi_token_batches *batches = NULL;
    rpi_token_batches_options o = usual();
    rpi_token_batch batch;
    o.global_batch = 2, o.in_order = true, o.threads = 3;
    REQUIRE_OK(rpi_token_batches_open(file, &o, &batches));
    for (int step = 0; step < 3; step++)
        CHECK_OK(rpi_token_batches_next(batches, PATIENCE_S, &batch));
    for (int again = 0; again < 2; again++)
        CHECK_FAILS(rpi_token_batches_next(batches, PATIENCE_S, &batch), CORRUPT,
                    "tokens.ds: token 65535 at offset 100; the vocabulary of byte");
    CHECK_EQ(rpi_token_batches_step(batches), 3);
    rpi_token_batches_close(batches);
    rpi_token_file_close(file);
}

static void refuses_what_makes_no_batch(void) {
    rpi_rng rng = test_rng(6);
    rpi_token_file *file = make_tokens(20, &rng);
    rpi_token_batches *batches = NULL;
    rpi_token_batches_options o = usual();
    o.sequence = 20;
    CHECK_FAILS(rpi_token_batches_open(file, &o, &batches), INVALID, "20 tokens");
    o.sequence = 0;
    CHECK_FAILS(rpi_token_batches_open(file, &o, &batches), INVALID, "a sequence of 0");
    o = usual(), o.global_batch = 0;
    CHECK_FAILS(rpi_token_batches_open(file, &o, &batches), INVALID, "global batch of 0");
    o = usual(), o.rank = 2, o.world = 2;
    CHECK_FAILS(rpi_token_batches_open(file, &o, &batches), INVALID, "rank 2 of a world of 2");
    o = usual(), o.ahead = 5000;
    CHECK_FAILS(rpi_token_batches_open(file, &o, &batches), INVALID, "5000 batches ahead");
    o = usual();
    bool done = false;
    for (long after = 1; !done && after < 100; after++) {
        rpi_memory_fail_after(after);
        rp_status status = rpi_token_batches_open(file, &o, &batches);
        rpi_memory_fail_after(0);
        CHECK(status == RP_OK || status == RP_NOMEM);
        done = status == RP_OK;
    }
    CHECK(done);
    rpi_token_batches_close(batches);
    rpi_token_file_close(file);
}

/* ---- the ring alone ---- */

typedef struct counting {
    atomic_long filled;
    long fails_at; /* -1: never */
    bool is_slow;
} counting;

static rp_status fill(void *context, int64_t step, void *batch) {
    counting *c = context;
    if (c->is_slow) usleep(300000);
    if (step == c->fails_at) return RP_FAIL(IO, "step %lld cannot be read", (long long)step);
    *(int64_t *)batch = step * step;
    atomic_fetch_add(&c->filled, 1);
    return RP_OK;
}

static void is_ahead_by_so_many(void) {
    for (int threads = 1; threads <= 4; threads++) {
        counting c = {.fails_at = -1};
        rpi_batch_source source = {&c, sizeof(int64_t), fill};
        rpi_batch_ring *ring = NULL;
        int before = check_threads();
        REQUIRE_OK(rpi_batch_ring_start(&source, 10, 3, threads, &ring));
        for (int64_t i = 0; i < 500; i++) {
            int64_t step;
            const void *batch;
            REQUIRE_OK(rpi_batch_ring_next(ring, PATIENCE_S, &step, &batch));
            CHECK(step == 10 + i && *(const int64_t *)batch == step * step);
            CHECK(atomic_load(&c.filled) <= i + 1 + 3);
            CHECK(*(const int64_t *)batch == step * step);
        }
        CHECK_EQ(rpi_batch_ring_step(ring), 510);
        rpi_batch_ring_stop(ring);
        CHECK_EQ(check_settled_threads(before), before);
    }
}

static void a_failure_comes_in_its_turn(void) {
    counting c = {.fails_at = 5};
    rpi_batch_source source = {&c, sizeof(int64_t), fill};
    rpi_batch_ring *ring = NULL;
    int64_t step;
    const void *batch;
    REQUIRE_OK(rpi_batch_ring_start(&source, 0, 8, 3, &ring));
    for (int i = 0; i < 5; i++) CHECK_OK(rpi_batch_ring_next(ring, PATIENCE_S, &step, &batch));
    for (int i = 0; i < 3; i++)
        CHECK_FAILS(rpi_batch_ring_next(ring, PATIENCE_S, &step, &batch), IO,
                    "step 5 cannot be read");
    rpi_batch_ring_stop(ring);
}

static void a_wait_has_an_end(void) {
    counting c = {.fails_at = -1, .is_slow = true};
    rpi_batch_source source = {&c, sizeof(int64_t), fill};
    rpi_batch_ring *ring = NULL;
    int64_t step;
    const void *batch;
    REQUIRE_OK(rpi_batch_ring_start(&source, 0, 1, 1, &ring));
    CHECK_FAILS(rpi_batch_ring_next(ring, 0.001, &step, &batch), TIMEOUT, "step 0");
    CHECK_OK(rpi_batch_ring_next(ring, PATIENCE_S, &step, &batch));
    CHECK_EQ(step, 0);
    rpi_batch_ring_stop(ring); /* while the next one is made */
    rpi_batch_ring_stop(NULL);
}

CASES({"samples_are_windows_across_documents", samples_are_windows_across_documents},
      {"ranks_share_what_one_sees", ranks_share_what_one_sees},
      {"an_epoch_sees_every_sample_once", an_epoch_sees_every_sample_once},
      {"resumes_exactly", resumes_exactly},
      {"a_bad_token_comes_in_its_turn", a_bad_token_comes_in_its_turn},
      {"refuses_what_makes_no_batch", refuses_what_makes_no_batch},
      {"is_ahead_by_so_many", is_ahead_by_so_many},
      {"a_failure_comes_in_its_turn", a_failure_comes_in_its_turn},
      {"a_wait_has_an_end", a_wait_has_an_end})
