/* The keys and values of a store: a hash table from names to bytes. Not locked. */
#ifndef RPI_NET_DICTIONARY_H
#define RPI_NET_DICTIONARY_H

#include "base/status.h"

#include <stddef.h>

enum { RPI_STORE_VALUE_BYTES = 64 * 1024, RPI_STORE_KEY_BYTES = 256 }; /* key: with its NUL */

typedef struct rpi_dictionary rpi_dictionary;

rp_status rpi_dictionary_create(rpi_dictionary **out_dictionary);
void rpi_dictionary_destroy(rpi_dictionary *dictionary);
/* RP_INVALID: an empty or too long key, or a value above RPI_STORE_VALUE_BYTES. */
rp_status rpi_store_check(const char *key, size_t value_bytes);
/* The arguments of a rp_store_ops.compare_set. */
rp_status rpi_store_compare_check(const char *key, const void *expected, size_t expected_bytes,
                                  const void *desired, size_t desired_bytes,
                                  const size_t *out_bytes);
rp_status rpi_dictionary_set(rpi_dictionary *dictionary, const char *key, const void *value,
                             size_t bytes);
/* The value in place, until the next change; NULL if absent. */
const void *rpi_dictionary_get(const rpi_dictionary *dictionary, const char *key,
                               size_t *out_bytes);
/* A number is 8 bytes, little-endian. RP_INVALID if the key has something else. */
rp_status rpi_dictionary_add(rpi_dictionary *dictionary, const char *key, int64_t amount,
                             int64_t *out_value);
/* Sets the key if its value is exactly `expected` (0 bytes: absent or empty). The value
 * afterwards is read by rpi_dictionary_get(). */
rp_status rpi_dictionary_compare_set(rpi_dictionary *dictionary, const char *key,
                                     const void *expected, size_t expected_bytes,
                                     const void *desired, size_t desired_bytes);
void rpi_dictionary_remove(rpi_dictionary *dictionary, const char *key);

#endif
