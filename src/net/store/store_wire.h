/* The store's messages, as docs/wire.md defines them: a header, then the key, then the value.
 */
#ifndef RPI_NET_STORE_WIRE_H
#define RPI_NET_STORE_WIRE_H

#include "net/store/store_page.h"

#include <stdbool.h>

#define RPI_STORE_MAGIC UINT32_C(0x54535052) /* "RPST" */
enum { RPI_STORE_VERSION = 1, RPI_STORE_HEADER_BYTES = 24 };

typedef enum rpi_store_operation {
    RPI_STORE_SET = 1,
    RPI_STORE_GET,
    RPI_STORE_ADD,
    RPI_STORE_REMOVE,
    RPI_STORE_REPLY,
    RPI_STORE_GET_PAGE,
    RPI_STORE_COMPARE_SET,
} rpi_store_operation;

typedef struct rpi_store_header {
    uint8_t operation;
    uint16_t key_bytes;   /* requests: without a NUL; replies: 0 */
    int32_t status;       /* replies: rp_status; requests: 0 */
    uint32_t value_bytes; /* of set, of a reply to get or compare set, or of a refusal's text;
                             of compare set: 4 bytes that say how many of the next ones are
                             expected, those, and what is to be set */
    int64_t number;       /* get and get page: milliseconds to wait, negative for ever; add: the
                             amount, and in its reply the new value; in that to get page how many */
} rpi_store_header;

/* For a compare set: both values, and a length. */
enum { RPI_STORE_COMPARE_BYTES = 4 + 2 * RPI_STORE_VALUE_BYTES };

void rpi_store_pack(const rpi_store_header *header, void *bytes);
/* RP_CORRUPT says what is wrong with the 24 bytes: lengths in a valid header are within limits.
 */
rp_status rpi_store_unpack(const void *bytes, rpi_store_header *out_header);

#endif
