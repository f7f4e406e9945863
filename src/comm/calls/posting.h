/* Posting a collective: a public operation checks its own arguments, begins a request, fills in
 * the extents and posts it; everything that operations have in common is here. */
#ifndef RPI_COMM_POSTING_H
#define RPI_COMM_POSTING_H

#include "comm/core/communicator.h"

typedef struct rpi_posting {
    const rpi_operation_kind *kind; /* NULL: all ranks take part */
    rpi_collective collective;
    rpi_split_layout layout;
    bool reduces; /* options->reduce and options->factor count */
    const rp_collective_options *options;
    int root; /* 0 where the collective has none */
} rpi_posting;

/* *in_out_options: the caller's, or NULL; afterwards in the form of this library. */
rp_status rpi_collective_options_read(const rp_collective_options **in_out_options);

/* The memory of the request's extents, by the options. */
rp_status rpi_find_memory(rp_request *request, const rp_collective_options *options);

/* A request with room for `extents` extents, all zero: the caller fills in
 * request->partition.extents. */
rp_status rpi_posting_begin(rp_comm *comm, size_t extents, rp_request **out_request);
/* The extent of a segment: read from `in`, written to `out`. */
rpi_extent rpi_extent_of(const rp_segment *segment, const void *in, void *out);
/* Checks the extents, finds the schedule, makes the partition, scales what RP_PREMUL_SUM
 * scales, numbers the request and posts it. On failure the request is freed. */
rp_status rpi_posting_end(rp_request *request, const rpi_posting *posting,
                          rp_request **out_request);

/* RP_INVALID: no communicator, or request is NULL. The first of all checks. */
rp_status rpi_check_call(const rp_comm *comm, rpi_collective collective,
                         rp_request *const *request,
                         const rp_collective_options **in_out_options);
/* RP_INVALID: `blocks` is NULL or has a block without data; `what` names them: "outputs". */
rp_status rpi_check_blocks(const rp_comm *comm, rpi_collective collective,
                           const rp_block *blocks, const char *what);
/* RP_INVALID: segments without a list, or more of them than there can be. */
rp_status rpi_check_list(rpi_collective collective, const void *segments, size_t count);
/* RP_INVALID: elements without data, or more of them than there can be. */
rp_status rpi_check_buffer(rpi_collective collective, const void *data, size_t count,
                           const char *what);

/* ---- wait.c ---- */

/* Around the start of a blocking form, which leaves the progress thread asleep: end waits for
 * *request when `posted` is RP_OK, and frees it. */
rp_status rpi_blocking_end(rp_comm *comm, rp_status posted, rp_request **request);

#endif
