/* Ranks sum their gradients, bucket by bucket while the backward pass still runs, and then each
 * updates its own copy of the parameters. The copies stay equal because the sums are equal.
 *
 * If ranks share the optimizer each gets only the sums of what it owns, updates that, and sends
 * it to the others; exact sums, and the updates from them, are the same. The updated values are
 * sent while the next batch is read and the first layers compute: the next step waits for a
 * bucket where it first reads one of its tensors.
 *
 * If they share the gradients as well, those of a bucket exist only until its owners have the
 * sums (passing_gradients.h). If they share the parameters, too, those of a bucket exist from
 * shortly before a pass reads them until it is done with them (passing_values.h).
 *
 * Gradients are scaled by 1 / (images of the global batch) first, so that their sum is the mean
 * over the batch, however it is divided among ranks. Vectors and small tensors are sent
 * exactly. What a lossy codec loses stays in the residual, which is added to the next step's
 * gradient. */
#include "train/strategies/strategy.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "train/strategies/codec_trial.h"
#include "train/strategies/gradients_seen.h"
#include "train/strategies/passing_gradients.h"
#include "train/strategies/passing_values.h"
#include "train/strategies/sharded.h"

#include <stdio.h>

typedef struct all_reduce {
    rpi_strategy_setup setup;
    rpi_buckets lossy, exact;      /* `exact`: the same buckets for the steps of the warm-up */
    rp_request **requests;         /* one a bucket */
    rpi_sharded sharded;           /* zeros: every rank updates everything */
    rpi_passing_gradients passing; /* zeros: every rank has all gradients */
    rpi_passing_values values;     /* zeros: every rank has all parameters */
    int64_t *posted_ns, *done_ns;  /* one a bucket; done 0: not seen as done yet */
    const rpi_buckets *current;
    int posted; /* buckets posted in this step */
    int taken;  /* whose sums are kept, if gradients are temporary */
    rpi_gradients_seen
        seen;          /* elements reported, if gradients are temporary of the current run */
    int64_t step, run; /* run: of the step, if gradients are temporary */
    rpi_bit_chooser chooser; /* zeros: every tensor keeps its codec */
    bool measures;           /* this step is measured, to choose */
    rpi_codec_trial trial;   /* of codec auto */
    bool asks;               /* this step compares, before its first bucket */
} all_reduce;

static void close_all_reduce(void *context) {
    all_reduce *self = context;
    /* Requests that a failure has left in flight still use the gradients. */
    for (int i = 0; i < self->posted; i++)
        if (self->requests[i]) (void)rp_request_wait(&self->requests[i]);
    rpi_passing_values_close(&self->values);
    rpi_sharded_close(&self->sharded);
    rpi_passing_gradients_close(&self->passing);
    rpi_bit_chooser_close(&self->chooser);
    rpi_buckets_destroy(&self->lossy);
    rpi_buckets_destroy(&self->exact);
    rpi_free(self->requests);
    rpi_free(self->posted_ns);
    rpi_free(self->done_ns);
    rpi_free(self);
}

static rp_status prepare(all_reduce *self) {
    const rpi_strategy_setup *s = &self->setup;
    static const rp_codec exact;
    RP_TRY(rpi_buckets_create(s->network, s->weights, s->bucket_bytes, &s->codec, s->residual,
                              &self->lossy));
    RP_TRY(rpi_buckets_create(s->network, s->weights, s->bucket_bytes, &exact, NULL,
                              &self->exact));
    if (s->codec_every)
        RP_TRY(rpi_bit_chooser_open(&s->codec, self->lossy.segments, self->lossy.segment_count,
                                    s->levels, &self->chooser));
    self->trial = (rpi_codec_trial){.chooser = &self->chooser,
                                    .buckets = &self->lossy,
                                    .comm = s->comm,
                                    .algorithm = s->algorithm,
                                    .lossy_from = s->lossy_from};
    RP_TRY(rpi_sharded_open(s, self->lossy.count, &self->sharded));
    RP_TRY(rpi_passing_gradients_open(s, &self->lossy, &self->passing));
    RP_TRY(rpi_passing_values_open(s, &self->lossy, &self->sharded, &self->values));
    size_t count = (size_t)self->lossy.count;
    RP_TRY(rpi_alloc_array(count, sizeof(rp_request *), "requests", &self->requests));
    RP_TRY(rpi_alloc_array(count, sizeof(int64_t), "times", &self->posted_ns));
    return rpi_alloc_array(count, sizeof(int64_t), "times", &self->done_ns);
}

static rp_status open_all_reduce(const rpi_strategy_setup *setup, void **out_self) {
    all_reduce *self = NULL;
    RP_TRY(rpi_alloc(sizeof *self, "a strategy", &self));
    self->setup = *setup;
    rp_status status = prepare(self);
    if (status == RP_OK)
        *out_self = self;
    else
        close_all_reduce(self);
    return status;
}

static void begin(void *context, int64_t step) {
    all_reduce *self = context;
    int64_t lossy_steps = step - self->setup.warmup_exact;
    self->current = lossy_steps < 0 ? &self->exact : &self->lossy;
    self->step = step;
    self->run = 0;
    self->passing.adds = false;
    self->posted = self->taken = 0;
    self->seen = (rpi_gradients_seen){0};
    self->asks = self->measures = false;
    if (!self->chooser.choices || lossy_steps < 0) return;
    rpi_trial_step tried = rpi_codec_trial_begin(&self->trial);
    self->asks = tried.asks;
    if (tried.goes_exact) {
        self->current = &self->exact;
        return;
    }
    self->measures = (tried.is_first_lossy || lossy_steps % self->setup.codec_every == 0) &&
                     rpi_bit_chooser_is_needed(&self->chooser);
    rpi_bit_chooser_apply(&self->chooser);
    if (self->measures) rpi_bit_chooser_clear(&self->chooser);
}

/* Before the first bucket: all ranks wait here, and nothing else is sent or computed. */
static rp_status ask(all_reduce *self) {
    const rpi_strategy_setup *s = &self->setup;
    char text[RP_COMPARISON_TEXT], line[RP_COMPARISON_TEXT + 16];
    self->asks = false;
    RP_TRY(rpi_codec_trial_ask(&self->trial, text));
    self->measures = self->measures && rpi_bit_chooser_is_needed(&self->chooser);
    snprintf(line, sizeof line, "codec auto: %s", text);
    if (text[0] && s->note) s->note(s->context, line);
    return RP_OK;
}

/* Each run of a step has random draws of its own. */
enum { RUN_SHIFT = 40 };

static rp_collective_options options_of(const all_reduce *self) {
    const rpi_strategy_setup *s = &self->setup;
    bool is_shared = rpi_sharded_is_open(&self->sharded);
    uint64_t draw = (uint64_t)self->step | (uint64_t)self->run << RUN_SHIFT;
    rp_collective_options options =
        RP_COLLECTIVE_OPTIONS(.algorithm = s->algorithm, .reduce = RP_SUM, .seed = s->seed,
                              .step = draw);
    if (is_shared) options.algorithm = rpi_sharded_algorithm(s->algorithm);
    return options;
}

static rp_status post(all_reduce *self, int index) {
    const rpi_bucket *bucket = &self->current->buckets[index];
    if (self->asks) RP_TRY(ask(self));
    for (int i = 0; self->measures && i < bucket->segment_count; i++)
        RP_TRY(rpi_bit_chooser_measure(&self->chooser, bucket->segment + i));
    rp_collective_options options = options_of(self);
    self->posted_ns[index] = rpi_now_ns();
    self->done_ns[index] = 0;
    if (rpi_sharded_is_open(&self->sharded))
        return rpi_sharded_scatter_start(&self->sharded, self->current, index, &options,
                                         &self->requests[index]);
    return rp_all_reduce_start(self->setup.comm, self->current->segments + bucket->segment,
                               (size_t)bucket->segment_count, &options, &self->requests[index]);
}

static rp_status gradient_final(void *context, int64_t first, int64_t count) {
    all_reduce *self = context;
    RP_TRY(rpi_gradients_seen_add(&self->seen, first, count));
    while (self->posted < self->current->count) {
        const rpi_bucket *bucket = &self->current->buckets[self->posted];
        if (bucket->first + bucket->count > first + count) break;
        RP_TRY(post(self, self->posted));
        self->posted++;
    }
    return RP_OK;
}

static void observe(void *context) {
    all_reduce *self = context;
    for (int i = 0; i < self->posted; i++)
        if (!self->done_ns[i] && self->requests[i] &&
            rp_request_test(self->requests[i]) != RP_PENDING)
            self->done_ns[i] = rpi_now_ns();
}

static void trace(all_reduce *self, int i, int64_t start_ns, int64_t end_ns) {
    rpi_timeline *timeline = self->setup.timeline;
    int64_t done_ns = self->done_ns[i] ? self->done_ns[i] : end_ns;
    rpi_timeline_add(timeline, RPI_LANE_COMM, "bucket", i, self->posted_ns[i], done_ns);
    if (done_ns > start_ns)
        rpi_timeline_add(timeline, RPI_LANE_EXPOSED, "wait for bucket", i, start_ns, end_ns);
}

/* Waits for a bucket, while the next one is being summed. */
static rp_status wait_for(all_reduce *self, int i, int64_t *in_out_exposed_ns) {
    if (!self->requests[i]) return RP_OK; /* its sums are kept already */
    int64_t start = rpi_now_ns();
    RP_TRY(rp_request_wait(&self->requests[i]));
    int64_t end = rpi_now_ns();
    *in_out_exposed_ns += end - start;
    if (self->setup.waited) self->setup.waited(self->setup.context, start, end);
    if (self->setup.timeline) trace(self, i, start, end);
    if (rpi_passing_gradients_is_open(&self->passing))
        rpi_passing_gradients_keep(&self->passing, i);
    return RP_OK;
}

/* ---- gradients that pass ---- */

/* Keeps sums until no more than so many buckets are being summed. */
static rp_status keep_sums(all_reduce *self, int travelling) {
    int64_t waited = 0; /* the caller of use() measures this time itself */
    for (; self->posted - self->taken > travelling; self->taken++)
        RP_TRY(wait_for(self, self->taken, &waited));
    return RP_OK;
}

/* All buckets of a run of the model are posted, and those of the next run follow. */
static rp_status begin_run(all_reduce *self) {
    RP_TRY(keep_sums(self, 0));
    self->run++;
    self->passing.adds = true;
    self->posted = self->taken = 0;
    self->seen = (rpi_gradients_seen){0};
    return RP_OK;
}

static rp_status make_room(all_reduce *self, int parameter) {
    int bucket = rpi_buckets_find(&self->lossy, parameter);
    if (self->posted == self->current->count) RP_TRY(begin_run(self));
    if (rpi_passing_gradients_lies(&self->passing, bucket)) return RP_OK;
    RP_TRY(keep_sums(self, RPI_PASSING_TRAVEL - 1));
    return rpi_passing_gradients_place(&self->passing, bucket);
}

/* Waits until the parts of a bucket that others own have come back. */
static rp_status take_back(all_reduce *self, int index) {
    if (!self->sharded.gathers[index]) return RP_OK;
    int64_t start = rpi_now_ns();
    RP_TRY(rpi_sharded_gather_wait(&self->sharded, &self->lossy, index));
    int64_t end = rpi_now_ns();
    if (self->setup.waited) self->setup.waited(self->setup.context, start, end);
    rpi_timeline_add(self->setup.timeline, RPI_LANE_EXPOSED, "wait for parameters", index,
                     start, end);
    return RP_OK;
}

/* The sums of a bucket are there, of all of it or of what this rank owns: updates that. */
static rp_status update(all_reduce *self, int i) {
    const rpi_bucket *bucket = &self->current->buckets[i];
    bool is_shared = rpi_sharded_is_open(&self->sharded);
    rp_collective_options options = options_of(self);
    /* posted in an earlier step, and not read since */
    if (is_shared) RP_TRY(take_back(self, i));
    self->setup.update(self->setup.context, bucket->first, bucket->count);
    if (!is_shared) return RP_OK;
    if (rpi_passing_values_is_open(&self->values)) {
        rpi_weights_changed(self->setup.weights, bucket->first, bucket->count);
        rpi_passing_values_stepped(&self->values, i);
        return RP_OK; /* gathered when they are used */
    }
    return rpi_sharded_gather_start(&self->sharded, self->current, i, &options);
}

static rp_status choose(all_reduce *self) {
    const rpi_strategy_setup *s = &self->setup;
    char text[RPI_BIT_CHOICE_TEXT];
    RP_TRY(rpi_bit_chooser_choose(&self->chooser, s->comm, text));
    if (text[0] && s->chose) s->chose(s->context, text);
    return RP_OK;
}

/* Either every rank has all sums, and so the same norm without communication; or each measures
 * its own, and their squares are summed. */
static rp_status measure_all(all_reduce *self, int64_t *in_out_exposed_ns) {
    const rpi_strategy_setup *s = &self->setup;
    for (int i = 0; i < self->posted; i++) {
        const rpi_bucket *bucket = &self->current->buckets[i];
        RP_TRY(wait_for(self, i, in_out_exposed_ns));
        s->measure(s->context, bucket->first, bucket->count);
    }
    return s->measured(s->context, rpi_sharded_is_open(&self->sharded) ? s->comm : NULL);
}

/* The buckets of the first layers are the last ones: when all sums are there, they are sent
 * first. */
static rp_status update_all(all_reduce *self) {
    for (int i = self->posted - 1; i >= 0; i--) RP_TRY(update(self, i));
    return RP_OK;
}

static rp_status sum_and_update(all_reduce *self, int64_t *in_out_exposed_ns) {
    if (self->setup.measure) {
        RP_TRY(measure_all(self, in_out_exposed_ns));
        return update_all(self);
    }
    for (int i = 0; i < self->posted; i++) {
        RP_TRY(wait_for(self, i, in_out_exposed_ns));
        RP_TRY(update(self, i));
    }
    return RP_OK;
}

/* Options for gathered parameters: the same random draws in all runs of a step. */
static rp_collective_options options_of_values(const all_reduce *self) {
    rp_collective_options options = options_of(self);
    options.step = (uint64_t)self->step;
    return options;
}

static rp_status pass(void *context, const rpi_program *program, rpi_pass which) {
    all_reduce *self = context;
    rp_collective_options options = options_of_values(self);
    if (!rpi_passing_values_is_open(&self->values)) return RP_OK;
    return rpi_passing_values_begin(&self->values, program, which, &options);
}

static rp_status use_passing(all_reduce *self, int parameter, rpi_parameter_event event) {
    if (event == RPI_VALUES_NEEDED) return rpi_passing_values_need(&self->values, parameter);
    if (event == RPI_VALUES_DONE) rpi_passing_values_done(&self->values, parameter);
    return RP_OK;
}

static rp_status use(void *context, int parameter, rpi_parameter_event event) {
    all_reduce *self = context;
    if (!rpi_sharded_is_open(&self->sharded)) return RP_OK;
    if (event != RPI_GRADIENT_NEEDED && rpi_passing_values_is_open(&self->values))
        return use_passing(self, parameter, event);
    if (event == RPI_GRADIENT_NEEDED && rpi_passing_gradients_is_open(&self->passing))
        return make_room(self, parameter);
    return event != RPI_VALUES_NEEDED
               ? RP_OK
               : take_back(self, rpi_buckets_find(&self->lossy, parameter));
}

static rp_status complete(void *context) {
    all_reduce *self = context;
    if (!rpi_sharded_is_open(&self->sharded)) return RP_OK;
    if (rpi_passing_values_is_open(&self->values)) return rpi_passing_values_end(&self->values);
    return rpi_sharded_complete(&self->sharded, &self->lossy);
}

static rp_status gather_values(void *context) {
    all_reduce *self = context;
    rp_collective_options options = options_of_values(self);
    if (!rpi_passing_values_is_open(&self->values)) return RP_OK;
    return rpi_passing_values_gather_all(&self->values, &options);
}

static rp_status finish(void *context, int64_t *out_exposed_ns) {
    all_reduce *self = context;
    RP_TRY(rpi_gradients_seen_check(&self->seen, rpi_weights_count(self->setup.weights)));
    *out_exposed_ns = 0;
    RP_TRY(sum_and_update(self, out_exposed_ns));
    return self->measures ? choose(self) : RP_OK;
}

const rpi_strategy rpi_strategy_all_reduce = {
    .name = "all-reduce",
    .summary = "every rank sums all gradients; communication under the backward pass",
    .shares_optimizer = true,
    .all_reduces = true,
    .sends_gradients = true,
    .open = open_all_reduce,
    .close = close_all_reduce,
    .begin = begin,
    .gradient_final = gradient_final,
    .pass = pass,
    .use = use,
    .complete = complete,
    .gather_values = gather_values,
    .observe = observe,
    .finish = finish,
};
