#include "net/control/control_connection.h"

#include "base/memory.h"
#include "net/bytes/endian.h"
#include "net/socket/lost.h"

#include <errno.h>
#include <string.h>

static void pack(const rpi_control_record *record, unsigned char *at) {
    rpi_put_u32(at, RPI_CONTROL_MAGIC);
    at[4] = RPI_CONTROL_VERSION;
    at[5] = record->kind;
    rpi_put_u16(at + 6, record->text_bytes);
    rpi_put_u32(at + 8, (uint32_t)record->rank);
    rpi_put_u32(at + 12, (uint32_t)record->number);
    rpi_put_u64(at + 16, record->a);
    rpi_put_u64(at + 24, record->b);
    memcpy(at + RPI_CONTROL_RECORD_BYTES, record->text, record->text_bytes);
}

static rp_status unpack(const unsigned char *at, rpi_control_record *out_record) {
    if (rpi_get_u32(at) != RPI_CONTROL_MAGIC || at[4] != RPI_CONTROL_VERSION)
        return RP_FAIL(CORRUPT, "bytes that are no control record");
    out_record->kind = at[5];
    out_record->text_bytes = rpi_get_u16(at + 6);
    out_record->rank = (int32_t)rpi_get_u32(at + 8);
    out_record->number = (int32_t)rpi_get_u32(at + 12);
    out_record->a = rpi_get_u64(at + 16);
    out_record->b = rpi_get_u64(at + 24);
    if (out_record->kind < RPI_CONTROL_HELLO || out_record->kind >= RPI_CONTROL_KINDS_END)
        return RP_FAIL(CORRUPT, "a control record of kind %d", out_record->kind);
    if (out_record->text_bytes >= RPI_CONTROL_TEXT_BYTES)
        return RP_FAIL(CORRUPT, "a control record of %d letters", out_record->text_bytes);
    return RP_OK;
}

rp_status rpi_control_connection_flush(rpi_control_connection *connection) {
    size_t done = 0;
    while (done < connection->out_bytes) {
        ssize_t sent = rpi_channel_send(&connection->channel, connection->out + done,
                                        connection->out_bytes - done);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno == EAGAIN) break;
        if (sent < 0)
            return RP_FAIL(PEER, "%s: a control connection broke", rpi_lost_text(errno));
        done += (size_t)sent;
        atomic_fetch_add(&connection->sends, 1);
    }
    memmove(connection->out, connection->out + done, connection->out_bytes - done);
    connection->out_bytes -= done;
    return RP_OK;
}

rp_status rpi_control_connection_queue(rpi_control_connection *connection,
                                       const rpi_control_record *record) {
    if (connection->fd < 0)
        return RP_FAIL(PEER, "connection closed by peer: a control connection is closed");
    size_t bytes = RPI_CONTROL_RECORD_BYTES + record->text_bytes;
    if (connection->out_bytes + bytes > connection->out_capacity) {
        size_t wider = 2 * connection->out_capacity + bytes;
        RP_TRY(rpi_grow_array(connection->out_capacity, wider, 1, "control records",
                              &connection->out));
        connection->out_capacity = wider;
    }
    pack(record, connection->out + connection->out_bytes);
    connection->out_bytes += bytes;
    return RP_OK;
}

rp_status rpi_control_connection_send(rpi_control_connection *connection,
                                      const rpi_control_record *record) {
    RP_TRY(rpi_control_connection_queue(connection, record));
    return rpi_control_connection_flush(connection);
}

/* How many bytes the next record needs, as far as is known. */
static rp_status needed(const rpi_control_connection *connection, rpi_control_record *record,
                        size_t *out_bytes) {
    *out_bytes = RPI_CONTROL_RECORD_BYTES;
    if (connection->in_bytes - connection->in_taken < RPI_CONTROL_RECORD_BYTES) return RP_OK;
    RP_TRY(unpack(connection->in + connection->in_taken, record));
    *out_bytes += record->text_bytes;
    return RP_OK;
}

/* RP_PENDING: nothing has come. */
static rp_status receive_more(rpi_control_connection *connection) {
    memmove(connection->in, connection->in + connection->in_taken,
            connection->in_bytes - connection->in_taken);
    connection->in_bytes -= connection->in_taken;
    connection->in_taken = 0;
    ssize_t got;
    do
        got = rpi_channel_receive(&connection->channel, connection->in + connection->in_bytes,
                                  sizeof connection->in - connection->in_bytes);
    while (got < 0 && errno == EINTR);
    if (got < 0 && errno == EAGAIN) return RP_PENDING;
    if (got <= 0)
        return RP_FAIL(PEER, "connection closed by peer: a control connection was closed");
    connection->in_bytes += (size_t)got;
    return RP_OK;
}

/* Make it one line of visible characters, whatever the other side has sent. */
static void take_text(const unsigned char *bytes, rpi_control_record *record) {
    for (int i = 0; i < record->text_bytes; i++)
        record->text[i] = (char)(bytes[i] < ' ' || bytes[i] == 127 ? ' ' : bytes[i]);
    record->text[record->text_bytes] = '\0';
}

rp_status rpi_control_connection_receive(rpi_control_connection *connection,
                                         rpi_control_record *out_record) {
    for (;;) {
        size_t bytes = 0;
        RP_TRY(needed(connection, out_record, &bytes));
        if (connection->in_bytes - connection->in_taken >= bytes) {
            take_text(connection->in + connection->in_taken + RPI_CONTROL_RECORD_BYTES,
                      out_record);
            connection->in_taken += bytes;
            return RP_OK;
        }
        rp_status status = receive_more(connection);
        if (status != RP_OK) return status;
    }
}

void rpi_control_connection_close(rpi_control_connection *connection) {
    rpi_channel_close(&connection->channel);
    rpi_free(connection->out);
    connection->out = NULL;
    connection->in_bytes = connection->in_taken = connection->out_bytes =
        connection->out_capacity = 0;
}
