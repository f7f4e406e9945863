/* One control connection: sends and receives records without waiting. docs/wire.md defines the
 * bytes. */
#ifndef RPI_NET_CONTROL_CONNECTION_H
#define RPI_NET_CONTROL_CONNECTION_H

#include "base/status.h"
#include "net/trust/handshake.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define RPI_CONTROL_MAGIC UINT32_C(0x54435052) /* "RPCT" */
enum {
    RPI_CONTROL_VERSION = 1,
    RPI_CONTROL_RECORD_BYTES = 32,
    RPI_CONTROL_TEXT_BYTES = 400,
    RPI_CONTROL_IN_BYTES = 4096, /* received by one call */
};

typedef enum rpi_control_kind {
    RPI_CONTROL_HELLO = 1, /* leaf to coordinator: rank, number = world, a = session; text:
                              where it listens, of successors to rank 0 */
    RPI_CONTROL_WELCOME,   /* coordinator to leaf, when all ranks have connected */
    RPI_CONTROL_BEAT,      /* rank, a = sequence, number = rank it waits for + 1, b = step and
                              flags; text: the scope, unless it is of all ranks */
    RPI_CONTROL_FAILURE,   /* rank that failed, number = finder, a = -status, text */
    RPI_CONTROL_GOODBYE,   /* what ends now did not fail; number 1: the caller goes on to the
                              next in line, the coordinator being silent, or a coordinator hears
                              that it was */
    RPI_CONTROL_BEATS,     /* the same beat of several ranks, from `rank` on; text: how many,
                              and the scope, unless it is of all ranks */
    RPI_CONTROL_ADDRESS,   /* where `rank` listens, which may become the coordinator; text */
    RPI_CONTROL_JOIN,      /* leaf to coordinator: it is one of `number` members of the group of
                              scope b;    text: its name */
    RPI_CONTROL_LEAVE,     /* leaf to coordinator: it has closed the group of scope b */
    RPI_CONTROL_KINDS_END, /* which function takes them, and from whom: control_records.c */
} rpi_control_kind;

/* Above the step of a beat (control.h). */
#define RPI_BEAT_OVERDUE                                                                       \
    (UINT64_C(1) << 56) /* it has waited for as long as it is willing to                       \
                         */
#define RPI_BEAT_BLOCKED                                                                       \
    (UINT64_C(1) << 57) /* no thread of the process can end the wait                           \
                         */
/* Above the status of a failure: groups that are made from its group fail, too. */
#define RPI_FAILURE_ENDS_GROUPS (UINT64_C(1) << 32)
#define RPI_BEAT_STEP           ((UINT64_C(1) << 40) - 1)

typedef struct rpi_control_record {
    uint8_t kind;
    uint16_t text_bytes;
    int32_t rank, number;
    uint64_t a, b;
    char text[RPI_CONTROL_TEXT_BYTES]; /* NUL-terminated in memory, not on the wire */
} rpi_control_record;

typedef struct rpi_control_connection {
    union {
        int fd; /* -1: closed; the channel's */
        rpi_channel channel;
    };
    int rank;     /* of the other side; -1: not known yet */
    int poll;     /* which of the thread's entries for poll() is this connection's; -1: none */
    bool goodbye; /* the other side said it */
    bool listens; /* this beat goes there */
    int64_t since_ns;
    bool proved;     /* a caller of the coordinator: that it has the job's secret */
    rpi_proof proof; /* that it does, so far */
    unsigned char in[RPI_CONTROL_IN_BYTES];
    size_t in_bytes, in_taken; /* received bytes, and of these the bytes taken as records */
    unsigned char *out;        /* not sent yet */
    size_t out_bytes, out_capacity;
    atomic_ullong sends; /* so far: the bytes sent by one call are one message */
} rpi_control_connection;

/* Append a record to the bytes that wait to be sent; one rpi_control_connection_flush() sends
 * them all. RP_PEER: the connection is closed. */
rp_status rpi_control_connection_queue(rpi_control_connection *connection,
                                       const rpi_control_record *record);
/* Queue a record and send as much as the socket takes. RP_PEER: the other side has ended. */
rp_status rpi_control_connection_send(rpi_control_connection *connection,
                                      const rpi_control_record *record);
rp_status rpi_control_connection_flush(rpi_control_connection *connection);
/* The next complete record; RP_PENDING: none yet. RP_PEER: closed or died. RP_CORRUPT: not a
 * record. */
rp_status rpi_control_connection_receive(rpi_control_connection *connection,
                                         rpi_control_record *out_record);
void rpi_control_connection_close(rpi_control_connection *connection);

#endif
