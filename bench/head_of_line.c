/* How long a message of 8 bytes takes to a busy rank, behind a frame of another communicator
 * that its receiver cannot take yet:
 *
 *     redpoll run -n 3 head_of_line --transport shm
 *
 * Rank 0 sends to rank 1 in the communicator `message`, while ranks 1 and 2 sum a large vector
 * in q4 in `bulk`. With --ahead 1 (the default) rank 0 has begun an all-reduce in `ahead`
 * before, so that its first frame stands before the message on the link; with --ahead 0 it
 * begins that afterwards. Rank 1 prints, as JSON, milliseconds from the send to the end of the
 * receive. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/option.h"
#include "base/status.h"
#include "redpoll/redpoll.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

enum { SMALL = 64, TAG = 7, ROUNDS_MAX = 10000 };

typedef struct settings {
    const char *transport;
    int64_t ahead, rounds, bulk;
} settings;

static const rpi_option options[] = {{.name = "transport",
                                      .type = RPI_OPTION_TEXT,
                                      .offset = offsetof(settings, transport),
                                      .fallback = "auto",
                                      .value = "TEXT",
                                      .help = "auto, shm or tcp"},
                                     {.name = "ahead",
                                      .type = RPI_OPTION_COUNT,
                                      .offset = offsetof(settings, ahead),
                                      .fallback = "1",
                                      .min = 0,
                                      .max = 1,
                                      .value = "N",
                                      .help = "0: nothing stands before the message"},
                                     {.name = "rounds",
                                      .type = RPI_OPTION_COUNT,
                                      .offset = offsetof(settings, rounds),
                                      .fallback = "20",
                                      .min = 1,
                                      .max = ROUNDS_MAX,
                                      .value = "N",
                                      .help = "messages"},
                                     {.name = "bulk",
                                      .type = RPI_OPTION_BYTES,
                                      .offset = offsetof(settings, bulk),
                                      .fallback = "256M",
                                      .min = 4,
                                      .max = 1e10,
                                      .value = "BYTES",
                                      .help = "of the large vector"},
                                     {0}};

typedef struct bench {
    const settings *is;
    rp_comm *world, *ahead, *message, *bulk; /* NULL where this rank is no member */
    float *values;
    double times[ROUNDS_MAX];
} bench;

static rp_status wait_for(rp_request **request) {
    return *request ? rp_request_wait(request) : RP_OK;
}

static rp_status begin_ahead(const bench *b, float *values, rp_request **out_request) {
    rp_segment segment = {.data = values, .count = SMALL, .dtype = RP_F32};
    return rp_all_reduce_start(b->ahead, &segment, 1, NULL, out_request);
}

static rp_status begin_bulk(const bench *b, rp_request **out_request) {
    rp_segment segment = {
        .data = b->values, .count = (size_t)b->is->bulk / sizeof(float), .dtype = RP_F32};
    RP_TRY(rp_codec_parse("q4", &segment.codec));
    return rp_all_reduce_start(b->bulk, &segment, 1, NULL, out_request);
}

static rp_status send(const bench *b) {
    float small[SMALL] = {0};
    rp_request *ahead = NULL;
    rpi_sleep_until_ns(rpi_now_ns() + RPI_SECOND_NS / 20); /* the others are busy by then */
    if (b->is->ahead) RP_TRY(begin_ahead(b, small, &ahead));
    int64_t sent_ns = rpi_now_ns();
    RP_TRY(rp_send(b->message, &sent_ns, 1, RP_I64, 1, TAG));
    if (!b->is->ahead) RP_TRY(begin_ahead(b, small, &ahead));
    return rp_request_wait(&ahead);
}

static rp_status receive(bench *b, int round) {
    float small[SMALL] = {0};
    int64_t sent_ns = 0;
    rp_request *bulk = NULL, *ahead = NULL;
    RP_TRY(begin_bulk(b, &bulk));
    RP_TRY(rp_recv(b->message, &sent_ns, 1, RP_I64, 0, TAG));
    b->times[round] = (double)(rpi_now_ns() - sent_ns) / 1e6;
    RP_TRY(begin_ahead(b, small, &ahead));
    RP_TRY(rp_request_wait(&ahead));
    return rp_request_wait(&bulk);
}

static rp_status run_round(bench *b, int round) {
    rp_request *bulk = NULL;
    RP_TRY(rp_barrier(b->world));
    switch (rp_comm_rank(b->world)) {
    case 0: return send(b);
    case 1: return receive(b, round);
    default: RP_TRY(begin_bulk(b, &bulk)); return wait_for(&bulk);
    }
}

static int by_length(const void *a, const void *b) {
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void report(bench *b) {
    int rounds = (int)b->is->rounds;
    double sum = 0;
    for (int i = 0; i < rounds; i++) sum += b->times[i];
    qsort(b->times, (size_t)rounds, sizeof *b->times, by_length);
    printf("{\"transport\":\"%s\",\"ahead\":%d,\"messages\":%d,\"mean_ms\":%.2f,"
           "\"median_ms\":%.2f,\"worst_ms\":%.2f}\n",
           b->is->transport, (int)b->is->ahead, rounds, sum / rounds, b->times[rounds / 2],
           b->times[rounds - 1]);
}

static rp_status make_groups(bench *b) {
    static const int low[] = {0, 1}, high[] = {1, 2};
    int rank = rp_comm_rank(b->world);
    rp_comm_options ahead = RP_COMM_OPTIONS(.name = "ahead"),
                    message = RP_COMM_OPTIONS(.name = "message"),
                    bulk = RP_COMM_OPTIONS(.name = "bulk");
    if (rank < 2) RP_TRY(rp_comm_group(b->world, low, 2, &ahead, &b->ahead));
    if (rank < 2) RP_TRY(rp_comm_group(b->world, low, 2, &message, &b->message));
    if (rank > 0) RP_TRY(rp_comm_group(b->world, high, 2, &bulk, &b->bulk));
    return RP_OK;
}

static rp_status run(bench *b) {
    rp_comm_options own = RP_COMM_OPTIONS(.transport = b->is->transport);
    RP_TRY(rp_comm_join(&own, &b->world));
    if (rp_comm_world(b->world) != 3)
        return RP_FAIL(INVALID, "%d ranks; start three: redpoll run -n 3 head_of_line",
                       rp_comm_world(b->world));
    RP_TRY(rpi_alloc((size_t)b->is->bulk, "values", &b->values));
    RP_TRY(make_groups(b));
    for (int round = 0; round < b->is->rounds; round++) RP_TRY(run_round(b, round));
    if (rp_comm_rank(b->world) == 1) report(b);
    return rp_barrier(b->world);
}

int main(int argc, char **argv) {
    static settings is;
    static bench b = {.is = &is};
    rpi_positional none = {0};
    bool help = false;
    if (rpi_options_defaults(options, &is) != RP_OK ||
        rpi_options_parse(options, argc, argv, &is, &none, &help) != RP_OK) {
        fprintf(stderr, "head_of_line: %s\n", rp_last_error()->message);
        return 2;
    }
    if (help) {
        printf("usage: redpoll run -n 3 head_of_line [OPTIONS]\n\n");
        rpi_options_help(options, stdout);
        return 0;
    }
    rp_status status = run(&b);
    if (status != RP_OK) fprintf(stderr, "head_of_line: %s\n", rp_last_error()->message);
    rp_comm_destroy(b.ahead);
    rp_comm_destroy(b.message);
    rp_comm_destroy(b.bulk);
    rp_comm_destroy(b.world);
    rpi_free(b.values);
    return status != RP_OK;
}
