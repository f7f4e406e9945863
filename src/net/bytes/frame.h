/* The frame: the format of every message between ranks. docs/wire.md is normative. */
#ifndef RPI_NET_FRAME_H
#define RPI_NET_FRAME_H

#include "base/status.h"
#include "net/bytes/frame_kinds.h"

#include <stdbool.h>
#include <stddef.h>

enum { RPI_FRAME_VERSION = 3, RPI_FRAME_HEADER_BYTES = 64 };

/* The layout in memory is that on the wire: little-endian, no padding, 64 bytes. */
typedef struct rpi_frame_header {
    uint32_t key; /* identifies the caller's operation in messages */
    uint8_t version;
    uint8_t kind;          /* rpi_frame_kind */
    uint16_t round;        /* of the schedule, for messages; and the bits below */
    uint32_t communicator; /* who has numbered it, */
    uint32_t epoch;        /* the number that it has there; of the world: of its membership */
    uint64_t sequence;     /* of the operation in the communicator */
    uint32_t chunk;
    int32_t part;
    uint64_t count;     /* elements of the whole operation on the sending rank, or of a block */
    uint32_t signature; /* CRC-32C of everything on which ranks must agree */
    uint8_t operation;  /* low four bits: rpi_collective; high four: rp_reduction */
    uint8_t dtype, codec, bits;
    uint32_t bucket;
    uint32_t bytes;       /* of payload */
    uint32_t payload_crc; /* CRC-32C; 0 where the transport needs none */
    uint32_t header_crc;  /* CRC-32C of "RPLL" followed by the 60 bytes before this field */
} rpi_frame_header;

/* Set in round: the payload is exact whatever codec was posted, because it stays on its host.
 */
enum { RPI_FRAME_EXACT = 0x8000 };
/* Set in the first barrier and the FIN of a communicator that is made from another: if the
 * receiver has not opened it yet, it will. */
enum { RPI_FRAME_BEFORE_OPEN = 0x4000 };

/* The checksum of a header starts from this CRC-32C of "RPLL", so a header with the right
 * checksum comes from this library. */
#define RPI_FRAME_HEADER_CRC_START UINT32_C(0x22b4cdc3)

/* count of a FIN: the communicator was never made, and nobody destroyed it. */
enum { RPI_FIN_VOID = 1 };

/* CRC-32C (Castagnoli), by hardware if it has an instruction. Start with crc 0. */
uint32_t rpi_crc32c(uint32_t crc, const void *data, size_t bytes);

/* The round of a schedule in a frame: only the low bits of it, since it is for messages. */
enum { RPI_FRAME_ROUNDS = 0x3fff };

static inline uint16_t rpi_frame_round(unsigned round) {
    return (uint16_t)(round & RPI_FRAME_ROUNDS);
}

/* Whether a frame of this kind, with a payload of this length, may come in this state of a
 * link. */
bool rpi_frame_may_come(const rpi_frame_header *header, rpi_link_phase phase);

/* Fill in version, payload length and checksums of a frame in a region: the header, directly
 * followed by `payload_bytes` of payload. */
void rpi_frame_seal(void *region, const rpi_frame_header *header, size_t payload_bytes,
                    bool checksum);
/* Check and read only a header; its payload may not have arrived yet. */
rp_status rpi_frame_header_read(const void *frame, rpi_frame_header *out_header);
/* Check a frame and read its header; RP_CORRUPT says which check failed. */
rp_status rpi_frame_open(const void *frame, size_t bytes, bool checksum,
                         rpi_frame_header *out_header);

#endif
