/* Work that ranks of a machine do together, and the time of a training step outside of its
 * passes. */
#include "cli/bench_machine.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "cli/train_settings.h"

/* ---- sums ---- */

static const size_t sizes[] = {1 << 12, 1 << 16, 1 << 20, 1 << 22, 1 << 24};
enum { SIZES = sizeof sizes / sizeof sizes[0], MOST_BYTES = 1 << 24, REPEATS = 3 };

typedef struct sums {
    float *values;
    int items[SIZES];
} sums;

static void close_sums(void *self) {
    sums *s = self;
    if (!s) return;
    rpi_free(s->values);
    rpi_free(s);
}

static rp_status open_sums(rpi_machine_bench *b, void **out_self) {
    sums *s = NULL;
    RP_TRY(rpi_alloc(sizeof *s, "sums", &s));
    *out_self = s;
    if (b->ranks == 1) return RP_OK;
    RP_TRY(rpi_alloc(MOST_BYTES, "a sum", &s->values));
    for (int i = 0; i < SIZES; i++) {
        const double bytes = (double)sizes[i];
        RP_TRY(rpi_machine_item_open(b, RPI_WORK_SUM, 0, "", &bytes, bytes, &s->items[i]));
    }
    return RP_OK;
}

static rp_status sum_once(rpi_machine_bench *b, const sums *s, size_t bytes,
                          double *out_seconds) {
    const rp_segment segment = {
        .data = s->values, .count = bytes / sizeof(float), .dtype = RP_F32};
    RP_TRY(rp_barrier(b->comm));
    int64_t start = rpi_now_ns();
    RP_TRY(rp_all_reduce(b->comm, &segment, 1, NULL));
    *out_seconds = rpi_seconds(rpi_now_ns() - start);
    return RP_OK;
}

static rp_status run_sums(rpi_machine_bench *b, void *self) {
    const sums *s = self;
    double seconds = 0;
    for (int i = 0; i < SIZES && b->ranks > 1; i++)
        for (int k = 0; k < REPEATS; k++) {
            RP_TRY(sum_once(b, s, sizes[i], &seconds));
            if (k > 0) rpi_machine_item_time(b, s->items[i], seconds);
        }
    return RP_OK;
}

const rpi_machine_part rpi_machine_sums = {
    .what = "all-reduces among ranks of this host",
    .open = open_sums,
    .run = run_sums,
    .close = close_sums,
};

/* ---- a step with next to nothing in it ---- */

typedef struct steps {
    rp_comm *alone;
    rpi_train_settings settings;
    int item;
} steps;

static void close_steps(void *self) {
    steps *s = self;
    if (!s) return;
    rp_comm_destroy(s->alone);
    rpi_free(s);
}

/* Also with one rank alone: the reports of ranks in a step are a sum like others. */
static rp_status open_steps(rpi_machine_bench *b, void **out_self) {
    steps *s = NULL;
    const rp_comm_options options = RP_COMM_OPTIONS(.progress_thread = 1);
    RP_TRY(rpi_alloc(sizeof *s, "a training", &s));
    *out_self = s;
    RP_TRY(rpi_options_defaults(rpi_train_table, &s->settings));
    rpi_train_options *o = &s->settings.train;
    o->model = "mlp:hidden=4";
    o->data = "synthetic";
    o->train_images = o->test_images = 64;
    o->global_batch_size = 1;
    o->steps = 40;
    o->threads = b->threads;
    o->optimizer = "adamw";
    o->lr = 1e-4;
    o->eval = o->checkpoint = false;
    o->out = NULL;
    RP_TRY(rp_comm_create(NULL, 0, 1, &options, &s->alone));
    return rpi_machine_item_open(b, RPI_WORK_STEP, 0, "", NULL, 0, &s->item);
}

static rp_status run_steps(rpi_machine_bench *b, void *self) {
    steps *s = self;
    rpi_train_hooks none = {0};
    rpi_train_result result = {0};
    RP_TRY(rp_barrier(b->comm));
    RP_TRY(rpi_train(&s->settings.train, s->alone, &none, &result));
    rpi_machine_item_time(b, s->item, result.step_s_median);
    return RP_OK;
}

const rpi_machine_part rpi_machine_steps = {
    .what = "a step of training with next to nothing in it",
    .open = open_steps,
    .run = run_steps,
    .close = close_steps,
};
