#include "net/store/dictionary.h"

#include "base/memory.h"
#include "net/bytes/endian.h"

#include <stdbool.h>
#include <string.h>

enum { FIRST_BUCKETS = 64 };

typedef struct entry {
    struct entry *next;
    uint64_t hash;
    size_t bytes;
    void *value;
    char key[]; /* NUL-terminated */
} entry;

struct rpi_dictionary {
    entry **buckets; /* a power of two of them */
    size_t bucket_count, entries;
};

/* FNV-1a. */
static uint64_t hash_of(const char *key) {
    uint64_t hash = UINT64_C(14695981039346656037);
    for (; *key; key++) hash = (hash ^ (unsigned char)*key) * UINT64_C(1099511628211);
    return hash;
}

static entry **slot_of(const rpi_dictionary *dictionary, const char *key) {
    uint64_t hash = hash_of(key);
    entry **slot = &dictionary->buckets[hash & (dictionary->bucket_count - 1)];
    while (*slot && ((*slot)->hash != hash || strcmp((*slot)->key, key) != 0))
        slot = &(*slot)->next;
    return slot;
}

static void free_entry(entry *old) {
    rpi_free(old->value);
    rpi_free(old);
}

rp_status rpi_store_check(const char *key, size_t value_bytes) {
    if (!key || !*key) return RP_FAIL(INVALID, "a store key must not be empty");
    if (strlen(key) >= RPI_STORE_KEY_BYTES)
        return RP_FAIL(INVALID, "store key '%.40s...' is longer than %d bytes", key,
                       RPI_STORE_KEY_BYTES - 1);
    if (value_bytes > RPI_STORE_VALUE_BYTES)
        return RP_FAIL(INVALID, "value of store key '%s' has %zu bytes; at most %d are allowed",
                       key, value_bytes, RPI_STORE_VALUE_BYTES);
    return RP_OK;
}

rp_status rpi_store_compare_check(const char *key, const void *expected, size_t expected_bytes,
                                  const void *desired, size_t desired_bytes,
                                  const size_t *out_bytes) {
    RP_TRY(rpi_store_check(key, expected_bytes));
    RP_TRY(rpi_store_check(key, desired_bytes));
    if ((expected_bytes && !expected) || (desired_bytes && !desired))
        return RP_FAIL(INVALID, "key '%s': a value to compare or to set is NULL", key);
    if (!out_bytes) return RP_FAIL(INVALID, "bytes is NULL: where a value's size goes");
    return RP_OK;
}

rp_status rpi_dictionary_create(rpi_dictionary **out_dictionary) {
    rpi_dictionary *dictionary = NULL;
    RP_TRY(rpi_alloc(sizeof *dictionary, "a store", &dictionary));
    dictionary->bucket_count = FIRST_BUCKETS;
    rp_status status = rpi_alloc_array(FIRST_BUCKETS, sizeof *dictionary->buckets,
                                       "a store's table", &dictionary->buckets);
    if (status != RP_OK) {
        rpi_free(dictionary);
        return status;
    }
    *out_dictionary = dictionary;
    return RP_OK;
}

void rpi_dictionary_destroy(rpi_dictionary *dictionary) {
    if (!dictionary) return;
    for (size_t i = 0; i < dictionary->bucket_count; i++)
        for (entry *each = dictionary->buckets[i], *next = NULL; each; each = next) {
            next = each->next;
            free_entry(each);
        }
    rpi_free(dictionary->buckets);
    rpi_free(dictionary);
}

/* Doubles the buckets; without memory the chains just stay longer. */
static void grow(rpi_dictionary *dictionary) {
    size_t wider = dictionary->bucket_count * 2;
    entry **buckets = NULL;
    if (rpi_alloc_array(wider, sizeof *buckets, "a store's table", &buckets) != RP_OK) return;
    for (size_t i = 0; i < dictionary->bucket_count; i++)
        for (entry *each = dictionary->buckets[i], *next = NULL; each; each = next) {
            next = each->next;
            entry **head = &buckets[each->hash & (wider - 1)];
            each->next = *head;
            *head = each;
        }
    rpi_free(dictionary->buckets);
    dictionary->buckets = buckets;
    dictionary->bucket_count = wider;
}

static rp_status make_entry(const char *key, entry **out_entry) {
    entry *fresh = NULL;
    size_t key_bytes = strlen(key) + 1;
    RP_TRY(rpi_alloc(sizeof *fresh + key_bytes, "a store entry", &fresh));
    memcpy(fresh->key, key, key_bytes);
    fresh->hash = hash_of(key);
    *out_entry = fresh;
    return RP_OK;
}

rp_status rpi_dictionary_set(rpi_dictionary *dictionary, const char *key, const void *value,
                             size_t bytes) {
    RP_TRY(rpi_store_check(key, bytes));
    void *copy = NULL;
    RP_TRY(rpi_alloc(bytes, "a store value", &copy));
    if (bytes) memcpy(copy, value, bytes);
    entry **slot = slot_of(dictionary, key);
    bool fresh = !*slot;
    if (fresh) {
        rp_status status = make_entry(key, slot);
        if (status != RP_OK) {
            rpi_free(copy);
            return status;
        }
    }
    rpi_free((*slot)->value);
    (*slot)->value = copy;
    (*slot)->bytes = bytes;
    if (fresh && ++dictionary->entries > dictionary->bucket_count) grow(dictionary);
    return RP_OK;
}

const void *rpi_dictionary_get(const rpi_dictionary *dictionary, const char *key,
                               size_t *out_bytes) {
    const entry *found = *slot_of(dictionary, key);
    if (!found) return NULL;
    *out_bytes = found->bytes;
    return found->value;
}

rp_status rpi_dictionary_add(rpi_dictionary *dictionary, const char *key, int64_t amount,
                             int64_t *out_value) {
    unsigned char number[8];
    int64_t value = 0;
    size_t bytes = 0;
    const void *old = rpi_dictionary_get(dictionary, key, &bytes);
    if (old && bytes != sizeof number)
        return RP_FAIL(INVALID, "store key '%s' holds %zu bytes, not a number", key, bytes);
    if (old) value = (int64_t)rpi_get_u64(old);
    value = (int64_t)((uint64_t)value + (uint64_t)amount);
    rpi_put_u64(number, (uint64_t)value);
    RP_TRY(rpi_dictionary_set(dictionary, key, number, sizeof number));
    *out_value = value;
    return RP_OK;
}

rp_status rpi_dictionary_compare_set(rpi_dictionary *dictionary, const char *key,
                                     const void *expected, size_t expected_bytes,
                                     const void *desired, size_t desired_bytes) {
    size_t bytes = 0;
    RP_TRY(rpi_store_check(key, desired_bytes));
    const void *now = rpi_dictionary_get(dictionary, key, &bytes);
    bool same = bytes == expected_bytes && (!bytes || memcmp(now, expected, bytes) == 0);
    return same ? rpi_dictionary_set(dictionary, key, desired, desired_bytes) : RP_OK;
}

void rpi_dictionary_remove(rpi_dictionary *dictionary, const char *key) {
    entry **slot = slot_of(dictionary, key);
    if (!*slot) return;
    entry *old = *slot;
    *slot = old->next;
    free_entry(old);
    dictionary->entries--;
}
