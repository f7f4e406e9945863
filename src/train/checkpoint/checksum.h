/* A checksum inside the text that it covers, as one of its JSON members:
 *
 *     "checksum":"crc32c:89abcdef"        CRC-32C of all bytes, these eight digits taken as 0
 */
#ifndef RPI_TRAIN_CHECKSUM_H
#define RPI_TRAIN_CHECKSUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPI_CHECKSUM_KEY   "checksum"
#define RPI_CHECKSUM_BLANK "crc32c:00000000" /* what a writer puts first */
enum { RPI_CHECKSUM_DIGITS = 8 };

/* The digits of the first such member; NULL when there is none. */
char *rpi_checksum_digits(char *text, size_t bytes);

void rpi_checksum_write(char *digits, uint32_t crc);
/* Reads the digits and replaces them by zeros. False: they are not digits. */
bool rpi_checksum_take(char *digits, uint32_t *out_crc);

#endif
