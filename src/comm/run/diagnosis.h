/* Why an operation does not move, by what the other ranks' heartbeats say. [progress] */
#ifndef RPI_COMM_RUN_DIAGNOSIS_H
#define RPI_COMM_RUN_DIAGNOSIS_H

#include "comm/core/communicator.h"

/* The rank that waits in the earliest step of all, and the rank for which it waits. */
typedef struct rpi_earliest_wait {
    int waiter; /* -1: nobody is known to */
    uint64_t sequence;
    rpi_control_gap gap;
} rpi_earliest_wait;

typedef struct rpi_diagnosis {
    const rp_request *of;
    int64_t since_ns;                                      /* it has not moved since */
    int silent, quiet, in_other, crossed, computing, late; /* first such rank; -1: none */
    bool other_is_late;
    bool behind;   /* a rank waits in an earlier operation than ours */
    bool is_mixed; /* a rank waits in an operation that cannot be before or after ours */
    uint64_t other_sequence;
    double silent_s, quiet_s;
    int silent_by; /* the rank through which the silent one's heartbeats come, in the context */
    rpi_earliest_wait first;
} rpi_diagnosis;

rpi_diagnosis rpi_diagnosis_make(rp_comm *comm, const rp_request *of, int64_t since_ns);
/* "rank 2 has not come (no heartbeat for 1.1 s)": which rank to look at first, and why. */
int rpi_diagnosis_text(rp_comm *comm, const rpi_diagnosis *diagnosis, char *text, size_t bytes);
/* The earliest frame that could be taken now and has not come: of data, or the control frame
 * after which ours may leave. */
rpi_control_gap rpi_request_gap(const rp_request *request);

#endif
