#include "net/store/store_wire.h"

#include "net/bytes/endian.h"

void rpi_store_pack(const rpi_store_header *header, void *bytes) {
    unsigned char *at = bytes;
    rpi_put_u32(at, RPI_STORE_MAGIC);
    at[4] = RPI_STORE_VERSION;
    at[5] = header->operation;
    rpi_put_u16(at + 6, header->key_bytes);
    rpi_put_u32(at + 8, (uint32_t)header->status);
    rpi_put_u32(at + 12, header->value_bytes);
    rpi_put_u64(at + 16, (uint64_t)header->number);
}

rp_status rpi_store_unpack(const void *bytes, rpi_store_header *out_header) {
    const unsigned char *at = bytes;
    if (rpi_get_u32(at) != RPI_STORE_MAGIC)
        return RP_FAIL(CORRUPT, "these are not a redpoll store's bytes");
    if (at[4] != RPI_STORE_VERSION)
        return RP_FAIL(MISMATCH,
                       "the other side speaks version %d of the store's protocol, "
                       "this one %d",
                       at[4], RPI_STORE_VERSION);
    rpi_store_header header = {.operation = at[5],
                               .key_bytes = rpi_get_u16(at + 6),
                               .status = (int32_t)rpi_get_u32(at + 8),
                               .value_bytes = rpi_get_u32(at + 12),
                               .number = (int64_t)rpi_get_u64(at + 16)};
    if (header.operation < RPI_STORE_SET || header.operation > RPI_STORE_COMPARE_SET)
        return RP_FAIL(CORRUPT, "store operation %d does not exist", header.operation);
    uint32_t most = header.operation == RPI_STORE_REPLY         ? RPI_PAGE_BYTES
                    : header.operation == RPI_STORE_COMPARE_SET ? RPI_STORE_COMPARE_BYTES
                                                                : RPI_STORE_VALUE_BYTES;
    if (header.key_bytes >= RPI_STORE_KEY_BYTES || header.value_bytes > most)
        return RP_FAIL(CORRUPT, "a store message announces a key of %u and a value of %u bytes",
                       header.key_bytes, header.value_bytes);
    *out_header = header;
    return RP_OK;
}
