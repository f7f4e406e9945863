/* Updates of parameters: the same bits however the arena is cut into ranges. */
#include "base/memory.h"
#include "base/rng.h"
#include "harness/check.h"
#include "train/trainer.h"
#include "train_ranks.h"

#include <string.h>

enum { STEPS = 3 };

static const char *const optimizers[] = {"sgd", "adamw"};

static void fill_gradients(rpi_trainer *t) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, (uint64_t)t->step);
    float *gradients = rpi_weights_gradients(t->weights);
    for (int64_t i = 0; i < rpi_weights_count(t->weights); i++)
        gradients[i] = rpi_rng_normal(&rng);
}

/* Steps in ranges of `piece` elements, last range first; the values, allocated. */
static rp_status values_after(rp_comm *comm, const char *optimizer, int64_t piece,
                              float **out_values, size_t *out_bytes) {
    rpi_train_options options = ranks_options();
    rpi_trainer t;
    options.optimizer = optimizer;
    options.decay = "weights";
    options.weight_decay = 0.1;
    rp_status status = rpi_trainer_open(&t, &options, comm);
    int64_t count = status == RP_OK ? rpi_weights_count(t.weights) : 0;
    if (piece > count) piece = count;
    t.learning_rate = 0.1;
    for (t.step = 0; t.step < STEPS && count; t.step++) {
        fill_gradients(&t);
        for (int64_t end = count; end > 0; end -= piece)
            rpi_trainer_update(&t, end > piece ? end - piece : 0, end > piece ? piece : end);
    }
    *out_bytes = (size_t)count * sizeof(float);
    if (status == RP_OK) status = rpi_alloc(*out_bytes + 1, "values", out_values);
    if (status == RP_OK) memcpy(*out_values, rpi_weights_values(t.weights), *out_bytes);
    rpi_trainer_close(&t);
    return status;
}

static rp_status compare(void *context, rp_comm *comm) {
    static const int64_t pieces[] = {1, 77, 1000, 100003};
    const char *optimizer = context;
    float *whole = NULL, *cut = NULL;
    size_t bytes = 0;
    RP_TRY(values_after(comm, optimizer, INT64_MAX, &whole, &bytes));
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        RP_TRY(values_after(comm, optimizer, pieces[i], &cut, &bytes));
        CHECK_MSG(memcmp(whole, cut, bytes) == 0, "%s in ranges of %lld", optimizer,
                  (long long)pieces[i]);
        rpi_free(cut);
    }
    rpi_free(whole);
    return RP_OK;
}

static void ranges_may_cut_tensors(void) {
    for (size_t i = 0; i < sizeof optimizers / sizeof optimizers[0]; i++)
        CHECK_OK(ranks_run(1, compare, (void *)optimizers[i]));
}

/* A range that begins and ends in the middle of tensors: its elements step, no others. */
static rp_status step_some(void *context, rp_comm *comm) {
    enum { FIRST = 10 };
    rpi_train_options options = ranks_options();
    rpi_trainer t;
    (void)context;
    RP_TRY(rpi_trainer_open(&t, &options, comm));
    int64_t count = rpi_weights_count(t.weights);
    float *values = rpi_weights_values(t.weights), *before = NULL;
    int64_t end = count - 2 * FIRST;
    CHECK(end > FIRST);
    RP_TRY(rpi_alloc_array((size_t)count, sizeof *before, "values", &before));
    memcpy(before, values, (size_t)count * sizeof *before);
    t.learning_rate = 0.1;
    fill_gradients(&t);
    rpi_trainer_update(&t, FIRST, end - FIRST);
    for (int64_t i = 0; i < count; i++) {
        bool inside = i >= FIRST && i < end;
        CHECK_MSG((values[i] != before[i]) == inside, "element %lld", (long long)i);
    }
    rpi_free(before);
    rpi_trainer_close(&t);
    return RP_OK;
}

static void a_range_is_all_that_steps(void) {
    CHECK_OK(ranks_run(1, step_some, NULL));
}

CASES({"ranges may cut tensors", ranges_may_cut_tensors},
      {"a range is all that steps", a_range_is_all_that_steps})
