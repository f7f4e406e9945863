/* What a store, or whatever listens there, answers to its client. */
#include "fuzz_input.h"

#include "net/store/store_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    rpi_store_header header;
    unsigned char again[RPI_STORE_HEADER_BYTES];
    if (bytes < RPI_STORE_HEADER_BYTES) return 0;
    if (rpi_store_unpack(data, &header) == RP_OK) rpi_store_pack(&header, again);
    return 0;
}
