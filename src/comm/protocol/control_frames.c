#include "comm/protocol/control_frames.h"
#include "comm/protocol/clear_to_send.h"
#include "comm/protocol/exchange_protocol.h"
#include "comm/protocol/flow.h"
#include "comm/protocol/pair_protocol.h"
#include "comm/protocol/window_table.h"

/* A PING gets no answer while its receiver is a member: a rank that leaves sends FIN. */
static void receive_ping(rp_comm *comm, int rank, const rpi_frame_header *header) {
    (void)comm, (void)rank, (void)header;
}

/* For each kind: the functions that receive a header alone, or one with a payload. Without
 * either, a communicator that is open never receives such frames. */
typedef struct control_receiver {
    void (*header)(rp_comm *comm, int rank, const rpi_frame_header *header);
    void (*payload)(rp_comm *comm, int rank, const rpi_frame_header *header,
                    const void *payload);
} control_receiver;

static const control_receiver receivers[RPI_FRAME_KINDS_END] = {
    [RPI_FRAME_RTS] = {.header = rpi_p2p_receive_rts},
    [RPI_FRAME_CTS_REQUEST] = {.header = rpi_flow_receive_cts_request},
    [RPI_FRAME_CTS] = {.header = rpi_cts_receive},
    [RPI_FRAME_CREDIT] = {.header = rpi_flow_receive_credit},
    [RPI_FRAME_PROBE] = {.header = rpi_exchange_receive},
    [RPI_FRAME_REJECT] = {.header = rpi_exchange_receive},
    [RPI_FRAME_FIN] = {.header = rpi_peer_receive_fin},
    [RPI_FRAME_WINDOW] = {.payload = rpi_windows_receive},
    [RPI_FRAME_PING] = {.header = receive_ping},
};

bool rpi_control_frame_is_received(int kind) {
    const rpi_frame_rule *rule = rpi_frame_rule_of(kind);
    return rule && (receivers[kind].header || receivers[kind].payload);
}

void rpi_control_frame_receive(rp_comm *comm, int rank, const rpi_frame_header *header,
                               const void *payload) {
    const control_receiver *receiver = &receivers[header->kind];
    if (receiver->payload)
        receiver->payload(comm, rank, header, payload);
    else if (header->bytes)
        rpi_flow_fail_strange(comm, rank, "sent a payload with what is a header alone,",
                              header);
    else if (receiver->header)
        receiver->header(comm, rank, header);
    else
        rpi_flow_fail_strange(comm, rank, "sent what joins links, or shapes them, in place",
                              header);
}
