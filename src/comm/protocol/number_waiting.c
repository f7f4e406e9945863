/* Communicators that wait for a number are opened under offered ones. */
#include "comm/protocol/number_waiting.h"
#include "comm/protocol/numbering.h"
#include "comm/protocol/offers.h"
#include "comm/protocol/open_close.h"

#include "base/status.h"

static void open_under(rp_comm *comm, rpi_offer **at) {
    rpi_context *context = comm->context;
    uint32_t numberer = (*at)->numberer, number = (*at)->number;
    rpi_offer_remove(context, at);
    context->unnumbered--;
    rpi_number_take(comm, numberer, number);
    rpi_identity_free(comm);
    rp_status status = rpi_context_open(comm);
    if (status != RP_OK)
        rpi_comm_fail_text(comm, status, comm->rank, "%s", rp_last_error()->message);
    rpi_context_activate(comm);
}

/* After its barrier is in the queue, which is all it has until it is made. The oldest is last
 * in the list. */
static rp_comm *first_waiting(rpi_context *context, rpi_offer ***out_offer) {
    rp_comm *first = NULL;
    for (rp_comm *comm = context->comms; comm; comm = comm->next) {
        if (rpi_comm_is_numbered(comm) || !comm->queue || rpi_comm_has_failed(comm)) continue;
        rpi_offer **offer = rpi_offer_for(context, comm);
        if (!offer) continue;
        first = comm;
        *out_offer = offer;
    }
    return first;
}

bool rpi_context_number_waiting(rpi_context *context) {
    bool moved = false;
    rpi_offer **offer = NULL;
    rp_comm *comm = NULL;
    while (context->unnumbered > 0 && context->offers &&
           (comm = first_waiting(context, &offer)) != NULL) {
        open_under(comm, offer);
        moved = true;
    }
    return moved;
}
