/* A request from its making to its end: it is numbered, signed, posted, completed, named in
 * messages, and returned to the pool. */
#ifndef RPI_COMM_REQUEST_H
#define RPI_COMM_REQUEST_H

#include "comm/core/communicator.h"

/* Rank of the communicator behind a peer of the request's schedule, and back: the peer that it
 * receives from. -1: there is none. */
static inline int rpi_request_rank(const rp_request *request, int peer) {
    return request->kind->rank_of(request, peer);
}

static inline int rpi_request_peer(const rp_request *request, int rank) {
    return request->kind->source(request, rank);
}

/* Whether this rank waits for a vector of that one. If not, this is reported. [progress] */
static inline bool rpi_request_expects(rp_request *request, int rank) {
    return !request->kind->expects || request->kind->expects(request, rank);
}

/* Whether frames of this rank may belong to the request, and to no other if two ranks take part
 * in it. */
static inline bool rpi_request_concerns(const rp_request *request, int rank) {
    return !request->kind->by_pair || request->peer == rank;
}

/* ---- request.c ---- */

rp_status rpi_request_new(rp_comm *comm, rp_request **out_request);
/* Sign and number it; RP_OK: it counts as in flight and must be put into the inbox. */
rp_status rpi_request_admit(rp_request *request);
/* The next stage of a request. */
void rpi_request_go_to(rp_request *request, rpi_request_stage stage);
/* rpi_progress_once() follows: it moves the first bytes and wakes the progress thread. */
void rpi_request_enqueue(rp_request *request);
rp_status rpi_request_post(rp_request *request); /* both */
/* The progress owner examines this communicator, posted or not, in its next iteration. */
void rpi_comm_request_progress(rp_comm *comm);
void rpi_request_complete(rp_request *request, rp_status status, const char *message);
void rpi_request_free(rp_request *request); /* back to the pool; takes the lock */
rp_status rpi_comm_compiled_schedule(rp_comm *comm, rpi_collective collective,
                                     const char *algorithm, const rpi_plan_request *plan,
                                     const rpi_load *load,
                                     rpi_compiled_schedule **out_compiled);
/* For rpi_partition_make(), equal on all ranks. */
size_t rpi_comm_chunk_bytes(const rp_comm *comm, rpi_split_layout layout, int parts,
                            bool lossy);
/* For its part_bytes. */
size_t rpi_comm_part_bytes(const rp_comm *comm);

/* ---- request_names.c ---- */

/* "rank 1", and in a communicator that is made from another "rank 1 (world 3)", with its number
 * in the first one of the context. */
typedef struct rpi_rank_text {
    char text[48];
} rpi_rank_text;
rpi_rank_text rpi_rank_name(const rp_comm *comm, int rank);
/* "all-reduce 5", "receive from rank 2 with tag 7" */
const char *rpi_request_name(const rp_request *request, char *text, size_t bytes);
/* "all-reduce 5, round 2 of 4, chunk 3 of 10" [progress] */
const char *rpi_request_text(const rp_request *request, char *text, size_t bytes);
/* The failure as text for one request. If only the death of a process is known, the request's
 * own operation is added. Returns text. */
const char *rpi_failure_text(const rpi_failure *failure, const rp_request *request, char *text,
                             size_t bytes);
/* Bytes of payload of a SEND's or RECV's frame. */
size_t rpi_instruction_bytes(const rp_request *request, uint32_t chunk,
                             const rpi_instruction *instruction);
/* A SEND or RECV of this chunk of a block that has ended before: no frame is sent or received,
 * and the instruction does nothing at its turn. */
bool rpi_instruction_is_void(const rp_request *request, uint32_t chunk,
                             const rpi_instruction *instruction);

/* ---- agreement.c: what ranks must agree on ---- */

void rpi_request_sign(rp_request *request);
bool rpi_request_agrees(const rp_request *request, const rpi_frame_header *header);
/* Whether both posted the same except for the length of a block that one sends to the other. */
bool rpi_request_is_same(const rp_request *request, const rpi_frame_header *header);
/* Our number for the part that a frame carries (all-to-all: plan.h). */
int rpi_request_recv_part(const rp_request *request, const rpi_frame_header *header);
/* "all-reduce (max) of 1000 f32 with fp32"; operations with blocks have no single count. */
const char *rpi_posted_text(const rpi_frame_header *header, char *text, size_t bytes);
/* "rank 1 posted all-reduce of 1000 f32 with q4:bucket=512, rank 0 ..." */
const char *rpi_disagreement_text(const rp_request *request, const rpi_frame_header *header,
                                  int rank, char *text, size_t bytes);

#endif
