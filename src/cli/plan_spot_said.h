/* What `redpoll plan spot` and `redpoll plan train --spot` are told of spot nodes, as words. */
#ifndef RPI_CLI_PLAN_SPOT_SAID_H
#define RPI_CLI_PLAN_SPOT_SAID_H

#include "cli/option_rows.h"
#include "cli/plan_words.h"
#include "plan/foresight/spot_replay.h"

/* As the user wrote it; spans were checked. */
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

/* 0 where nothing was said, and of a price -1. */
double rpi_spot_span(const char *text);
double rpi_spot_price(const char *text);

/* RP_INVALID: an interval of 0, or more nodes are the least than the most, which is what
 * --`option` says; 0: it says nothing. */
rp_status rpi_spot_said_check(const rpi_spot_said *said, const char *option, int64_t most);

/* The file, which is named where it is wrong: it never has a node, or never `least` of them.
 * Free the changes with rpi_free(); nothing is left of what failed. */
rp_status rpi_spot_trace_read(const char *file, int64_t least, rpi_spot_trace *out_trace,
                              rpi_spot_facts *out_facts);

/* Of a world of `most` nodes at most that restarts; its interval is yet to be said. */
rpi_spot_rules rpi_spot_rules_of(const rpi_spot_said *said, int64_t most, double save_s,
                                 double restart_s);
/* Seconds of work between two saves, by as many failures at random in the trace's time as it
 * has changes of the world. */
double rpi_spot_exact_interval(const rpi_spot_trace *trace, rpi_spot_rules rules);

#endif
