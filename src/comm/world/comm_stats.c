#include "comm/world/comm_stats.h"

void rpi_add_comm_stats(const rp_comm *comm, rp_comm_stats *sum) {
    rp_comm_stats own;
    if (!comm) return;
    rp_comm_get_stats(comm, &own);
    sum->operations += own.operations;
    sum->wire_bytes_sent += own.wire_bytes_sent;
    sum->wire_bytes_received += own.wire_bytes_received;
    sum->value_bytes_sent += own.value_bytes_sent;
    sum->encode_s += own.encode_s;
    sum->decode_s += own.decode_s;
    sum->wait_s += own.wait_s;
    sum->busy_s += own.busy_s;
}
