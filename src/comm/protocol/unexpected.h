/* Frames for which no request waits: early ones are queued as unexpected, impossible ones are
 * refused. */
#ifndef RPI_COMM_UNEXPECTED_H
#define RPI_COMM_UNEXPECTED_H

#include "comm/core/communicator.h"
#include "comm/core/frame_buffers.h"

/* One rank's frames of an operation before they can be taken: the operation is not posted here,
 * or has not started that chunk. */
typedef struct rpi_unexpected {
    rpi_frame_list frames;
    bool asks;       /* it asks for CTS of started chunks */
    bool expects;    /* it waits for a vector in that round */
    bool is_control; /* began with an eager frame without credit */
} rpi_unexpected;

/* Control frames of one rank for operations that are not posted here: more than a correct rank
 * can send, which has so many operations under way (RPI_ACTIVE_OPERATIONS), or probes of so
 * many rounds (RPI_EXPECTED_EXCHANGES). And tags, since each message of which an RTS has come
 * may have one. */
enum {
    RPI_EXPECTED_EXCHANGES = 64,
    RPI_UNEXPECTED_CONTROL_MOST = 128,
    RPI_TAGS_MOST = 1 << 20
};

/* ---- unexpected.c [progress] ---- */

/* The queued frames of an operation that has not started them; NULL: none. */
rpi_unexpected *rpi_unexpected_find(const rp_comm *comm, int rank, uint64_t sequence);
rp_status rpi_unexpected_get(rp_comm *comm, int rank, uint64_t sequence,
                             rpi_unexpected **out_unexpected);
/* The same for a control frame, of which a correct rank has few. A failure is reported. */
rp_status rpi_unexpected_get_for_control(rp_comm *comm, int rank, uint64_t sequence,
                                         rpi_unexpected **out_unexpected);
/* It is used up, with no frame left in it. */
void rpi_unexpected_drop(rp_comm *comm, int rank, uint64_t sequence,
                         rpi_unexpected *unexpected);
void rpi_unexpected_clear(rp_comm *comm); /* drop what was queued as unexpected */
void rpi_receive_fail_mismatch(rp_request *request, int rank, const rpi_frame_header *header);

/* ---- refuse.c [progress] ---- */

/* A frame of a chunk that is over, in an operation that may not be. Reports it. */
rp_status rpi_receive_fail_chunk(rp_comm *comm, int rank, const rpi_frame_header *header);
/* A frame of an operation that is over, or of none. Reports it. */
rp_status rpi_receive_fail_finished(rp_comm *comm, int rank, const rpi_frame_header *header,
                                    const rp_request *request);

/* ---- find.c [progress] ---- */

/* The request in flight of the number in a frame that this rank sent; NULL: none. */
rp_request *rpi_request_find(const rp_comm *comm, int rank, uint64_t sequence);
/* The operation was not posted here yet. */
bool rpi_receive_is_future(const rp_comm *comm, int rank, const rpi_frame_header *header);

#endif
