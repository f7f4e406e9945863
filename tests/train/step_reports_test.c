/* What ranks tell each other of their steps: nothing in a step that nobody asked for, whatever
 * the length of blocks the same numbers, and all ranks do what they are asked for together. */
#include "harness/check.h"
#include "train/data/dataset.h"
#include "train/divergence.h"
#include "train/trainer.h"
#include "train_ranks.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

/* ---- who waits for whom ---- */

enum { RING = 6, HELD = 3 };

/* Rank 0 gets no data for step HELD (steps counted from 0) before the others have come as far
 * as they can without it. */
static struct gate {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    int64_t done[RING]; /* steps */
    bool timed_out;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};

static int hops_to_first(int rank) {
    return rank < RING - rank ? rank : RING - rank;
}

/* A neighbour of the one that is held waits for it; each hop more is a step more. */
static int64_t reach_of(int rank) {
    return HELD + hops_to_first(rank) - 1;
}

static bool all_came_far(void) {
    for (int rank = 1; rank < RING; rank++)
        if (gate.done[rank] < reach_of(rank)) return false;
    return true;
}

static rpi_source_kind held_kind;

static rp_status deal_late(rpi_source *source, int64_t step, rpi_source_batch *out_batch) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 10; /* the communicator gives up after 30 */
    pthread_mutex_lock(&gate.lock);
    while (step == HELD && !all_came_far() && !gate.timed_out)
        gate.timed_out = pthread_cond_timedwait(&gate.moved, &gate.lock, &until) != 0;
    pthread_mutex_unlock(&gate.lock);
    return rpi_source_images.deal(source, step, out_batch);
}

static rp_status take_steps(rpi_trainer *t, int64_t steps) {
    rpi_step_metrics metrics;
    for (int64_t i = 0; i < steps; i++) {
        RP_TRY(rpi_trainer_step(t, &metrics));
        pthread_mutex_lock(&gate.lock);
        gate.done[t->place.rank] = t->step;
        pthread_cond_broadcast(&gate.moved);
        pthread_mutex_unlock(&gate.lock);
    }
    return rpi_step_reports_flush(&t->reports);
}

static rp_status train_beside_a_slow_one(void *context, rp_comm *comm) {
    rpi_trainer t;
    rp_status status = rpi_trainer_open(&t, context, comm);
    if (status == RP_OK && t.place.rank == 0) {
        held_kind = *t.source.kind;
        held_kind.deal = deal_late;
        t.source.kind = &held_kind;
    }
    if (status == RP_OK) status = take_steps(&t, HELD + 4);
    rpi_trainer_close(&t);
    return status;
}

static void gossip_waits_for_neighbours_alone(void) {
    static const int64_t every[] = {0, 1, 3};
    for (size_t i = 0; i < sizeof every / sizeof every[0]; i++) {
        rpi_train_options options = ranks_options();
        options.strategy = "gossip:topology=ring";
        options.momentum = options.weight_decay = 0;
        options.log_every = every[i];
        memset(gate.done, 0, sizeof gate.done);
        gate.timed_out = false;
        CHECK_OK(ranks_run(RING, train_beside_a_slow_one, &options));
        CHECK_MSG(!gate.timed_out,
                  "--log-every %lld: who is far away waited for rank 0 all the "
                  "same",
                  (long long)every[i]);
    }
}

/* ---- what a step costs ---- */

enum { BLOCK = 4 };

static uint64_t operations_of(rp_comm *comm) {
    rp_comm_stats stats;
    rp_comm_get_stats(comm, &stats);
    return stats.operations;
}

static rp_status count_operations(void *context, rp_comm *comm) {
    const rpi_train_options *options = context;
    uint64_t before, counts[3 * BLOCK];
    rpi_step_metrics metrics;
    rpi_trainer t;
    rp_status status = rpi_trainer_open(&t, options, comm);
    for (int i = 0; i < 3 * BLOCK && status == RP_OK; i++) {
        before = operations_of(comm);
        status = rpi_trainer_step(&t, &metrics);
        counts[i] = operations_of(comm) - before;
    }
    for (int i = 0; i < 3 * BLOCK && status == RP_OK; i++)
        CHECK_MSG(counts[i] == counts[0] + (i % BLOCK == BLOCK - 1),
                  "step %d has %llu operations, the first %llu", i + 1,
                  (unsigned long long)counts[i], (unsigned long long)counts[0]);
    rpi_trainer_close(&t);
    return status;
}

/* One bucket: one all-reduce, and nothing beside it. */
static rp_status count_one_bucket(void *context, rp_comm *comm) {
    rpi_train_options options = *(const rpi_train_options *)context;
    rpi_step_metrics metrics;
    rpi_trainer t;
    options.bucket_mb = 64;
    RP_TRY(count_operations(&options, comm));
    rp_status status = rpi_trainer_open(&t, &options, comm);
    uint64_t before = operations_of(comm);
    if (status == RP_OK) status = rpi_trainer_step(&t, &metrics);
    if (status == RP_OK) CHECK_EQ(operations_of(comm) - before, 1);
    rpi_trainer_close(&t);
    return status;
}

static void a_step_sums_gradients_and_nothing_else(void) {
    rpi_train_options options = ranks_options();
    options.log_every = BLOCK;
    CHECK_OK(ranks_run(3, count_operations, &options));
    CHECK_OK(ranks_run(3, count_one_bucket, &options));
}

/* ---- what is told ---- */

enum { STEPS = 23 };

typedef struct lines {
    double loss[STEPS + 1];
    int count;
} lines;

static lines read_losses(const char *out) {
    lines found = {0};
    size_t bytes = 0;
    char *text = (char *)ranks_file(ranks_path(out, "metrics.jsonl"), &bytes);
    if (!text) return found;
    text[bytes] = '\0';
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        long long step = 0;
        double loss = 0;
        if (sscanf(line, "{\"step\":%lld,\"loss\":%lf,", &step, &loss) != 2) continue;
        found.count++;
        CHECK_EQ(step, found.count); /* each once, in order */
        if (step <= STEPS) found.loss[step] = loss;
    }
    free(text);
    return found;
}

static void check_lengths(const char *strategy) {
    static const int64_t every[] = {1, 7, 64, 0};
    lines first = {0};
    for (int i = 0; i < 4; i++) {
        rpi_train_options options = ranks_options();
        options.strategy = strategy;
        options.momentum = options.weight_decay = 0;
        options.steps = STEPS;
        options.eval_every = 10; /* amid blocks */
        options.overwrite = true;
        options.log_every = every[i];
        char name[32];
        snprintf(name, sizeof name, "every-%d", i);
        options.out = ranks_folder(name);
        rpi_train_result result = {0};
        REQUIRE_OK(ranks_train(&options, 3, &result));
        CHECK_EQ(result.steps, STEPS);
        lines got = read_losses(options.out);
        CHECK_EQ(got.count, STEPS);
        CHECK_NEAR(result.last_loss, got.loss[STEPS], 1e-12);
        if (i == 0) first = got;
        CHECK_MSG(memcmp(&got, &first, sizeof got) == 0,
                  "%s: other losses with --log-every %lld", strategy, (long long)every[i]);
        CHECK(ranks_same_file(ranks_path(ranks_folder("every-0"), "model.safetensors"),
                              ranks_path(options.out, "model.safetensors")));
    }
}

static void blocks_of_any_length_say_the_same(void) {
    check_lengths("all-reduce");
    check_lengths("gossip:topology=ring");
}

/* ---- together ---- */

static void all_do_it_after_the_same_step(void) {
    static const struct {
        const char *strategy;
        int asked_at, ends_at;
    } cases[] = {{"all-reduce", 3, BLOCK},
                 {"all-reduce", BLOCK, BLOCK},
                 {"all-reduce", BLOCK + 1, 2 * BLOCK},
                 {"gossip:topology=ring", 3, BLOCK * (1 + RPI_REPORTS_APART)}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rpi_train_options options = ranks_options();
        options.strategy = cases[i].strategy;
        options.momentum = options.weight_decay = 0;
        options.steps = 50;
        options.eval = false;
        options.log_every = BLOCK;
        options.overwrite = true;
        options.out = ranks_folder("asked");
        rpi_train_result result = {0};
        ranks_ask((ranks_wish){1, cases[i].asked_at, RPI_ASKED_STOP});
        REQUIRE_OK(ranks_train(&options, 3, &result));
        ranks_ask((ranks_wish){0});
        CHECK(result.stopped);
        CHECK_EQ(result.steps, cases[i].ends_at);
        CHECK_EQ(read_losses(options.out).count, cases[i].ends_at);
    }
}

/* A rank has infinite pixels in step 6 of 8. */
static rp_status spoil_images(rpi_source *source, int64_t step, rpi_source_batch *out_batch) {
    RP_TRY(rpi_source_images.deal(source, step, out_batch));
    if (step != 5) return RP_OK;
    float *images = (float *)(uintptr_t)out_batch->inputs[0];
    for (int64_t i = 0; i < out_batch->count * 28 * 28; i++) images[i] = INFINITY;
    return RP_OK;
}

static rp_status train_and_tell(rpi_trainer *t) {
    rpi_step_metrics metrics;
    rpi_told_step told;
    for (int i = 0; i < 8; i++) RP_TRY(rpi_trainer_step(t, &metrics));
    while (rpi_step_reports_take(&t->reports, &told))
        RP_TRY(rpi_divergence_report(t, told.faults, told.stride, told.metrics.step,
                                     told.metrics.step - 1));
    return RP_OK;
}

static rp_status train_spoiled(void *context, rp_comm *comm) {
    static rpi_source_kind spoiled;
    rpi_trainer t;
    rp_status status = rpi_trainer_open(&t, context, comm);
    if (status == RP_OK && t.place.rank == 2) {
        spoiled = *t.source.kind;
        spoiled.deal = spoil_images;
        t.source.kind = &spoiled;
    }
    if (status == RP_OK) status = train_and_tell(&t);
    rpi_kept_error kept;
    rpi_error_keep(&kept);
    if (status != RP_OK) rp_comm_abort(comm, status, kept.message);
    rpi_trainer_close(&t);
    rpi_error_put_back(&kept);
    return status;
}

static void a_fault_amid_a_block_has_its_step_and_rank(void) {
    rpi_train_options options = ranks_options();
    options.log_every = 8;
    CHECK_FAILS(
        ranks_run(3, train_spoiled, &options), CORRUPT,
        "training has diverged at step 6: the output of fc1 (linear) is not finite, first "
        "of the forward pass, on rank 2; ");
    for (int rank = 0; rank < 3; rank++)
        CHECK(strcmp(ranks_message(rank), ranks_message(0)) == 0);
}

CASES({"gossip waits for neighbours alone", gossip_waits_for_neighbours_alone},
      {"a step sums gradients and nothing else", a_step_sums_gradients_and_nothing_else},
      {"blocks of any length say the same", blocks_of_any_length_say_the_same},
      {"all do it after the same step", all_do_it_after_the_same_step},
      {"a fault amid a block has its step and rank",
       a_fault_amid_a_block_has_its_step_and_rank})
