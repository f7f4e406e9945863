/* Little-endian numbers at any alignment, for records on the wire. */
#ifndef RPI_NET_ENDIAN_H
#define RPI_NET_ENDIAN_H

#include <stdint.h>

static inline void rpi_put_u16(void *to, uint16_t value) {
    unsigned char *byte = to;
    byte[0] = (unsigned char)value;
    byte[1] = (unsigned char)(value >> 8);
}

static inline void rpi_put_u32(void *to, uint32_t value) {
    unsigned char *byte = to;
    rpi_put_u16(byte, (uint16_t)value);
    rpi_put_u16(byte + 2, (uint16_t)(value >> 16));
}

static inline void rpi_put_u64(void *to, uint64_t value) {
    unsigned char *byte = to;
    rpi_put_u32(byte, (uint32_t)value);
    rpi_put_u32(byte + 4, (uint32_t)(value >> 32));
}

static inline uint16_t rpi_get_u16(const void *from) {
    const unsigned char *byte = from;
    return (uint16_t)(byte[0] | byte[1] << 8);
}

static inline uint32_t rpi_get_u32(const void *from) {
    const unsigned char *byte = from;
    return rpi_get_u16(byte) | (uint32_t)rpi_get_u16(byte + 2) << 16;
}

static inline uint64_t rpi_get_u64(const void *from) {
    const unsigned char *byte = from;
    return rpi_get_u32(byte) | (uint64_t)rpi_get_u32(byte + 4) << 32;
}

#endif
