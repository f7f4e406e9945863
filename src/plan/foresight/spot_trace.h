/* A trace of spot nodes: when nodes came, and were taken back, as a table of comma-separated
 * values. Lines that begin with # are comments; the first other one names the columns.
 *
 *     second,nodes               second,event,node
 *     0,80                       480,join,a
 *     60,70                      540,join,b
 *     363,48                     1260,lost,a
 *
 * Either says how many nodes there are from a second on, or which one joined or was lost.
 * Other columns are left alone. The trace ends with its last line. */
#ifndef RPI_PLAN_SPOT_TRACE_H
#define RPI_PLAN_SPOT_TRACE_H

#include "redpoll/status.h"

#include <stdint.h>

/* All that happens in one second. */
typedef struct rpi_spot_change {
    double second;
    int64_t alive; /* from then on */
    int64_t joined, lost;
} rpi_spot_change;

typedef struct rpi_spot_trace {
    rpi_spot_change *changes; /* the first has what was there at the start as joined */
    int count;
} rpi_spot_trace;

/* `text` is cut into cells. RP_INVALID says the line and what is wrong: a hole, a time that
 * goes back or is negative, a node that is lost before it joined, a trace without length. Free
 * the changes with rpi_free(); nothing is left of what failed. */
rp_status rpi_spot_trace_parse(char *text, rpi_spot_trace *out_trace);

/* What there was in it. */
typedef struct rpi_spot_facts {
    double seconds, node_seconds;
    int64_t most_nodes, lost;
    int64_t bursts, largest_burst; /* seconds in which nodes were lost, and the most of one */
} rpi_spot_facts;
rpi_spot_facts rpi_spot_trace_facts(const rpi_spot_trace *trace);

#endif
