/* How long small all-reduces take beside large ones of another communicator: bench/urgency.sh
 * runs it for a table.
 *
 *     redpoll run -n 2 urgency --link 1Gbit,50us                     beside four of 8 MiB
 *     redpoll run -n 2 urgency --link 1Gbit,50us --queued 0          alone
 *     redpoll run -n 2 urgency --priority urgent --bulk-priority bulk
 *
 * One thread of each rank sums 4 KiB every --every milliseconds, another keeps --queued sums of
 * --bulk bytes in flight until --rounds of them are done. Rank 0 prints, as JSON, the times of
 * the small ones in microseconds and the rate of the large ones, in bytes of values a second.
 */
#include "base/clock.h"
#include "base/memory.h"
#include "base/option.h"
#include "base/status.h"
#include "redpoll/redpoll.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL = 1024, QUEUED_MAX = 64, ALONE = 300, TIMES_MAX = 1000000 };

typedef struct settings {
    const char *link, *transport, *codec, *priority, *bulk_priority;
    int64_t bulk, queued, rounds;
    double every_ms;
} settings;

#define TEXT_OPTION(NAME, FIELD, FALLBACK, HELP)                                               \
    {                                                                                          \
        .name = NAME, .type = RPI_OPTION_TEXT, .offset = offsetof(settings, FIELD),            \
        .fallback = FALLBACK, .value = "TEXT", .help = HELP                                    \
    }

static const rpi_option options[] = {
    TEXT_OPTION("link", link, NULL, "shape each rank's traffic: 1Gbit,50us"),
    TEXT_OPTION("transport", transport, "auto", "auto, shm or tcp"),
    TEXT_OPTION("codec", codec, "fp32", "of the large ones"),
    TEXT_OPTION("priority", priority, "normal", "of the small ones: bulk, normal or urgent"),
    TEXT_OPTION("bulk-priority", bulk_priority, "normal", "of the large ones"),
    {.name = "bulk",
     .type = RPI_OPTION_BYTES,
     .offset = offsetof(settings, bulk),
     .fallback = "8M",
     .min = 4,
     .max = 1e10,
     .value = "BYTES",
     .help = "of a large sum"},
    {.name = "queued",
     .type = RPI_OPTION_COUNT,
     .offset = offsetof(settings, queued),
     .fallback = "4",
     .min = 0,
     .max = QUEUED_MAX,
     .value = "N",
     .help = "large sums in flight; 0: none"},
    {.name = "rounds",
     .type = RPI_OPTION_COUNT,
     .offset = offsetof(settings, rounds),
     .fallback = "40",
     .min = 1,
     .max = 1e6,
     .value = "N",
     .help = "large sums in all"},
    {.name = "every",
     .type = RPI_OPTION_REAL,
     .offset = offsetof(settings, every_ms),
     .fallback = "5",
     .min = 0,
     .max = 1e4,
     .value = "MS",
     .help = "milliseconds from one small sum to the next, at least"},
    {0}};

typedef struct bulk {
    const settings *is;
    rp_comm *comm;
    rp_codec codec;
    float *values;
    double seconds;
    rp_status status;
    char message[256];
    atomic_bool over;
} bulk;

static rp_status find_priority(const char *text, rp_priority *out_priority) {
    static const char *const names[] = {[RP_PRIORITY_BULK] = "bulk",
                                        [RP_PRIORITY_NORMAL] = "normal",
                                        [RP_PRIORITY_URGENT] = "urgent"};
    for (int i = RP_PRIORITY_BULK; i <= RP_PRIORITY_URGENT; i++)
        if (strcmp(text, names[i]) == 0) {
            *out_priority = (rp_priority)i;
            return RP_OK;
        }
    return RP_FAIL(INVALID, "priority '%s' is none; bulk, normal and urgent are", text);
}

static rp_status wait_for(rp_request **request) {
    return *request ? rp_request_wait(request) : RP_OK;
}

static rp_status move_bulk(bulk *b) {
    rp_request *requests[QUEUED_MAX] = {0};
    rp_segment segment = {.data = b->values,
                          .count = (size_t)b->is->bulk / sizeof(float),
                          .dtype = RP_F32,
                          .codec = b->codec};
    rp_status status = RP_OK;
    for (int64_t i = 0; i < b->is->rounds && status == RP_OK; i++) {
        rp_request **request = &requests[i % b->is->queued];
        status = wait_for(request);
        if (status == RP_OK) status = rp_all_reduce_start(b->comm, &segment, 1, NULL, request);
    }
    for (int64_t i = 0; i < b->is->queued && status == RP_OK; i++)
        status = wait_for(&requests[(b->is->rounds + i) % b->is->queued]);
    return status;
}

static void *bulk_main(void *context) {
    bulk *b = context;
    int64_t start_ns = rpi_now_ns();
    b->status = move_bulk(b);
    b->seconds = rpi_seconds(rpi_now_ns() - start_ns);
    snprintf(b->message, sizeof b->message, "%s", rp_last_error()->message);
    atomic_store(&b->over, true);
    return NULL;
}

/* Times small sums until the large ones are over on some rank; all ranks learn that by
 * the sum. */
static rp_status time_small(rp_comm *comm, bulk *b, double *times, int *out_count) {
    float values[SMALL];
    rp_segment segment = {.data = values, .count = SMALL, .dtype = RP_F32};
    int count = 0;
    while (count < TIMES_MAX && (b->is->queued || count < ALONE)) {
        memset(values, 0, sizeof values);
        values[0] = atomic_load(&b->over);
        int64_t start_ns = rpi_now_ns();
        RP_TRY(rp_all_reduce(comm, &segment, 1, NULL));
        if (values[0] > 0) break;
        times[count++] = (double)(rpi_now_ns() - start_ns) / 1e3;
        rpi_sleep_until_ns(start_ns + (int64_t)(b->is->every_ms * 1e6));
    }
    *out_count = count;
    return RP_OK;
}

static int by_length(const void *a, const void *b) {
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void report(const bulk *b, double *times, int count) {
    double bytes = (double)b->is->bulk * (double)b->is->rounds;
    qsort(times, (size_t)count, sizeof *times, by_length);
    if (!count) times[0] = 0;
    int last = count ? count - 1 : 0;
    printf("{\"small\":%d,\"median_us\":%.1f,\"p90_us\":%.1f,\"p99_us\":%.1f,\"worst_us\":%.1f,"
           "\"bulk_bytes_s\":%.4g}\n",
           count, times[last / 2], times[(int)(last * 0.9)], times[(int)(last * 0.99)],
           times[last], b->seconds > 0 ? bytes / b->seconds : 0);
}

static rp_status run_beside(rp_comm *comm, bulk *b, double *times) {
    pthread_t thread;
    int count = 0;
    bool has_thread = b->is->queued > 0;
    RP_TRY(rp_barrier(comm));
    if (has_thread && pthread_create(&thread, NULL, bulk_main, b) != 0)
        return RP_FAIL(IO, "cannot start a thread");
    rp_status status = time_small(comm, b, times, &count);
    if (has_thread) pthread_join(thread, NULL);
    RP_TRY(status);
    if (b->status != RP_OK) return rpi_fail(b->status, __FILE__, __LINE__, "%s", b->message);
    if (rp_comm_rank(comm) == 0) report(b, times, count);
    return RP_OK;
}

static rp_status run_in(rp_comm *comm, bulk *b, double *times) {
    rp_comm_options own = RP_COMM_OPTIONS(.name = "bulk");
    RP_TRY(find_priority(b->is->bulk_priority, &own.priority));
    RP_TRY(rp_codec_parse(b->is->codec, &b->codec));
    RP_TRY(rpi_alloc((size_t)b->is->bulk, "values", &b->values));
    RP_TRY(rp_comm_split(comm, 0, rp_comm_rank(comm), &own, &b->comm));
    return run_beside(comm, b, times);
}

static rp_status run(const settings *is) {
    rp_comm_options own = RP_COMM_OPTIONS(.link = is->link, .transport = is->transport,
                                          .progress_thread = is->queued > 0);
    rp_comm *comm = NULL;
    bulk b = {.is = is};
    double *times = NULL;
    RP_TRY(find_priority(is->priority, &own.priority));
    RP_TRY(rpi_alloc_array(TIMES_MAX, sizeof *times, "times", &times));
    rp_status status = rp_comm_join(&own, &comm);
    if (status == RP_OK) status = run_in(comm, &b, times);
    rp_comm_destroy(b.comm);
    rp_comm_destroy(comm);
    rpi_free(b.values);
    rpi_free(times);
    return status;
}

int main(int argc, char **argv) {
    settings is = {0};
    rpi_positional none = {0};
    bool help = false;
    if (rpi_options_defaults(options, &is) != RP_OK ||
        rpi_options_parse(options, argc, argv, &is, &none, &help) != RP_OK) {
        fprintf(stderr, "urgency: %s\n", rp_last_error()->message);
        return 2;
    }
    if (help) {
        printf("usage: redpoll run -n 2 urgency [OPTIONS]\n\n");
        rpi_options_help(options, stdout);
        return 0;
    }
    if (run(&is) == RP_OK) return 0;
    fprintf(stderr, "urgency: %s\n", rp_last_error()->message);
    return 1;
}
