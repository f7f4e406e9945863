/* One iteration over everything in flight: frames that have come are received, instructions
 * that may run are run, frames that are ready are sent; and what is done if nothing moves. All
 * of it [progress]. */
#ifndef RPI_COMM_EXECUTOR_H
#define RPI_COMM_EXECUTOR_H

#include "comm/core/chunk.h"

/* ---- executor.c ---- */

/* Take in what has come, run what may run: one iteration over everything in flight; true when
 * something moved. */
bool rpi_progress_iterate(rpi_context *context);

/* ---- operation_run.c ---- */

/* A request has its number: frames that came before it are compared. False: a failure was
 * reported. */
bool rpi_request_enter(rp_request *request);
void rpi_request_leave(const rp_request *request); /* no later frames belong to it any more */
/* Its turn, of *budget instructions at most; true if something moved. */
bool rpi_request_run(rp_request *request, int *budget);
bool rpi_request_is_over(const rp_request *request); /* nothing is left to do */

/* ---- chunk_pool.c ---- */

rp_status rpi_chunk_start(rp_request *request); /* the next one */
/* Frees its frames, buffers and itself. */
void rpi_chunk_release(rpi_chunk *chunk);

/* ---- instructions.c ---- */

/* Run an instruction. RP_PENDING: its link has no room. */
rp_status rpi_instruction_run(rpi_chunk *chunk, int instruction);

/* ---- frame_send.c ---- */

/* SEND. A failed link is noted and treated as full; failure.c decides whether it matters. fold:
 * the sum of two that it sends, which is computed on the way; NULL: it exists. RP_PENDING:
 * there is no room, or the frame is sent and the receiver is reading its payload here. */
rp_status rpi_frame_send(rpi_chunk *chunk, const rpi_instruction *instruction,
                         const rpi_instruction *fold);

/* ---- broken_links.c, late_links.c, deadline.c ---- */

/* A failed link matters if something in flight needs it. */
void rpi_comm_check_links(rp_comm *comm);
/* Nothing has moved for `idle_ns`: if this rank waits for a frame of a rank without a link it
 * calls it, and so learns whether it is alive. */
void rpi_links_call_late(rp_comm *comm, int64_t idle_ns);
int64_t rpi_links_next_ns(const rp_comm *comm); /* when to look */
int64_t rpi_deadline_next_ns(const rp_comm *comm);
void rpi_deadline_note_open(rp_comm *comm); /* it is part of its context now */
/* Nobody made progress meanwhile. */
void rpi_deadline_forgive(rp_comm *comm, int64_t since_ns, int64_t until_ns);
void rpi_deadline_check(rp_comm *comm);
/* For operations that do not move though others do; for a thread that never sleeps. */
void rpi_deadline_check_operations(rp_comm *comm, int64_t now_ns);

#endif
