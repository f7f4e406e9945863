/* What the user says about spot nodes to `redpoll plan spot` and `redpoll plan train --spot`.
 */
#ifndef RPI_CLI_PLAN_SPOT_SAID_H
#define RPI_CLI_PLAN_SPOT_SAID_H

#include "cli/option_rows.h"
#include "cli/plan_words.h"
#include "plan/foresight/spot_replay.h"

/* As the user wrote it; durations were checked. */
typedef struct rpi_spot_said {
    const char *notice, *interval, *stall, *join, *spot_price;
    int64_t least;
} rpi_spot_said;

/* clang-format off */
/* Rows of both commands; F(field) is the offset of a field of rpi_spot_said. */
#define RPI_ROWS_SPOT(F)                                                                       \
    {"least", NULL, NULL, RPI_OPTION_COUNT, F(least), "1", 1, 1e7, "N",                        \
     "spot nodes below which it waits", NULL},                                                 \
    RPI_ROW_SPAN("notice", F(notice), "0", "that a node gets before it is taken back"),        \
    RPI_ROW_SPAN("interval", F(interval), NULL,                                                \
                 "of work between two saves on spot nodes, beside what is best"),              \
    RPI_ROW_SPAN("stall", F(stall), "5s",                                                      \
                 "elastic: for which all stand where a node is lost"),                         \
    RPI_ROW_SPAN("join", F(join), "60s", "elastic: for which a node that joins is idle"),      \
    {"spot-price", NULL, NULL, RPI_OPTION_TEXT, F(spot_price), NULL, 0, 0, "PRICE",            \
     "of a spot node: 0.91/node-hour, in any currency", rpi_check_price}
/* clang-format on */

/* 0 if nothing was given, and -1 for a price. */
double rpi_spot_span(const char *text);
double rpi_spot_price(const char *text);

/* RP_INVALID: an interval of 0, or the least number of nodes is above the most, which
 * --`option` gives; 0: it gives none. */
rp_status rpi_spot_said_check(const rpi_spot_said *said, const char *option, int64_t most);

/* Reads a trace. A failure names the file: it never has a node, or never `least` of them. The
 * caller frees the changes with rpi_free(); after a failure there are none. */
rp_status rpi_spot_trace_read(const char *file, int64_t least, rpi_spot_trace *out_trace,
                              rpi_spot_facts *out_facts);

/* For a world of at most `most` nodes that restarts; its interval is still to be set. */
rpi_spot_rules rpi_spot_rules_of(const rpi_spot_said *said, int64_t most, double save_s,
                                 double restart_s);
/* Seconds of work between two saves for as many failures at random in the trace's time as its
 * world has changes. */
double rpi_spot_exact_interval(const rpi_spot_trace *trace, rpi_spot_rules rules);

#endif
