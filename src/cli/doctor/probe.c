#include "cli/doctor/probe.h"

#include "base/clock.h"
#include "base/median.h"
#include "net/bytes/endian.h"
#include "net/link/transport.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define MAGIC UINT32_C(0x42505052) /* "RPPB" */
enum { PING = 1, FLOOD, BYE };
enum { QUESTION_BYTES = 8, PONG_BYTES = 8, SUMMARY_BYTES = 16 };
enum { PIECE_BYTES = 1 << 16, UNSENT_BYTES = 1 << 17 };
enum { PINGS_MIN = 3, PINGS_MAX = 200 };
enum { MORE, LAST };    /* the first byte of a piece */
#define PING_SHARE 0.25 /* of the time */

/* The time of day, since only clocks that hosts have in common can be compared. */
static int64_t clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * RPI_SECOND_NS + now.tv_nsec;
}

/* ---- several connections at once ---- */

/* One of them, on this side. */
typedef struct side {
    rpi_channel *peer;
    rp_status (*run)(struct side *s);
    rpi_probe_limits limits;
    rpi_probe_result result;
    rp_status status;
    char text[300]; /* of a failure */
} side;

static void *run_side(void *context) {
    side *s = context;
    s->status = s->run(s);
    if (s->status != RP_OK) snprintf(s->text, sizeof s->text, "%s", rp_last_error()->message);
    return NULL;
}

/* The first failure on this thread is that of all. */
static rp_status run_all(side *sides, int count) {
    pthread_t threads[RPI_STREAMS_MAX];
    int started = 1;
    while (started < count &&
           pthread_create(&threads[started], NULL, run_side, &sides[started]) == 0)
        started++;
    if (started == count) run_side(&sides[0]);
    for (int i = 1; i < started; i++) pthread_join(threads[i], NULL);
    if (started < count) return RP_FAIL(IO, "cannot start a thread for each connection");
    for (int i = 0; i < count; i++)
        if (sides[i].status != RP_OK)
            return rpi_fail(sides[i].status, __FILE__, __LINE__, "%s", sides[i].text);
    return RP_OK;
}

/* ---- the caller ---- */

static rp_status ask(rpi_channel *peer, int what, int64_t deadline_ns) {
    unsigned char question[QUESTION_BYTES];
    rpi_put_u32(question, MAGIC);
    rpi_put_u32(question + 4, (uint32_t)what);
    return rpi_channel_write(peer, question, sizeof question, deadline_ns);
}

static rp_status ping(rpi_channel *peer, int64_t deadline_ns, double *out_trip_s,
                      double *out_offset_s) {
    unsigned char pong[PONG_BYTES];
    int64_t clock_before_ns = clock_ns(), before_ns = rpi_now_ns();
    RP_TRY(ask(peer, PING, deadline_ns));
    RP_TRY(rpi_channel_read(peer, pong, sizeof pong, deadline_ns));
    int64_t trip_ns = rpi_now_ns() - before_ns;
    int64_t middle_ns = clock_before_ns + trip_ns / 2;
    *out_trip_s = rpi_seconds(trip_ns);
    *out_offset_s = rpi_seconds((int64_t)rpi_get_u64(pong) - middle_ns);
    return RP_OK;
}

/* The shortest trip tells most about the clocks, because it waited least. */
static rp_status measure_latency(rpi_channel *peer, const rpi_probe_limits *limits,
                                 rpi_probe_result *result) {
    double trips_s[PINGS_MAX], shortest_s = 0;
    int64_t end_ns = rpi_deadline_ns(limits->time_s * PING_SHARE);
    int count = 0;
    do {
        double offset_s = 0;
        RP_TRY(ping(peer, limits->deadline_ns, &trips_s[count], &offset_s));
        if (count == 0 || trips_s[count] < shortest_s) {
            shortest_s = trips_s[count];
            result->offset_s = offset_s;
        }
        count++;
    } while (count < PINGS_MIN || (count < PINGS_MAX && rpi_now_ns() < end_ns));
    result->latency_s = rpi_median(trips_s, count) / 2;
    return RP_OK;
}

static rp_status send_pieces(rpi_channel *peer, const rpi_probe_limits *limits,
                             int64_t *out_bytes) {
    static _Thread_local unsigned char piece[PIECE_BYTES];
    int64_t end_ns = rpi_deadline_ns(limits->time_s);
    bool is_last = false;
    for (*out_bytes = 0; !is_last; *out_bytes += PIECE_BYTES) {
        bool is_full = *out_bytes + 2 * PIECE_BYTES > limits->bytes;
        is_last = is_full || rpi_now_ns() >= end_ns;
        piece[0] = is_last ? LAST : MORE;
        RP_TRY(rpi_channel_write(peer, piece, sizeof piece, limits->deadline_ns));
    }
    return RP_OK;
}

static void count_packets(int fd, rpi_probe_result *result) {
    struct tcp_info info;
    socklen_t bytes = sizeof info;
    memset(&info, 0, sizeof info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return;
    result->packets = info.tcpi_segs_out;
    result->resent = info.tcpi_total_retrans;
}

static rp_status measure_rate(rpi_channel *peer, const rpi_probe_limits *limits,
                              rpi_probe_result *result) {
    unsigned char summary[SUMMARY_BYTES];
    int64_t sent = 0;
    int unsent = UNSENT_BYTES;
    /* At the end of the time the buffers of this host have still to be sent; this keeps them
     * small. */
    (void)setsockopt(peer->fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
    RP_TRY(ask(peer, FLOOD, limits->deadline_ns));
    rp_status status = send_pieces(peer, limits, &sent);
    if (status == RP_OK)
        status = rpi_channel_read(peer, summary, sizeof summary, limits->deadline_ns);
    count_packets(peer->fd, result);
    if (status != RP_OK) return status;
    double seconds = rpi_seconds((int64_t)rpi_get_u64(summary + 8));
    result->bytes = sent;
    if (seconds > 0) result->rate = (double)rpi_get_u64(summary) / seconds;
    return RP_OK;
}

static rp_status flood(side *s) {
    RP_TRY(measure_rate(s->peer, &s->limits, &s->result));
    return ask(s->peer, BYE, s->limits.deadline_ns);
}

rp_status rpi_probe_call(rpi_channel *peers, int count, const rpi_probe_limits *limits,
                         rpi_probe_result *out_result) {
    side sides[RPI_STREAMS_MAX];
    *out_result = (rpi_probe_result){0};
    RP_TRY(measure_latency(&peers[0], limits, out_result));
    for (int i = 0; i < count; i++) {
        sides[i] = (side){.peer = &peers[i], .run = flood, .limits = *limits};
        sides[i].limits.bytes /= count;
    }
    rp_status status = run_all(sides, count);
    for (int i = 0; i < count; i++) {
        out_result->packets += sides[i].result.packets;
        out_result->resent += sides[i].result.resent;
        out_result->bytes += sides[i].result.bytes;
        if (status == RP_OK) out_result->rate += sides[i].result.rate;
    }
    return status;
}

/* ---- the other side ---- */

static rp_status answer_ping(rpi_channel *peer, int64_t deadline_ns) {
    unsigned char pong[PONG_BYTES];
    rpi_put_u64(pong, (uint64_t)clock_ns());
    return rpi_channel_write(peer, pong, sizeof pong, deadline_ns);
}

/* The first piece may have waited in buffers on the way, so later ones are counted, if there
 * are any. */
static rp_status answer_flood(rpi_channel *peer, int64_t deadline_ns) {
    static _Thread_local unsigned char piece[PIECE_BYTES];
    unsigned char summary[SUMMARY_BYTES];
    int64_t begin_ns = rpi_now_ns(), pieces = 0;
    do {
        RP_TRY(rpi_channel_read(peer, piece, sizeof piece, deadline_ns));
        if (pieces++ == 0 && piece[0] == MORE) begin_ns = rpi_now_ns();
    } while (piece[0] == MORE);
    int64_t counted = pieces > 1 ? pieces - 1 : 1;
    rpi_put_u64(summary, (uint64_t)counted * PIECE_BYTES);
    rpi_put_u64(summary + 8, (uint64_t)(rpi_now_ns() - begin_ns));
    return rpi_channel_write(peer, summary, sizeof summary, deadline_ns);
}

static rp_status answer(side *s) {
    rpi_channel *peer = s->peer;
    int64_t deadline_ns = s->limits.deadline_ns;
    for (;;) {
        unsigned char question[QUESTION_BYTES];
        RP_TRY(rpi_channel_read(peer, question, sizeof question, deadline_ns));
        if (rpi_get_u32(question) != MAGIC)
            return RP_FAIL(CORRUPT, "what called is no doctor of redpoll");
        switch (rpi_get_u32(question + 4)) {
        case PING: RP_TRY(answer_ping(peer, deadline_ns)); break;
        case FLOOD: RP_TRY(answer_flood(peer, deadline_ns)); break;
        case BYE: return RP_OK;
        default: return RP_FAIL(CORRUPT, "a doctor's question that is not known here");
        }
    }
}

rp_status rpi_probe_answer(rpi_channel *peers, int count, int64_t deadline_ns) {
    side sides[RPI_STREAMS_MAX];
    for (int i = 0; i < count; i++)
        sides[i] =
            (side){.peer = &peers[i], .run = answer, .limits = {.deadline_ns = deadline_ns}};
    return run_all(sides, count);
}
