/* A trace of spot nodes that came and were taken back, as a table of comma-separated values.
 * Lines that begin with # are comments; the first other one names the columns.
 *
 *     second,nodes               second,event,node
 *     0,80                       480,join,a
 *     60,70                      540,join,b
 *     363,48                     1260,lost,a
 *
 * A line gives the number of nodes from a second on, or the node that joined or was lost. Other
 * columns are ignored. The trace ends with its last line. */
#ifndef RPI_PLAN_SPOT_TRACE_H
#define RPI_PLAN_SPOT_TRACE_H

#include "redpoll/status.h"

#include <stdint.h>

/* All changes in one second. */
typedef struct rpi_spot_change {
    double second;
    int64_t alive; /* from this second on */
    int64_t joined, lost;
} rpi_spot_change;

typedef struct rpi_spot_trace {
    rpi_spot_change *changes; /* the nodes of the start joined in the first one */
    int count;
} rpi_spot_trace;

/* Cuts `text` into cells. RP_INVALID: the message names the line and what is wrong: an empty
 * cell, a time that goes back or is negative, a node that is lost before it joined, or a trace
 * of no length. The caller frees the changes with rpi_free(); after a failure there are none.
 */
rp_status rpi_spot_trace_parse(char *text, rpi_spot_trace *out_trace);

/* Sums over the trace. */
typedef struct rpi_spot_facts {
    double seconds, node_seconds;
    int64_t most_nodes, lost;
    /* seconds in which nodes were lost, and the most lost in one */
    int64_t bursts, largest_burst;
} rpi_spot_facts;
rpi_spot_facts rpi_spot_trace_facts(const rpi_spot_trace *trace);

#endif
