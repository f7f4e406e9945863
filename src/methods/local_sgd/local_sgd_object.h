/* What an object of <redpoll/local_sgd.h> holds, for the files that share it. */
#ifndef RPI_METHODS_LOCAL_SGD_OBJECT_H
#define RPI_METHODS_LOCAL_SGD_OBJECT_H

#include "plan/local_sgd/momentum_watch.h"
#include "plan/local_sgd/outer_rule.h"
#include "redpoll/local_sgd.h"

#include <stdbool.h>

typedef struct rpi_local_tensor {
    rp_segment segment; /* data NULL */
    uint32_t fragment;
    size_t first;        /* byte in vectors of all tensors */
    size_t flight_first; /* and in those of its fragment */
    size_t encoded;      /* byte in a rank's encodings of its fragment */
    size_t sample;       /* its first in `samples` */
} rpi_local_tensor;

struct rp_local_sgd {
    rp_comm *comm;
    rp_local_sgd_options options;
    const rpi_outer_rule *rule;
    char *algorithm; /* options.algorithm's copy */
    rpi_local_tensor *tensors;
    size_t tensor_count;
    char *anchor, *momentum;      /* of all tensors; NULL: the rule has none */
    char *flight, *flight_anchor; /* of the fragment in flight: sent, then combined */
    rp_segment *segments;         /* of an exchange */
    uint8_t *encodings;           /* all ranks', then this one's */
    size_t *encoded_bytes;        /* of a rank, by fragment */
    int *order;                   /* scratch of partners */
    uint64_t step;                /* inner steps so far */
    int in_flight;                /* fragment; -1: none */
    rp_request *request;          /* NULL: `flight` holds what came */
    bool has_failed;
    float *samples;       /* of each fragment's latest pseudo-gradient */
    size_t sample_stride; /* elements of a tensor from sample to sample */
    rpi_momentum_watch watch;
};

/* Steps of a window. */
static inline uint64_t rpi_local_window(const rp_local_sgd *l) {
    return l->options.every / l->options.fragments;
}

static inline size_t rpi_local_bytes(const rpi_local_tensor *t) {
    return t->segment.count * rp_dtype_bytes(t->segment.dtype);
}

/* ---- local_sgd_options.c ---- */

/* The caller's options as this library knows them, checked (rp_local_sgd_check()). */
rp_status rpi_local_options_read(const rp_local_sgd_options *given, size_t tensors,
                                 rp_local_sgd_options *out_own);

/* ---- local_sgd_exchange.c ---- */

/* Bytes of a tensor among a rank's encodings. */
size_t rpi_local_encoding_bytes(const rpi_local_tensor *tensor);
/* Send what `flight` holds of the fragment in flight, in this window. */
rp_status rpi_local_post(rp_local_sgd *l, uint64_t window);
/* Wait, so that `flight` holds the combination. *in_out_wait_s grows by the time. */
rp_status rpi_local_collect(rp_local_sgd *l, uint64_t window, double *in_out_wait_s);

/* ---- local_sgd_watch.c ---- */

rp_status rpi_local_watch_open(rp_local_sgd *l);
/* The combined pseudo-gradient of the fragment in flight is there. */
void rpi_local_watch(rp_local_sgd *l, rp_local_sgd_report *report);

#endif
