/* A page of a store: the values of numbered keys ("world/info/0", "world/info/1", ...), read by
 * one request. It implements rp_store_ops.get_page for stores that have a dictionary. */
#ifndef RPI_NET_STORE_PAGE_H
#define RPI_NET_STORE_PAGE_H

#include "net/store/dictionary.h"
#include "redpoll/store.h"

#include <stdbool.h>
#include <stdint.h>

/* Values and their sizes: one value of the greatest length fits. */
enum { RPI_PAGE_BYTES = RPI_STORE_VALUE_BYTES + 4 };

typedef struct rpi_store_page {
    const char *prefix;
    uint32_t first, count;
    uint32_t have; /* number of keys that are set, from the first one on, */
    size_t bytes;  /* and need so much */
} rpi_store_page;

/* RP_INVALID: no such keys can be. */
rp_status rpi_store_page_check(const char *prefix, int64_t first, int64_t count);
/* The `index`-th key; room for RPI_STORE_KEY_BYTES. */
const char *rpi_store_page_key(const rpi_store_page *page, uint32_t index, char *key);
/* Continue counting keys that are set. True: the page is complete, or no more fit. */
bool rpi_store_page_look(rpi_store_page *page, const rpi_dictionary *dictionary);
/* The sizes of its values, 4 bytes each, and then the values: page->bytes in all. */
void rpi_store_page_write(const rpi_store_page *page, const rpi_dictionary *dictionary,
                          unsigned char *bytes);
/* The same for a reader. RP_CORRUPT: these bytes are not a page of at most `count`. */
rp_status rpi_store_page_read(const unsigned char *bytes, size_t length, int64_t have,
                              int count, void *values, size_t capacity, size_t *out_sizes,
                              int *out_got);

/* For any store: by get_page if it has that, else one get() for the first key only. */
rp_status rpi_store_get_page(const rp_store *store, const char *prefix, int first, int count,
                             double timeout_s, void *values, size_t capacity, size_t *out_sizes,
                             int *out_got);

#endif
