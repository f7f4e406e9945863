/* Frames that meet no request that is waiting for them: those that came too early are set
 * aside, those that cannot be are refused. */
#ifndef RPI_COMM_UNEXPECTED_H
#define RPI_COMM_UNEXPECTED_H

#include "comm/core/communicator.h"
#include "comm/core/frame_blocks.h"

/* What one rank sent of an operation before it could be taken: the operation is not posted
 * here, or has not begun with that chunk. */
typedef struct rpi_aside {
    rpi_frames frames;
    bool asks;    /* it wants to know when chunks have started */
    bool expects; /* it waits for a vector in that round */
    bool is_word; /* began with one of these, for which nobody has given credit */
} rpi_aside;

/* Words of operations that are not posted here, of one rank: more than an honest one can say,
 * which has so many operations under way (RPI_ACTIVE_OPERATIONS), or rounds that it says it
 * waits in (RPI_EXPECTED_ROUNDS). And tags, of which each announced message may have one. */
enum { RPI_EXPECTED_ROUNDS = 64, RPI_WORDS_MOST = 128, RPI_TAGS_MOST = 1 << 20 };

/* ---- unexpected.c [driver] ---- */

/* What is set aside for an operation that has not begun with it; NULL: nothing. */
rpi_aside *rpi_aside_find(const rp_comm *comm, int rank, uint64_t sequence);
rp_status rpi_aside_get(rp_comm *comm, int rank, uint64_t sequence, rpi_aside **out_aside);
/* The same for a word, of which an honest rank has few. A failure is made known. */
rp_status rpi_aside_get_for_word(rp_comm *comm, int rank, uint64_t sequence,
                                 rpi_aside **out_aside);
/* It is used up, and no frame is left in it. */
void rpi_aside_drop(rp_comm *comm, int rank, uint64_t sequence, rpi_aside *aside);
void rpi_aside_clear(rp_comm *comm); /* drop what was set aside */
void rpi_receive_fail_mismatch(rp_request *request, int rank, const rpi_frame_header *header);

/* ---- refuse.c [driver] ---- */

/* A frame of an operation that is over, or of none. Makes it known. */
rp_status rpi_receive_fail_finished(rp_comm *comm, int rank, const rpi_frame_header *header,
                                    const rp_request *request);

/* ---- find.c [driver] ---- */

/* The request in flight of the number in a frame that this rank sent; NULL: none. */
rp_request *rpi_request_find(const rp_comm *comm, int rank, uint64_t sequence);
/* The operation was not posted here yet. */
bool rpi_receive_is_future(const rp_comm *comm, int rank, const rpi_frame_header *header);

#endif
