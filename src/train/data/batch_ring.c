#include "train/data/batch_ring.h"

#include "base/clock.h"
#include "base/memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <time.h>

typedef enum slot_state { FREE, TAKEN, READY } slot_state;

typedef struct slot {
    slot_state state;
    rp_status status;
    rpi_kept_error error;
    void *batch;
} slot;

struct rpi_batch_ring {
    rpi_batch_source source;
    slot *slots; /* of step s: s % count; one more than `ahead` */
    int count, threads;
    pthread_t *workers;
    pthread_mutex_t lock;
    pthread_cond_t freed, ready;
    int64_t next_given; /* consumer's */
    int64_t next_taken; /* workers' */
    bool holds, stops;  /* the consumer uses the batch before next_given */
};

static slot *slot_of(rpi_batch_ring *r, int64_t step) {
    return &r->slots[step % r->count];
}

/* The slot of the next step, in order; NULL: no more. */
static slot *take(rpi_batch_ring *r, int64_t *out_step) {
    pthread_mutex_lock(&r->lock);
    while (!r->stops && slot_of(r, r->next_taken)->state != FREE)
        pthread_cond_wait(&r->freed, &r->lock);
    slot *s = r->stops ? NULL : slot_of(r, r->next_taken);
    if (s) {
        s->state = TAKEN;
        *out_step = r->next_taken++;
    }
    pthread_mutex_unlock(&r->lock);
    return s;
}

static void *work(void *context) {
    rpi_batch_ring *r = context;
    int64_t step = 0;
    for (slot *s; (s = take(r, &step));) {
        rp_status status = r->source.fill(r->source.context, step, s->batch);
        if (status != RP_OK) rpi_error_keep(&s->error);
        pthread_mutex_lock(&r->lock);
        s->status = status;
        s->state = READY;
        /* What comes behind a failure is never given. */
        if (status != RP_OK) r->stops = true;
        pthread_cond_broadcast(&r->ready);
        if (r->stops) pthread_cond_broadcast(&r->freed);
        pthread_mutex_unlock(&r->lock);
    }
    return NULL;
}

/* ---- start and stop ---- */

/* Waits are measured by the clock that nobody sets. */
static void prepare_locks(rpi_batch_ring *r) {
    rpi_condition_init(&r->ready);
    pthread_cond_init(&r->freed, NULL);
    pthread_mutex_init(&r->lock, NULL);
}

static rp_status prepare(rpi_batch_ring *r, int threads) {
    RP_TRY(rpi_alloc_array((size_t)r->count, sizeof *r->slots, "batches", &r->slots));
    for (int i = 0; i < r->count; i++)
        RP_TRY(rpi_alloc(r->source.batch_bytes, "a batch", &r->slots[i].batch));
    RP_TRY(rpi_alloc_array((size_t)threads, sizeof *r->workers, "threads", &r->workers));
    for (; r->threads < threads; r->threads++)
        if (pthread_create(&r->workers[r->threads], NULL, work, r) != 0)
            return RP_FAIL_ERRNO(NOMEM, "cannot start a thread that reads data");
    return RP_OK;
}

rp_status rpi_batch_ring_start(const rpi_batch_source *source, int64_t first_step, int ahead,
                               int threads, rpi_batch_ring **out_ring) {
    if (ahead < 1 || ahead > RPI_BATCHES_AHEAD_MOST || threads < 1 ||
        threads > RPI_BATCH_THREADS_MOST)
        return RP_FAIL(INVALID,
                       "%d batches ahead by %d threads; 1 to %d by 1 to %d are allowed", ahead,
                       threads, RPI_BATCHES_AHEAD_MOST, RPI_BATCH_THREADS_MOST);
    rpi_batch_ring *r = NULL;
    RP_TRY(rpi_alloc(sizeof *r, "a ring of batches", &r));
    r->source = *source;
    r->count = ahead + 1;
    r->next_given = r->next_taken = first_step;
    prepare_locks(r);
    rp_status status = prepare(r, threads);
    if (status == RP_OK)
        *out_ring = r;
    else
        rpi_batch_ring_stop(r);
    return status;
}

void rpi_batch_ring_stop(rpi_batch_ring *r) {
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    r->stops = true;
    pthread_cond_broadcast(&r->freed);
    pthread_mutex_unlock(&r->lock);
    for (int i = 0; i < r->threads; i++) pthread_join(r->workers[i], NULL);
    for (int i = 0; r->slots && i < r->count; i++) rpi_free(r->slots[i].batch);
    pthread_cond_destroy(&r->ready);
    pthread_cond_destroy(&r->freed);
    pthread_mutex_destroy(&r->lock);
    rpi_free(r->slots);
    rpi_free(r->workers);
    rpi_free(r);
}

/* ---- the consumer ---- */

static void give_back(rpi_batch_ring *r) {
    if (!r->holds) return;
    slot_of(r, r->next_given - 1)->state = FREE;
    r->holds = false;
    pthread_cond_signal(&r->freed);
}

static bool wait_ready(rpi_batch_ring *r, const slot *s, double timeout_s) {
    int64_t until = rpi_deadline_ns(timeout_s);
    struct timespec deadline = {until / 1000000000, until % 1000000000};
    int code = 0;
    while (s->state != READY && code != ETIMEDOUT)
        code = pthread_cond_timedwait(&r->ready, &r->lock, &deadline);
    return s->state == READY;
}

rp_status rpi_batch_ring_next(rpi_batch_ring *r, double timeout_s, int64_t *out_step,
                              const void **out_batch) {
    pthread_mutex_lock(&r->lock);
    give_back(r);
    slot *s = slot_of(r, r->next_given);
    bool is_ready = wait_ready(r, s, timeout_s);
    if (is_ready && s->status == RP_OK) {
        *out_step = r->next_given++;
        *out_batch = s->batch;
        r->holds = true;
    }
    pthread_mutex_unlock(&r->lock);
    if (!is_ready)
        return RP_FAIL(TIMEOUT, "timed out: the data of step %lld are not there after %g s",
                       (long long)r->next_given, timeout_s);
    if (s->status != RP_OK) {
        rpi_error_put_back(&s->error);
        return s->status;
    }
    return RP_OK;
}

int64_t rpi_batch_ring_step(const rpi_batch_ring *ring) {
    return ring->next_given;
}
