/* Collectives: all ranks of the communicator take part, in one order, and are the peers of
 * their schedule. */
#include "comm/core/communicator.h"
#include "comm/core/request.h"
#include "comm/protocol/clear_to_send.h"
#include "comm/protocol/operation_kinds.h"
#include "comm/protocol/unexpected.h"

#include "base/status.h"

#include <stdio.h>

/* Bytes that are sent exactly inside a host must fit into a frame, too. If granules are too
 * long for that, ranks send as if each had a host of its own. */
static rp_status compile(rp_request *request, const char *algorithm,
                         const rpi_plan_request *plan, const rpi_load *load) {
    rp_comm *comm = request->comm;
    rpi_compiled_schedule **out_compiled = &request->compiled;
    RP_TRY(rpi_comm_compiled_schedule(comm, request->collective, algorithm, plan, load,
                                      out_compiled));
    if (algorithm || !request->compiled->inside || load->granule_bytes <= RPI_FRAME_PAYLOAD)
        return RP_OK;
    rpi_plan_request flat = *plan;
    const rpi_algorithm *chosen = NULL;
    flat.host_of = NULL;
    RP_TRY(rpi_algorithm_choose(request->collective, &flat, load->lossy, load->bytes,
                                &comm->context->links, &chosen));
    return rpi_comm_compiled_schedule(comm, request->collective, chosen->name, plan, load,
                                      out_compiled);
}

static rp_status number(rp_request *request) {
    request->sequence = ++request->comm->next_sequence;
    return RP_OK;
}

static int same(const rp_request *request, int rank_or_peer) {
    (void)request;
    return rank_or_peer;
}

static void see(const rp_request *request) {
    request->comm->seen_sequence = request->sequence;
}

static bool is_future(const rp_comm *comm, int rank, const rpi_frame_header *header) {
    (void)rank;
    return header->sequence > comm->seen_sequence;
}

static rp_status refuse(rp_comm *comm, int rank, const rpi_frame_header *header) {
    char words[160];
    rpi_comm_fail_text(comm, RP_MISMATCH, rank,
                       "operation %llu: rank %d posted %s; that of rank %d is finished and "
                       "wanted nothing more from it",
                       (unsigned long long)header->sequence, rank,
                       rpi_posted_text(header, words, sizeof words), comm->rank);
    return RP_MISMATCH;
}

static void name(const rp_request *request, char *text, size_t bytes) {
    snprintf(text, bytes, "%s %llu", rpi_collective_name(request->collective),
             (unsigned long long)request->sequence);
}

const rpi_operation_kind rpi_operation_collective = {
    .noun = "operation",
    .takes_turns = true,
    .needs_cts = true,
    .chooses = true,
    .compile = compile,
    .number = number,
    .rank_of = same,
    .source = same,
    .destination = same,
    .see = see,
    .has_cts = rpi_cts_has_come,
    .await_cts = rpi_cts_await,
    .is_future = is_future,
    .refuse = refuse,
    .name = name,
};
