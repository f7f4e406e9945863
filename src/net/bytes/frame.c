#include "net/bytes/frame.h"

#include <string.h>

_Static_assert(sizeof(rpi_frame_header) == RPI_FRAME_HEADER_BYTES, "the header has no padding");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "headers lie in memory as on the wire");

enum { CHECKED_BYTES = offsetof(rpi_frame_header, header_crc) };

bool rpi_frame_may_come(const rpi_frame_header *header, rpi_link_phase phase) {
    const rpi_frame_rule *rule = rpi_frame_rule_of(header->kind);
    return rule && rule->phase == phase && header->bytes >= rule->least_bytes &&
           header->bytes <= rule->most_bytes;
}

void rpi_frame_seal(void *region, const rpi_frame_header *header, size_t payload_bytes,
                    bool checksum) {
    const unsigned char *payload = (const unsigned char *)region + RPI_FRAME_HEADER_BYTES;
    rpi_frame_header sealed = *header;
    sealed.version = RPI_FRAME_VERSION;
    sealed.bytes = (uint32_t)payload_bytes;
    sealed.payload_crc = checksum ? rpi_crc32c(0, payload, payload_bytes) : 0;
    sealed.header_crc = rpi_crc32c(RPI_FRAME_HEADER_CRC_START, &sealed, CHECKED_BYTES);
    memcpy(region, &sealed, sizeof sealed);
}

rp_status rpi_frame_header_read(const void *frame, rpi_frame_header *out_header) {
    rpi_frame_header header;
    memcpy(&header, frame, sizeof header); /* copied first: a peer may share it */
    if (header.version != RPI_FRAME_VERSION)
        return RP_FAIL(CORRUPT,
                       "this is no frame, or one of version %d; this program speaks version %d",
                       header.version, RPI_FRAME_VERSION);
    uint32_t crc = rpi_crc32c(RPI_FRAME_HEADER_CRC_START, &header, CHECKED_BYTES);
    if (crc != header.header_crc)
        return RP_FAIL(CORRUPT, "a frame's header is damaged: its checksum is %08x, not %08x",
                       crc, header.header_crc);
    if (!rpi_frame_rule_of(header.kind))
        return RP_FAIL(CORRUPT, "a frame of unknown kind %d", header.kind);
    *out_header = header;
    return RP_OK;
}

rp_status rpi_frame_open(const void *frame, size_t bytes, bool checksum,
                         rpi_frame_header *out_header) {
    const unsigned char *payload = (const unsigned char *)frame + RPI_FRAME_HEADER_BYTES;
    if (bytes < RPI_FRAME_HEADER_BYTES)
        return RP_FAIL(CORRUPT, "a frame of %zu bytes is shorter than a header (%d)", bytes,
                       RPI_FRAME_HEADER_BYTES);
    rpi_frame_header header;
    RP_TRY(rpi_frame_header_read(frame, &header));
    if (header.bytes != bytes - RPI_FRAME_HEADER_BYTES)
        return RP_FAIL(CORRUPT, "a frame says %u bytes of payload and carries %zu",
                       header.bytes, bytes - RPI_FRAME_HEADER_BYTES);
    if (checksum) {
        uint32_t crc = rpi_crc32c(0, payload, header.bytes);
        if (crc != header.payload_crc)
            return RP_FAIL(CORRUPT,
                           "a frame's payload is damaged: its checksum is %08x, not %08x", crc,
                           header.payload_crc);
    }
    *out_header = header;
    return RP_OK;
}
