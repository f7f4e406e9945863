/* Numbers of communicators that are being made: given, told, and taken by those that wait. */
#include "comm/protocol/numbering.h"
#include "comm/protocol/open_close.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>

/* Of makings that this rank has not come to, at most; and their names and members. */
enum { OFFERS_MAX = 16384 };
/* Scopes of the control connection have the number in their high half, plus one. */
#define NUMBER_MAX ((uint32_t)INT32_MAX - 1)

/* ---- what a communicator is known by ---- */

rp_status rpi_identity_make(rp_comm *comm) {
    size_t members = (size_t)comm->world * sizeof(uint32_t), name = strlen(comm->name);
    unsigned char *identity = NULL;
    RP_TRY(rpi_alloc(sizeof(uint32_t) + members + name, "name and members", &identity));
    uint32_t world = (uint32_t)comm->world;
    memcpy(identity, &world, sizeof world);
    for (int rank = 0; rank < comm->world; rank++) {
        uint32_t member = (uint32_t)comm->members[rank];
        memcpy(identity + (size_t)(rank + 1) * sizeof member, &member, sizeof member);
    }
    memcpy(identity + sizeof(uint32_t) + members, comm->name, name);
    comm->identity = identity;
    comm->identity_bytes = sizeof(uint32_t) + members + name;
    return RP_OK;
}

void rpi_identity_free(rp_comm *comm) {
    rpi_free(comm->identity);
    comm->identity = NULL;
    rpi_rank_set_free(&comm->untold);
    comm->untold_count = 0;
}

bool rpi_making_is_void(const rp_comm *comm) {
    if (!comm->is_made || comm->has_met) return false;
    rp_status status = rpi_comm_failure(comm).status;
    return status == RP_TIMEOUT || status == RP_PEER;
}

/* ---- giving ---- */

/* The header of whatever it has posted, which is its first barrier, was made before. */
static void take_number(rp_comm *comm, uint32_t numberer, uint32_t number) {
    comm->id = numberer;
    comm->epoch = number;
    comm->is_numbered = true;
    for (rp_request *request = comm->queue; request; request = request->next) {
        request->header.communicator = numberer;
        request->header.epoch = number;
    }
    uint64_t scope = ((uint64_t)number + 1) << 32 | numberer;
    if (comm->group) rpi_control_group_rename(comm->group, scope);
}

static rp_status give(rp_comm *comm) {
    rpi_fabric *fabric = comm->fabric;
    rpi_port *own = &fabric->ports[fabric->rank];
    if (own->offered >= NUMBER_MAX)
        return RP_FAIL(UNSUPPORTED, "rank %d has numbered %u communicators, which is the most",
                       fabric->rank, NUMBER_MAX);
    RP_TRY(rpi_rank_set_make(comm->world, &comm->untold));
    for (int rank = 1; rank < comm->world; rank++) rpi_rank_set_put(&comm->untold, rank);
    comm->untold_count = comm->world - 1;
    take_number(comm, (uint32_t)fabric->rank + 1, ++own->offered);
    return RP_OK;
}

rp_status rpi_number_begin(rp_comm *comm) {
    if (comm->is_numbered) return RP_OK;
    if (comm->rank == 0) return give(comm);
    comm->fabric->unnumbered++;
    return RP_OK;
}

static rp_status new_offer(uint32_t numberer, uint32_t number, const void *identity,
                           size_t bytes, rpi_offer **out_offer) {
    RP_TRY(rpi_alloc(sizeof **out_offer + bytes, "an offer", out_offer));
    (*out_offer)->numberer = numberer;
    (*out_offer)->number = number;
    (*out_offer)->bytes = bytes;
    memcpy((*out_offer)->identity, identity, bytes);
    return RP_OK;
}

rp_status rpi_fabric_number_list(rpi_fabric *fabric, size_t count, uint32_t *out_first) {
    rpi_port *own = &fabric->ports[fabric->rank];
    if (count > NUMBER_MAX - own->listed)
        return RP_FAIL(UNSUPPORTED,
                       "rank %d has numbered %u communicators of lists: %zu more "
                       "are too many",
                       fabric->rank, own->listed, count);
    *out_first = own->listed + 1;
    own->listed += (uint32_t)count;
    return RP_OK;
}

void rpi_fabric_hear_list(rpi_fabric *fabric, int numberer, uint32_t first, size_t count) {
    rpi_port *port = &fabric->ports[numberer];
    uint32_t last = first + (uint32_t)count - 1;
    if (count && last > port->listed) port->listed = last;
}

/* ---- telling ---- */

rp_status rpi_number_tell_one(rp_comm *comm, int rank) {
    rpi_peer *peer = &comm->peers[rank];
    if (peer->port->full || peer->broken) return RP_PENDING;
    rpi_link *link = rpi_port_link(peer->port);
    if (!link) return RP_PENDING;
    const rpi_transport *transport = link->endpoint->transport;
    size_t bytes = RPI_FRAME_HEADER_BYTES + comm->identity_bytes;
    void *region = NULL;
    rp_status status = transport->lend(link, bytes, &region);
    if (status != RP_OK) {
        rpi_port_is_full(peer->port);
        return RP_PENDING; /* of a link that has failed peek() tells */
    }
    rpi_frame_header header = {
        .kind = RPI_FRAME_NUMBER, .communicator = comm->id, .epoch = comm->epoch};
    memcpy((unsigned char *)region + RPI_FRAME_HEADER_BYTES, comm->identity,
           comm->identity_bytes);
    rpi_frame_seal(region, &header, comm->identity_bytes, transport->checksum);
    (void)transport->post(link, bytes);
    rpi_comm_count_sent(comm, bytes);
    rpi_rank_set_remove(&comm->untold, rank);
    comm->untold_count--;
    return RP_OK;
}

/* In the order of numbers on each link: communicators are passed over in the order in which
 * they were numbered as long as they have somebody to tell, and a full link stays full for the
 * rest of a pass. */
void rpi_number_tell(rp_comm *comm) {
    for (int rank = rpi_rank_set_next(&comm->untold, 0); rank >= 0;
         rank = rpi_rank_set_next(&comm->untold, rank + 1)) {
        if (comm->peers[rank].broken) {
            rpi_rank_set_remove(&comm->untold, rank);
            comm->untold_count--;
            continue;
        }
        (void)rpi_number_tell_one(comm, rank);
    }
    if (comm->untold_count == 0) rpi_identity_free(comm);
}

/* ---- offers ---- */

const rpi_offer *rpi_offer_find(const rpi_fabric *fabric, uint32_t numberer, uint32_t number) {
    const rpi_offer *offer = fabric->offers;
    while (offer && (offer->numberer != numberer || offer->number != number))
        offer = offer->next;
    return offer;
}

static void remove_offer(rpi_fabric *fabric, rpi_offer **at) {
    rpi_offer *offer = *at;
    *at = offer->next;
    fabric->offer_count--;
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
            remove_offer(fabric, at);
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

static bool is_same(const rpi_offer *a, const rpi_offer *b) {
    return a->numberer == b->numberer && a->bytes == b->bytes &&
           memcmp(a->identity, b->identity, a->bytes) == 0;
}

/* This rank has given up what the offer is for. What comes of it later finds that it is over;
 * where the link has no room now, whoever waits asks again. */
static void decline(rpi_fabric *fabric, const rpi_offer *offer) {
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
                  header->epoch <= NUMBER_MAX;
    if (!can_be)
        return RP_FAIL(MISMATCH,
                       "rank %d offered the number %u of communicators of %u, whose "
                       "last was %u",
                       rank, header->epoch, header->communicator, port->offered);
    if (fabric->offer_count >= OFFERS_MAX)
        return RP_FAIL(MISMATCH,
                       "rank %d began with a communicator while %d are being made that "
                       "this rank has not come to",
                       rank, OFFERS_MAX);
    rpi_offer *offer = NULL, **end = &fabric->offers;
    RP_TRY(new_offer(header->communicator, header->epoch, payload, header->bytes, &offer));
    port->offered = header->epoch;
    while (*end) end = &(*end)->next;
    *end = offer;
    fabric->offer_count++;
    forget_skipped(fabric, header->communicator, header->epoch);
    if (was_given_up(fabric, offer)) decline(fabric, offer);
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

/* ---- waiting ---- */

/* The first that was offered for it, which is the oldest; NULL: none. */
static rpi_offer **offer_for(rpi_fabric *fabric, const rp_comm *comm) {
    uint32_t numberer = (uint32_t)comm->members[0] + 1;
    for (rpi_offer **at = &fabric->offers; *at; at = &(*at)->next)
        if ((*at)->numberer == numberer && (*at)->bytes == comm->identity_bytes &&
            memcmp((*at)->identity, comm->identity, comm->identity_bytes) == 0)
            return at;
    return NULL;
}

static void open_under(rp_comm *comm, rpi_offer **at) {
    rpi_fabric *fabric = comm->fabric;
    uint32_t numberer = (*at)->numberer, number = (*at)->number;
    remove_offer(fabric, at);
    fabric->unnumbered--;
    take_number(comm, numberer, number);
    rpi_identity_free(comm);
    rp_status status = rpi_fabric_open(comm);
    if (status != RP_OK)
        rpi_comm_fail_text(comm, status, comm->rank, "%s", rp_last_error()->message);
    rpi_fabric_activate(comm);
}

/* Once its barrier is in the queue, which is all it has until it is made. The oldest comes last
 * in the list. */
static rp_comm *first_waiting(rpi_fabric *fabric, rpi_offer ***out_offer) {
    rp_comm *first = NULL;
    for (rp_comm *comm = fabric->comms; comm; comm = comm->next) {
        if (comm->is_numbered || !comm->queue || atomic_load(&comm->failed)) continue;
        rpi_offer **offer = offer_for(fabric, comm);
        if (!offer) continue;
        first = comm;
        *out_offer = offer;
    }
    return first;
}

bool rpi_fabric_number_waiting(rpi_fabric *fabric) {
    bool moved = false;
    rpi_offer **offer = NULL;
    rp_comm *comm = NULL;
    while (fabric->unnumbered > 0 && fabric->offers &&
           (comm = first_waiting(fabric, &offer)) != NULL) {
        open_under(comm, offer);
        moved = true;
    }
    return moved;
}

/* ---- leaving ---- */

/* It was given up before it had a number: the one that is offered for it, now or later, is
 * answered with that. Without memory for it the others wait for this rank until their timeout.
 */
static void give_up(rp_comm *comm) {
    rpi_fabric *fabric = comm->fabric;
    rpi_offer *declined = NULL, **offer = offer_for(fabric, comm);
    if (offer) {
        decline(fabric, *offer);
        return;
    }
    if (new_offer((uint32_t)comm->members[0] + 1, 0, comm->identity, comm->identity_bytes,
                  &declined) != RP_OK)
        return;
    declined->next = fabric->declined;
    fabric->declined = declined;
}

void rpi_number_end(rp_comm *comm) {
    if (comm->is_numbered) return;
    comm->fabric->unnumbered--;
    if (comm->identity && !rpi_making_is_void(comm)) give_up(comm);
}
