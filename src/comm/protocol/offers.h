/* Numbers that other ranks offer for communicators which are not open here yet: context.h. All
 * of it [progress]. */
#ifndef RPI_COMM_OFFERS_H
#define RPI_COMM_OFFERS_H

#include "comm/core/communicator.h"

/* Scopes of the control connection have the number in their high half, plus one. */
#define RPI_NUMBER_MAX ((uint32_t)INT32_MAX - 1)

/* A number that a rank of the context offers. RP_MISMATCH: it cannot be. */
rp_status rpi_offer_take(rpi_context *context, int rank, const rpi_frame_header *header,
                         const void *payload);
/* NULL: none is kept. */
const rpi_offer *rpi_offer_find(const rpi_context *context, uint32_t numberer, uint32_t number);
/* Its making has failed there. */
void rpi_offer_take_back(rpi_context *context, uint32_t numberer, uint32_t number);
/* The first that was offered for it, which is the oldest; NULL: none. */
rpi_offer **rpi_offer_for(rpi_context *context, const rp_comm *comm);
rp_status rpi_offer_new(uint32_t numberer, uint32_t number, const void *identity, size_t bytes,
                        rpi_offer **out_offer);
void rpi_offer_remove(rpi_context *context, rpi_offer **at);
/* This rank has given up the communicator of the offer: its numberer is told. */
void rpi_offer_decline(rpi_context *context, const rpi_offer *offer);
void rpi_offers_free(rpi_context *context);

#endif
