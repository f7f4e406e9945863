/* How members agree on the number of a communicator that is made from another: context.h has a
 * picture, and the proof that numbers are unique. */
#ifndef RPI_COMM_NUMBERING_H
#define RPI_COMM_NUMBERING_H

#include "comm/core/communicator.h"

/* Its identity until it has a number: its name and its members, in their order. */
rp_status rpi_identity_make(rp_comm *comm);
void rpi_identity_free(rp_comm *comm);

/* It joins the context without a number: the first of its members gives it one at once, the
 * others wait for that. The control group's scope follows the number. [progress] */
rp_status rpi_number_begin(rp_comm *comm);
/* This is its number from now on. [progress] */
void rpi_number_take(rp_comm *comm, uint32_t numberer, uint32_t number);
/* It leaves the context. [progress] */
void rpi_number_end(rp_comm *comm);

/* For the numberer: tell those members that have not been told. [progress] */
void rpi_number_send(rp_comm *comm);
/* The same to one of them; RP_PENDING: its link has no room, or does not exist. [progress] */
rp_status rpi_number_send_one(rp_comm *comm, int rank);

static inline bool rpi_number_is_untold(const rp_comm *comm, int rank) {
    return comm->untold_count > 0 && comm->untold.bits[rank / 64] >> (rank % 64) & 1;
}

/* Its making has failed, and nobody gave it up: members that have not reached the call yet drop
 * the number, and take part in the next try. */
bool rpi_making_is_void(const rp_comm *comm);

/* Take `count` numbers for a list; *out_first: the first of them. [progress] */
rp_status rpi_context_number_list(rpi_context *context, size_t count, uint32_t *out_first);
/* A rank of the context has used these. [progress] */
void rpi_context_receive_list(rpi_context *context, int numberer, uint32_t first, size_t count);
/* Of the communicators of a list. */
static inline uint32_t rpi_list_numberer(const rpi_context *context, int rank) {
    return (uint32_t)context->world + 1 + (uint32_t)rank;
}

#endif
