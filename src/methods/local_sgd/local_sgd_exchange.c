/* The three ways in which pseudo-gradients become one. */
#include "methods/local_sgd/local_sgd_object.h"

#include "base/clock.h"
#include "base/status.h"

#include <string.h>

typedef struct exchange {
    rp_status (*post)(rp_local_sgd *l, uint64_t window);
    rp_status (*combine)(rp_local_sgd *l,
                         uint64_t window); /* what came; NULL: it is combined */
} exchange;

static bool in_flight(const rp_local_sgd *l, const rpi_local_tensor *t) {
    return (int)t->fragment == l->in_flight;
}

/* Segments over a vector of the fragment in flight. */
static size_t list_segments(rp_local_sgd *l, char *vector, bool exact, rp_segment *segments) {
    size_t count = 0;
    for (size_t i = 0; i < l->tensor_count; i++) {
        const rpi_local_tensor *t = &l->tensors[i];
        if (!in_flight(l, t)) continue;
        segments[count] = t->segment;
        segments[count].data = vector + t->flight_first;
        if (exact) segments[count].codec = (rp_codec){0};
        if (exact) segments[count].residual = NULL;
        count++;
    }
    return count;
}

static rp_collective_options options_of(const rp_local_sgd *l, uint64_t window) {
    return (rp_collective_options)RP_COLLECTIVE_OPTIONS(.seed = l->options.seed,
                                                        .step = window);
}

/* ---- all-reduce ---- */

static rp_status post_all_reduce(rp_local_sgd *l, uint64_t window) {
    rp_collective_options options = options_of(l, window);
    options.algorithm = l->algorithm;
    options.reduce = RP_AVG;
    size_t count = list_segments(l, l->flight, false, l->segments);
    return rp_all_reduce_start(l->comm, l->segments, count, &options, &l->request);
}

/* ---- pairs ---- */

static rp_status find_partner(const rp_local_sgd *l, uint64_t window, int *out_partner) {
    int rank = rp_comm_rank(l->comm), world = rp_comm_world(l->comm);
    const rp_local_sgd_options *o = &l->options;
    int partner = o->partner ? o->partner(o->partner_context, window, rank)
                             : rpi_outer_partner(o->seed, window, rank, world, l->order);
    if (partner < 0 || partner >= world)
        return RP_FAIL(INVALID,
                       "local SGD: the partner of rank %d in round %llu is %d; 0 to %d", rank,
                       (unsigned long long)window, partner, world - 1);
    *out_partner = partner;
    return RP_OK;
}

static rp_status post_pair(rp_local_sgd *l, uint64_t window) {
    int partner = 0;
    RP_TRY(find_partner(l, window, &partner));
    bool alone = partner == rp_comm_rank(l->comm);
    rp_neighbor other = {.rank = partner, .weight = .5}, to = {.rank = partner, .weight = 1};
    rp_neighbors neighbors = {.self_weight = alone ? 1 : .5,
                              .sources = &other,
                              .destinations = &to,
                              .source_count = !alone,
                              .destination_count = !alone};
    rp_collective_options options = options_of(l, window);
    size_t count = list_segments(l, l->flight, false, l->segments);
    count += list_segments(l, l->flight_anchor, true, l->segments + count);
    return rp_neighbor_all_reduce_start(l->comm, l->segments, NULL, count, &neighbors, &options,
                                        &l->request);
}

/* ---- gathered encodings ---- */

/* A length stands in front of each tensor: some codecs need fewer bytes than their most. */
size_t rpi_local_encoding_bytes(const rpi_local_tensor *t) {
    return sizeof(uint32_t) +
           rp_codec_encoded_bytes(&t->segment.codec, t->segment.dtype, t->segment.count);
}

static rp_encode_context context_of(const rp_local_sgd *l, const rpi_local_tensor *t, int rank,
                                    uint64_t window) {
    return (rp_encode_context){.seed = l->options.seed,
                               .step = window,
                               .tensor = t->segment.tensor,
                               .role = 2 * (uint32_t)rank};
}

static void put_length(uint8_t *at, size_t length) {
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(length >> 8 * i);
}

static size_t get_length(const uint8_t *at) {
    return (size_t)at[0] | (size_t)at[1] << 8 | (size_t)at[2] << 16 | (size_t)at[3] << 24;
}

static rp_status encode(rp_local_sgd *l, uint64_t window, uint8_t *own) {
    for (size_t i = 0; i < l->tensor_count; i++) {
        const rpi_local_tensor *t = &l->tensors[i];
        if (!in_flight(l, t)) continue;
        size_t length = 0;
        rp_encode_context context = context_of(l, t, rp_comm_rank(l->comm), window);
        context.residual = t->segment.residual;
        RP_TRY(rp_codec_encode(&t->segment.codec, t->segment.dtype, l->flight + t->flight_first,
                               t->segment.count, &context, own + t->encoded + sizeof(uint32_t),
                               &length));
        put_length(own + t->encoded, length);
    }
    return RP_OK;
}

static rp_status post_gather(rp_local_sgd *l, uint64_t window) {
    size_t bytes = l->encoded_bytes[l->in_flight];
    uint8_t *own = l->encodings + (size_t)rp_comm_world(l->comm) * bytes;
    memset(own, 0, bytes);
    RP_TRY(encode(l, window, own));
    return rp_all_gather_start(l->comm, own, l->encodings, bytes, RP_U8, NULL, NULL,
                               &l->request);
}

static void divide(const rpi_local_tensor *t, char *sum, int world) {
    double *doubles = (void *)sum;
    float *floats = (void *)sum;
    for (size_t i = 0; i < t->segment.count; i++)
        if (t->segment.dtype == RP_F64)
            doubles[i] /= world;
        else
            floats[i] /= (float)world;
}

/* In the order of ranks, so that every rank has the same bits. */
static rp_status decode(rp_local_sgd *l, const rpi_local_tensor *t, uint64_t window) {
    int world = rp_comm_world(l->comm);
    char *sum = l->flight + t->flight_first;
    memset(sum, 0, rpi_local_bytes(t));
    for (int rank = 0; rank < world; rank++) {
        const uint8_t *at =
            l->encodings + (size_t)rank * l->encoded_bytes[t->fragment] + t->encoded;
        rp_encode_context context = context_of(l, t, rank, window);
        size_t length = get_length(at);
        if (length + sizeof(uint32_t) > rpi_local_encoding_bytes(t))
            return RP_FAIL(CORRUPT, "rank %d's encoding of tensor %u has %zu bytes", rank,
                           (unsigned)t->segment.tensor, length);
        RP_TRY(rp_codec_decode_add(&t->segment.codec, t->segment.dtype, at + sizeof(uint32_t),
                                   length, t->segment.count, &context, sum));
    }
    divide(t, sum, world);
    return RP_OK;
}

static rp_status decode_all(rp_local_sgd *l, uint64_t window) {
    for (size_t i = 0; i < l->tensor_count; i++)
        if (in_flight(l, &l->tensors[i])) RP_TRY(decode(l, &l->tensors[i], window));
    return RP_OK;
}

/* ---- the table ---- */

static const exchange exchanges[] = {
    [RPI_OUTER_ALL_REDUCE] = {post_all_reduce, NULL},
    [RPI_OUTER_PAIR] = {post_pair, NULL},
    [RPI_OUTER_GATHER] = {post_gather, decode_all},
};

static void decay_residuals(rp_local_sgd *l) {
    float decay = (float)l->options.residual_decay;
    for (size_t i = 0; i < l->tensor_count && decay != 1; i++) {
        const rpi_local_tensor *t = &l->tensors[i];
        float *residual = in_flight(l, t) ? t->segment.residual : NULL;
        for (size_t e = 0; residual && e < t->segment.count; e++) residual[e] *= decay;
    }
}

rp_status rpi_local_post(rp_local_sgd *l, uint64_t window) {
    decay_residuals(l);
    return exchanges[l->rule->exchange].post(l, window);
}

rp_status rpi_local_collect(rp_local_sgd *l, uint64_t window, double *in_out_wait_s) {
    const exchange *kind = &exchanges[l->rule->exchange];
    if (!l->request) return RP_OK;
    int64_t start = rpi_now_ns();
    RP_TRY(rp_request_wait(&l->request));
    *in_out_wait_s += rpi_seconds(rpi_now_ns() - start);
    return kind->combine ? kind->combine(l, window) : RP_OK;
}
