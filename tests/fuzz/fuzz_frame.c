/* A frame from a peer, also behind a header whose checksum is right. */
#include "fuzz_input.h"

#include "net/bytes/endian.h"
#include "net/bytes/frame.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    unsigned char frame[4096];
    rpi_frame_header header;
    if (bytes > sizeof frame) return 0;
    memcpy(frame, data, bytes);
    (void)rpi_frame_open(frame, bytes, true, &header);
    if (bytes < RPI_FRAME_HEADER_BYTES) return 0;
    rpi_put_u32(frame + 60, rpi_crc32c(RPI_FRAME_HEADER_CRC_START, frame, 60));
    (void)rpi_frame_header_read(frame, &header);
    (void)rpi_frame_open(frame, bytes, true, &header);
    (void)rpi_frame_open(frame, bytes, false, &header);
    return 0;
}
