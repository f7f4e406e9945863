/* Numbers that other ranks offer for communicators which are not open here yet, or were given
 * up. */
#include "comm/protocol/offers.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>

/* Of makings that this rank has not come to, at most; and their names and members. */
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

const rpi_offer *rpi_offer_find(const rpi_fabric *fabric, uint32_t numberer, uint32_t number) {
    const rpi_offer *offer = fabric->offers;
    while (offer && (offer->numberer != numberer || offer->number != number))
        offer = offer->next;
    return offer;
}

void rpi_offer_remove(rpi_fabric *fabric, rpi_offer **at) {
    rpi_offer *offer = *at;
    *at = offer->next;
    fabric->offer_count--;
    fabric->offer_bytes -= offer->bytes;
    rpi_free(offer);
}

static void remove_early(rpi_fabric *fabric, rpi_early **at) {
    rpi_early *early = *at;
    *at = early->next;
    fabric->early_count--;
    rpi_free(early);
}

void rpi_offer_take_back(rpi_fabric *fabric, uint32_t numberer, uint32_t number) {
    for (rpi_offer **at = &fabric->offers; *at; at = &(*at)->next)
        if ((*at)->numberer == numberer && (*at)->number == number) {
            rpi_offer_remove(fabric, at);
            break;
        }
    for (rpi_early **at = &fabric->early; *at;)
        if ((*at)->header.communicator == numberer && (*at)->header.epoch == number)
            remove_early(fabric, at);
        else
            at = &(*at)->next;
}

/* What was kept of numbers that will not be told any more: their numberer is past them. */
static void forget_skipped(rpi_fabric *fabric, uint32_t numberer, uint32_t number) {
    for (rpi_early **at = &fabric->early; *at;) {
        const rpi_frame_header *header = &(*at)->header;
        if (header->communicator == numberer && header->epoch < number &&
            !rpi_offer_find(fabric, numberer, header->epoch))
            remove_early(fabric, at);
        else
            at = &(*at)->next;
    }
}

/* The first that was offered for it, which is the oldest; NULL: none. */
rpi_offer **rpi_offer_for(rpi_fabric *fabric, const rp_comm *comm) {
    uint32_t numberer = (uint32_t)comm->members[0] + 1;
    for (rpi_offer **at = &fabric->offers; *at; at = &(*at)->next)
        if ((*at)->numberer == numberer && (*at)->bytes == comm->identity_bytes &&
            memcmp((*at)->identity, comm->identity, comm->identity_bytes) == 0)
            return at;
    return NULL;
}

static bool is_same(const rpi_offer *a, const rpi_offer *b) {
    return a->numberer == b->numberer && a->bytes == b->bytes &&
           memcmp(a->identity, b->identity, a->bytes) == 0;
}

/* This rank has given up what the offer is for. What comes of it later finds that it is over;
 * where the link has no room now, whoever waits asks again. */
void rpi_offer_decline(rpi_fabric *fabric, const rpi_offer *offer) {
    rpi_port *port = &fabric->ports[offer->numberer - 1];
    const rpi_frame_header header = {.kind = RPI_FRAME_LEFT,
                                     .communicator = offer->numberer,
                                     .epoch = offer->number,
                                     .round = RPI_FRAME_EARLY};
    if (port->link && !port->broken) (void)rpi_port_tell(port, &header);
    rpi_offer_take_back(fabric, header.communicator, header.epoch);
}

/* The oldest that was given up here is the one that is meant. */
static bool was_given_up(rpi_fabric *fabric, const rpi_offer *offer) {
    rpi_offer **found = NULL;
    for (rpi_offer **at = &fabric->declined; *at; at = &(*at)->next)
        if (is_same(*at, offer)) found = at;
    if (!found) return false;
    rpi_offer *declined = *found;
    *found = declined->next;
    rpi_free(declined);
    return true;
}

rp_status rpi_offer_take(rpi_fabric *fabric, int rank, const rpi_frame_header *header,
                         const void *payload) {
    rpi_port *port = &fabric->ports[rank];
    bool can_be = header->communicator == (uint32_t)rank + 1 && header->epoch > port->offered &&
                  header->epoch <= RPI_NUMBER_MAX;
    if (!can_be)
        return RP_FAIL(MISMATCH,
                       "rank %d offered the number %u of communicators of %u, whose "
                       "last was %u",
                       rank, header->epoch, header->communicator, port->offered);
    if (fabric->offer_count >= OFFERS_MAX || fabric->offer_bytes > OFFERED_BYTES_MAX)
        return RP_FAIL(MISMATCH,
                       "rank %d began with a communicator while %d are being made that "
                       "this rank has not come to",
                       rank, OFFERS_MAX);
    rpi_offer *offer = NULL, **end = &fabric->offers;
    RP_TRY(rpi_offer_new(header->communicator, header->epoch, payload, header->bytes, &offer));
    port->offered = header->epoch;
    while (*end) end = &(*end)->next;
    *end = offer;
    fabric->offer_count++;
    fabric->offer_bytes += offer->bytes;
    forget_skipped(fabric, header->communicator, header->epoch);
    if (was_given_up(fabric, offer)) rpi_offer_decline(fabric, offer);
    return RP_OK;
}

static void free_list(rpi_offer *offer) {
    for (rpi_offer *next; offer; offer = next) {
        next = offer->next;
        rpi_free(offer);
    }
}

void rpi_offers_free(rpi_fabric *fabric) {
    free_list(fabric->offers);
    free_list(fabric->declined);
}
