#include "train/data/tokenize.h"

#include "base/memory.h"
#include "train/tokenizers/utf8_text.h"

#include <pthread.h>
#include <stdio.h>

enum { BATCH_BYTES = 1 << 20, BATCH_DOCUMENTS = 4096, SLOTS_A_THREAD = 3 };

typedef struct batch_document {
    size_t start, bytes; /* of the batch's text */
    size_t end;          /* of its ids in the batch's */
    const char *path;
    int64_t line, row;
    size_t replaced; /* before it came here */
} batch_document;

typedef enum slot_state { FREE, FILLED, TAKEN, DONE } slot_state;

/* A batch goes round: filled by the caller, encoded by a worker, written by the caller. */
typedef struct slot {
    slot_state state; /* under the lock */
    rpi_text text;
    batch_document *documents;
    int count;
    rpi_ids ids;
    int64_t repaired, replaced;
    rp_status status;
    rpi_kept_error error;
} slot;

typedef struct job {
    const rpi_tokenizer *tokenizer;
    const rpi_tokenize_options *options;
    rpi_text_source *source;
    rpi_token_writer *writer;
    rpi_tokenize_totals *totals;
    slot *slots;
    int slot_count;
    bool source_done;
    pthread_mutex_t lock;
    pthread_cond_t filled, done;
    int64_t next_taken, next_filled; /* batches, by number; under the lock */
    bool stops;
} job;

/* Batches take the slots in turn; there is at least one. */
static slot *slot_of(job *j, int64_t number) {
    return &j->slots[j->slot_count > 0 ? number % j->slot_count : 0];
}

/* ---- workers ---- */

static rp_status name_place(rp_status status, const batch_document *d) {
    char mark[RPI_ROW_MARK];
    if (d->line)
        return rpi_fail_context(status, "%s:%lld%s: ", d->path, (long long)d->line,
                                rpi_text_row_mark(d->row, mark));
    return rpi_fail_context(status, "%s: ", d->path);
}

static rp_status encode_document(const job *j, rpi_encoder *encoder, slot *s,
                                 batch_document *d) {
    size_t replaced = 0, text_bytes = d->bytes;
    const char *text = s->text.at + d->start;
    RP_TRY(rpi_encode(encoder, text, text_bytes, j->options->flags, &s->ids, &replaced));
    replaced += d->replaced;
    if (replaced && j->options->strict)
        return RP_FAIL(CORRUPT, "%zu place%s not UTF-8, which --strict refuses", replaced,
                       replaced == 1 ? " is" : "s are");
    if (j->options->strict && rpi_utf8_valid(text, text_bytes) < text_bytes) /* byte */
        return RP_FAIL(CORRUPT, "byte %zu is not UTF-8, which --strict refuses",
                       rpi_utf8_valid(text, text_bytes));
    s->replaced += (int64_t)replaced;
    s->repaired += replaced > 0;
    if (j->options->has_end) RP_TRY(rpi_ids_add(&s->ids, j->options->end));
    d->end = s->ids.count;
    return RP_OK;
}

static void encode_batch(const job *j, rpi_encoder *encoder, slot *s) {
    s->ids.count = 0;
    s->replaced = s->repaired = 0;
    s->status = RP_OK;
    for (int i = 0; i < s->count && s->status == RP_OK; i++) {
        s->status = encode_document(j, encoder, s, &s->documents[i]);
        if (s->status != RP_OK) (void)name_place(s->status, &s->documents[i]);
    }
    if (s->status != RP_OK) rpi_error_keep(&s->error);
}

/* The next filled batch, in order; NULL: there will be none. */
static slot *take(job *j) {
    slot *s = NULL;
    pthread_mutex_lock(&j->lock);
    while (!j->stops && j->next_taken == j->next_filled)
        pthread_cond_wait(&j->filled, &j->lock);
    if (!j->stops) {
        s = slot_of(j, j->next_taken++);
        s->state = TAKEN;
    }
    pthread_mutex_unlock(&j->lock);
    return s;
}

typedef struct worker {
    job *job;
    rpi_encoder *encoder;
    pthread_t thread;
} worker;

static void *work(void *context) {
    worker *w = context;
    for (slot *s; (s = take(w->job));) {
        encode_batch(w->job, w->encoder, s);
        pthread_mutex_lock(&w->job->lock);
        s->state = DONE;
        pthread_cond_signal(&w->job->done);
        pthread_mutex_unlock(&w->job->lock);
    }
    return NULL;
}

/* ---- the caller ---- */

static rp_status fill(job *j, slot *s) {
    s->text.count = 0;
    s->count = 0;
    while (s->count < BATCH_DOCUMENTS && s->text.count < BATCH_BYTES) {
        rpi_document d;
        RP_TRY(rpi_text_source_next(j->source, &j->source_done, &d));
        if (j->source_done) break;
        s->documents[s->count++] = (batch_document){.start = s->text.count,
                                                    .bytes = d.bytes,
                                                    .path = d.path,
                                                    .line = d.line,
                                                    .row = d.row,
                                                    .replaced = d.replaced};
        RP_TRY(rpi_text_append(&s->text, d.text, d.bytes));
    }
    return RP_OK;
}

static rp_status write_batch(job *j, slot *s) {
    rpi_tokenize_totals *t = j->totals;
    size_t from = 0;
    if (s->status != RP_OK) {
        rpi_error_put_back(&s->error);
        return s->status;
    }
    for (int i = 0; i < s->count; i++) {
        size_t end = s->documents[i].end;
        RP_TRY(rpi_token_writer_add(j->writer, s->ids.at + from, end - from));
        from = end;
    }
    t->documents += s->count;
    t->bytes += (int64_t)s->text.count;
    t->tokens += (int64_t)s->ids.count;
    t->repaired += s->repaired;
    t->replaced += s->replaced;
    return RP_OK;
}

static rp_status write_when_done(job *j, int64_t number) {
    slot *s = slot_of(j, number);
    pthread_mutex_lock(&j->lock);
    while (s->state != DONE) pthread_cond_wait(&j->done, &j->lock);
    s->state = FREE;
    pthread_mutex_unlock(&j->lock);
    return write_batch(j, s);
}

static rp_status tell(const job *j) {
    const rpi_tokenize_options *o = j->options;
    bool stop = o->progress && o->progress(o->context, rpi_text_source_read(j->source),
                                           rpi_text_source_total(j->source));
    return stop ? RP_FAIL(CANCELLED, "stopped; nothing was written") : RP_OK;
}

static rp_status run(job *j) {
    int64_t written = 0, filled = 0;
    while (!j->source_done) {
        if (filled - written == j->slot_count) RP_TRY(write_when_done(j, written++));
        RP_TRY(tell(j));
        slot *s = slot_of(j, filled);
        RP_TRY(fill(j, s));
        if (s->count == 0) break;
        pthread_mutex_lock(&j->lock);
        s->state = FILLED;
        j->next_filled = ++filled;
        pthread_cond_signal(&j->filled);
        pthread_mutex_unlock(&j->lock);
    }
    while (written < filled) RP_TRY(write_when_done(j, written++));
    j->totals->broken = rpi_text_source_broken(j->source);
    return tell(j);
}

/* Workers end what they have begun, and begin nothing more. */
static void stop(job *j, worker *workers, int started) {
    pthread_mutex_lock(&j->lock);
    j->stops = true;
    pthread_cond_broadcast(&j->filled);
    pthread_mutex_unlock(&j->lock);
    for (int i = 0; i < started; i++) pthread_join(workers[i].thread, NULL);
    for (int i = 0; i < j->options->threads; i++) rpi_encoder_destroy(workers[i].encoder);
}

static rp_status start_and_run(job *j, worker *workers) {
    rp_status status = RP_OK;
    int started = 0;
    for (int i = 0; i < j->options->threads && status == RP_OK; i++) {
        workers[i].job = j;
        status = rpi_encoder_create(j->tokenizer, &workers[i].encoder);
        if (status != RP_OK) break;
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            status = RP_FAIL_ERRNO(NOMEM, "cannot start thread %d of %d", i + 1,
                                   j->options->threads);
        else
            started++;
    }
    if (status == RP_OK) status = run(j);
    stop(j, workers, started);
    return status;
}

static rp_status prepare_slots(job *j) {
    RP_TRY(rpi_alloc_array((size_t)j->slot_count, sizeof *j->slots, "batches", &j->slots));
    for (int i = 0; i < j->slot_count; i++)
        RP_TRY(rpi_alloc_array(BATCH_DOCUMENTS, sizeof *j->slots[i].documents, "batches",
                               &j->slots[i].documents));
    return RP_OK;
}

static void free_slots(job *j) {
    for (int i = 0; j->slots && i < j->slot_count; i++) {
        rpi_text_free(&j->slots[i].text);
        rpi_ids_free(&j->slots[i].ids);
        rpi_free(j->slots[i].documents);
    }
    rpi_free(j->slots);
}

rp_status rpi_tokenize(const rpi_tokenizer *tokenizer, rpi_text_source *source,
                       rpi_token_writer *writer, const rpi_tokenize_options *options,
                       rpi_tokenize_totals *out_totals) {
    worker *workers = NULL;
    job j = {.tokenizer = tokenizer,
             .options = options,
             .source = source,
             .writer = writer,
             .totals = out_totals,
             .lock = PTHREAD_MUTEX_INITIALIZER,
             .filled = PTHREAD_COND_INITIALIZER,
             .done = PTHREAD_COND_INITIALIZER};
    *out_totals = (rpi_tokenize_totals){0};
    if (options->threads < 1 || options->threads > RPI_TOKENIZE_THREADS_MOST)
        return RP_FAIL(INVALID, "%d threads; 1 to %d are allowed", options->threads,
                       RPI_TOKENIZE_THREADS_MOST);
    j.slot_count = SLOTS_A_THREAD * options->threads;
    RP_TRY(rpi_alloc_array((size_t)options->threads, sizeof *workers, "threads", &workers));
    rp_status status = prepare_slots(&j);
    if (status == RP_OK) status = start_and_run(&j, workers);
    free_slots(&j);
    rpi_free(workers);
    return status;
}
