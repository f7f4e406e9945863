#include "net/store/store_shared.h"

#include "base/clock.h"
#include "base/fpenv.h"
#include "base/memory.h"
#include "net/store/store_page.h"

#include <pthread.h>

/* Others wait at most this long for a thread that waits for a key, and less if they came first.
 */
#define SLICE_S       0.05
#define SHORT_SLICE_S 0.001

typedef struct shared_store {
    rp_store inner;
    pthread_mutex_t lock;
    pthread_cond_t turn;
    uint64_t next_ticket, serving; /* [lock] calls are served in the order of arrival */
} shared_store;

static void take_turn(shared_store *store) {
    pthread_mutex_lock(&store->lock);
    uint64_t ticket = store->next_ticket++;
    while (store->serving != ticket) pthread_cond_wait(&store->turn, &store->lock);
    pthread_mutex_unlock(&store->lock);
}

static rp_status end_turn(shared_store *store, rp_status status) {
    pthread_mutex_lock(&store->lock);
    store->serving++;
    pthread_cond_broadcast(&store->turn);
    pthread_mutex_unlock(&store->lock);
    return status;
}

/* How long the next call may take of the rest; *out_is_last: nothing is left afterwards. */
static double slice(shared_store *store, int64_t deadline_ns, bool *out_is_last) {
    pthread_mutex_lock(&store->lock);
    double most_s = store->next_ticket - store->serving > 1 ? SHORT_SLICE_S : SLICE_S;
    pthread_mutex_unlock(&store->lock);
    double left_s = rpi_seconds(deadline_ns - rpi_now_ns());
    *out_is_last = left_s <= most_s;
    return *out_is_last ? (left_s > 0 ? left_s : 0) : most_s;
}

static rp_status shared_set(void *context, const char *key, const void *value, size_t bytes) {
    shared_store *store = context;
    take_turn(store);
    return end_turn(store, store->inner.ops->set(store->inner.context, key, value, bytes));
}

static rp_status shared_get(void *context, const char *key, double timeout_s, void *value,
                            size_t capacity, size_t *bytes) {
    RPI_FPENV_SCOPE;
    shared_store *store = context;
    int64_t deadline_ns = rpi_deadline_ns(timeout_s);
    for (bool is_last = false;;) {
        take_turn(store);
        double wait_s = slice(store, deadline_ns, &is_last);
        rp_status status =
            end_turn(store, store->inner.ops->get(store->inner.context, key, wait_s, value,
                                                  capacity, bytes));
        if (status != RP_TIMEOUT || is_last) return status;
    }
}

/* The key after a short page: a page that ends before it nevertheless is full. */
static bool is_there(shared_store *store, const char *prefix, int next) {
    char key[RPI_STORE_KEY_BYTES];
    size_t bytes = 0;
    rpi_store_page page = {.prefix = prefix, .first = (uint32_t)next};
    rpi_store_page_key(&page, 0, key);
    take_turn(store);
    return end_turn(store, store->inner.ops->get(store->inner.context, key, 0, NULL, 0,
                                                 &bytes)) == RP_OK;
}

static rp_status shared_get_page(void *context, const char *prefix, int first, int count,
                                 double timeout_s, void *values, size_t capacity, size_t *sizes,
                                 int *got) {
    RPI_FPENV_SCOPE;
    shared_store *store = context;
    int64_t deadline_ns = rpi_deadline_ns(timeout_s);
    int full = 0; /* the number to return if the next key was set before */
    for (bool is_last = false;;) {
        take_turn(store);
        double wait_s = slice(store, deadline_ns, &is_last);
        rp_status status =
            end_turn(store, rpi_store_get_page(&store->inner, prefix, first, count, wait_s,
                                               values, capacity, sizes, got));
        if (is_last || (status != RP_OK && status != RP_TIMEOUT)) return status;
        if (status == RP_TIMEOUT) continue;
        if (*got == count || *got == full) return RP_OK;
        full = is_there(store, prefix, first + *got) ? *got : 0;
    }
}

static rp_status shared_add(void *context, const char *key, int64_t amount, int64_t *result) {
    shared_store *store = context;
    take_turn(store);
    return end_turn(store, store->inner.ops->add(store->inner.context, key, amount, result));
}

static rp_status shared_remove(void *context, const char *key) {
    shared_store *store = context;
    take_turn(store);
    return end_turn(store, store->inner.ops->remove(store->inner.context, key));
}

static rp_status shared_compare_set(void *context, const char *key, const void *expected,
                                    size_t expected_bytes, const void *desired,
                                    size_t desired_bytes, void *value, size_t capacity,
                                    size_t *bytes) {
    shared_store *store = context;
    const rp_store *inner = &store->inner;
    take_turn(store);
    return end_turn(store,
                    inner->ops->compare_set(inner->context, key, expected, expected_bytes,
                                            desired, desired_bytes, value, capacity, bytes));
}

static void shared_close(void *context) {
    shared_store *store = context;
    pthread_cond_destroy(&store->turn);
    pthread_mutex_destroy(&store->lock);
    rpi_free(store);
}

static const rp_store_ops shared_ops = {.set = shared_set,
                                        .get = shared_get,
                                        .add = shared_add,
                                        .remove = shared_remove,
                                        .close = shared_close,
                                        .get_page = shared_get_page,
                                        .compare_set = shared_compare_set};

rp_status rpi_store_share(const rp_store *inner, rp_store *out_shared) {
    shared_store *store = NULL;
    if (!inner->ops->compare_set)
        return RP_FAIL(UNSUPPORTED, "this store cannot compare and set (compare_set of its "
                                    "rp_store_ops is NULL), which a world of views needs");
    RP_TRY(rpi_alloc(sizeof *store, "a shared store", &store));
    store->inner = *inner;
    pthread_mutex_init(&store->lock, NULL);
    pthread_cond_init(&store->turn, NULL);
    *out_shared = (rp_store){.ops = &shared_ops, .context = store};
    return RP_OK;
}
