/* How long a step of a pipeline takes by each schedule, run as `redpoll train --pp` runs it,
 * but for passes that are all alike: each lasts as long as is said here, whatever it computes.
 * So what is measured is the schedule and its messages, beside what its formula says.
 *
 * usage: bubble [STAGES] [MILLISECONDS OF A PASS] [STEPS] */
#include "base/clock.h"
#include "base/status.h"
#include "plan/pipelines/pipeline_price.h"
#include "train/trainer.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_STAGES = 8, MILLISECOND = 1000000 };

typedef struct experiment {
    const rpi_pipeline_kind *kind;
    int stages, micro_batches, steps;
    int64_t unit_ns;
    double hop;    /* of a message, in passes */
    double step_s; /* measured: the quickest step */
} experiment;

typedef struct one_rank {
    experiment *experiment;
    const rp_store *store;
    int rank;
    int64_t unit_ns;
    rp_status status;
    char message[RPI_ERROR_BYTES];
} one_rank;

/* ---- passes of one length ---- */

static void sleep_until(int64_t end_ns) {
    for (int64_t left; (left = end_ns - rpi_now_ns()) > 0;) {
        struct timespec rest = {left / 1000000000, left % 1000000000};
        if (nanosleep(&rest, NULL) != 0 && errno != EINTR) abort();
    }
}

/* A pass through one of several chunks is a part of one through a stage. */
static void dilate(void *context, const rpi_pipeline_pass *pass, int64_t start_ns,
                   int64_t end_ns) {
    const one_rank *self = context;
    int64_t units = pass->kind == RPI_PASS_BACKWARD ? 2 : 1;
    (void)end_ns;
    sleep_until(start_ns + units * self->unit_ns);
}

static rp_status take_gradients(void *context, int64_t first, int64_t count) {
    (void)context, (void)first, (void)count;
    return RP_OK;
}

/* ---- a rank ---- */

static rpi_train_options options_of(const experiment *e) {
    return (rpi_train_options){.model = "vit:patch=14,layers=16,hidden=12,heads=2",
                               .data = "synthetic",
                               .train_images = 64,
                               .test_images = 4,
                               .steps = 1,
                               .global_batch_size = e->micro_batches,
                               .micro_batch_size = 1,
                               .stages = e->stages,
                               .schedule = e->kind->name,
                               .seed = 1,
                               .optimizer = "sgd",
                               .lr = 0.01,
                               .decay = "all",
                               .lr_schedule = "constant",
                               .strategy = "all-reduce",
                               .codec = "fp32",
                               .bucket_mb = 1,
                               .threads = 1};
}

static rp_status take_step(rpi_trainer *t, void *replica, double *out_step_s) {
    rpi_source_batch dealt;
    double loss = 0;
    RP_TRY(rpi_source_deal(&t->source, 0, &dealt));
    const rpi_replica_batch batch = {.samples = &dealt, .scales = {1, 1, 1}};
    RP_TRY(rp_barrier(t->comm));
    int64_t start_ns = rpi_now_ns();
    RP_TRY(rpi_replica_pipeline.learn(replica, &batch, &loss));
    double step_s = 1e-9 * (double)(rpi_now_ns() - start_ns);
    rp_segment most = {.data = &step_s, .count = 1, .dtype = RP_F64};
    const rp_collective_options options = RP_COLLECTIVE_OPTIONS(.reduce = RP_MAX);
    RP_TRY(rp_all_reduce(t->comm, &most, 1, &options));
    *out_step_s = step_s;
    return RP_OK;
}

/* The first step fills caches. */
static rp_status measure(one_rank *self, rpi_trainer *t, void *replica) {
    experiment *e = self->experiment;
    double least = INFINITY, step_s = 0;
    self->unit_ns = MILLISECOND;
    RP_TRY(rpi_replica_pipeline.compile(replica, true, e->micro_batches));
    RP_TRY(take_step(t, replica, &step_s));
    self->unit_ns = e->unit_ns;
    for (int i = 0; i < e->steps; i++) {
        RP_TRY(take_step(t, replica, &step_s));
        least = fmin(least, step_s);
    }
    if (self->rank == 0) e->step_s = least;
    return RP_OK;
}

static rp_status work(one_rank *self, rp_comm *comm) {
    const rpi_train_options options = options_of(self->experiment);
    rpi_trainer t;
    void *replica = NULL;
    rp_status status = rpi_trainer_open(&t, &options, comm);
    if (status == RP_OK) {
        const rpi_replica_setup setup = {.network = &t.network,
                                         .weights = t.weights,
                                         .programs = &t.programs,
                                         .mixup = &t.mixup,
                                         .memories = &t.memories,
                                         .micro_batch = t.micro_batch,
                                         .stage = &t.stage,
                                         .links = &t.links,
                                         .gradient_final = take_gradients,
                                         .passed = dilate,
                                         .context = self};
        status = rpi_replica_pipeline.open(&setup, &replica);
    }
    if (status == RP_OK) status = measure(self, &t, replica);
    if (status != RP_OK) rp_comm_abort(comm, status, rp_last_error()->message);
    if (replica) rpi_replica_pipeline.close(replica);
    rpi_trainer_close(&t);
    return status;
}

static void *run_rank(void *context) {
    one_rank *self = context;
    const experiment *e = self->experiment;
    char link[64];
    rp_comm *comm = NULL;
    snprintf(link, sizeof link, "100Gbit,%.0fus", e->hop * (double)e->unit_ns / 1e3);
    const rp_comm_options options =
        RP_COMM_OPTIONS(.transport = "inproc", .link = e->hop > 0 ? link : NULL,
                        .timeout_s = 60, .progress_thread = 1);
    self->status = rp_comm_create(self->store, self->rank, e->stages, &options, &comm);
    if (self->status == RP_OK) self->status = work(self, comm);
    if (self->status != RP_OK)
        snprintf(self->message, sizeof self->message, "%s", rp_last_error()->message);
    rp_comm_destroy(comm);
    return NULL;
}

static rp_status run(experiment *e) {
    one_rank ranks[MOST_STAGES];
    pthread_t threads[MOST_STAGES];
    rp_store store = {0};
    RP_TRY(rp_store_open_local(&store));
    for (int r = 0; r < e->stages; r++) {
        ranks[r] = (one_rank){.experiment = e, .store = &store, .rank = r};
        if (pthread_create(&threads[r], NULL, run_rank, &ranks[r]) != 0) abort();
    }
    for (int r = 0; r < e->stages; r++) pthread_join(threads[r], NULL);
    rp_store_close(&store);
    for (int r = 0; r < e->stages; r++)
        if (ranks[r].status != RP_OK)
            return RP_FAIL(INTERNAL, "rank %d: %s", r, ranks[r].message);
    return RP_OK;
}

/* ---- the formula ---- */

/* Times of a model are those of all chunks of a stage. */
static rp_status by_events(const experiment *e, const rpi_pipeline_shape *shape, double *out) {
    double units[MOST_STAGES];
    rpi_pipeline_orders orders;
    rpi_pipeline_price price = {0};
    for (int i = 0; i < e->stages; i++) units[i] = shape->chunks;
    const rpi_pipeline_model model = {.entries = e->stages,
                                      .forward_s = units,
                                      .inputs_s = units,
                                      .weights_s = units,
                                      .latency_s = e->hop};
    RP_TRY(rpi_pipeline_orders_build(e->kind, shape, &orders));
    rp_status status = rpi_pipeline_price_make(&orders, &model, &price);
    *out = price.time_s;
    rpi_pipeline_price_free(&price);
    rpi_pipeline_orders_destroy(&orders);
    return status;
}

/* In passes: in closed form where links cost nothing and, of 1f1b and eager-1f1b, where a hop
 * takes no more than a pass; of the others by events. */
static rp_status formula(const experiment *e, const rpi_pipeline_shape *shape, double *out,
                         const char **out_how) {
    double p = e->stages, m = e->micro_batches, c = e->hop;
    double alike = 3 * (m + p - 1);
    *out_how = "closed form";
    if (c == 0) {
        *out = (double)e->kind->unit_time(shape);
        return RP_OK;
    }
    if (strcmp(e->kind->name, "1f1b") == 0) {
        *out = alike + c * (2 * (p - 1) * m / p + 2 * (p - 2));
        return RP_OK;
    }
    if (strcmp(e->kind->name, "eager-1f1b") == 0) {
        *out = alike + 2 * (p - 1) * c;
        return RP_OK;
    }
    *out_how = "by events";
    return by_events(e, shape, out);
}

static rp_status show(experiment *e) {
    rpi_pipeline_shape shape;
    double said = 0;
    const char *how = NULL;
    RP_TRY(rpi_pipeline_shape_make(e->kind, e->stages, e->micro_batches, 0, &shape));
    RP_TRY(formula(e, &shape, &said, &how));
    RP_TRY(run(e));
    double busy = 3.0 * shape.micro_batches * shape.chunks;
    double measured = 1e9 * e->step_s / (double)e->unit_ns;
    double bubbles[] = {1 - busy / said, 1 - busy / measured};
    printf("%-12s %5d %5.1f %10.1f %10.1f %9.2f %% %9.2f %% %8.3f  %s\n", e->kind->name,
           e->micro_batches, e->hop, said, measured, 100 * bubbles[0], 100 * bubbles[1],
           measured / said, how);
    fflush(stdout);
    return RP_OK;
}

static rp_status show_all(int stages, int64_t unit_ns, int steps) {
    static const int micro_batches[] = {8, 32};
    static const double hops[] = {0, 1};
    const rpi_pipeline_kind *kind;
    printf(
        "%d stages, passes of %.0f ms (forward, backward for inputs, backward for weights; of "
        "a chunk)\n\n%-12s %5s %5s %10s %10s %11s %11s %8s\n",
        stages, 1e-6 * (double)unit_ns, "schedule", "runs", "hop", "formula", "measured",
        "bubble", "measured", "ratio");
    for (size_t h = 0; h < sizeof hops / sizeof hops[0]; h++)
        for (size_t m = 0; m < sizeof micro_batches / sizeof micro_batches[0]; m++)
            for (int i = 0; (kind = rpi_pipeline_kind_at(i)) != NULL; i++) {
                experiment e = {.kind = kind,
                                .stages = stages,
                                .micro_batches = micro_batches[m],
                                .steps = steps,
                                .unit_ns = unit_ns,
                                .hop = hops[h]};
                RP_TRY(show(&e));
            }
    return RP_OK;
}

static long number(int count, char **words, int at, long fallback, long most) {
    long value = count > at ? strtol(words[at], NULL, 10) : fallback;
    return value < 1 || value > most ? 0 : value;
}

int main(int argc, char **argv) {
    long stages = number(argc, argv, 1, 4, MOST_STAGES), unit = number(argc, argv, 2, 20, 1000);
    long steps = number(argc, argv, 3, 2, 100);
    if (argc > 4 || stages < 2 || !unit || !steps) {
        fprintf(stderr, "usage: %s [STAGES, 2 to %d] [MILLISECONDS OF A PASS] [STEPS]\n",
                argv[0], MOST_STAGES);
        return 2;
    }
    if (show_all((int)stages, unit * MILLISECOND, (int)steps) == RP_OK) return 0;
    fprintf(stderr, "%s\n", rp_last_error()->message);
    return 1;
}
