#include "net/store/store_page.h"

#include "net/bytes/endian.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { SIZE_BYTES = 4, NUMBER_BYTES = 10 };

rp_status rpi_store_page_check(const char *prefix, int64_t first, int64_t count) {
    RP_TRY(rpi_store_check(prefix, 0));
    if (strlen(prefix) + NUMBER_BYTES >= RPI_STORE_KEY_BYTES)
        return RP_FAIL(INVALID, "the store key '%.40s...' is too long to be numbered", prefix);
    if (first < 0 || count < 1 || first + count > INT_MAX)
        return RP_FAIL(INVALID, "%lld store keys from number %lld on; 1 or more from 0 on",
                       (long long)count, (long long)first);
    return RP_OK;
}

const char *rpi_store_page_key(const rpi_store_page *page, uint32_t index, char *key) {
    snprintf(key, RPI_STORE_KEY_BYTES, "%s%u", page->prefix, page->first + index);
    return key;
}

bool rpi_store_page_look(rpi_store_page *page, const rpi_dictionary *dictionary) {
    char key[RPI_STORE_KEY_BYTES];
    for (; page->have < page->count; page->have++) {
        size_t bytes = 0;
        if (!rpi_dictionary_get(dictionary, rpi_store_page_key(page, page->have, key), &bytes))
            return false;
        if (page->bytes + SIZE_BYTES + bytes > RPI_PAGE_BYTES) return true;
        page->bytes += SIZE_BYTES + bytes;
    }
    return true;
}

void rpi_store_page_write(const rpi_store_page *page, const rpi_dictionary *dictionary,
                          unsigned char *bytes) {
    unsigned char *next = bytes + (size_t)page->have * SIZE_BYTES;
    char key[RPI_STORE_KEY_BYTES];
    for (uint32_t i = 0; i < page->have; i++) {
        size_t size = 0;
        const void *value =
            rpi_dictionary_get(dictionary, rpi_store_page_key(page, i, key), &size);
        rpi_put_u32(bytes + (size_t)i * SIZE_BYTES, (uint32_t)size);
        if (size) memcpy(next, value, size);
        next += size;
    }
}

rp_status rpi_store_page_read(const unsigned char *bytes, size_t length, int64_t have,
                              int count, void *values, size_t capacity, size_t *out_sizes,
                              int *out_got) {
    if (have < 1 || have > count || (uint64_t)have * SIZE_BYTES > length)
        return RP_FAIL(CORRUPT, "a page of %lld values in %zu bytes; %d were asked for",
                       (long long)have, length, count);
    size_t used = 0, room = length - (size_t)have * SIZE_BYTES;
    const unsigned char *next = bytes + (size_t)have * SIZE_BYTES;
    int got = 0;
    for (int i = 0; i < (int)have; i++) {
        size_t size = rpi_get_u32(bytes + (size_t)i * SIZE_BYTES);
        if (size > room - used)
            return RP_FAIL(CORRUPT, "a page that ends inside of its value %d", i);
        if (got == i && size <= capacity - used) { /* else it is asked for again */
            if (size) memcpy((unsigned char *)values + used, next + used, size);
            out_sizes[got++] = size;
        }
        used += size;
        if (got <= i) break;
    }
    *out_got = got;
    return RP_OK;
}

rp_status rpi_store_get_page(const rp_store *store, const char *prefix, int first, int count,
                             double timeout_s, void *values, size_t capacity, size_t *out_sizes,
                             int *out_got) {
    char key[RPI_STORE_KEY_BYTES];
    size_t bytes = 0;
    RP_TRY(rpi_store_page_check(prefix, first, count));
    if (capacity < RPI_STORE_VALUE_BYTES)
        return RP_FAIL(INVALID, "%zu bytes for a page of a store; %d are needed", capacity,
                       RPI_STORE_VALUE_BYTES);
    *out_got = 0;
    if (store->ops->get_page) {
        RP_TRY(store->ops->get_page(store->context, prefix, first, count, timeout_s, values,
                                    capacity, out_sizes, out_got));
        if (*out_got >= 1 && *out_got <= count) return RP_OK;
        return RP_FAIL(CORRUPT, "a page of %d values of the store; 1 to %d were asked for",
                       *out_got, count);
    }
    snprintf(key, sizeof key, "%s%d", prefix, first);
    RP_TRY(store->ops->get(store->context, key, timeout_s, values, capacity, &bytes));
    out_sizes[0] = bytes < capacity ? bytes : capacity;
    *out_got = 1;
    return RP_OK;
}
