/* Numbers that other ranks offer for communicators which are not open here yet, or were given
 * up. */
#include "comm/protocol/offers.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>

/* The most makings that this rank has not reached; and their names and members. */
enum { OFFERS_MAX = 16384, OFFERED_BYTES_MAX = 64 << 20 };

rp_status rpi_offer_new(uint32_t numberer, uint32_t number, const void *identity, size_t bytes,
                        rpi_offer **out_offer) {
    RP_TRY(rpi_alloc(sizeof **out_offer + bytes, "an offer", out_offer));
    (*out_offer)->numberer = numberer;
    (*out_offer)->number = number;
    (*out_offer)->bytes = bytes;
    memcpy((*out_offer)->identity, identity, bytes);
    return RP_OK;
}

const rpi_offer *rpi_offer_find(const rpi_context *context, uint32_t numberer,
                                uint32_t number) {
    const rpi_offer *offer = context->offers;
    while (offer && (offer->numberer != numberer || offer->number != number))
        offer = offer->next;
    return offer;
}

void rpi_offer_remove(rpi_context *context, rpi_offer **at) {
    rpi_offer *offer = *at;
    *at = offer->next;
    context->offer_count--;
    context->offer_bytes -= offer->bytes;
    rpi_free(offer);
}

static void remove_unopened(rpi_context *context, rpi_unopened **at) {
    rpi_unopened *unopened = *at;
    *at = unopened->next;
    context->unopened_count--;
    rpi_free(unopened);
}

void rpi_offer_take_back(rpi_context *context, uint32_t numberer, uint32_t number) {
    for (rpi_offer **at = &context->offers; *at; at = &(*at)->next)
        if ((*at)->numberer == numberer && (*at)->number == number) {
            rpi_offer_remove(context, at);
            break;
        }
    for (rpi_unopened **at = &context->unopened; *at;)
        if ((*at)->header.communicator == numberer && (*at)->header.epoch == number)
            remove_unopened(context, at);
        else
            at = &(*at)->next;
}

/* Drop what was kept of numbers that will not be sent any more: their numberer is past them. */
static void drop_skipped(rpi_context *context, uint32_t numberer, uint32_t number) {
    for (rpi_unopened **at = &context->unopened; *at;) {
        const rpi_frame_header *header = &(*at)->header;
        if (header->communicator == numberer && header->epoch < number &&
            !rpi_offer_find(context, numberer, header->epoch))
            remove_unopened(context, at);
        else
            at = &(*at)->next;
    }
}

/* The first that was offered for it, which is the oldest; NULL: none. */
rpi_offer **rpi_offer_for(rpi_context *context, const rp_comm *comm) {
    uint32_t numberer = (uint32_t)comm->members[0] + 1;
    for (rpi_offer **at = &context->offers; *at; at = &(*at)->next)
        if ((*at)->numberer == numberer && (*at)->bytes == comm->identity_bytes &&
            memcmp((*at)->identity, comm->identity, comm->identity_bytes) == 0)
            return at;
    return NULL;
}

static bool is_same(const rpi_offer *a, const rpi_offer *b) {
    return a->numberer == b->numberer && a->bytes == b->bytes &&
           memcmp(a->identity, b->identity, a->bytes) == 0;
}

/* This rank has given up the communicator of the offer. Its later frames are answered that it
 * is over; if the link has no room now, a rank that waits asks again. */
void rpi_offer_decline(rpi_context *context, const rpi_offer *offer) {
    rpi_connection *connection = &context->connections[offer->numberer - 1];
    const rpi_frame_header header = {.kind = RPI_FRAME_FIN,
                                     .communicator = offer->numberer,
                                     .epoch = offer->number,
                                     .round = RPI_FRAME_BEFORE_OPEN};
    if (connection->state == RPI_CONNECTION_MADE)
        (void)rpi_connection_send_header(connection, &header);
    rpi_offer_take_back(context, header.communicator, header.epoch);
}

/* The oldest that was given up here is meant. */
static bool was_given_up(rpi_context *context, const rpi_offer *offer) {
    rpi_offer **found = NULL;
    for (rpi_offer **at = &context->declined; *at; at = &(*at)->next)
        if (is_same(*at, offer)) found = at;
    if (!found) return false;
    rpi_offer *declined = *found;
    *found = declined->next;
    rpi_free(declined);
    return true;
}

rp_status rpi_offer_take(rpi_context *context, int rank, const rpi_frame_header *header,
                         const void *payload) {
    rpi_connection *connection = &context->connections[rank];
    bool can_be = header->communicator == (uint32_t)rank + 1 &&
                  header->epoch > connection->offered && header->epoch <= RPI_NUMBER_MAX;
    if (!can_be)
        return RP_FAIL(MISMATCH,
                       "rank %d offered the number %u of communicators of %u, whose "
                       "last was %u",
                       rank, header->epoch, header->communicator, connection->offered);
    if (context->offer_count >= OFFERS_MAX || context->offer_bytes > OFFERED_BYTES_MAX)
        return RP_FAIL(MISMATCH,
                       "rank %d began with a communicator while %d are being made that "
                       "this rank has not come to",
                       rank, OFFERS_MAX);
    rpi_offer *offer = NULL, **end = &context->offers;
    RP_TRY(rpi_offer_new(header->communicator, header->epoch, payload, header->bytes, &offer));
    connection->offered = header->epoch;
    while (*end) end = &(*end)->next;
    *end = offer;
    context->offer_count++;
    context->offer_bytes += offer->bytes;
    drop_skipped(context, header->communicator, header->epoch);
    if (was_given_up(context, offer)) rpi_offer_decline(context, offer);
    return RP_OK;
}

static void free_list(rpi_offer *offer) {
    for (rpi_offer *next; offer; offer = next) {
        next = offer->next;
        rpi_free(offer);
    }
}

void rpi_offers_free(rpi_context *context) {
    free_list(context->offers);
    free_list(context->declined);
}
