/* --split: every sample once, by-label and Dirichlet's shares as they are defined, the same for
 * all ranks and whenever it is made, and in training. */
#include "train/data/label_split.h"

#include "base/rng.h"
#include "harness/check.h"
#include "train/data/sampler.h"
#include "train_ranks.h"

#include <math.h>
#include <stdlib.h>

static int modulo_ten(const void *context, int64_t sample) {
    (void)context;
    return (int)(sample % 10);
}

static rpi_sampler make(const char *text, int64_t count, int64_t batch, int world) {
    rpi_sampler sampler = {0};
    rpi_label_split split;
    CHECK_OK(rpi_split_parse(text, &split));
    CHECK_OK(rpi_sampler_create(check_seed(), count, batch, &sampler));
    CHECK_OK(rpi_sampler_split(&sampler, &split, world, 10, modulo_ten, NULL));
    return sampler;
}

/* In an epoch each sample comes once, to the rank that has it, in another order each time. */
static void check_epochs(const char *text, int64_t count, int64_t batch, int world) {
    rpi_sampler sampler = make(text, count, batch, world);
    int *owner = calloc((size_t)count, sizeof *owner),
        *seen = calloc((size_t)count, sizeof *seen);
    int64_t steps = rpi_sampler_steps_per_epoch(&sampler), moved = 0;
    uint32_t *before = calloc((size_t)count, sizeof *before);
    REQUIRE(sampler.parts.samples && owner && seen && before);
    for (int rank = 0; rank < world; rank++)
        for (int64_t i = sampler.parts.first[rank]; i < sampler.parts.first[rank + 1]; i++)
            owner[sampler.parts.samples[i]] = rank;
    for (int64_t step = 0; step < 2 * steps; step++)
        for (int rank = 0; rank < world; rank++) {
            rpi_batch dealt = rpi_sampler_deal(&sampler, step, rank, world);
            for (int64_t i = 0; i < dealt.count; i++) {
                int64_t place = dealt.indices + i - sampler.order;
                CHECK_EQ(owner[dealt.indices[i]], rank);
                seen[dealt.indices[i]]++;
                if (step < steps)
                    before[place] = dealt.indices[i];
                else
                    moved += before[place] != dealt.indices[i];
            }
        }
    for (int64_t i = 0; i < count; i++) CHECK_EQ(seen[i], 2);
    CHECK_MSG(moved > count / 2, "%s: both epochs have one order", text);
    free(owner);
    free(seen);
    free(before);
    rpi_sampler_destroy(&sampler);
}

static void every_sample_comes_once(void) {
    static const char *const texts[] = {"by-label", "dirichlet=0.1", "dirichlet=100"};
    for (int t = 0; t < 3; t++)
        for (int world = 1; world <= 5; world++) check_epochs(texts[t], 317, 12 * world, world);
    check_epochs("by-label", 317, 7, 3); /* a batch of parts that differ */
}

static void sorted_by_label_and_cut(void) {
    rpi_sampler sampler = make("by-label", 1000, 10, 5);
    for (int rank = 0; rank < 5; rank++)
        for (int c = 0; c < 10; c++)
            CHECK_EQ(sampler.parts.of_labels[rank * 10 + c], c / 2 == rank ? 100 : 0);
    rpi_sampler_destroy(&sampler);
}

/* Of Dir(A, ..., A) over C labels the expected sum of squared shares is (A + 1) / (C A + 1).
 * The first of many ranks draws from a pool that is nearly whole. */
static void shares_are_those_of_dirichlet(void) {
    enum { TRIALS = 200, COUNT = 4000, WORLD = 10, EACH = COUNT / WORLD };
    static const double concentrations[] = {0.05, 0.3, 3, 1000};
    for (int k = 0; k < 4; k++) {
        double a = concentrations[k], mean = 0;
        for (int trial = 0; trial < TRIALS; trial++) {
            rpi_label_split split = {RPI_SPLIT_DIRICHLET, a};
            rpi_split_parts parts;
            rpi_split_request request = {.seed = check_seed() + (uint64_t)trial,
                                         .count = COUNT,
                                         .global_batch = WORLD,
                                         .world = WORLD,
                                         .classes = 10,
                                         .label_at = modulo_ten};
            REQUIRE_OK(rpi_split_make(&split, &request, &parts));
            for (int c = 0; c < 10; c++) {
                double share = (double)parts.of_labels[c] / EACH;
                mean += share * share / TRIALS;
            }
            rpi_split_close(&parts);
        }
        double expected = (a + 1) / (10 * a + 1);
        expected += (1 - expected) / EACH; /* of draws from the shares */
        /* A sum of squares lies in 0.1 ... 1: its mean over the trials within 5 deviations. */
        double bound = 5 * 0.45 / sqrt(TRIALS) * sqrt(expected * (1 - expected));
        CHECK_MSG(fabs(mean - expected) < bound + 1e-3, "A %g: squares sum to %g, not %g", a,
                  mean, expected);
    }
}

static void the_same_each_time(void) {
    rpi_sampler a = make("dirichlet=0.3", 500, 20, 4), b = make("dirichlet=0.3", 500, 20, 4);
    CHECK(memcmp(a.parts.samples, b.parts.samples, 500 * sizeof *a.parts.samples) == 0);
    rpi_sampler_destroy(&a);
    rpi_sampler_destroy(&b);
}

static void mistakes_are_named(void) {
    static const struct {
        const char *text, *part;
    } bad[] = {{"labels", "none of iid, by-label, dirichlet=A"},
               {"dirichlet", "none of iid"},
               {"dirichlet=", "no number above 0"},
               {"dirichlet=0", "no number above 0"},
               {"dirichlet=-1", "no number above 0"},
               {"dirichlet=nan", "no number above 0"},
               {"dirichlet=1x", "'1x' is no number"}};
    rpi_label_split split;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK_FAILS(rpi_split_parse(bad[i].text, &split), INVALID, bad[i].part);
    rpi_train_options options = ranks_options();
    options.split = "by-label";
    options.model = "gpt2";
    options.data = "tokens:nowhere";
    CHECK_FAILS(rpi_train_check(&options, 2), INVALID, "--data tokens:nowhere has none");
}

/* The sum of gradients is over other batches, and training learns; what ranks have is told. */
static void training_has_it(void) {
    static const char *const splits[] = {"iid", "by-label", "dirichlet=0.3"};
    for (int i = 0; i < 3; i++) {
        rpi_train_options options = ranks_options();
        rpi_train_result result = {0};
        options.split = splits[i];
        options.steps = 60;
        options.overwrite = true;
        options.out = ranks_folder("split");
        REQUIRE_OK(ranks_train(&options, 3, &result));
        CHECK_MSG(result.test.accuracy > 0.9, "%s: accuracy is %g", splits[i],
                  result.test.accuracy);
        size_t bytes = 0;
        char *text = (char *)ranks_file(ranks_path(options.out, "metrics.jsonl"), &bytes);
        REQUIRE(text);
        text[bytes] = '\0';
        CHECK_EQ(strstr(text, "\"split_labels\":[[") != NULL, i > 0);
        CHECK_EQ(strstr(ranks_notes(), "of 10 labels: rank 0 has ") != NULL, i > 0);
        free(text);
    }
}

CASES({"every sample comes once", every_sample_comes_once},
      {"sorted by label and cut", sorted_by_label_and_cut},
      {"shares are those of Dirichlet", shares_are_those_of_dirichlet},
      {"the same each time", the_same_each_time}, {"mistakes are named", mistakes_are_named},
      {"training has it", training_has_it})
