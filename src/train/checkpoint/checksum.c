#include "train/checkpoint/checksum.h"

#include <string.h>

char *rpi_checksum_digits(char *text, size_t bytes) {
    static const char before[] = "\"" RPI_CHECKSUM_KEY "\":\"crc32c:";
    char *found = memmem(text, bytes, before, sizeof before - 1);
    if (!found) return NULL;
    size_t at = (size_t)(found - text) + sizeof before - 1;
    return bytes - at >= RPI_CHECKSUM_DIGITS ? text + at : NULL;
}

void rpi_checksum_write(char *digits, uint32_t crc) {
    for (int i = 0; i < RPI_CHECKSUM_DIGITS; i++)
        digits[i] = "0123456789abcdef"[crc >> (28 - 4 * i) & 15];
}

bool rpi_checksum_take(char *digits, uint32_t *out_crc) {
    static const char hex[] = "0123456789abcdef";
    uint32_t crc = 0;
    for (int i = 0; i < RPI_CHECKSUM_DIGITS; i++) {
        const char *digit = digits[i] ? strchr(hex, digits[i]) : NULL;
        if (!digit) return false;
        crc = crc << 4 | (uint32_t)(digit - hex);
    }
    memset(digits, '0', RPI_CHECKSUM_DIGITS);
    *out_crc = crc;
    return true;
}
