/* What two hosts measure over one connection, or over several at once (REDPOLL_STREAMS): the
 * caller asks, the other side answers. Latency and clocks are the first one's.
 *
 *     PING   -> | <- the answerer's clock                latency, clocks
 *     FLOOD  -> | pieces until the last ... | <- bytes and time, as they came in
 *     BYE    ->
 *
 * Both block, until a deadline of rpi_now_ns() at most. */
#ifndef RPI_CLI_PROBE_H
#define RPI_CLI_PROBE_H

#include "net/trust/channel.h"

#include <stdint.h>

typedef struct rpi_probe_limits {
    int64_t bytes;       /* at most these are sent, but at least 64 KiB, */
    double time_s;       /* for no longer than this */
    int64_t deadline_ns; /* of all */
} rpi_probe_limits;

typedef struct rpi_probe_result {
    double latency_s;        /* half of a round trip; the median */
    double offset_s;         /* by how much the other clock is ahead */
    int64_t bytes;           /* sent by the flood, and the rate at which they arrived */
    double rate;             /* bytes a second */
    int64_t packets, resent; /* of the whole connections, as the kernel counts them */
} rpi_probe_result;

/* The caller's side, over `count` connections. If the first half has succeeded and the second
 * has not, `latency_s` is set and `rate` is 0. RP_TIMEOUT, RP_PEER. */
rp_status rpi_probe_call(rpi_channel *peers, int count, const rpi_probe_limits *limits,
                         rpi_probe_result *out_result);
/* The other side, until BYE on each. */
rp_status rpi_probe_answer(rpi_channel *peers, int count, int64_t deadline_ns);

#endif
