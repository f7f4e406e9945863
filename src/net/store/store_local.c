/* A store in this process's memory: ranks are threads that share it. */
#include "redpoll/store.h"

#include "base/clock.h"
#include "base/fpenv.h"
#include "base/memory.h"
#include "net/store/store_page.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

typedef struct local_store {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* on CLOCK_MONOTONIC */
    rpi_dictionary *dictionary;
} local_store;

static rp_status local_set(void *context, const char *key, const void *value, size_t bytes) {
    local_store *store = context;
    if (bytes && !value) return RP_FAIL(INVALID, "a value of %zu bytes is NULL", bytes);
    pthread_mutex_lock(&store->lock);
    rp_status status = rpi_dictionary_set(store->dictionary, key, value, bytes);
    pthread_cond_broadcast(&store->changed);
    pthread_mutex_unlock(&store->lock);
    return status;
}

/* False once the deadline has come. */
static bool wait_change(local_store *store, int64_t deadline_ns) {
    if (deadline_ns == RPI_NEVER_NS)
        return pthread_cond_wait(&store->changed, &store->lock) == 0;
    struct timespec at = {.tv_sec = deadline_ns / RPI_SECOND_NS,
                          .tv_nsec = deadline_ns % RPI_SECOND_NS};
    return pthread_cond_timedwait(&store->changed, &store->lock, &at) == 0;
}

static rp_status local_get(void *context, const char *key, double timeout_s, void *value,
                           size_t capacity, size_t *bytes) {
    RPI_FPENV_SCOPE;
    local_store *store = context;
    int64_t deadline_ns = rpi_deadline_ns(timeout_s);
    RP_TRY(rpi_store_check(key, 0));
    if (!bytes) return RP_FAIL(INVALID, "bytes is NULL: where a value's size goes");
    pthread_mutex_lock(&store->lock);
    size_t found_bytes = 0;
    const void *found = NULL;
    do found = rpi_dictionary_get(store->dictionary, key, &found_bytes);
    while (!found && wait_change(store, deadline_ns));
    if (!found) found = rpi_dictionary_get(store->dictionary, key, &found_bytes);
    if (found) {
        *bytes = found_bytes;
        if (value) memcpy(value, found, found_bytes < capacity ? found_bytes : capacity);
    }
    pthread_mutex_unlock(&store->lock);
    if (!found)
        return RP_FAIL(TIMEOUT, "timed out: nobody set store key '%s' within %g s", key,
                       timeout_s);
    return RP_OK;
}

static int copy_page(const rpi_store_page *page, const rpi_dictionary *dictionary, void *values,
                     size_t capacity, size_t *sizes) {
    char key[RPI_STORE_KEY_BYTES];
    size_t used = 0, bytes = 0;
    int got = 0;
    for (uint32_t i = 0; i < page->have; i++, used += bytes) {
        const void *value =
            rpi_dictionary_get(dictionary, rpi_store_page_key(page, i, key), &bytes);
        if (bytes > capacity - used) break;
        if (bytes) memcpy((unsigned char *)values + used, value, bytes);
        sizes[got++] = bytes;
    }
    return got;
}

static rp_status local_get_page(void *context, const char *prefix, int first, int count,
                                double timeout_s, void *values, size_t capacity, size_t *sizes,
                                int *got) {
    RPI_FPENV_SCOPE;
    local_store *store = context;
    int64_t deadline_ns = rpi_deadline_ns(timeout_s);
    RP_TRY(rpi_store_page_check(prefix, first, count));
    rpi_store_page page = {
        .prefix = prefix, .first = (uint32_t)first, .count = (uint32_t)count};
    pthread_mutex_lock(&store->lock);
    while (!rpi_store_page_look(&page, store->dictionary) && wait_change(store, deadline_ns)) {
    }
    page.have = 0; /* the key may have been removed or replaced meanwhile */
    page.bytes = 0;
    (void)rpi_store_page_look(&page, store->dictionary);
    int copied = copy_page(&page, store->dictionary, values, capacity, sizes);
    pthread_mutex_unlock(&store->lock);
    if (!copied)
        return RP_FAIL(TIMEOUT, "timed out: nobody set store key '%s%d' within %g s", prefix,
                       first, timeout_s);
    *got = copied;
    return RP_OK;
}

static rp_status local_add(void *context, const char *key, int64_t amount, int64_t *result) {
    local_store *store = context;
    RP_TRY(rpi_store_check(key, 0));
    if (!result) return RP_FAIL(INVALID, "result is NULL: where the new value goes");
    pthread_mutex_lock(&store->lock);
    rp_status status = rpi_dictionary_add(store->dictionary, key, amount, result);
    pthread_cond_broadcast(&store->changed);
    pthread_mutex_unlock(&store->lock);
    return status;
}

static rp_status local_compare_set(void *context, const char *key, const void *expected,
                                   size_t expected_bytes, const void *desired,
                                   size_t desired_bytes, void *value, size_t capacity,
                                   size_t *bytes) {
    local_store *store = context;
    size_t held = 0;
    RP_TRY(
        rpi_store_compare_check(key, expected, expected_bytes, desired, desired_bytes, bytes));
    pthread_mutex_lock(&store->lock);
    rp_status status = rpi_dictionary_compare_set(store->dictionary, key, expected,
                                                  expected_bytes, desired, desired_bytes);
    const void *now = rpi_dictionary_get(store->dictionary, key, &held);
    if (status == RP_OK && value && held) memcpy(value, now, held < capacity ? held : capacity);
    pthread_cond_broadcast(&store->changed);
    pthread_mutex_unlock(&store->lock);
    if (status == RP_OK) *bytes = held;
    return status;
}

static rp_status local_remove(void *context, const char *key) {
    local_store *store = context;
    RP_TRY(rpi_store_check(key, 0));
    pthread_mutex_lock(&store->lock);
    rpi_dictionary_remove(store->dictionary, key);
    pthread_mutex_unlock(&store->lock);
    return RP_OK;
}

static void local_close(void *context) {
    local_store *store = context;
    pthread_cond_destroy(&store->changed);
    pthread_mutex_destroy(&store->lock);
    rpi_dictionary_destroy(store->dictionary);
    rpi_free(store);
}

static const rp_store_ops local_ops = {.set = local_set,
                                       .get = local_get,
                                       .add = local_add,
                                       .remove = local_remove,
                                       .close = local_close,
                                       .get_page = local_get_page,
                                       .compare_set = local_compare_set};

rp_status rp_store_open_local(rp_store *store) {
    if (!store) return RP_FAIL(INVALID, "store is NULL");
    local_store *fresh = NULL;
    RP_TRY(rpi_alloc(sizeof *fresh, "a local store", &fresh));
    rp_status status = rpi_dictionary_create(&fresh->dictionary);
    if (status != RP_OK) {
        rpi_free(fresh);
        return status;
    }
    pthread_mutex_init(&fresh->lock, NULL);
    rpi_condition_init(&fresh->changed);
    *store = (rp_store){.ops = &local_ops, .context = fresh};
    return RP_OK;
}
