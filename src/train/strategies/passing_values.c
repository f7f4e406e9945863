#include "train/strategies/passing_values.h"

#include "base/memory.h"
#include "base/status.h"

static rp_status make_lists(rpi_passing_values *v, size_t buckets) {
    RP_TRY(rpi_alloc_array(buckets, sizeof *v->requests, "requests", &v->requests));
    RP_TRY(rpi_alloc_array(buckets, sizeof *v->order, "buckets", &v->order));
    RP_TRY(rpi_alloc_array(buckets, sizeof *v->places, "buckets", &v->places));
    RP_TRY(rpi_alloc_array(buckets, sizeof *v->stays, "buckets", &v->stays));
    return rpi_alloc_array(buckets, sizeof *v->left, "buckets", &v->left);
}

rp_status rpi_passing_values_open(const rpi_strategy_setup *s, const rpi_buckets *buckets,
                                  rpi_sharded *sharded, rpi_passing_values *out) {
    rpi_passing_values values = {.sharded = sharded};
    if (!s->ownership || rpi_weights_values(s->weights)) return RP_OK;
    RP_TRY(rpi_passing_memory_open(buckets, NULL, "parameters", &values.memory));
    rp_status status = make_lists(&values, (size_t)buckets->count);
    if (status == RP_OK) status = rpi_host_shards_open(s, buckets, &values.hosts);
    if (status == RP_OK) {
        values.weights = s->weights;
        *out = values;
    } else {
        rpi_passing_values_close(&values);
    }
    return status;
}

void rpi_passing_values_close(rpi_passing_values *v) {
    for (int i = 0; v->requests && i < v->memory.buckets->count; i++)
        if (v->requests[i]) (void)rp_request_wait(&v->requests[i]);
    rpi_host_shards_close(&v->hosts);
    rpi_passing_memory_close(&v->memory);
    rpi_free(v->requests);
    rpi_free(v->order);
    rpi_free(v->places);
    rpi_free(v->left);
    rpi_free(v->stays);
    *v = (rpi_passing_values){0};
}

/* ---- one bucket ---- */

/* The parameters of a bucket lie one after the other, or have no memory. */
static void lay_out(rpi_passing_values *v, int index) {
    const rpi_bucket *bucket = &v->memory.buckets->buckets[index];
    float *place = v->memory.of_buckets[index];
    for (int i = bucket->segment; i < bucket->segment + bucket->segment_count; i++) {
        int64_t first = rpi_weights_parameter(v->weights, i)->first - bucket->first;
        rpi_weights_place_values(v->weights, i, place ? place + first : NULL);
    }
}

static rp_status post(rpi_passing_values *v, int bucket) {
    if (v->memory.of_buckets[bucket]) return RP_OK; /* the forward pass has left it there */
    RP_TRY(rpi_passing_memory_take(&v->memory, bucket));
    lay_out(v, bucket);
    if (rpi_host_shards_holds(&v->hosts, bucket))
        return rpi_host_shards_gather(&v->hosts, v->memory.buckets, bucket, &v->options,
                                      &v->requests[bucket]);
    return rpi_sharded_gather_into(v->sharded, v->memory.buckets, bucket, &v->options,
                                   &v->requests[bucket]);
}

static rp_status wait_for(rpi_passing_values *v, int bucket) {
    return v->requests[bucket] ? rp_request_wait(&v->requests[bucket]) : RP_OK;
}

static void drop(rpi_passing_values *v, int bucket) {
    if (v->memory.of_buckets[bucket])
        rpi_host_shards_keep(&v->hosts, v->memory.buckets, bucket);
    rpi_passing_memory_give(&v->memory, bucket);
    lay_out(v, bucket);
}

/* ---- a pass ---- */

static void list_order(rpi_passing_values *v, const rpi_program *program, rpi_pass pass) {
    for (int i = 0; i < v->memory.buckets->count; i++) {
        v->places[i] = -1;
        v->left[i] = 0;
    }
    int parameter = 0;
    v->order_count = v->next = 0;
    for (int at = 0; (parameter = rpi_program_needs(program, pass, at)) >= 0; at++) {
        int bucket = rpi_buckets_find(v->memory.buckets, parameter);
        if (v->left[bucket]++) continue;
        v->places[bucket] = v->order_count;
        v->order[v->order_count++] = bucket;
    }
}

/* Posts the gathers of the order up to this place. */
static rp_status post_up_to(rpi_passing_values *v, int place) {
    int last = place < v->order_count - 1 ? place : v->order_count - 1;
    for (; v->next <= last; v->next++) RP_TRY(post(v, v->order[v->next]));
    return RP_OK;
}

/* The first buckets of the backward pass are among the last of the forward pass. */
static void list_staying(rpi_passing_values *v, const rpi_program *program) {
    int parameter = 0, count = 0;
    for (int at = 0; count < RPI_PASSING_AHEAD; at++) {
        if ((parameter = rpi_program_needs(program, RPI_BACKWARD, at)) < 0) return;
        int bucket = rpi_buckets_find(v->memory.buckets, parameter);
        if (v->places[bucket] < 0 || v->stays[bucket]) continue;
        v->stays[bucket] = true;
        count++;
    }
}

static void forget_staying(rpi_passing_values *v, bool drops) {
    for (int i = 0; i < v->memory.buckets->count; i++) {
        if (v->stays[i] && drops) drop(v, i);
        v->stays[i] = false;
    }
}

/* Waits for what the current pass still gathers, where other ranks need it. */
static rp_status end_pass(rpi_passing_values *v) {
    for (int at = 0; at < v->order_count; at++) {
        int bucket = v->order[at];
        if (!v->left[bucket]) continue;
        RP_TRY(post_up_to(v, at + RPI_PASSING_AHEAD));
        RP_TRY(wait_for(v, bucket));
        v->left[bucket] = 0;
        if (!v->stays[bucket]) drop(v, bucket);
    }
    v->order_count = v->next = 0;
    return RP_OK;
}

rp_status rpi_passing_values_begin(rpi_passing_values *v, const rpi_program *program,
                                   rpi_pass pass, const rp_collective_options *options) {
    /* of any run: the same on all ranks */
    bool goes_on = pass == RPI_BACKWARD && v->is_forward;
    RP_TRY(end_pass(v));
    forget_staying(v, !goes_on);
    v->options = *options;
    v->is_forward = pass == RPI_FORWARD;
    list_order(v, program, pass);
    if (pass == RPI_FORWARD) list_staying(v, program);
    return post_up_to(v, RPI_PASSING_AHEAD - 1);
}

rp_status rpi_passing_values_need(rpi_passing_values *v, int parameter) {
    int bucket = rpi_buckets_find(v->memory.buckets, parameter);
    if (v->places[bucket] < 0 || !v->left[bucket])
        return RP_FAIL(INTERNAL, "'%s' is needed in a pass that did not say so",
                       rpi_weights_parameter(v->weights, parameter)->name);
    RP_TRY(post_up_to(v, v->places[bucket] + RPI_PASSING_AHEAD));
    return wait_for(v, bucket);
}

void rpi_passing_values_done(rpi_passing_values *v, int parameter) {
    int bucket = rpi_buckets_find(v->memory.buckets, parameter);
    if (v->left[bucket] && --v->left[bucket] == 0 && !v->stays[bucket]) drop(v, bucket);
}

void rpi_passing_values_stepped(rpi_passing_values *v, int bucket) {
    rpi_host_shards_forget(&v->hosts, bucket);
}

rp_status rpi_passing_values_end(rpi_passing_values *v) {
    RP_TRY(end_pass(v));
    forget_staying(v, true);
    v->is_forward = false;
    return RP_OK;
}

rp_status rpi_passing_values_gather_all(rpi_passing_values *v,
                                        const rp_collective_options *options) {
    RP_TRY(rpi_passing_values_end(v));
    for (int i = 0; i < v->memory.buckets->count; i++)
        RP_TRY(rpi_sharded_gather_into(v->sharded, v->memory.buckets, i, options,
                                       &v->requests[i]));
    for (int i = 0; i < v->memory.buckets->count; i++) RP_TRY(wait_for(v, i));
    return RP_OK;
}
